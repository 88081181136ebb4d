// Generated from crate/src/request.rs and crate/src/protocol.rs. Do not edit.

/** First byte of each request. */
export const Op = {
  use: 0x01,
  useIndexes: 0x02,
  schemaJoin: 0x03,
  schemaProgress: 0x04,
  schemaEnd: 0x05,
  get: 0x10,
  getMany: 0x11,
  hasMany: 0x12,
  count: 0x13,
  at: 0x14,
  rank: 0x15,
  edge: 0x16,
  entry: 0x17,
  scanOpen: 0x18,
  scanNext: 0x19,
  scanSeek: 0x1a,
  scanClose: 0x1b,
  nextExpiry: 0x1c,
  snapshotOpen: 0x20,
  snapshotClose: 0x21,
  transactionOpen: 0x22,
  transactionCommit: 0x23,
  transactionClose: 0x24,
  savepoint: 0x25,
  rollbackTo: 0x26,
  within: 0x27,
  changesOpen: 0x28,
  changesNext: 0x29,
  changesClose: 0x2a,
  changesReady: 0x2b,
  collections: 0x35,
  flush: 0x40,
  stats: 0x41,
  verify: 0x42,
  purge: 0x43,
  refresh: 0x44,
  backupOpen: 0x45,
  backupNext: 0x46,
  backupClose: 0x47,
  compact: 0x48,
  verifyClose: 0x49,
  layout: 0x4a,
  close: 0x4f,
  declareIndexes: 0x50,
  dropIndex: 0x51,
  indexes: 0x52,
  indexSlice: 0x53,
  indexCount: 0x54,
  indexAt: 0x55,
  indexScan: 0x56,
  lazy: 0x60,
  set: 0x30,
  delete: 0x31,
  clear: 0x32,
  batch: 0x33,
  drop: 0x34,
  getOrInsert: 0x36,
  rename: 0x37,
} as const;

/** First byte of the body of `lazy`. */
export const LazyOp = {
  read: 0x01,
  append: 0x02,
  store: 0x03,
  discard: 0x04,
  changeKey: 0x05,
  reencrypt: 0x06,
} as const;

/** Ends of a range. */
export const RangeFlag = {
  hasLower: 0x01,
  lowerExclusive: 0x02,
  hasUpper: 0x04,
  upperExclusive: 0x08,
} as const;

/** Direction, content and end of a scan. */
export const ScanFlag = {
  reverse: 0x01,
  keys: 0x02,
  values: 0x04,
  keep: 0x08,
  meta: 0x10,
} as const;

/** Changes of a batch. */
export const BatchKind = {
  set: 0x00,
  delete: 0x01,
  setExpiring: 0x02,
  check: 0x03,
  setIndexed: 0x04,
} as const;

/** First byte of each reply. */
export const ReplyStatus = {
  ok: 0x00,
  failed: 0x01,
  again: 0x02,
} as const;

/** How a client's schema version stands to that of the database. */
export const SchemaStanding = {
  current: 0x00,
  upgrades: 0x01,
  waits: 0x02,
  newer: 0x03,
  interrupted: 0x04,
} as const;

/** What follows an error's message. */
export const ErrorFlag = {
  retryable: 0x01,
  hasKeys: 0x02,
} as const;

/** What is left to do after a message. */
export const ExecuteFlag = {
  awaitsFlush: 0x01,
  needsFlush: 0x02,
  lacksLazy: 0x04,
  isCut: 0x08,
  owesFlush: 0x10,
} as const;

/** Places in the engine's frame of 32-bit words: each part has an address and a length in bytes, but for the cut, which has a place in the message and a number of replies. */
export const FramePart = {
  request: 0x00,
  reply: 0x02,
  state: 0x04,
  wakes: 0x06,
  cut: 0x08,
} as const;
