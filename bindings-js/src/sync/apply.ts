// Applies records of the log to the base, in the log's order. What becomes of the base depends on
// the records and the log's clock alone: all devices get the same.
import { KvError } from '../base/errors.ts';
import type { Transaction } from '../types/index.ts';
import { compareBytes, concat, crc32c, fromHex, toHex } from './bytes.ts';
import { clamp, toHlc } from './clock.ts';
import { Model } from './model.ts';
import type { Row } from './model.ts';
import { CHUNK, FENCE, REPAIR, STRICT, decodeTransactions } from './record.ts';
import type { OpStamp, SyncOp, SyncTransaction } from './record.ts';
import { NOTHING_APPLIED, decodeOutbox, follow } from './rows.ts';
import type { AppliedRow, BaseValue, SyncState } from './rows.ts';
import { deviceOf, withNewId } from './tables.ts';
import type { Bytes, Table, Tables } from './tables.ts';
import type { Unread } from './unread.ts';

/** Tombstones older than this are forgotten: how long a device may be offline. */
export const OFFLINE_LIMIT_MS = 90 * 24 * 3600 * 1000;

/** A record as it was read from the log, without seal and compression, its blobs fetched. */
export interface ReadRecord {
  readonly position: number;
  readonly serverTime: number;
  readonly crc: number;
  /** It cannot be read: nothing but the cursor changes. */
  readonly isPassedOver?: boolean;
  readonly flags: number;
  readonly device: bigint;
  readonly seq: number;
  /** As its writer has it in the outbox. */
  readonly body: Bytes;
}

/** A write of this device lost against one that did not know it. Values are stored bytes. */
export interface RawConflict {
  readonly collection: string;
  readonly key: Bytes;
  /** Null: a delete. */
  readonly mine: BaseValue;
  readonly theirs: BaseValue;
}

export interface Applied {
  readonly conflicts: readonly RawConflict[];
  /** The id is another one now: a record under it was not this device's, or the log has lost one of its own. */
  readonly isRenumbered: boolean;
  /** Records that were missing; they were passed over. */
  readonly gaps: readonly { readonly device: string; readonly from: number; readonly to: number }[];
  /** Why records have no effect, whose checksums are right. */
  readonly refused: readonly KvError[];
  /** Another device became the only writer. */
  readonly fencedBy: string | undefined;
}

export interface ApplyOptions {
  readonly now: number;
  readonly unread: Unread;
  /** Pass over missing records instead of failing with KV_SYNC_GAP. */
  readonly isGapAccepted?: boolean;
  /** Large values that were fetched, by hexadecimal hash. */
  readonly blobs?: ReadonlyMap<string, Bytes> | undefined;
}

/** An operation with a large value. */
export type BlobOp = Extract<SyncOp, { readonly type: 'blob' }>;

/** Large values have to be fetched before the record can be applied. */
export class MissingBlobs extends Error {
  /** Of the record in the batch. */
  readonly index: number;
  readonly ops: readonly BlobOp[];

  constructor(index: number, ops: readonly BlobOp[]) {
    super('large values have to be fetched');
    this.index = index;
    this.ops = ops;
  }
}

/** Large values of collections that this device has. */
export function blobsIn(tables: Tables, transactions: readonly SyncTransaction[]): BlobOp[] {
  return transactions.flatMap(({ ops }) => ops.filter((op) => op.type === 'blob' && tables.find(op.collection) !== undefined) as BlobOp[]);
}

interface Pass {
  readonly tables: Tables;
  readonly model: Model;
  readonly now: number;
  readonly blobs: ReadonlyMap<string, Bytes>;
  state: SyncState;
  hlc: bigint;
  readonly conflicts: RawConflict[];
}

/** What one operation is, independent of the record that it is in. */
interface Write {
  readonly h: bigint;
  readonly device: bigint;
  readonly base: number;
  readonly position: number;
  readonly isStrict: boolean;
  /** The stamp is the operation's own: nothing but stamps decides. */
  readonly isRepair: boolean;
  readonly isOwn: boolean;
  readonly horizon: bigint;
}

export const toBase = (op: SyncOp): BaseValue => (op.type === 'set' ? { value: op.value, expiresAt: op.expiresAt } : null);

function isForgotten(row: Row, horizon: bigint): boolean {
  return row.stamp?.isDead === true && row.stamp.h < horizon;
}

/** Whether a write takes the place of the base's value, and with which stamp. */
function decide(row: Row, write: Write, epoch: number, value: BaseValue): OpStamp | 'same' | undefined {
  const { h, device, isStrict } = write;
  const { stamp } = row;
  const won = (least: bigint): OpStamp => ({ h: h > least ? h : least, device, isStrict });
  if (stamp === undefined || isForgotten(row, write.horizon)) return won(0n);
  const isKnown = stamp.epoch === epoch;
  if (!write.isRepair) {
    // What the log has lost does not count against what it has.
    if (isStrict) return won(isKnown ? stamp.h + 1n : 0n);
    // The writer knew the value: its write is newer, whatever the clocks say.
    if (isKnown && (stamp.device === device || stamp.position <= write.base)) return won(stamp.h + 1n);
  }
  if (h !== stamp.h) return h > stamp.h ? won(0n) : undefined;
  if (device !== stamp.device) return device > stamp.device ? won(0n) : undefined;
  if (!write.isRepair || !row.isClean) return 'same';
  const order = compareBytes(value?.value ?? new Uint8Array(0), row.entry?.value ?? new Uint8Array(0));
  return order > 0 ? won(0n) : 'same';
}

/** Applies one write to one key. */
function applyWrite(pass: Pass, row: Row, value: BaseValue, write: Write): void {
  const { state, now } = pass;
  const { stamp: previous } = row;
  const outcome = decide(row, write, state.epoch, value);
  if (outcome === undefined) return;
  if (outcome === 'same') {
    if (previous !== undefined && previous.epoch !== state.epoch) row.setStamp({ ...previous, position: write.position, epoch: state.epoch });
    return;
  }
  if (outcome.h > pass.hlc) pass.hlc = outcome.h;
  const isMineLost = previous !== undefined && previous.device === deviceOf(state) && !write.isOwn && !write.isRepair
    && previous.epoch === state.epoch && write.base < previous.position;
  if (isMineLost && row.isClean && !isSameValue(row.entry, value)) {
    pass.conflicts.push({ collection: row.table.name, key: row.key, mine: row.entry, theirs: value });
  }
  row.setStamp({ ...outcome, position: write.position, isDead: value === null, expiresAt: value?.expiresAt ?? 0, epoch: state.epoch, check: checkOf(value) });
  if (write.isOwn && row.overlay !== undefined) {
    // The entry has this value, or that of a later local write: `settle` finds out.
    row.setOverlay({ ...row.overlay, base: undefined });
    return;
  }
  putBase(row, value, now);
}

/** See `Stamp.check`. Large values of this device's own records are not there to be looked at. */
export function checkOf(value: BaseValue): number {
  return value === null || value.value === UNKNOWN_BYTES ? 0 : crc32c(value.value) + 1;
}

/** Makes a value the base's: at once, or under a local write. */
export function putBase(row: Row, value: BaseValue, now: number): void {
  if (row.isStrict || row.isClean) {
    row.setEntry(isExpired(value, now) ? null : value);
    row.isClean = true;
  } else {
    row.setOverlay({ ...(row.overlay ?? NEVER_READ), base: value });
  }
}

const NEVER_READ = { ticket: 0, captured: 0, isDelete: false, expiresAt: 0 } as const;

const isExpired = (value: BaseValue, now: number): boolean => value !== null && value.expiresAt !== 0 && value.expiresAt <= now;

export function isSameValue(a: BaseValue, b: BaseValue): boolean {
  if (a === null || b === null) return a === b;
  return a.expiresAt === b.expiresAt && compareBytes(a.value, b.value) === 0;
}

/** Whether the entry is what the record in the outbox says, not a later local write. */
function isEntryCaptured(row: Row, now: number): boolean {
  const overlay = row.overlay;
  if (overlay === undefined) return true;
  if (row.isUnread) return false;
  if (row.entry === null) return overlay.isDelete || (overlay.expiresAt !== 0 && overlay.expiresAt <= now);
  return !overlay.isDelete && row.entryVersion === (overlay.captured || row.overlayVersion);
}

/**
 * A key that the confirmed record `ticket` of this device writes: the entry leaves the overlay
 * unless there are later local writes. `lost` is called if another device's write is the base's.
 */
export function settle(row: Row, ticket: number, now: number, lost: (mine: BaseValue, theirs: BaseValue) => void): void {
  const { overlay } = row;
  if (overlay === undefined || overlay.ticket > ticket) return;
  const { base } = overlay;
  if (!isEntryCaptured(row, now)) {
    if (overlay.ticket !== 0) row.setOverlay({ ...overlay, ticket: 0 });
    return;
  }
  if (base === undefined) return row.becomeClean();
  // Another device's write came first and won.
  const mine = row.entry;
  if (!isSameValue(mine, base)) {
    row.setEntry(isExpired(base, now) ? null : base);
    lost(mine, base);
  }
  row.becomeClean();
}

async function loadAll(pass: Pass, transactions: readonly SyncTransaction[]): Promise<void> {
  const points: { table: Table; key: Bytes }[] = [];
  for (const { ops } of transactions) {
    for (const op of ops) {
      if (pass.tables.pace.isDue) await pass.tables.pace.rest();
      const table = pass.tables.find(op.collection);
      if (table === undefined) continue;
      if (op.type === 'clear') await pass.model.loadRange(table, op.lower, op.upper);
      else points.push({ table, key: op.key });
    }
  }
  await pass.model.load(points);
}

const UNKNOWN_BYTES: Bytes = new Uint8Array(0);

function withBlob(op: SyncOp, blobs: ReadonlyMap<string, Bytes>): SyncOp {
  if (op.type !== 'blob') return op;
  return { type: 'set', collection: op.collection, key: op.key, value: blobs.get(toHexBytes(op.hash)) ?? UNKNOWN_BYTES, expiresAt: op.expiresAt, ...(op.stamp && { stamp: op.stamp }) };
}

export const toHexBytes = (bytes: Bytes): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');

async function applyTransactions(pass: Pass, record: ReadRecord, transactions: readonly SyncTransaction[], ticket: number | undefined): Promise<void> {
  const { model, tables, now } = pass;
  const isRepair = (record.flags & REPAIR) !== 0;
  const isOwn = ticket !== undefined && !isRepair;
  const mode = record.flags & STRICT ? 'strict' : 'merge';
  const horizon = toHlc(pass.state.highTime - OFFLINE_LIMIT_MS);
  const touched = new Set<Row>();
  for (const { base, hlc, ops } of transactions) {
    const write = { h: clamp(hlc, record.serverTime), device: record.device, base, position: record.position, isStrict: mode === 'strict', isRepair, isOwn, horizon };
    for (const given of ops) {
      if (tables.pace.isDue) await tables.pace.rest();
      const table = tables.find(given.collection);
      // Repairs have stamps of both modes.
      if (table === undefined || !(isRepair || tables.takes(table, mode, given.type === 'clear' ? undefined : given.key))) continue;
      if (given.type === 'clear') {
        for (const row of model.within(table, given.lower, given.upper)) {
          if (!isRepair && row.isStrict !== write.isStrict) continue;
          if (row.overlay !== undefined) touched.add(row);
          if (row.stamp === undefined || row.stamp.isDead) continue;
          applyWrite(pass, row, null, write);
          touched.add(row);
        }
        continue;
      }
      const op = withBlob(given, pass.blobs);
      if (op.type === 'clear') continue;
      const row = model.row(table, op.key);
      const stamped = isRepair && op.stamp !== undefined ? { ...write, h: clamp(op.stamp.h, record.serverTime), device: op.stamp.device, isStrict: op.stamp.isStrict } : write;
      applyWrite(pass, row, toBase(op), stamped);
      touched.add(row);
    }
  }
  if (!isOwn) return;
  for (const row of touched) {
    if (tables.pace.isDue) await tables.pace.rest();
    if (row.isStrict) continue;
    settle(row, ticket, now, (mine, theirs) => pass.conflicts.push({ collection: row.table.name, key: row.key, mine, theirs }));
  }
}

/** Applies records that follow the cursor. One commit: all of it or nothing, and once. */
export async function applyRecords(tx: Transaction, tables: Tables, before: SyncState, records: readonly ReadRecord[], options: ApplyOptions): Promise<{ readonly state: SyncState; readonly result: Applied }> {
  const { now, unread, isGapAccepted = false, blobs = new Map<string, Bytes>() } = options;
  const pass: Pass = { tables, model: new Model(tx, tables, now, unread), now, blobs, state: before, hlc: fromHex(before.hlc), conflicts: [] };
  const [applied, outbox, chunks] = [tx.collection(tables.applied), tx.collection(tables.outbox), tx.collection(tables.chunks)];
  const gaps: { device: string; from: number; to: number }[] = [];
  const refused: KvError[] = [];
  let [isRenumbered, fencedBy]: [boolean, string | undefined] = [false, undefined];
  const lasts = new Map<string, AppliedRow>();
  for (const [index, record] of records.entries()) {
    await tables.pace.rest();
    const device = toHex(record.device);
    const known = lasts.get(device) ?? await applied.get(device) ?? NOTHING_APPLIED;
    const [last] = known;
    const { position, serverTime, crc } = record;
    const moved: SyncState = { ...pass.state, cursor: { position, serverTime, crc }, highTime: Math.max(pass.state.highTime, serverTime) };
    if (record.isPassedOver === true || record.seq <= last) {
      pass.state = moved;
      continue;
    }
    if (record.seq > last + 1) {
      if (!isGapAccepted) {
        throw new KvError('KV_SYNC_GAP', `the log has no record ${last + 1} of device ${device}, but record ${record.seq} at position ${position}; records are missing`, { retryable: true });
      }
      gaps.push({ device, from: last + 1, to: record.seq - 1 });
    }
    pass.state = moved;
    lasts.set(device, follow(known, record.seq, record.body));
    const ticket = await ticketOf(pass.state, record, (at) => outbox.get(at));
    if (ticket !== undefined) {
      // Parts stay until all of them are there: under another id, all of them are sent again.
      const part = partOf(record);
      if (part.left === 0) tables.defer(outbox.clear({ gte: ticket - part.index, lte: ticket }));
      // The log has lost one before it, which can have no number after this one's but under another id.
      if (record.seq > last + 1 && await outbox.first({ gte: ticket - (record.seq - last - 1), lt: ticket - part.index }) !== undefined) {
        pass.state = withNewId(pass.state);
        isRenumbered = true;
      }
    } else if (device === pass.state.device) {
      pass.state = withNewId(pass.state);
      isRenumbered = true;
    }
    if (record.flags & FENCE) {
      pass.state = { ...pass.state, fence: device };
      if (device !== pass.state.device) fencedBy = device;
    }
    let transactions: readonly SyncTransaction[] | undefined;
    try {
      transactions = await transactionsIn(tables, chunks, device, record);
    } catch (error) {
      const { code, message } = error as KvError;
      if (code !== 'KV_CORRUPT' && code !== 'KV_KEY_TOO_LARGE') throw error;
      refused.push(new KvError(code, `the record at position ${position}, number ${record.seq} of device ${device}, has no effect here: ${message}`));
    }
    if (transactions === undefined) continue;
    // The device that wrote a value has it as its entry.
    const missing = ticket !== undefined ? [] : blobsIn(tables, transactions).filter(({ hash }) => !blobs.has(toHexBytes(hash)));
    if (missing.length > 0) throw new MissingBlobs(index, missing);
    await loadAll(pass, transactions);
    await applyTransactions(pass, record, transactions, ticket);
  }
  tables.defer(applied.setMany([...lasts]));
  await pass.model.save();
  return { state: { ...pass.state, hlc: toHex(pass.hlc) }, result: { conflicts: pass.conflicts, isRenumbered, gaps, refused, fencedBy } };
}

/** The transactions that a record has or completes; undefined: more parts follow, or one is missing. */
async function transactionsIn(tables: Tables, chunks: Chunks, device: string, record: ReadRecord): Promise<readonly SyncTransaction[] | undefined> {
  const body = record.flags & CHUNK ? await joinChunks(chunks, device, record) : record.body;
  if (body === undefined) return undefined;
  await tables.pace.rest();
  const transactions = decodeTransactions(body);
  const maxBytes = await tables.maxKeyBytes();
  for (const { ops } of transactions) {
    for (const op of ops) {
      if (op.type === 'clear' || op.key.length <= maxBytes || tables.find(op.collection) === undefined) continue;
      throw new KvError('KV_KEY_TOO_LARGE', `a key of ${op.key.length} bytes in collection ${JSON.stringify(op.collection)}, and this database takes ${maxBytes}; a larger \`nodeBytes\` takes longer ones`);
    }
  }
  return transactions;
}

/** The ticket of a record if this device wrote it, under its present id or an earlier one. */
async function ticketOf(state: SyncState, record: ReadRecord, rowAt: (ticket: number) => Promise<Bytes | undefined>): Promise<number | undefined> {
  const device = toHex(record.device);
  for (const id of [{ device: state.device, offset: state.offset }, ...state.formers]) {
    if (id.device !== device || id.offset === undefined) continue;
    const ticket = record.seq + id.offset;
    const row = await rowAt(ticket);
    if (row !== undefined && compareBytes(decodeOutbox(row).body, record.body) === 0) return ticket;
  }
  return undefined;
}

interface Chunks {
  set(key: readonly [string, number], part: Bytes): Promise<void>;
  get(key: readonly [string, number]): Promise<Bytes | undefined>;
  delete(key: readonly [string, number]): Promise<boolean>;
}

/** Keeps a part; returns the whole with the last one. A part begins with its number and how many follow it. */
async function joinChunks(chunks: Chunks, device: string, record: ReadRecord): Promise<Bytes | undefined> {
  const { index, left, part } = readChunk(record.body);
  if (left > 0) {
    await chunks.set([device, record.seq], part);
    return undefined;
  }
  const parts: Bytes[] = [];
  for (let seq = record.seq - index; seq < record.seq; seq++) {
    const each = await chunks.get([device, seq]);
    // Passed over as missing: without it the rest is useless.
    if (each === undefined) return undefined;
    parts.push(each);
    await chunks.delete([device, seq]);
  }
  return concat([...parts, part]);
}

/** Which part of a body a record has, and how many follow it. */
export function partOf({ flags, body }: { readonly flags: number; readonly body: Bytes }): { readonly index: number; readonly left: number } {
  return flags & CHUNK ? readChunk(body) : { index: 0, left: 0 };
}

function readChunk(body: Bytes): { readonly index: number; readonly left: number; readonly part: Bytes } {
  if (body.length < 8) throw new KvError('KV_CORRUPT', 'a part of a sync record is too short');
  const view = new DataView(body.buffer, body.byteOffset);
  return { index: view.getUint32(0), left: view.getUint32(4), part: body.slice(8) };
}

export function chunksOf(body: Bytes, maxBytes: number): Bytes[] {
  const count = Math.ceil(body.length / maxBytes);
  return Array.from({ length: count }, (_, index) => {
    const part = body.subarray(index * maxBytes, (index + 1) * maxBytes);
    const chunk = new Uint8Array(8 + part.length);
    const view = new DataView(chunk.buffer);
    view.setUint32(0, index);
    view.setUint32(4, count - 1 - index);
    chunk.set(part, 8);
    return chunk;
  });
}
