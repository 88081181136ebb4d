// perf.utT0.ts
import { open } from "mangrove-kv";

// src/base/errors.ts
var KvError = class extends Error {
  /** What happened, for programs. */
  code;
  /** Whether the same call can succeed later without a change to the program. */
  retryable;
  static {
    for (const owner of [this, this.prototype]) Object.defineProperty(owner, "name", { value: "KvError", writable: true });
  }
  /** For custom codecs and storages. `message` should name what failed and what to do. */
  constructor(code, message, options = {}) {
    super(message, "cause" in options ? { cause: options.cause } : void 0);
    this.code = code;
    this.retryable = options.retryable ?? false;
  }
};

// src/base/platform.ts
var { AbortController, Event, EventTarget, MessageChannel, ReadableStream: ReadableStream2, crypto, performance: performance2, queueMicrotask: queueMicrotask2 } = globalThis;

// src/sync/bytes.ts
var utf8Encoder = new TextEncoder();
var utf8Decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
var spare;
var MAX_SPARE = 1 << 16;
var ByteSink = class {
  #bytes = spare ?? new Uint8Array(256);
  #view = new DataView(this.#bytes.buffer);
  #length = 0;
  constructor() {
    spare = void 0;
  }
  get length() {
    return this.#length;
  }
  u8(value) {
    this.#room(1);
    this.#bytes[this.#length++] = value;
    return this;
  }
  u64(value) {
    this.#room(8);
    this.#view.setBigUint64(this.#length, value);
    this.#length += 8;
    return this;
  }
  /** LEB128 of a whole number up to 2^53 - 1. */
  uv(value) {
    let rest = value;
    for (; rest >= 128; rest = Math.floor(rest / 128)) this.u8(rest % 128 | 128);
    return this.u8(rest);
  }
  raw(bytes) {
    this.#room(bytes.length);
    this.#bytes.set(bytes, this.#length);
    this.#length += bytes.length;
    return this;
  }
  bytes(bytes) {
    return this.uv(bytes.length).raw(bytes);
  }
  text(text2) {
    return this.bytes(utf8Encoder.encode(text2));
  }
  /** What there is so far, until the next call. */
  view() {
    return this.#bytes.subarray(0, this.#length);
  }
  done() {
    const done = this.#bytes.slice(0, this.#length);
    if (this.#bytes.length <= MAX_SPARE) spare = this.#bytes;
    return done;
  }
  #room(more) {
    if (this.#length + more <= this.#bytes.length) return;
    const larger = new Uint8Array(Math.max(this.#bytes.length * 2, this.#length + more));
    larger.set(this.#bytes);
    this.#bytes = larger;
    this.#view = new DataView(larger.buffer);
  }
};
var ByteSource = class {
  #bytes;
  #view;
  #at = 0;
  constructor(bytes) {
    this.#bytes = bytes;
  }
  get left() {
    return this.#bytes.length - this.#at;
  }
  u8() {
    this.#need(1);
    return this.#bytes[this.#at++];
  }
  u64() {
    this.#need(8);
    this.#view ??= new DataView(this.#bytes.buffer, this.#bytes.byteOffset, this.#bytes.length);
    this.#at += 8;
    return this.#view.getBigUint64(this.#at - 8);
  }
  uv() {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = this.u8();
      value += (byte & 127) * scale;
      if (!Number.isSafeInteger(value)) throw new KvError("KV_CORRUPT", "a number in a sync record is out of range");
      if (byte < 128) return value;
    }
  }
  /** A view. */
  raw(length) {
    this.#need(length);
    this.#at += length;
    return this.#bytes.subarray(this.#at - length, this.#at);
  }
  #need(length) {
    if (length > this.left) throw new KvError("KV_CORRUPT", "a sync record ends early");
  }
  /** A copy. */
  bytes() {
    return this.raw(this.uv()).slice();
  }
  text() {
    const length = this.uv();
    try {
      return utf8Decoder.decode(this.raw(length));
    } catch (cause) {
      throw new KvError("KV_CORRUPT", "a name in a sync record is not UTF-8", { cause });
    }
  }
  /** Everything that is left, as a view. */
  rest() {
    return this.raw(this.left);
  }
};
function compareBytes(a, b) {
  const length = Math.min(a.length, b.length);
  for (let at = 0; at < length; at++) if (a[at] !== b[at]) return a[at] - b[at];
  return a.length - b.length;
}
var CRC_TABLE = Uint32Array.from({ length: 256 }, (_, index) => {
  let crc = index;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >>> 1 ^ 2197175160 : crc >>> 1;
  return crc;
});
function crc32c(bytes) {
  let crc = 4294967295;
  for (let at = 0; at < bytes.length; at++) crc = crc >>> 8 ^ CRC_TABLE[(crc ^ bytes[at]) & 255];
  return (crc ^ 4294967295) >>> 0;
}
function concat(parts) {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
var toHex = (id) => id.toString(16).padStart(16, "0");
var fromHex = (text2) => BigInt(`0x${text2}`);

// src/sync/clock.ts
var COUNTER_BITS = 16n;
var MAX_AHEAD_MS = 6e4;
var toHlc = (ms) => BigInt(Math.max(0, Math.floor(ms))) << COUNTER_BITS;
function tick(last, nowMs) {
  const now = toHlc(nowMs);
  return now > last ? now : last + 1n;
}
function clamp(hlc, serverTime) {
  const latest = toHlc(serverTime + MAX_AHEAD_MS);
  return hlc < latest ? hlc : latest;
}

// src/sync/rows.ts
var STRICT = 1;
var DEAD = 2;
function encodeStamp(stamp) {
  return new ByteSink().u8((stamp.isStrict ? STRICT : 0) | (stamp.isDead ? DEAD : 0)).u64(stamp.h).u64(stamp.device).uv(stamp.position).uv(stamp.expiresAt).uv(stamp.dataVersion).uv(stamp.epoch).uv(stamp.check).done();
}
function decodeStamp(bytes) {
  const source = new ByteSource(bytes);
  const flags = source.u8();
  return {
    isStrict: (flags & STRICT) !== 0,
    isDead: (flags & DEAD) !== 0,
    h: source.u64(),
    device: source.u64(),
    position: source.uv(),
    expiresAt: source.uv(),
    dataVersion: source.uv(),
    epoch: source.uv(),
    check: source.uv()
  };
}
function isDeadStamp(bytes) {
  return ((bytes[0] ?? 0) & DEAD) !== 0;
}
function decodeStampHead(bytes) {
  const source = new ByteSource(bytes);
  source.raw(17);
  const [position, expiresAt] = [source.uv(), source.uv()];
  return { position, expiresAt, length: bytes.length - source.left };
}
function stampInEpoch(bytes, { length }, epoch) {
  const source = new ByteSource(bytes);
  const sink = new ByteSink().raw(source.raw(length)).uv(0).uv(epoch);
  source.uv();
  source.uv();
  return sink.raw(source.rest()).done();
}
var DELETE = 1;
var HAS_BASE = 2;
var BASE_ABSENT = 4;
function encodeOverlay({ ticket, captured, isDelete, expiresAt, base }) {
  const flags = (isDelete ? DELETE : 0) | (base === void 0 ? 0 : HAS_BASE) | (base === null ? BASE_ABSENT : 0);
  const sink = new ByteSink().u8(flags).uv(ticket).uv(captured).uv(expiresAt);
  if (base) sink.uv(base.expiresAt).raw(base.value);
  return sink.done();
}
function decodeOverlay(bytes) {
  const source = new ByteSource(bytes);
  const flags = source.u8();
  const [ticket, captured, expiresAt] = [source.uv(), source.uv(), source.uv()];
  const readBase = () => flags & BASE_ABSENT ? null : { expiresAt: source.uv(), value: source.rest().slice() };
  return { ticket, captured, expiresAt, isDelete: (flags & DELETE) !== 0, base: flags & HAS_BASE ? readBase() : void 0 };
}
function copyOf(base) {
  return encodeOverlay({ ticket: 0, captured: 0, isDelete: false, expiresAt: 0, base });
}
function encodeOutbox({ flags, expect, body }) {
  return new ByteSink().u8(flags).uv(expect === void 0 ? 0 : expect + 1).raw(body).done();
}
function decodeOutbox(bytes) {
  const source = new ByteSource(bytes);
  const [flags, expect] = [source.u8(), source.uv()];
  return { flags, expect: expect === 0 ? void 0 : expect - 1, body: source.rest().slice() };
}

// src/sync/model.ts
function toRange(lower, upper) {
  return {
    ...lower && { [lower.isExclusive ? "gt" : "gte"]: lower.bytes },
    ...upper && { [upper.isExclusive ? "lt" : "lte"]: upper.bytes }
  };
}
function isWithin(key, lower, upper) {
  const fromLower = lower === void 0 ? 1 : compareBytes(key, lower.bytes);
  const toUpper = upper === void 0 ? 1 : compareBytes(upper.bytes, key);
  return (fromLower > 0 || fromLower === 0 && lower?.isExclusive === false) && (toUpper > 0 || toUpper === 0 && upper?.isExclusive === false);
}
function keyId(key) {
  let id = "";
  for (let at = 0; at < key.length; at += 4096) id += String.fromCharCode(...key.subarray(at, at + 4096));
  return id;
}
var Row = class {
  table;
  key;
  isStrict;
  /** The entry, as the application sees it. */
  entry;
  /** Version of the entry; 0 if this commit writes it. */
  entryVersion;
  stamp;
  overlay;
  /** Version of the commit that wrote the overlay. */
  overlayVersion;
  /** Version that the entry has if it is the base's. */
  #cleanVersion;
  /** Whether the entry is the base's value. */
  isClean;
  /** In strict mode: the base's value, whatever the entry is. */
  copy;
  #isEntryChanged = false;
  #isStampChanged = false;
  #isOverlayChanged = false;
  constructor(table, key, read, now) {
    const { entry, stamp, overlay } = read;
    this.table = table;
    this.key = key;
    this.isStrict = table.modes.isStrict(key);
    this.entry = entry === void 0 ? null : { value: entry.value, expiresAt: entry.expiresAt ?? 0 };
    this.entryVersion = entry?.version ?? 0;
    this.stamp = stamp && decodeStamp(stamp.value);
    this.overlay = !this.isStrict && overlay !== void 0 ? decodeOverlay(overlay.value) : void 0;
    this.copy = this.isStrict && overlay !== void 0 ? decodeOverlay(overlay.value).base ?? null : null;
    this.overlayVersion = overlay?.version ?? 0;
    this.#cleanVersion = this.stamp?.dataVersion || (stamp?.version ?? 0);
    this.isClean = this.overlay === void 0 && this.#isEntryTheBase(now);
  }
  #isEntryTheBase(now) {
    if (this.entry === null) return !this.isLive(now);
    return this.stamp !== void 0 && this.entryVersion === this.#cleanVersion;
  }
  /** Whether sync wrote the entry last, although a local write is newer. */
  get isEntryFromSync() {
    return this.entry !== null && this.stamp !== void 0 && this.entryVersion === this.#cleanVersion;
  }
  /** Whether the base has a value that is not expired. */
  isLive(now) {
    const { stamp } = this;
    return stamp !== void 0 && !stamp.isDead && (stamp.expiresAt === 0 || stamp.expiresAt > now);
  }
  /** In a restored database: the entry is the base's value if it looks like it. */
  recognize(checkOf2) {
    const { stamp, entry, overlay } = this;
    if (stamp === void 0) return;
    if (overlay !== void 0) {
      this.setOverlay({ ...overlay, ticket: 0, captured: 0 });
      return;
    }
    const isSame = entry === null ? stamp.isDead || stamp.expiresAt !== 0 : stamp.check === 0 || stamp.check === checkOf2(entry);
    if (!isSame || entry !== null && stamp.isDead) return;
    if (this.isStrict && checkOf2(this.copy) !== checkOf2(entry)) return;
    this.becomeClean();
  }
  setEntry(value) {
    this.entry = value;
    this.entryVersion = 0;
    this.#isEntryChanged = true;
  }
  setStamp(stamp) {
    this.stamp = { ...stamp, dataVersion: 0 };
    this.#isStampChanged = true;
  }
  /** The base has nothing of the key any more, not even a tombstone. */
  forget() {
    if (this.isClean) this.setEntry(null);
    else if (this.overlay !== void 0) this.setOverlay({ ...this.overlay, base: null });
    this.stamp = void 0;
    this.#isStampChanged = true;
  }
  setOverlay(overlay) {
    this.overlay = overlay;
    this.#isOverlayChanged = true;
    if (overlay !== void 0) this.isClean = false;
  }
  /** The entry, as it is or is written by this commit, is the base's value from now on. */
  becomeClean() {
    this.setOverlay(void 0);
    this.isClean = true;
    this.#isStampChanged = this.#isStampChanged || this.stamp !== void 0;
    if (!this.#isEntryChanged) this.#cleanVersion = this.entryVersion;
  }
  /** The rows to write, by collection. */
  changes() {
    const { table, key, entry, stamp, overlay } = this;
    const list = [];
    if (this.#isEntryChanged) list.push({ rows: table.data, key, value: entry });
    if (this.#isStampChanged && stamp === void 0) list.push({ rows: table.stamps, key, value: null });
    if (this.#isStampChanged && stamp !== void 0) {
      const dataVersion = this.#isEntryChanged && this.isClean ? 0 : this.#cleanVersion;
      list.push({ rows: table.stamps, key, value: { value: encodeStamp({ ...stamp, dataVersion }), expiresAt: 0 } });
    }
    if (this.isStrict) {
      if (this.#isEntryChanged) {
        const copy = entry && copyOf(entry);
        list.push({ rows: table.overlay, key, value: copy && { value: copy, expiresAt: 0 } });
      }
    } else if (this.#isOverlayChanged) {
      list.push({ rows: table.overlay, key, value: overlay ? { value: encodeOverlay(overlay), expiresAt: 0 } : null });
    }
    return list;
  }
};
var MANY_KEYS = 16;
var NOTHING = { entry: void 0, stamp: void 0, overlay: void 0 };
var Model = class {
  #tx;
  #now;
  #rows = /* @__PURE__ */ new Map();
  #handles = /* @__PURE__ */ new Map();
  /** `now` decides which entries are expired. */
  constructor(tx, tables, now) {
    this.#tx = tx;
    this.#now = now;
    for (const name of tables.byName.keys()) this.#rows.set(name, /* @__PURE__ */ new Map());
  }
  /** Reads rows of keys, all at once. */
  async load(wanted) {
    const byTable = /* @__PURE__ */ new Map();
    for (const { table, key } of wanted) {
      const id = keyId(key);
      if (this.#rows.get(table.name)?.has(id) === true) continue;
      let keys = byTable.get(table);
      if (keys === void 0) byTable.set(table, keys = /* @__PURE__ */ new Map());
      keys.set(id, key);
    }
    await Promise.all([...byTable].map(([table, keys]) => this.#loadKeys(table, keys)));
  }
  async #loadKeys(table, keys) {
    const rows = this.#rows.get(table.name);
    const froms = [table.data, table.stamps, table.overlay];
    const ids = [...keys.keys()];
    for (const id of ids) rows.set(id, void 0);
    const found = ids.length < MANY_KEYS ? void 0 : await Promise.all(froms.map((from) => this.#in(from).hasMany([...keys.values()])));
    await Promise.all(ids.map(async (id, at) => {
      const key = keys.get(id);
      const get = (nth) => found?.[nth]?.[at] === false ? void 0 : this.#in(froms[nth]).getEntry(key);
      const [entry, stamp, overlay] = await Promise.all([get(0), get(1), get(2)]);
      rows.set(id, new Row(table, key, { entry, stamp, overlay }, this.#now));
    }));
  }
  /** Reads all rows of a range, and has empty ones for those of `expected` that are not there. */
  async loadRange(table, lower, upper, expected = []) {
    const keys = /* @__PURE__ */ new Map();
    for (const from of [table.data, table.stamps, table.overlay]) {
      for await (const key of this.#in(from).keys(toRange(lower, upper))) keys.set(keyId(key), key);
    }
    const others = expected.filter((key) => !isWithin(key, lower, upper));
    await this.load([...keys.values(), ...others].map((key) => ({ table, key })));
    const rows = this.#rows.get(table.name);
    for (const key of expected) {
      const id = keyId(key);
      if (!rows.has(id)) rows.set(id, new Row(table, key, NOTHING, this.#now));
    }
  }
  /** Whether a range has no rows at all. */
  async isBare(table, lower, upper) {
    const range = toRange(lower, upper);
    const first = await Promise.all([table.data, table.stamps, table.overlay].map((from) => this.#in(from).first(range)));
    return first.every((entry) => entry === void 0);
  }
  #in(rows) {
    let handle = this.#handles.get(rows);
    if (handle === void 0) this.#handles.set(rows, handle = this.#tx.collection(rows));
    return handle;
  }
  /** A row that was loaded. */
  row(table, key) {
    return this.#rows.get(table.name)?.get(keyId(key));
  }
  /** The loaded rows of a range; all there are after `loadRange`. */
  *within(table, lower, upper) {
    for (const row of this.#rows.get(table.name)?.values() ?? []) if (isWithin(row.key, lower, upper)) yield row;
  }
  /** Writes what changed. */
  async save() {
    const writes = [];
    const batches = /* @__PURE__ */ new Map();
    for (const rows of this.#rows.values()) {
      for (const row of rows.values()) {
        for (const { rows: into, key, value } of row.changes()) {
          let batch = batches.get(into);
          if (batch === void 0) batches.set(into, batch = { sets: [], deletes: [] });
          if (value === null) batch.deletes.push(key);
          else if (value.expiresAt === 0) batch.sets.push([key, value.value]);
          else writes.push(this.#in(into).set(key, value.value, { expireAt: value.expiresAt }));
        }
      }
    }
    for (const [into, { sets, deletes }] of batches) {
      if (sets.length > 0) writes.push(this.#in(into).setMany(sets));
      if (deletes.length > 0) writes.push(this.#in(into).deleteMany(deletes));
    }
    await Promise.all(writes);
  }
};

// src/sync/record.ts
var RECORD_VERSION = 1;
var MAX_RECORD_BYTES = 1 << 20;
var STRICT2 = 1;
var REPAIR = 2;
var CHUNK = 4;
var COMPRESSED = 8;
var SEALED = 16;
var FENCE = 32;
var KNOWN_FLAGS = 63;
var SET = 1;
var DELETE2 = 2;
var CLEAR = 3;
var BLOB = 4;
var STAMPED = 64;
var STAMPED_STRICT = 128;
function putBound(sink, bound) {
  if (bound === void 0) sink.u8(0);
  else sink.u8(bound.isExclusive ? 2 : 1).bytes(bound.bytes);
}
function readBound(source) {
  const kind = source.u8();
  if (kind > 2) throw new KvError("KV_CORRUPT", "a bound in a sync record is of an unknown kind");
  return kind === 0 ? void 0 : { bytes: source.bytes(), isExclusive: kind === 2 };
}
function encodeTransactions(transactions) {
  const sink = new ByteSink();
  const names3 = /* @__PURE__ */ new Map();
  sink.uv(transactions.length);
  for (const { base, hlc, ops } of transactions) {
    sink.uv(base).u64(hlc).uv(ops.length);
    for (const op of ops) {
      const stamp = op.type === "clear" ? void 0 : op.stamp;
      const code = op.type === "set" ? SET : op.type === "delete" ? DELETE2 : op.type === "clear" ? CLEAR : BLOB;
      sink.u8(code | (stamp === void 0 ? 0 : STAMPED) | (stamp?.isStrict ? STAMPED_STRICT : 0));
      if (stamp !== void 0) sink.u64(stamp.h).u64(stamp.device);
      const known2 = names3.get(op.collection);
      sink.uv(known2 ?? names3.size);
      if (known2 === void 0) {
        names3.set(op.collection, names3.size);
        sink.text(op.collection);
      }
      if (op.type === "clear") {
        putBound(sink, op.lower);
        putBound(sink, op.upper);
        continue;
      }
      sink.bytes(op.key);
      if (op.type === "set") sink.uv(op.expiresAt).bytes(op.value);
      else if (op.type === "blob") sink.uv(op.expiresAt).uv(op.size).raw(op.hash);
    }
  }
  return sink.done();
}
function decodeTransactions(body) {
  const source = new ByteSource(body);
  const names3 = [];
  const transactions = [];
  for (let left = source.uv(); left > 0; left--) {
    const [base, hlc] = [source.uv(), source.u64()];
    const ops = [];
    for (let more = source.uv(); more > 0; more--) ops.push(readOp(source, names3));
    transactions.push({ base, hlc, ops });
  }
  if (source.left > 0) throw new KvError("KV_CORRUPT", "a sync record is longer than its transactions");
  return transactions;
}
function readOp(source, names3) {
  const code = source.u8();
  const stamp = (code & STAMPED) === 0 ? {} : { stamp: { h: source.u64(), device: source.u64(), isStrict: (code & STAMPED_STRICT) !== 0 } };
  const index = source.uv();
  if (index > names3.length) throw new KvError("KV_CORRUPT", "a sync record refers to a collection that it does not name");
  const collection = names3[index] ??= source.text();
  const type = code & ~(STAMPED | STAMPED_STRICT);
  if (type === CLEAR) return { type: "clear", collection, lower: readBound(source), upper: readBound(source) };
  const key = source.bytes();
  switch (type) {
    case SET: {
      const expiresAt = source.uv();
      return { type: "set", collection, key, value: source.bytes(), expiresAt, ...stamp };
    }
    case DELETE2:
      return { type: "delete", collection, key, ...stamp };
    case BLOB: {
      const [expiresAt, size] = [source.uv(), source.uv()];
      return { type: "blob", collection, key, expiresAt, size, hash: source.raw(32).slice(), ...stamp };
    }
    default:
      throw new KvError("KV_VERSION_UNSUPPORTED", `a sync record has operation ${type}, which this version does not know: update the package`);
  }
}
function encodeHeader({ flags, device, seq }) {
  return new ByteSink().u8(RECORD_VERSION).u8(flags).u64(device).uv(seq).done();
}
function encodeRecord(header, body) {
  const sink = new ByteSink().raw(encodeHeader(header)).raw(body);
  const crc = new Uint8Array(4);
  new DataView(crc.buffer).setUint32(0, crc32c(sink.view()));
  return sink.raw(crc).done();
}
function decodeRecord(bytes) {
  if (bytes.length < 15) throw new KvError("KV_CORRUPT", "a sync record is too short");
  if (bytes[0] !== RECORD_VERSION) {
    throw new KvError("KV_VERSION_UNSUPPORTED", `a sync record has version ${bytes[0]}, this package knows ${RECORD_VERSION}: update the package`);
  }
  const end = bytes.length - 4;
  if (new DataView(bytes.buffer, bytes.byteOffset + end).getUint32(0) !== crc32c(bytes.subarray(0, end))) {
    throw new KvError("KV_CORRUPT", "the checksum of a sync record is wrong");
  }
  const source = new ByteSource(bytes.subarray(1, end));
  const flags = source.u8();
  if (flags > KNOWN_FLAGS) throw new KvError("KV_VERSION_UNSUPPORTED", `a sync record has flags ${flags}, which this version does not know: update the package`);
  return { header: { flags, device: source.u64(), seq: source.uv() }, body: source.rest() };
}
function crcOf(record) {
  if (record.length < 4) return 0;
  return new DataView(record.buffer, record.byteOffset + record.length - 4).getUint32(0);
}

// src/codec/fast.ts
var fastCodecs = /* @__PURE__ */ new WeakMap();
function withFast(codec, fast) {
  fastCodecs.set(codec, fast);
  return codec;
}
var SHORT = 64;
function putAscii(text2, out, at, end) {
  const { length } = text2;
  if (length > SHORT || at + length > end) return -1;
  for (let index = 0; index < length; index++) {
    const unit = text2.charCodeAt(index);
    if (unit >= 128) return -1;
    out[at + index] = unit;
  }
  return at + length;
}
var { fromCharCode } = String;
function readAscii(bytes, from, to) {
  if (to - from > SHORT) return void 0;
  let text2 = "";
  let at = from;
  for (; at + 8 <= to; at += 8) {
    const a2 = bytes[at], b2 = bytes[at + 1], c2 = bytes[at + 2], d = bytes[at + 3];
    const e = bytes[at + 4], f = bytes[at + 5], g = bytes[at + 6], h = bytes[at + 7];
    if ((a2 | b2 | c2 | d | e | f | g | h) >= 128) return void 0;
    text2 += fromCharCode(a2, b2, c2, d, e, f, g, h);
  }
  if (at + 4 <= to) {
    const a2 = bytes[at], b2 = bytes[at + 1], c2 = bytes[at + 2], d = bytes[at + 3];
    if ((a2 | b2 | c2 | d) >= 128) return void 0;
    text2 += fromCharCode(a2, b2, c2, d);
    at += 4;
  }
  const left = to - at;
  if (left === 0) return text2;
  const a = bytes[at], b = left > 1 ? bytes[at + 1] : 0, c = left > 2 ? bytes[at + 2] : 0;
  if ((a | b | c) >= 128) return void 0;
  return text2 + (left === 1 ? fromCharCode(a) : left === 2 ? fromCharCode(a, b) : fromCharCode(a, b, c));
}
var bytesFast = {
  put(value, out, at, end) {
    if (!(value instanceof Uint8Array) || at + value.length > end) return -1;
    out.set(value, at);
    return at + value.length;
  },
  read: (bytes, from, to) => bytes.slice(from, to)
};

// src/codec/byte-writer.ts
var ByteWriter = class {
  bytes;
  view;
  length = 0;
  constructor(capacity) {
    this.bytes = new Uint8Array(capacity);
    this.view = new DataView(this.bytes.buffer);
  }
  /** Makes room for `count` more bytes. */
  reserve(count) {
    if (this.length + count <= this.bytes.length) return;
    const grown = new Uint8Array(Math.max(this.bytes.length * 2, this.length + count));
    grown.set(this.bytes.subarray(0, this.length));
    this.bytes = grown;
    this.view = new DataView(grown.buffer);
  }
  byte(value) {
    this.reserve(1);
    this.bytes[this.length++] = value;
  }
  u32(value) {
    this.reserve(4);
    this.view.setUint32(this.length, value);
    this.length += 4;
  }
  f64(value) {
    this.reserve(8);
    this.view.setFloat64(this.length, value);
    this.length += 8;
  }
  raw(bytes) {
    this.reserve(bytes.length);
    this.bytes.set(bytes, this.length);
    this.length += bytes.length;
  }
  /** Returns a copy of what was written. */
  copy() {
    return this.bytes.slice(0, this.length);
  }
};

// src/codec/refusal.ts
var MAX_PATH = 200;
var Refusal = class {
  path = "";
  what;
  cause;
  constructor(what, cause) {
    this.what = what;
    this.cause = cause;
  }
  /** The path, truncated to a readable length. */
  get where() {
    return this.path.length > MAX_PATH ? `${this.path.slice(0, MAX_PATH)}\u2026` : this.path;
  }
};
function within(step, error) {
  if (error instanceof Refusal) error.path = step + error.path;
  return error;
}
function classNameOf(value) {
  const prototype2 = Object.getPrototypeOf(value);
  const made = prototype2 !== null && Object.hasOwn(prototype2, "constructor") ? prototype2.constructor : void 0;
  return typeof made === "function" ? made.name : "";
}
function describe(value) {
  if (value === null || value === void 0 || Number.isNaN(value)) return String(value);
  const name = typeof value === "object" ? classNameOf(value) : "";
  if (name !== "" && name !== "Object") return `an instance of ${name}`;
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

// src/codec/key-bytes.ts
var TAG_MAX = 254;
var TAG_NULL = 5;
var TAG_FALSE = 8;
var TAG_TRUE = 9;
var TAG_NUMBER = 16;
var TAG_BIGINT = 24;
var TAG_DATE = 32;
var TAG_STRING = 48;
var TAG_BINARY = 64;
var TAG_ARRAY = 80;
var MAX_DEPTH = 64;
var MAX_BYTES = 65536;
function refusedKey(what, takes, cause) {
  return new KvError("KV_INVALID_KEY", `${what}; ${takes}`, cause === void 0 ? {} : { cause });
}
function corrupt() {
  return new KvError("KV_CORRUPT", "a stored key is malformed; was the collection written with another key codec?");
}
function checkLength(bytes) {
  if (bytes > MAX_BYTES) {
    throw new KvError("KV_KEY_TOO_LARGE", `the key has more than ${MAX_BYTES} bytes; keep long data in the value`);
  }
}
var double = new ByteWriter(8);
function putOrderedDouble(out, value) {
  out.f64(value === 0 ? 0 : value);
  const at = out.length - 8;
  if (out.bytes[at] & 128) {
    for (let index = at; index < out.length; index++) out.bytes[index] ^= 255;
  } else {
    out.bytes[at] ^= 128;
  }
}
function readOrderedDouble(bytes, at) {
  const flip = bytes[at] & 128 ? 0 : 255;
  for (let index = 0; index < 8; index++) double.bytes[index] = bytes[at + index] ^ flip;
  double.bytes[0] ^= flip === 0 ? 128 : 0;
  return double.view.getFloat64(0);
}
function putString(out, text2, escape = false) {
  checkLength(text2.length);
  out.reserve(text2.length * 3);
  const { bytes } = out;
  let at = out.length;
  for (let index = 0; index < text2.length; index++) {
    const unit = text2.charCodeAt(index);
    if (unit < 128) {
      bytes[at++] = unit;
      if (unit === 0 && escape) bytes[at++] = 255;
    } else if (unit < 2048) {
      bytes[at++] = 192 | unit >> 6;
      bytes[at++] = 128 | unit & 63;
    } else {
      bytes[at++] = 224 | unit >> 12;
      bytes[at++] = 128 | unit >> 6 & 63;
      bytes[at++] = 128 | unit & 63;
    }
  }
  out.length = at;
}
function readString(bytes, from, to) {
  const ascii = readAscii(bytes, from, to);
  if (ascii !== void 0) return ascii;
  let text2 = "";
  for (let at = from; at < to; ) {
    const first = bytes[at++];
    if (first < 128) {
      text2 += String.fromCharCode(first);
      continue;
    }
    const second = bytes[at++];
    if (first < 192 || first > 239 || at > to) throw corrupt();
    if (first < 224) {
      text2 += String.fromCharCode((first & 31) << 6 | second & 63);
      continue;
    }
    const third = bytes[at++];
    if (at > to) throw corrupt();
    text2 += String.fromCharCode((first & 15) << 12 | (second & 63) << 6 | third & 63);
  }
  return text2;
}
function putBigint(out, value) {
  const isNegative = value < 0n;
  let digits = (isNegative ? -value : value).toString(16);
  if (value === 0n) digits = "";
  if (digits.length % 2 === 1) digits = `0${digits}`;
  const count = digits.length / 2;
  const flip = isNegative ? 255 : 0;
  if (count <= 126) {
    out.byte(isNegative ? 128 - count : 128 + count);
  } else {
    out.byte(isNegative ? 1 : 255);
    out.u32(isNegative ? ~count >>> 0 : count);
  }
  checkLength(count);
  for (let index = 0; index < digits.length; index += 2) out.byte(Number.parseInt(digits.slice(index, index + 2), 16) ^ flip);
}
function putBinary(out, bytes, escape) {
  checkLength(bytes.length);
  if (!escape) {
    out.raw(bytes);
    return;
  }
  for (const byte of bytes) {
    out.byte(byte);
    if (byte === 0) out.byte(255);
  }
}
function toBytes(value) {
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  if (Object.prototype.toString.call(value) === "[object ArrayBuffer]") return new Uint8Array(value);
  return void 0;
}
function putElements(out, elements, depth, max) {
  if (depth >= MAX_DEPTH) throw new Refusal(`an array nested more than ${MAX_DEPTH} deep, or one that contains itself`);
  const { length } = elements;
  let index = 0;
  try {
    for (; index < length; index++) {
      if (!(index in elements)) throw new Refusal("a hole");
      const element = elements[index];
      if (max !== void 0 && element === max && index === length - 1) out.byte(TAG_MAX);
      else putKey(out, element, depth + 1, max);
    }
  } catch (error) {
    throw within(`[${index}]`, error);
  }
  if (elements.length !== length) throw new Refusal("an array that changed while it was encoded");
}
function putKey(out, key, depth, max) {
  const isNested = depth > 0;
  checkLength(out.length);
  switch (typeof key) {
    case "string":
      out.byte(TAG_STRING);
      putString(out, key, isNested);
      if (isNested) out.byte(0);
      return;
    case "number":
      if (Number.isNaN(key)) throw new Refusal("NaN");
      out.byte(TAG_NUMBER);
      putOrderedDouble(out, key);
      return;
    case "bigint":
      out.byte(TAG_BIGINT);
      putBigint(out, key);
      return;
    case "boolean":
      out.byte(key ? TAG_TRUE : TAG_FALSE);
      return;
    case "object":
      putObject(out, key, depth, max);
      return;
    default:
      throw new Refusal(key === /* @__PURE__ */ Symbol.for("mangrove-kv.MAX_KEY") ? "MAX_KEY" : describe(key));
  }
}
function timeOf(date) {
  try {
    return Date.prototype.getTime.call(date);
  } catch (error) {
    throw new Refusal("an object that calls itself Date but is not one", error);
  }
}
function putObject(out, key, depth, max) {
  const isNested = depth > 0;
  if (key === null) {
    out.byte(TAG_NULL);
  } else if (Array.isArray(key)) {
    out.byte(TAG_ARRAY);
    putElements(out, key, depth, max);
    if (isNested && !(max !== void 0 && key.at(-1) === max)) out.byte(0);
  } else if (Object.prototype.toString.call(key) === "[object Date]") {
    const time = timeOf(key);
    if (Number.isNaN(time)) throw new Refusal("an invalid Date");
    out.byte(TAG_DATE);
    putOrderedDouble(out, time);
  } else {
    const bytes = toBytes(key);
    if (bytes === void 0) throw new Refusal(describe(key));
    out.byte(TAG_BINARY);
    putBinary(out, bytes, isNested);
    if (isNested) out.byte(0);
  }
}
var scratch = new ByteWriter(1024);
var isEncoding = false;
function emptyWriter() {
  if (isEncoding) return new ByteWriter(64);
  scratch.length = 0;
  return scratch;
}
var TAKES = "keys are null, booleans, numbers, bigints, strings, Dates, binaries and arrays of these";
function encodeAny(key) {
  return encodeUpTo(key, void 0);
}
function encodeUpTo(key, max) {
  const out = emptyWriter();
  const isOutermost = !isEncoding;
  isEncoding = true;
  try {
    if (max !== void 0 && key === max) out.byte(TAG_MAX);
    else putKey(out, key, 0, max);
    checkLength(out.length);
    return out.copy();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    const { what, where, cause } = error;
    throw refusedKey(where === "" ? `${what} cannot be a key` : `element ${where} of the key is ${what}`, TAKES, cause);
  } finally {
    if (isOutermost) isEncoding = false;
  }
}
var known = new Array(512).fill("");
var MAX_KNOWN = 24;
function readElement(bytes, from, to) {
  const length = to - from;
  if (length === 0 || length > MAX_KNOWN) return readString(bytes, from, to);
  const place = length * 31 + bytes[from] * 7 + bytes[to - 1] * 3 + bytes[from + (length >> 1)] & known.length - 1;
  const text2 = known[place];
  if (text2.length === length) {
    let same = 0;
    while (same < length && text2.charCodeAt(same) === bytes[from + same]) same++;
    if (same === length) return text2;
  }
  const made = readString(bytes, from, to);
  if (made.length === length) known[place] = made;
  return made;
}
var NO_BYTES = new Uint8Array(0);
var KeyReader = class {
  bytes = NO_BYTES;
  at = 0;
  end = 0;
  read(bytes, from, to) {
    this.bytes = bytes;
    this.at = from;
    this.end = to;
    try {
      const key = this.key(0);
      if (this.at !== to) throw corrupt();
      return key;
    } finally {
      this.bytes = NO_BYTES;
    }
  }
  byte() {
    if (this.at >= this.end) throw corrupt();
    return this.bytes[this.at++];
  }
  key(depth) {
    const tag = this.byte();
    switch (tag) {
      case TAG_NULL:
        return null;
      case TAG_FALSE:
        return false;
      case TAG_TRUE:
        return true;
      case TAG_NUMBER:
        return this.double();
      case TAG_DATE:
        return new Date(this.double());
      case TAG_BIGINT:
        return this.bigint();
      case TAG_STRING:
        return this.content(depth, depth === 0 ? readString : readElement);
      case TAG_BINARY:
        return this.content(depth, copyOf2);
      case TAG_ARRAY:
        return this.array(depth);
      default:
        throw corrupt();
    }
  }
  double() {
    const { at } = this;
    this.at += 8;
    if (this.at > this.end) throw corrupt();
    return readOrderedDouble(this.bytes, at);
  }
  bigint() {
    const first = this.byte();
    if (first === 128) return 0n;
    const isNegative = first < 128;
    let count = isNegative ? 128 - first : first - 128;
    if (first === 255 || first === 1) {
      count = 0;
      for (let index = 0; index < 4; index++) count = count * 256 + (this.byte() ^ (isNegative ? 255 : 0));
    }
    if (count > this.end - this.at) throw corrupt();
    let digits = "0x";
    for (let index = 0; index < count; index++) {
      digits += (this.byte() ^ (isNegative ? 255 : 0)).toString(16).padStart(2, "0");
    }
    return isNegative ? -BigInt(digits) : BigInt(digits);
  }
  /**
   * Reads the content of a string or binary: at depth 0 everything that is left, otherwise the
   * bytes up to a terminating zero, in which zeros are escaped.
   */
  content(depth, read) {
    const { bytes, at: from, end } = this;
    if (depth === 0) {
      this.at = end;
      return read(bytes, from, end);
    }
    let at = from;
    let escapes = 0;
    for (; ; at++) {
      if (at >= end) throw corrupt();
      if (bytes[at] !== 0) continue;
      if (at + 1 === end || bytes[at + 1] !== 255) break;
      at++;
      escapes++;
    }
    this.at = at + 1;
    if (escapes === 0) return read(bytes, from, at);
    const plain = new Uint8Array(at - from - escapes);
    for (let index = 0, next = from; next < at; next++) {
      plain[index++] = bytes[next];
      if (bytes[next] === 0) next++;
    }
    return read(plain, 0, plain.length);
  }
  array(depth) {
    if (depth >= MAX_DEPTH) throw corrupt();
    const elements = [];
    for (; ; ) {
      if (depth === 0 && this.at === this.end) return elements;
      if (depth > 0 && this.at < this.end && this.bytes[this.at] === 0) {
        this.at++;
        return elements;
      }
      elements.push(this.key(depth + 1));
    }
  }
};
var reader = new KeyReader();
var copyOf2 = (bytes, from, to) => bytes.slice(from, to);
function decodeAny(bytes) {
  return reader.read(bytes, 0, bytes.length);
}
var anyFast = {
  put(key, out, at, end) {
    if (typeof key === "string") {
      if (at === end) return -1;
      out[at] = TAG_STRING;
      return putAscii(key, out, at + 1, end);
    }
    if (typeof key !== "number" || Number.isNaN(key) || at + 9 > end) return -1;
    out[at] = TAG_NUMBER;
    double.length = 0;
    putOrderedDouble(double, key);
    for (let index = 0; index < 8; index++) out[at + 1 + index] = double.bytes[index];
    return at + 9;
  },
  read(bytes, from, to) {
    if (from < to && bytes[from] === TAG_STRING) return readString(bytes, from + 1, to);
    if (to - from === 9 && bytes[from] === TAG_NUMBER) return readOrderedDouble(bytes, from + 1);
    return reader.read(bytes, from, to);
  }
};

// src/codec/keys.ts
var MAX_KEY = /* @__PURE__ */ Symbol.for("mangrove-kv.MAX_KEY");
var utf8Encoder2 = new TextEncoder();
var utf8Decoder2 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
function corruptKey(codec) {
  return new KvError("KV_CORRUPT", `a stored key does not belong to codec ${codec}`);
}
function isWellFormed(text2) {
  return !/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/.test(text2);
}
function refuse(id, takes, key) {
  const what = ["number", "bigint"].includes(typeof key) ? String(key) : describe(key);
  return refusedKey(`${what} cannot be a key`, `codec ${id} takes ${takes}`);
}
function checkText(id, key) {
  if (typeof key !== "string") throw refuse(id, "strings", key);
  return key;
}
function putText(key, out, at, end) {
  return typeof key === "string" ? putAscii(key, out, at, end) : -1;
}
var TWO_32 = 4294967296;
var SIGN = 2147483648;
function putU32(value, out, at) {
  out[at] = value >>> 24;
  out[at + 1] = value >>> 16;
  out[at + 2] = value >>> 8;
  out[at + 3] = value;
}
function readU32(bytes, at) {
  return (bytes[at] << 24 | bytes[at + 1] << 16 | bytes[at + 2] << 8 | bytes[at + 3]) >>> 0;
}
function fixed(id, length, what, { put, read }) {
  const check = (from, to) => {
    if (to - from !== length) throw corruptKey(id);
  };
  return withFast({
    id,
    encode(key) {
      const bytes = new Uint8Array(length);
      if (put(key, bytes, 0, length) < 0) throw refuse(id, what, key);
      return bytes;
    },
    decode(bytes) {
      check(0, bytes.length);
      return read(bytes, 0, length);
    }
  }, {
    put,
    read(bytes, from, to) {
      check(from, to);
      return read(bytes, from, to);
    }
  });
}
var keyCodecs = {
  /** Default: every {@link Key}, self-describing, in the order of JavaScript and IndexedDB. */
  any: withFast({ id: "any", encode: encodeAny, decode: decodeAny }, anyFast),
  /** Strings in UTF-16 code unit order, like JavaScript's `<`; accepts every string. */
  string: withFast({
    id: "string",
    encode(key) {
      const out = emptyWriter();
      putString(out, checkText("string", key));
      checkLength(out.length);
      return out.copy();
    },
    decode: (bytes) => readString(bytes, 0, bytes.length)
  }, { put: putText, read: readString }),
  /**
   * Strings as plain UTF-8, in code point order, as other databases store them; refuses lone
   * surrogates.
   */
  utf8: withFast({
    id: "utf8",
    encode(key) {
      if (!isWellFormed(checkText("utf8", key))) throw refusedKey("a string with lone surrogates cannot be a key of codec utf8", "codec string takes them");
      return utf8Encoder2.encode(key);
    },
    decode: (bytes) => utf8Decoder2.decode(bytes)
  }, {
    put: putText,
    read: (bytes, from, to) => readAscii(bytes, from, to) ?? utf8Decoder2.decode(bytes.subarray(from, to))
  }),
  /** Bytes, unchanged. */
  bytes: withFast({
    id: "bytes",
    encode(key) {
      const bytes = toBytes(key);
      if (bytes === void 0) throw refuse("bytes", "binaries", key);
      return bytes.slice();
    },
    decode: (bytes) => bytes.slice()
  }, bytesFast),
  /** Integers from 0 to 2^32 - 1, in 4 bytes. */
  uint32: fixed("uint32", 4, "integers from 0 to 2^32 - 1", {
    put(key, out, at, end) {
      if (typeof key !== "number" || key >>> 0 !== key || at + 4 > end) return -1;
      putU32(key, out, at);
      return at + 4;
    },
    read: readU32
  }),
  /** Safe integers, in 8 bytes. */
  int53: fixed("int53", 8, "safe integers", {
    put(key, out, at, end) {
      if (!Number.isSafeInteger(key) || at + 8 > end) return -1;
      const high = Math.floor(key / TWO_32);
      putU32(high ^ SIGN, out, at);
      putU32(key - high * TWO_32, out, at + 4);
      return at + 8;
    },
    read(bytes, from) {
      const key = (readU32(bytes, from) ^ SIGN) * TWO_32 + readU32(bytes, from + 4);
      if (!Number.isSafeInteger(key)) throw corruptKey("int53");
      return key;
    }
  }),
  /** Bigints from 0 to 2^64 - 1, in 8 bytes. */
  uint64: fixed("uint64", 8, "bigints from 0 to 2^64 - 1", {
    put(key, out, at, end) {
      if (typeof key !== "bigint" || BigInt.asUintN(64, key) !== key || at + 8 > end) return -1;
      putU32(Number(key >> 32n), out, at);
      putU32(Number(key & 0xffffffffn), out, at + 4);
      return at + 8;
    },
    read: (bytes, from) => BigInt(readU32(bytes, from)) << 32n | BigInt(readU32(bytes, from + 4))
  }),
  /** Arrays of keys, with the types of their elements. */
  tuple() {
    const check = (key) => {
      if (!Array.isArray(key)) throw corruptKey("tuple");
      return key;
    };
    return withFast({
      id: "tuple",
      encode(key) {
        if (!Array.isArray(key)) throw refuse("tuple", "arrays", key);
        return encodeAny(key);
      },
      decode: (bytes) => check(decodeAny(bytes))
    }, {
      put: () => -1,
      read: (bytes, from, to) => check(anyFast.read(bytes, from, to))
    });
  }
};
var afterAll;
function isTagged(codec) {
  return codec.id === "any" || codec.id === "tuple";
}
function encodeBound(codec, bound) {
  if (isTagged(codec)) return encodeUpTo(bound, MAX_KEY);
  if (bound !== MAX_KEY) return codec.encode(bound);
  afterAll ??= new Uint8Array(65537).fill(TAG_MAX + 1);
  return afterAll;
}
function successor(bytes) {
  for (let index = bytes.length - 1; index >= 0; index--) {
    if (bytes[index] === 255) continue;
    const next = bytes.slice(0, index + 1);
    next[index]++;
    return next;
  }
  return void 0;
}
function prefixRange(codec, prefix) {
  const canBegin = typeof prefix === "string" || Array.isArray(prefix) || toBytes(prefix) !== void 0;
  if (!canBegin) throw new KvError("KV_INVALID_ARGUMENT", "a prefix has to be a string, binary or an array");
  if (codec.id === "tuple" && !Array.isArray(prefix)) {
    throw new KvError("KV_INVALID_ARGUMENT", "the prefix of keys that are arrays has to be an array");
  }
  const lower = isTagged(codec) ? encodeAny(prefix) : codec.encode(prefix);
  if (!isTagged(codec) || !Array.isArray(prefix)) return { lower, upper: successor(lower) };
  const upper = new Uint8Array(lower.length + 1);
  upper.set(lower);
  upper[lower.length] = 255;
  return { lower, upper };
}

// src/codec/cbor-tags.ts
var TAG_DATE2 = 1;
var TAG_POSITIVE_BIGINT = 2;
var TAG_NEGATIVE_BIGINT = 3;
var TAG_OBJECT = 27;
var TAG_SET = 258;
var TAG_MAP = 259;
var TAG_WTF8 = 273;
var TAG_REGEXP = 21066;
var TAG_REFERENCE = 1296520786;
var TYPED_ARRAY_TAGS = {
  Uint8ClampedArray: 68,
  Uint16Array: 69,
  Uint32Array: 70,
  BigUint64Array: 71,
  Int8Array: 72,
  Int16Array: 77,
  Int32Array: 78,
  BigInt64Array: 79,
  Float16Array: 84,
  Float32Array: 85,
  Float64Array: 86
};
var FALSE = 244;
var TRUE = 245;
var NULL = 246;
var UNDEFINED = 247;
var HOLE = 240;
var FLOAT32 = 250;
var FLOAT64 = 251;
var ERROR_NAMES = [
  "Error",
  "EvalError",
  "RangeError",
  "ReferenceError",
  "SyntaxError",
  "TypeError",
  "URIError"
];
var MAX_DEPTH2 = 1e3;

// src/codec/cbor-decode.ts
var textDecoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
var { prototype } = Object;
function define(into, key, value, enumerable = true) {
  Object.defineProperty(into, key, { __proto__: null, value, writable: true, enumerable, configurable: true });
}
function corrupt2() {
  return new KvError("KV_CORRUPT", "a stored value is malformed; was the collection written with another value codec?");
}
function typedArrayClass(tag) {
  const name = Object.keys(TYPED_ARRAY_TAGS).find((candidate) => TYPED_ARRAY_TAGS[candidate] === tag);
  return name === void 0 ? void 0 : globalThis[name];
}
function readWtf8(bytes) {
  let text2 = "";
  for (let at = 0; at < bytes.length; ) {
    const first = bytes[at++];
    const more = first < 128 ? 0 : first < 224 ? 1 : first < 240 ? 2 : 3;
    let code = more === 0 ? first : first & 63 >> more;
    for (let count = 0; count < more; count++) {
      const next = bytes[at++];
      if (next === void 0) throw corrupt2();
      code = code << 6 | next & 63;
    }
    if (code > 1114111) throw corrupt2();
    text2 += String.fromCodePoint(code);
  }
  return text2;
}
var NO_BYTES2 = new Uint8Array(0);
var scratchBytes = new Uint8Array(8);
var scratch2 = new DataView(scratchBytes.buffer);
var names = new Array(256).fill(void 0);
var run = 0;
var SHORT_TEXT = 23;
function internalized(text2) {
  return Object.keys({ [text2]: 0 })[0];
}
var CborDecoder = class {
  bytes = NO_BYTES2;
  end = 0;
  at = 0;
  depth = 0;
  /** Whether `Object.prototype` has a property with the name read last. */
  isInherited = false;
  /** Objects in the order in which they begin. */
  objects = [];
  /** Decodes part of a buffer; the result shares no memory with it. */
  decode(bytes, from, to) {
    this.bytes = bytes;
    this.at = from;
    this.end = to;
    run++;
    try {
      const value = this.value();
      if (this.at !== this.end) throw corrupt2();
      return value;
    } finally {
      this.bytes = NO_BYTES2;
      this.depth = 0;
      this.objects.length = 0;
    }
  }
  byte() {
    if (this.at >= this.end) throw corrupt2();
    return this.bytes[this.at++];
  }
  u32() {
    const { bytes, at } = this;
    this.skip(4);
    return (bytes[at] << 24 | bytes[at + 1] << 16 | bytes[at + 2] << 8 | bytes[at + 3]) >>> 0;
  }
  skip(size) {
    if (this.at + size > this.end) throw corrupt2();
    this.at += size;
  }
  /** Copies a number of four or eight bytes into the scratch space. */
  fixed(size) {
    const { bytes, at } = this;
    this.skip(size);
    for (let index = 0; index < size; index += 4) {
      scratchBytes[index] = bytes[at + index];
      scratchBytes[index + 1] = bytes[at + index + 1];
      scratchBytes[index + 2] = bytes[at + index + 2];
      scratchBytes[index + 3] = bytes[at + index + 3];
    }
    return scratch2;
  }
  argument(info) {
    if (info < 24) return info;
    switch (info) {
      case 24:
        return this.byte();
      case 25:
        return this.byte() * 256 + this.byte();
      case 26:
        return this.u32();
      case 27: {
        const value = this.u32() * 4294967296 + this.u32();
        if (!Number.isSafeInteger(value)) throw corrupt2();
        return value;
      }
      default:
        throw corrupt2();
    }
  }
  /**
   * Reads a length; fails unless that many items of at least `size` bytes fit in the remaining
   * bytes.
   */
  count(info, size) {
    const count = this.argument(info);
    if (count * size > this.end - this.at) throw corrupt2();
    return count;
  }
  take(length) {
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }
  value() {
    const first = this.byte();
    const info = first & 31;
    switch (first >> 5) {
      case 0:
        return info < 24 ? info : this.argument(info);
      case 1:
        return -1 - this.argument(info);
      case 2:
        return this.begin(this.copy(info));
      case 3:
        return this.string(info);
      case 7:
        return this.simple(first);
      default:
        return this.nested(first >> 5, info);
    }
  }
  begin(object) {
    this.objects.push(object);
    return object;
  }
  nested(major, info) {
    if (++this.depth > 2 * MAX_DEPTH2) throw corrupt2();
    const value = major === 4 ? this.array(this.begin([]), info) : major === 5 ? this.properties(this.begin({}), info) : this.tagged(this.argument(info));
    this.depth--;
    return value;
  }
  simple(first) {
    switch (first) {
      case FALSE:
        return false;
      case TRUE:
        return true;
      case NULL:
        return null;
      case UNDEFINED:
        return void 0;
      case FLOAT32:
        return this.fixed(4).getFloat32(0);
      case FLOAT64:
        return this.fixed(8).getFloat64(0);
      default:
        throw corrupt2();
    }
  }
  string(info) {
    const length = info < 24 && info <= this.end - this.at ? info : this.count(info, 1);
    const { at } = this;
    const ascii = readAscii(this.bytes, at, at + length);
    if (ascii !== void 0) {
      this.at = at + length;
      return ascii;
    }
    try {
      return textDecoder.decode(this.take(length));
    } catch {
      throw corrupt2();
    }
  }
  array(into, info) {
    const length = this.count(info, 1);
    for (let index = 0; index < length; index++) {
      if (this.bytes[this.at] === HOLE) {
        this.at++;
        into.length = index + 1;
      } else {
        into[index] = this.value();
      }
    }
    return into;
  }
  text() {
    const value = this.value();
    if (typeof value !== "string") throw corrupt2();
    return value;
  }
  /** Same as `text`, for a string that was probably seen before. */
  name() {
    const { bytes, at } = this;
    const length = bytes[at] - 96;
    const from = at + 1;
    if (!(length > 0 && length <= SHORT_TEXT && from + length <= this.end)) {
      const text3 = this.text();
      this.isInherited = text3 in prototype;
      return text3;
    }
    const place = length * 31 + bytes[from] * 7 + bytes[from + length - 1] & names.length - 1;
    const known2 = names[place];
    if (known2 !== void 0 && known2.bytes.length === length) {
      let same = 0;
      while (same < length && known2.bytes[same] === bytes[from + same]) same++;
      if (same === length) {
        this.at = from + length;
        this.isInherited = known2.run !== run && known2.text in prototype;
        if (!this.isInherited) known2.run = run;
        return known2.text;
      }
    }
    const text2 = internalized(this.text());
    this.isInherited = text2 in prototype;
    names[place] = { bytes: bytes.slice(from, from + length), text: text2, run: 0 };
    return text2;
  }
  properties(into, info) {
    const count = this.count(info, 2);
    for (let index = 0; index < count; index++) {
      const key = this.name();
      const { isInherited } = this;
      const value = this.value();
      if (isInherited) define(into, key, value);
      else into[key] = value;
    }
    return into;
  }
  /** Reads the head of an item, which must have the given major type. */
  expect(major) {
    const first = this.byte();
    if (first >> 5 !== major) throw corrupt2();
    return first & 31;
  }
  content() {
    return this.copy(this.expect(2));
  }
  /** Not by `slice`, which returns a view for a `Buffer`. */
  copy(info) {
    return new Uint8Array(this.take(this.count(info, 1)));
  }
  tagged(tag) {
    switch (tag) {
      case TAG_REFERENCE:
        return this.reference();
      case TAG_POSITIVE_BIGINT:
        return this.bigint();
      case TAG_NEGATIVE_BIGINT:
        return -1n - this.bigint();
      case TAG_WTF8:
        return readWtf8(this.content());
      case TAG_DATE2:
        return this.date(1e3);
      case TAG_MAP:
        return this.map(this.begin(/* @__PURE__ */ new Map()));
      case TAG_SET:
        return this.set(this.begin(/* @__PURE__ */ new Set()));
      case TAG_REGEXP:
        return this.regExp();
      case TAG_OBJECT:
        return this.named();
      default:
        return this.typedArray(tag);
    }
  }
  reference() {
    const ordinal = this.argument(this.expect(0));
    if (ordinal >= this.objects.length) throw corrupt2();
    return this.objects[ordinal];
  }
  bigint() {
    const bytes = this.take(this.count(this.expect(2), 1));
    let digits = "0x0";
    for (const byte of bytes) digits += byte.toString(16).padStart(2, "0");
    return BigInt(digits);
  }
  date(unit) {
    const time = this.value();
    if (typeof time !== "number") throw corrupt2();
    return this.begin(new Date(Math.round(time * unit)));
  }
  map(into) {
    const count = this.count(this.expect(5), 2);
    for (let index = 0; index < count; index++) {
      const key = this.value();
      into.set(key, this.value());
    }
    return into;
  }
  set(into) {
    const count = this.count(this.expect(4), 1);
    for (let index = 0; index < count; index++) into.add(this.value());
    return into;
  }
  regExp() {
    if (this.argument(this.expect(4)) !== 2) throw corrupt2();
    const source = this.text();
    const flags = this.text();
    try {
      return this.begin(new RegExp(source, flags));
    } catch {
      throw corrupt2();
    }
  }
  typedArray(tag) {
    const TypedArray = typedArrayClass(tag);
    if (TypedArray === void 0) throw corrupt2();
    try {
      return this.begin(new TypedArray(this.content().buffer));
    } catch {
      throw corrupt2();
    }
  }
  named() {
    const length = this.argument(this.expect(4));
    const name = this.text();
    if (ERROR_NAMES.includes(name)) return this.error(name, length - 1);
    if (name === "Array") return this.namedArray(length);
    if (length === 4) return this.sharing(name);
    if (length !== 2) throw corrupt2();
    switch (name) {
      case "ArrayBuffer":
        return this.begin(this.buffer());
      case "Date":
        return this.date(1);
      case "DataView":
        return this.begin(new DataView(this.content().buffer));
      case "Number":
      case "String":
      case "Boolean":
      case "BigInt": {
        const value = this.value();
        if (typeof value !== name.toLowerCase()) throw corrupt2();
        return this.begin(Object(value));
      }
      default:
        throw corrupt2();
    }
  }
  /** An array with named properties, or with hardly any elements. */
  namedArray(count) {
    const into = this.begin([]);
    const first = this.byte();
    if (count !== 3) throw corrupt2();
    if (first >> 5 === 0) {
      const length = this.argument(first & 31);
      if (length > 4294967295) throw corrupt2();
      into.length = length;
    } else if (first >> 5 === 4) {
      this.array(into, first & 31);
    } else {
      throw corrupt2();
    }
    for (let left = this.count(this.expect(5), 2); left > 0; left--) {
      const key = this.name();
      if (key === "length") throw corrupt2();
      define(into, key, this.value());
    }
    return into;
  }
  /** Bytes of its own, or the buffer of an earlier object. */
  buffer() {
    const first = this.byte();
    if (first >> 5 === 2) return this.copy(first & 31).buffer;
    const object = first >> 5 === 0 ? this.objects[this.argument(first & 31)] : void 0;
    if (object instanceof ArrayBuffer) return object;
    if (!ArrayBuffer.isView(object)) throw corrupt2();
    return object.buffer;
  }
  /** A view of a part of a buffer. */
  sharing(name) {
    const isKnown = name === "Uint8Array" || name === "DataView" || Object.hasOwn(TYPED_ARRAY_TAGS, name);
    const View = isKnown ? globalThis[name] : void 0;
    const buffer = this.buffer();
    const start = this.argument(this.expect(0));
    const size = this.argument(this.expect(0));
    const count = size / (View?.BYTES_PER_ELEMENT ?? 1);
    if (View === void 0 || !Number.isInteger(count)) throw corrupt2();
    try {
      return this.begin(new View(buffer, start, count));
    } catch {
      throw corrupt2();
    }
  }
  error(name, count) {
    if (count !== 2 && count !== 3) throw corrupt2();
    const ErrorClass = globalThis[name];
    const error = this.begin(new ErrorClass());
    const message = this.value();
    if (message !== void 0) define(error, "message", message, false);
    define(error, "stack", this.value(), false);
    if (count === 3) define(error, "cause", this.value(), false);
    return error;
  }
};
var decoder = new CborDecoder();
function decodeStructured(bytes) {
  return readStructured(bytes, 0, bytes.length);
}
function readStructured(bytes, from, to) {
  const first = bytes[from];
  const size = first < 24 ? 0 : first === 24 ? 1 : first === 25 ? 2 : first === 26 ? 4 : -1;
  if (size < 0 || to - from !== 1 + size) return decoder.decode(bytes, from, to);
  if (size === 0) return first;
  let value = 0;
  for (let at = from + 1; at < to; at++) value = value * 256 + bytes[at];
  return value;
}

// src/codec/cbor-views.ts
var ALIGNMENT = 8;
function findShared(views) {
  const shared = /* @__PURE__ */ new Map();
  const byBuffer = /* @__PURE__ */ new Map();
  for (const view of views) {
    const others = byBuffer.get(view.buffer);
    if (others === void 0) byBuffer.set(view.buffer, [view]);
    else others.push(view);
  }
  const add = (group, end) => {
    if (group.length < 2) return;
    const [{ start }] = group;
    const bytes = { views: group.sort((a, b) => a.ordinal - b.ordinal), start: start - start % ALIGNMENT, end };
    for (const view of group) shared.set(view, bytes);
  };
  for (const sharers of byBuffer.values()) {
    if (sharers.length < 2) continue;
    const isWhole = sharers.some(({ name }) => name === "ArrayBuffer");
    let group = [];
    let end = 0;
    for (const view of sharers.sort((a, b) => a.start - b.start || b.end - a.end)) {
      if (!isWhole && view.start >= end) {
        add(group, end);
        group = [];
      }
      group.push(view);
      end = Math.max(end, view.end);
    }
    add(group, end);
  }
  return shared;
}

// src/codec/cbor-encode.ts
var textEncoder = new TextEncoder();
var { toString } = Object.prototype;
var tagOf = (value) => toString.call(value).slice(8, -1);
var getterOf = (prototype2, property) => Object.getOwnPropertyDescriptor(prototype2, property)?.get;
var sourceOf = getterOf(RegExp.prototype, "source");
var typedArrayName = getterOf(Object.getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag);
var bufferLength = getterOf(ArrayBuffer.prototype, "byteLength");
var BOXES = { Number, String, Boolean, BigInt };
function byBrand(method, value) {
  try {
    return method.call(value);
  } catch (error) {
    throw new Refusal(`an object that calls itself ${tagOf(value)} but is not one`, error);
  }
}
function bytesOf(buffer, offset, length) {
  try {
    return new Uint8Array(buffer, offset, length);
  } catch (error) {
    throw new Refusal("a detached buffer", error);
  }
}
function isWellFormed2(text2) {
  return !/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/.test(text2);
}
function wtf8(text2) {
  const bytes = [];
  for (const character of text2) {
    const code = character.codePointAt(0);
    if (code >= 55296 && code <= 57343) bytes.push(224 | code >> 12, 128 | code >> 6 & 63, 128 | code & 63);
    else bytes.push(...textEncoder.encode(character));
  }
  return Uint8Array.from(bytes);
}
function viewName(view) {
  return typedArrayName.call(view) ?? "DataView";
}
function isIndex(name) {
  const index = Number(name);
  return index >>> 0 === index && index !== 4294967295 && String(index) === name;
}
var FEW_OBJECTS = 8;
var MAX_HOLES = 1 << 24;
var CborEncoder = class {
  out = new ByteWriter(4096);
  /**
   * Objects in the order in which they begin. The map of their ordinals is created only when there
   * are many, so that small values need none.
   */
  seen = [];
  places;
  views = [];
  depth = 0;
  isStrict = false;
  /** `isStrict` refuses class instances, because their methods are not stored. */
  encode(value, isStrict) {
    this.out.length = 0;
    this.depth = 0;
    this.isStrict = isStrict;
    try {
      this.value(value);
      if (this.views.length > 1) this.share();
      return this.out.copy();
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const what = error.where === "" ? error.what : `${error.what} at ${error.where}`;
      const { cause } = error;
      throw new KvError(
        "KV_INVALID_VALUE",
        `${what} cannot be stored${isStrict ? " with strict values" : ""}; keep plain data, or use a value codec of your own, or blob() for Blobs`,
        cause === void 0 ? {} : { cause }
      );
    } finally {
      this.seen.length = 0;
      this.places = void 0;
      this.views.length = 0;
      if (this.out.bytes.length > 1 << 20) {
        this.out.bytes = new Uint8Array(4096);
        this.out.view = new DataView(this.out.bytes.buffer);
      }
    }
  }
  head(major, value) {
    const { out } = this;
    out.reserve(9);
    const { bytes, length } = out;
    const type = major << 5;
    if (value < 24) {
      bytes[length] = type | value;
      out.length = length + 1;
    } else if (value < 256) {
      bytes[length] = type | 24;
      bytes[length + 1] = value;
      out.length = length + 2;
    } else if (value < 65536) {
      bytes[length] = type | 25;
      bytes[length + 1] = value >> 8;
      bytes[length + 2] = value;
      out.length = length + 3;
    } else if (value < 4294967296) {
      bytes[length] = type | 26;
      out.length = length + 1;
      out.u32(value);
    } else {
      bytes[length] = type | 27;
      out.length = length + 1;
      out.u32(Math.floor(value / 4294967296));
      out.u32(value >>> 0);
    }
  }
  value(value) {
    switch (typeof value) {
      case "string":
        return this.string(value);
      case "number":
        return this.number(value);
      case "boolean":
        return this.out.byte(value ? TRUE : FALSE);
      case "undefined":
        return this.out.byte(UNDEFINED);
      case "bigint":
        return this.bigint(value);
      case "object":
        return value === null ? this.out.byte(NULL) : this.reference(value);
      default:
        throw new Refusal(`a ${typeof value}`);
    }
  }
  number(value) {
    if (Number.isSafeInteger(value) && !Object.is(value, -0)) {
      if (value >= 0) this.head(0, value);
      else this.head(1, -1 - value);
      return;
    }
    const { out } = this;
    out.reserve(9);
    const { bytes, view, length } = out;
    if (Object.is(Math.fround(value), value)) {
      bytes[length] = FLOAT32;
      view.setFloat32(length + 1, value);
      out.length = length + 5;
    } else {
      bytes[length] = FLOAT64;
      view.setFloat64(length + 1, value);
      out.length = length + 9;
    }
  }
  string(text2) {
    const { out } = this;
    const { length } = text2;
    if (length <= 48) {
      const start = out.length;
      out.reserve(length + 2);
      this.head(3, length);
      const end = putAscii(text2, out.bytes, out.length, out.bytes.length);
      if (end >= 0) {
        out.length = end;
        return;
      }
      out.length = start;
    }
    this.longString(text2);
  }
  longString(text2) {
    if (!isWellFormed2(text2)) {
      this.head(6, TAG_WTF8);
      this.bytes(wtf8(text2));
      return;
    }
    const { out } = this;
    out.reserve(text2.length * 3 + 9);
    const from = out.length + 9;
    const { written } = textEncoder.encodeInto(text2, out.bytes.subarray(from));
    this.head(3, written);
    out.bytes.copyWithin(out.length, from, from + written);
    out.length += written;
  }
  bytes(bytes) {
    this.head(2, bytes.length);
    this.out.raw(bytes);
  }
  bigint(value) {
    this.head(6, value < 0n ? TAG_NEGATIVE_BIGINT : TAG_POSITIVE_BIGINT);
    const magnitude = value < 0n ? -1n - value : value;
    let digits = magnitude === 0n ? "" : magnitude.toString(16);
    if (digits.length % 2 === 1) digits = `0${digits}`;
    this.head(2, digits.length / 2);
    for (let index = 0; index < digits.length; index += 2) this.out.byte(Number.parseInt(digits.slice(index, index + 2), 16));
  }
  /** Writes an object once, and its ordinal from then on. */
  reference(value) {
    const ordinal = this.ordinalOf(value);
    if (ordinal >= 0) {
      this.head(6, TAG_REFERENCE);
      this.head(0, ordinal);
      return;
    }
    this.places?.set(value, this.seen.length);
    this.seen.push(value);
    if (++this.depth > MAX_DEPTH2) throw new Refusal(`a value nested more than ${MAX_DEPTH2} deep`);
    if (this.isStrict) this.checkClass(value);
    if (Array.isArray(value)) this.array(value);
    else this.object(value);
    this.depth--;
  }
  /** Compares names, because another realm has classes of its own. */
  checkClass(value) {
    if (Object.getPrototypeOf(value) === null) return;
    const made = classNameOf(value);
    const kept = ArrayBuffer.isView(value) ? viewName(value) : Array.isArray(value) ? "Array" : tagOf(value);
    if (made === kept || kept === "Error" && ERROR_NAMES.includes(made)) return;
    throw new Refusal(made === "" ? "an object with a prototype of its own" : `an instance of ${made}`);
  }
  /** Negative if the object was not seen yet. */
  ordinalOf(value) {
    const { seen } = this;
    if (seen.length <= FEW_OBJECTS) return seen.indexOf(value);
    this.places ??= new Map(seen.map((object, place) => [object, place]));
    return this.places.get(value) ?? -1;
  }
  array(value) {
    const { length } = value;
    if (!(Number.isInteger(length) && length >= 0 && length <= 4294967295)) throw new Refusal("an array with an invalid length");
    const { out, seen, views } = this;
    const before = [out.length, seen.length, views.length];
    if (Object.values(value).length === length && this.elements(value, length, true)) return;
    [out.length, seen.length, views.length] = before;
    this.places = void 0;
    const names3 = Object.keys(value);
    let count = names3.length;
    while (count > 0 && !isIndex(names3[count - 1])) count--;
    const isSparse = length - count > MAX_HOLES;
    if (count === names3.length && !isSparse) {
      this.elements(value, length, false);
      return;
    }
    this.named("Array", 2);
    if (isSparse) this.head(0, length);
    else this.elements(value, length, false);
    this.properties(value, isSparse ? names3 : names3.slice(count));
  }
  /** Writes the elements. With `isDense` it stops at the first hole and returns false. */
  elements(value, length, isDense) {
    this.head(4, length);
    let index = 0;
    try {
      for (; index < length; index++) {
        const element = value[index];
        if (element !== void 0 || index in value) this.value(element);
        else if (isDense) return false;
        else this.out.byte(HOLE);
      }
    } catch (error) {
      throw within(`[${index}]`, error);
    }
    return true;
  }
  object(value) {
    if (ArrayBuffer.isView(value)) return this.view(value);
    const tag = toString.call(value);
    if (tag === "[object Object]") return this.properties(value, Object.keys(value));
    switch (tag.slice(8, -1)) {
      case "Date":
        return this.date(byBrand(Date.prototype.getTime, value));
      case "Map":
        return this.map([...byBrand(Map.prototype.entries, value)]);
      case "Set":
        return this.set([...byBrand(Set.prototype.values, value)]);
      case "RegExp":
        return this.regExp(byBrand(sourceOf, value), new RegExp(value).flags);
      case "Error":
        return this.error(value);
      case "ArrayBuffer":
        byBrand(bufferLength, value);
        return this.buffer("ArrayBuffer", bytesOf(value));
      case "Number":
      case "String":
      case "Boolean":
      case "BigInt": {
        const name = tagOf(value);
        const content = byBrand(BOXES[name].prototype.valueOf, value);
        this.named(name, 1);
        return this.value(content);
      }
      default:
        throw new Refusal(`an object of class ${tagOf(value)}`);
    }
  }
  regExp(source, flags) {
    this.head(6, TAG_REGEXP);
    this.head(4, 2);
    this.string(source);
    this.string(flags);
  }
  /**
   * CBOR counts seconds, which cannot represent every millisecond far from 1970; such dates are
   * written in milliseconds.
   */
  date(time) {
    const seconds = time / 1e3;
    if (Number.isNaN(time) || Math.round(seconds * 1e3) === time) {
      this.head(6, TAG_DATE2);
      this.number(seconds);
    } else {
      this.named("Date", 1);
      this.number(time);
    }
  }
  properties(value, names3) {
    this.head(5, names3.length);
    let name = "";
    try {
      for (name of names3) {
        this.string(name);
        this.value(value[name]);
      }
    } catch (error) {
      throw within(isIndex(name) ? `[${name}]` : /^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`, error);
    }
  }
  map(entries) {
    this.head(6, TAG_MAP);
    this.head(5, entries.length);
    let at = 0;
    try {
      for (; at < 2 * entries.length; at++) this.value(entries[at >> 1][at & 1]);
    } catch (error) {
      throw within(`.entries()[${at >> 1}][${at & 1}]`, error);
    }
  }
  set(elements) {
    this.head(6, TAG_SET);
    try {
      this.elements(elements, elements.length, false);
    } catch (error) {
      throw within(".values()", error);
    }
  }
  /** Writes the head of `[class name, ...arguments]`. */
  named(name, argumentCount) {
    this.head(6, TAG_OBJECT);
    this.head(4, argumentCount + 1);
    this.string(name);
  }
  error(value) {
    const { name, stack } = value;
    const hasCause = Object.hasOwn(value, "cause");
    this.named(ERROR_NAMES.includes(name) ? name : "Error", hasCause ? 3 : 2);
    this.value(Object.hasOwn(value, "message") ? String(value.message) : void 0);
    this.value(typeof stack === "string" ? stack : void 0);
    if (!hasCause) return;
    try {
      this.value(value.cause);
    } catch (error) {
      throw within(".cause", error);
    }
  }
  view(value) {
    if (tagOf(value.buffer) !== "ArrayBuffer") throw new Refusal("a view of shared memory");
    this.buffer(viewName(value), bytesOf(value.buffer, value.byteOffset, value.byteLength));
  }
  /** Writes the bytes of a single view or buffer. */
  buffer(name, bytes) {
    const { out } = this;
    const from = out.length;
    const tag = TYPED_ARRAY_TAGS[name];
    if (tag !== void 0) this.head(6, tag);
    else if (name === "DataView" || name === "ArrayBuffer") this.named(name, 1);
    else if (name !== "Uint8Array") throw new Refusal(`an object of class ${name}`);
    this.bytes(bytes);
    const { buffer, byteOffset: start } = bytes;
    this.views.push({ name, buffer, start, end: start + bytes.length, ordinal: this.seen.length - 1, from, to: out.length });
  }
  /**
   * Rewrites views that share bytes: the first stores all of them, the others refer to parts of it.
   */
  share() {
    const { out, views } = this;
    const shared = findShared(views);
    if (shared.size === 0) return;
    const before = out.copy();
    let copied = 0;
    out.length = 0;
    for (const view of views) {
      const bytes = shared.get(view);
      if (bytes === void 0) continue;
      out.raw(before.subarray(copied, view.from));
      copied = view.to;
      const [first] = bytes.views;
      const isView = view.name !== "ArrayBuffer";
      this.named(view.name, isView ? 3 : 1);
      if (view === first) this.bytes(together(bytes, before));
      else this.head(0, first.ordinal);
      if (isView) {
        this.head(0, view.start - bytes.start);
        this.head(0, view.end - view.start);
      }
    }
    out.raw(before.subarray(copied));
  }
};
function together({ views, start, end }, items) {
  const bytes = new Uint8Array(end - start);
  for (const view of views) bytes.set(items.subarray(view.to - (view.end - view.start), view.to), view.start - start);
  return bytes;
}

// src/codec/values.ts
var utf8Encoder3 = new TextEncoder();
var utf8Decoder3 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
var cborEncoder = new CborEncoder();
var isEncoding2 = false;
function encodeStructured(value, isStrict) {
  if (value === void 0) {
    throw new KvError("KV_INVALID_VALUE", "undefined cannot be stored, because it means no entry; null can");
  }
  if (isEncoding2) return new CborEncoder().encode(value, isStrict);
  isEncoding2 = true;
  try {
    return cborEncoder.encode(value, isStrict);
  } finally {
    isEncoding2 = false;
  }
}
var SMALL = 24;
function putStructured(value, out, at, end) {
  if (typeof value === "number") {
    if (value >>> 0 !== value || Object.is(value, -0) || at + 5 > end) return -1;
    if (value < SMALL) {
      out[at] = value;
      return at + 1;
    }
    const size = value < 256 ? 1 : value < 65536 ? 2 : 4;
    out[at] = size === 4 ? 26 : 23 + size;
    for (let index = size, rest = value; index > 0; index--, rest >>>= 8) out[at + index] = rest;
    return at + 1 + size;
  }
  if (typeof value !== "string" || at === end || value.length >= SMALL) return -1;
  out[at] = 96 | value.length;
  return putAscii(value, out, at + 1, end);
}
function invalidValue(codec, value) {
  return new KvError("KV_INVALID_VALUE", `a ${typeof value} cannot be stored with value codec ${codec}`);
}
var valueCodecs = {
  /**
   * Default: whatever structured clone preserves, as a CBOR profile.
   *
   * - Restored as they were: plain data, Date, Map, Set, RegExp, typed arrays, ArrayBuffer, Error,
   *   bigint, -0, NaN, holes, named properties of arrays, cycles, shared references and shared
   *   bytes.
   * - Refused: functions, symbols and platform objects.
   * - A class instance is restored as a plain object, or as an instance of the built-in class that
   *   it extends. With `strict` (default: false) it is refused with KV_INVALID_VALUE; the stored
   *   bytes are the same.
   */
  structured({ strict = false } = {}) {
    return withFast({ id: "structured", encode: (value) => encodeStructured(value, strict), decode: decodeStructured }, {
      put: putStructured,
      read: readStructured
    });
  },
  /** JSON text, with JSON's losses. */
  json() {
    return {
      id: "json",
      encode(value) {
        const text2 = JSON.stringify(value);
        if (text2 === void 0) throw invalidValue("json", value);
        return utf8Encoder3.encode(text2);
      },
      decode: (bytes) => JSON.parse(utf8Decoder3.decode(bytes))
    };
  },
  /** Strings as UTF-8; lone surrogates become U+FFFD. */
  string: withFast({
    id: "string",
    encode(value) {
      if (typeof value !== "string") throw invalidValue("string", value);
      return utf8Encoder3.encode(value);
    },
    decode: (bytes) => utf8Decoder3.decode(bytes)
  }, {
    put(value, out, at, end) {
      if (typeof value !== "string") return -1;
      const short = putAscii(value, out, at, end);
      if (short >= 0 || value.length * 3 > end - at) return short;
      return at + utf8Encoder3.encodeInto(value, out.subarray(at, end)).written;
    },
    read: (bytes, from, to) => readAscii(bytes, from, to) ?? utf8Decoder3.decode(bytes.subarray(from, to))
  }),
  /** Bytes, unchanged; reads return a copy. */
  bytes: withFast({
    id: "bytes",
    encode(value) {
      const bytes = toBytes(value);
      if (bytes === void 0) throw invalidValue("bytes", value);
      return bytes.slice();
    },
    decode: (bytes) => bytes.slice()
  }, bytesFast)
};

// src/sync/modes.ts
var Modes = class {
  #mode;
  /** Ranges of prefixes are apart or within each other; a range comes before those that it is within. */
  #ranges;
  /** `mode` is that of keys without a prefix of `prefixes`; of several prefixes the longest decides. */
  constructor(collection, codec, mode, prefixes) {
    const name = JSON.stringify(collection);
    for (const each of [mode, ...prefixes.map((given) => given.mode)]) {
      if (each !== "merge" && each !== "strict") throw new KvError("KV_INVALID_ARGUMENT", `syncDatabase: the mode of ${name} has to be "merge" or "strict"`);
    }
    this.#mode = mode;
    this.#ranges = prefixes.map(({ prefix, mode: own }) => ({ ...prefixRange(codec, prefix), mode: own })).sort((a, b) => compareBytes(b.lower, a.lower) || (isWithin2(a.upper, b.upper) ? -1 : 1));
    for (const [at, { lower, upper }] of this.#ranges.entries()) {
      const next = this.#ranges[at + 1];
      if (next !== void 0 && compareBytes(lower, next.lower) === 0 && isWithin2(upper, next.upper) && isWithin2(next.upper, upper)) {
        throw new KvError("KV_INVALID_ARGUMENT", `syncDatabase: a prefix of ${name} is named twice in \`prefixModes\``);
      }
    }
  }
  isStrict(key) {
    const range = this.#ranges.find(({ lower, upper }) => compareBytes(lower, key) <= 0 && (upper === void 0 || compareBytes(key, upper) < 0));
    return (range?.mode ?? this.#mode) === "strict";
  }
  /** Whether keys can be in a mode. */
  has(mode) {
    return this.#mode === mode || this.#ranges.some((range) => range.mode === mode);
  }
};
function isWithin2(upper, other) {
  return other === void 0 || upper !== void 0 && compareBytes(upper, other) <= 0;
}

// src/sync/tables.ts
var PREFIX = "mangrove:sync";
var STATE_COLLECTION = PREFIX;
var raw = (id) => ({ id, encode: (bytes) => bytes, decode: (bytes) => bytes });
function indexOfBytes(index, key, value) {
  if (typeof index.key !== "function") return index;
  const { key: compute } = index;
  return {
    ...index,
    key: (valueBytes, keyBytes) => {
      try {
        return compute(value.decode(valueBytes), key.decode(keyBytes));
      } catch {
        return void 0;
      }
    }
  };
}
function uniqueOf(indexes, key, value) {
  return indexes.filter(([, index]) => index.unique === true).map(([name, index]) => {
    const { key: compute } = indexOfBytes(index, key, value);
    const keysOf = (valueBytes, keyBytes) => {
      const found = typeof compute === "function" ? compute(valueBytes, keyBytes) : void 0;
      if (found === void 0) return [];
      return index.multi === true ? found : [found];
    };
    return { name, keysOf };
  });
}
function toTable(db, name, options, mode) {
  if (name.startsWith("mangrove:")) {
    throw new KvError("KV_INVALID_ARGUMENT", `syncDatabase: collection ${JSON.stringify(name)} cannot be synchronized; give the data a collection with a name of its own`);
  }
  const key = options.key ?? keyCodecs.any;
  const modes = new Modes(name, key, mode, options.prefixModes ?? []);
  const value = options.value ?? valueCodecs.structured();
  const indexes = Object.entries(options.indexes ?? {});
  const unique = indexes.find(([, index]) => index.unique === true);
  if (modes.has("merge") && unique !== void 0) {
    throw new KvError("KV_INVALID_ARGUMENT", `syncDatabase: index ${JSON.stringify(unique[0])} of ${JSON.stringify(name)} is unique, which devices cannot keep offline; use mode "strict"`);
  }
  const data = db.collection(name, {
    key: raw(key.id),
    value: raw(value.id),
    ...indexes.length > 0 && { indexes: Object.fromEntries(indexes.map(([index, given]) => [index, indexOfBytes(given, key, value)])) }
  });
  db.collection(name, { key, value });
  const own = (what) => db.collection(`${PREFIX}/${what}/${name}`, { key: keyCodecs.bytes, value: valueCodecs.bytes });
  return { name, modes, key, value, data, stamps: own("stamps"), overlay: own("overlay"), unique: uniqueOf(indexes, key, value) };
}
var Tables = class {
  db;
  byName = /* @__PURE__ */ new Map();
  state;
  /** The last applied sequence number of each device. */
  applied;
  outbox;
  /** Strict records of tabs, by an id that the tab gave. */
  offered;
  /** Parts of records that are not complete yet, by device and number. */
  chunks;
  /** A row whose version the state knows. */
  witness;
  /** Large values that are not in the object store yet, by the hash of what is stored there. */
  blobs;
  /** Conflicts that the application has not handled yet. */
  conflicts;
  constructor(db, collections, mode) {
    this.db = db;
    for (const [name, options] of Object.entries(collections)) this.byName.set(name, toTable(db, name, options, options.mode ?? mode));
    this.state = db.collection(STATE_COLLECTION, { key: keyCodecs.string, value: valueCodecs.json() });
    this.applied = db.collection(`${PREFIX}/applied`, { key: keyCodecs.string, value: valueCodecs.json() });
    this.outbox = db.collection(`${PREFIX}/outbox`, { key: keyCodecs.int53, value: valueCodecs.bytes });
    this.offered = db.collection(`${PREFIX}/offered`, { key: keyCodecs.string, value: valueCodecs.json() });
    this.chunks = db.collection(`${PREFIX}/chunks`, { key: keyCodecs.tuple(), value: valueCodecs.bytes });
    this.witness = db.collection(`${PREFIX}/witness`, { key: keyCodecs.string, value: valueCodecs.json() });
    this.blobs = db.collection(`${PREFIX}/blobs`, { key: keyCodecs.string, value: valueCodecs.bytes });
    this.conflicts = db.collection(`${PREFIX}/conflicts`, { key: keyCodecs.int53 });
  }
  /** Where writes of the log or rows of a snapshot go; undefined: they have no effect here. */
  find(name) {
    return this.byName.get(name);
  }
  /**
   * Whether a key takes writes of a mode; without a key, whether any does. Mixed modes on one key
   * would make the order of stamps and that of the log contradict each other.
   */
  takes({ modes }, mode, key) {
    return key === void 0 ? modes.has(mode) : modes.isStrict(key) === (mode === "strict");
  }
  /** Whether a change of the feed can be one of keys in mode "strict". */
  isStrictChange(change) {
    const modes = this.byName.get(change.collection)?.modes;
    if (modes === void 0) return false;
    return change.type === "set" || change.type === "delete" ? modes.isStrict(change.key) : modes.has("strict");
  }
  /** Runs `work` with the state; the state it returns is written in the same commit, if it differs. */
  change(work, options) {
    return this.db.transaction(async (tx) => {
      const rows = tx.collection(this.state);
      const before = await rows.get("state") ?? newState();
      const { state, result } = await work(tx, before);
      if (state !== before) await rows.set("state", { ...state, serial: before.serial + 1 });
      return result;
    }, { isolation: "snapshot", durability: options.durability, timeout: Infinity, maxRetries: 100 });
  }
};
function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return toHex(new DataView(bytes.buffer).getBigUint64(0));
}
function newState() {
  return {
    device: randomId(),
    formers: [],
    offset: void 0,
    nextTicket: 1,
    cursor: { position: 0, serverTime: 0, crc: 0 },
    drained: -1,
    drainedBase: 0,
    hlc: toHex(0n),
    epoch: 1,
    rejoin: void 0,
    collections: [],
    highTime: 0,
    fence: void 0,
    witness: 0,
    serial: 0
  };
}
function withNewId(state) {
  const { device, offset } = state;
  const formers = offset === void 0 ? state.formers : [...state.formers, { device, offset }];
  return { ...state, device: randomId(), offset: void 0, formers };
}
var deviceOf = (state) => fromHex(state.device);

// src/sync/apply.ts
var OFFLINE_LIMIT_MS = 90 * 24 * 3600 * 1e3;
var MissingBlobs = class extends Error {
  hashes;
  constructor(hashes) {
    super("large values have to be fetched");
    this.hashes = hashes;
  }
};
var toBase = (op) => op.type === "set" ? { value: op.value, expiresAt: op.expiresAt } : null;
function isForgotten(row, horizon) {
  return row.stamp?.isDead === true && row.stamp.h < horizon;
}
function decide(row, write, epoch, value) {
  const { h, device, isStrict } = write;
  const { stamp } = row;
  const won = (least) => ({ h: h > least ? h : least, device, isStrict });
  if (stamp === void 0 || isForgotten(row, write.horizon)) return won(0n);
  const isKnown = stamp.epoch === epoch;
  if (!write.isRepair) {
    if (isStrict) return won(isKnown ? stamp.h + 1n : 0n);
    if (isKnown && (stamp.device === device || stamp.position <= write.base)) return won(stamp.h + 1n);
  }
  if (h !== stamp.h) return h > stamp.h ? won(0n) : void 0;
  if (device !== stamp.device) return device > stamp.device ? won(0n) : void 0;
  if (!write.isRepair || !row.isClean) return "same";
  const order = compareBytes(value?.value ?? new Uint8Array(0), row.entry?.value ?? new Uint8Array(0));
  return order > 0 ? won(0n) : "same";
}
function applyWrite(pass, row, value, write) {
  const { state, now } = pass;
  const { stamp: previous } = row;
  const outcome = decide(row, write, state.epoch, value);
  if (outcome === void 0) return;
  if (outcome === "same") {
    if (previous !== void 0 && previous.epoch !== state.epoch) row.setStamp({ ...previous, position: write.position, epoch: state.epoch });
    return;
  }
  if (outcome.h > pass.hlc) pass.hlc = outcome.h;
  const isMineLost = previous !== void 0 && previous.device === deviceOf(state) && !write.isOwn && !write.isRepair && previous.epoch === state.epoch && write.base < previous.position;
  if (isMineLost && row.isClean && !isSameValue(row.entry, value)) {
    pass.conflicts.push({ collection: row.table.name, key: row.key, mine: row.entry, theirs: value });
  }
  row.setStamp({ ...outcome, position: write.position, isDead: value === null, expiresAt: value?.expiresAt ?? 0, epoch: state.epoch, check: checkOf(value) });
  if (write.isOwn && row.overlay !== void 0) {
    row.setOverlay({ ...row.overlay, base: void 0 });
    return;
  }
  putBase(row, value, now);
}
function checkOf(value) {
  return value === null || value.value === UNKNOWN_BYTES ? 0 : crc32c(value.value) + 1;
}
function putBase(row, value, now) {
  if (row.isStrict || row.isClean) {
    row.setEntry(isExpired(value, now) ? null : value);
    row.isClean = true;
  } else {
    row.setOverlay({ ...row.overlay ?? NEVER_READ, base: value });
  }
}
var NEVER_READ = { ticket: 0, captured: 0, isDelete: false, expiresAt: 0 };
var isExpired = (value, now) => value !== null && value.expiresAt !== 0 && value.expiresAt <= now;
function isSameValue(a, b) {
  if (a === null || b === null) return a === b;
  return a.expiresAt === b.expiresAt && compareBytes(a.value, b.value) === 0;
}
function isEntryCaptured(row, now) {
  const overlay = row.overlay;
  if (overlay === void 0) return true;
  if (row.entry === null) return overlay.isDelete || overlay.expiresAt !== 0 && overlay.expiresAt <= now;
  return !overlay.isDelete && row.entryVersion === (overlay.captured || row.overlayVersion);
}
function settle(row, ticket, now, lost) {
  const { overlay } = row;
  if (overlay === void 0 || overlay.ticket > ticket) return;
  const { base } = overlay;
  if (!isEntryCaptured(row, now)) {
    if (overlay.ticket !== 0) row.setOverlay({ ...overlay, ticket: 0 });
    return;
  }
  if (base === void 0) return row.becomeClean();
  const mine = row.entry;
  if (!isSameValue(mine, base)) {
    row.setEntry(isExpired(base, now) ? null : base);
    lost(mine, base);
  }
  row.becomeClean();
}
async function loadAll(pass, transactions, isOwn) {
  const points = [];
  const missing = [];
  for (const { ops } of transactions) {
    for (const op of ops) {
      const table = pass.tables.find(op.collection);
      if (table === void 0) continue;
      if (op.type === "clear") await pass.model.loadRange(table, op.lower, op.upper);
      else points.push({ table, key: op.key });
      if (op.type === "blob" && !pass.blobs.has(toHexBytes(op.hash))) missing.push(op.hash);
    }
  }
  if (missing.length > 0 && !isOwn) throw new MissingBlobs(missing);
  await pass.model.load(points);
}
var UNKNOWN_BYTES = new Uint8Array(0);
function withBlob(op, blobs) {
  if (op.type !== "blob") return op;
  return { type: "set", collection: op.collection, key: op.key, value: blobs.get(toHexBytes(op.hash)) ?? UNKNOWN_BYTES, expiresAt: op.expiresAt, ...op.stamp && { stamp: op.stamp } };
}
var toHexBytes = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
function applyTransactions(pass, record, transactions, ticket) {
  const { model, tables, now } = pass;
  const isRepair = (record.flags & REPAIR) !== 0;
  const isOwn = ticket !== void 0 && !isRepair;
  const mode = record.flags & STRICT2 ? "strict" : "merge";
  const horizon = toHlc(pass.state.highTime - OFFLINE_LIMIT_MS);
  const touched = /* @__PURE__ */ new Set();
  for (const { base, hlc, ops } of transactions) {
    const write = { h: clamp(hlc, record.serverTime), device: record.device, base, position: record.position, isStrict: mode === "strict", isRepair, isOwn, horizon };
    for (const given of ops) {
      const table = tables.find(given.collection);
      if (table === void 0 || !(isRepair || tables.takes(table, mode, given.type === "clear" ? void 0 : given.key))) continue;
      if (given.type === "clear") {
        for (const row2 of model.within(table, given.lower, given.upper)) {
          if (!isRepair && row2.isStrict !== write.isStrict) continue;
          if (row2.overlay !== void 0) touched.add(row2);
          if (row2.stamp === void 0 || row2.stamp.isDead) continue;
          applyWrite(pass, row2, null, write);
          touched.add(row2);
        }
        continue;
      }
      const op = withBlob(given, pass.blobs);
      if (op.type === "clear") continue;
      const row = model.row(table, op.key);
      const stamped = isRepair && op.stamp !== void 0 ? { ...write, h: op.stamp.h, device: op.stamp.device, isStrict: op.stamp.isStrict } : write;
      applyWrite(pass, row, toBase(op), stamped);
      touched.add(row);
    }
  }
  if (!isOwn) return;
  for (const row of touched) {
    if (row.isStrict) continue;
    settle(row, ticket, now, (mine, theirs) => pass.conflicts.push({ collection: row.table.name, key: row.key, mine, theirs }));
  }
}
async function applyRecords(tx, tables, before, records, options) {
  const { now, isGapAccepted = false, blobs = /* @__PURE__ */ new Map() } = options;
  const pass = { tables, model: new Model(tx, tables, now), now, blobs, state: before, hlc: fromHex(before.hlc), conflicts: [] };
  const [applied, outbox, chunks] = [tx.collection(tables.applied), tx.collection(tables.outbox), tx.collection(tables.chunks)];
  const confirmed = [];
  const gaps = [];
  let [isClone, fencedBy] = [false, void 0];
  for (const record of records) {
    const device = toHex(record.device);
    const last = await applied.get(device) ?? 0;
    const { position, serverTime, crc } = record;
    const moved = { ...pass.state, cursor: { position, serverTime, crc }, highTime: Math.max(pass.state.highTime, serverTime) };
    if (record.isPassedOver === true || record.seq <= last) {
      pass.state = moved;
      continue;
    }
    if (record.seq > last + 1) {
      if (!isGapAccepted) {
        throw new KvError("KV_SYNC_GAP", `the log has no record ${last + 1} of device ${device}, but record ${record.seq} at position ${position}; records are missing`, { retryable: true });
      }
      gaps.push({ device, from: last + 1, to: record.seq - 1 });
    }
    pass.state = moved;
    await applied.set(device, record.seq);
    const ticket = await ticketOf(pass.state, record, (at) => outbox.get(at));
    if (ticket !== void 0) {
      await outbox.delete(ticket);
      confirmed.push(ticket);
    } else if (device === pass.state.device) {
      pass.state = withNewId(pass.state);
      isClone = true;
    }
    if (record.flags & FENCE) {
      pass.state = { ...pass.state, fence: device };
      if (device !== pass.state.device) fencedBy = device;
    }
    const body = record.flags & CHUNK ? await joinChunks(chunks, device, record) : record.body;
    if (body === void 0) continue;
    const transactions = decodeTransactions(body);
    await loadAll(pass, transactions, ticket !== void 0);
    applyTransactions(pass, record, transactions, ticket);
  }
  await pass.model.save();
  return { state: { ...pass.state, hlc: toHex(pass.hlc) }, result: { conflicts: pass.conflicts, confirmed, isClone, gaps, fencedBy } };
}
async function ticketOf(state, record, rowAt) {
  const device = toHex(record.device);
  for (const id of [{ device: state.device, offset: state.offset }, ...state.formers]) {
    if (id.device !== device || id.offset === void 0) continue;
    const ticket = record.seq + id.offset;
    const row = await rowAt(ticket);
    if (row !== void 0 && compareBytes(decodeOutbox(row).body, record.body) === 0) return ticket;
  }
  return void 0;
}
async function joinChunks(chunks, device, record) {
  const { index, left, part } = readChunk(record.body);
  if (left > 0) {
    await chunks.set([device, record.seq], part);
    return void 0;
  }
  const parts = [];
  for (let seq = record.seq - index; seq < record.seq; seq++) {
    const each = await chunks.get([device, seq]);
    if (each === void 0) return void 0;
    parts.push(each);
    await chunks.delete([device, seq]);
  }
  return concat([...parts, part]);
}
function readChunk(body) {
  const view = new DataView(body.buffer, body.byteOffset);
  return { index: view.getUint32(0), left: view.getUint32(4), part: body.slice(8) };
}
function chunksOf(body, maxBytes) {
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

// src/sync/wire.ts
var IV_BYTES = 12;
var COMPRESS_BYTES = 512;
var utf8 = new TextEncoder();
async function pipe(bytes, through) {
  const writer = through.writable.getWriter();
  writer.write(bytes).catch(() => void 0);
  writer.close().catch(() => void 0);
  return collect(through.readable);
}
async function collect(stream) {
  const parts = [];
  const reader2 = stream.getReader();
  for (let step = await reader2.read(); !step.done; step = await reader2.read()) parts.push(step.value);
  return concat(parts);
}
function toStream(bytes) {
  return new ReadableStream({
    start(controller) {
      if (bytes.length > 0) controller.enqueue(bytes);
      controller.close();
    }
  });
}
async function deflate(bytes) {
  if (bytes.length < COMPRESS_BYTES || typeof CompressionStream !== "function") return void 0;
  const short = await pipe(bytes, new CompressionStream("deflate-raw"));
  return short.length < bytes.length ? short : void 0;
}
var Wire = class {
  #seal;
  constructor(seal) {
    this.#seal = seal;
  }
  /** A record as it goes into the log. */
  async pack(flags, device, seq, body) {
    const short = await deflate(body);
    const header = { flags: flags | (short === void 0 ? 0 : COMPRESSED) | (this.#seal === void 0 ? 0 : SEALED), device, seq };
    return encodeRecord(header, await this.seal(short ?? body, encodeHeader(header)));
  }
  /** A record from the log, without blobs. */
  async unpack({ position, serverTime, record }) {
    const { header, body } = decodeRecord(record);
    const { flags, device, seq } = header;
    if ((flags & SEALED) !== 0 !== (this.#seal !== void 0)) {
      throw new KvError("KV_CORRUPT", `the record at position ${position} is ${flags & SEALED ? "sealed, and there is no key" : "not sealed, although records of this database are"}`);
    }
    const opened = await this.open(body, encodeHeader(header));
    const plain = flags & COMPRESSED ? await pipe(opened, new DecompressionStream("deflate-raw")).catch((cause) => {
      throw new KvError("KV_CORRUPT", `the record at position ${position} cannot be decompressed`, { cause });
    }) : opened.slice();
    return { position, serverTime, crc: crcOf(record), flags: flags & ~(COMPRESSED | SEALED), device, seq, body: plain };
  }
  /** `about` is authenticated, too. Without a key the bytes stay as they are. */
  async seal(bytes, about2) {
    if (this.#seal === void 0) return bytes;
    const iv = crypto.getRandomValues(new Uint8Array(IV_BYTES));
    const sealed = await crypto.subtle.encrypt(this.#parameters(iv, about2), this.#seal.key, bytes);
    return concat([iv, new Uint8Array(sealed)]);
  }
  async open(bytes, about2) {
    if (this.#seal === void 0) return bytes;
    try {
      const iv = bytes.slice(0, IV_BYTES);
      return new Uint8Array(await crypto.subtle.decrypt(this.#parameters(iv, about2), this.#seal.key, bytes.slice(IV_BYTES)));
    } catch (cause) {
      throw new KvError("KV_CORRUPT", "what was sealed cannot be opened with this key: it is forged, or sealed with another one", { cause });
    }
  }
  #parameters(iv, about2) {
    return { name: "AES-GCM", iv, additionalData: concat([utf8.encode(`${this.#seal.database}|`), about2]) };
  }
  /** A large value as the object store has it. */
  async blob(value) {
    const stored = await this.seal(value, utf8.encode("blob"));
    return { hash: new Uint8Array(await crypto.subtle.digest("SHA-256", stored)), stored };
  }
  /** Fetches a large value and checks that it is the one. */
  async fetchBlob(store, hash) {
    const key = blobKey(toHexBytes(hash));
    if (store === void 0) throw new KvError("KV_LOG_REFUSED", "a record refers to a large value in the object store: pass the option `snapshots`");
    const stream = await store.get(key);
    if (stream === void 0) throw new KvError("KV_LOG_UNAVAILABLE", `the object store has no ${key}, to which a record refers`, { retryable: true });
    const stored = await collect(stream);
    const { length } = stored;
    if (toHexBytes(new Uint8Array(await crypto.subtle.digest("SHA-256", stored))) !== toHexBytes(hash)) {
      throw new KvError("KV_CORRUPT", `${key} of ${length} bytes in the object store is not what its name says`);
    }
    return this.open(stored, utf8.encode("blob"));
  }
};
var blobKey = (hash) => `blob/${hash}`;

// src/sync/remote-log.ts
var logConflict = (message, cause) => new KvError("KV_LOG_CONFLICT", message, { retryable: true, cause });
var logTruncated = (message, cause) => new KvError("KV_LOG_TRUNCATED", message, { cause });
var isTruncated = (error) => error.code === "KV_LOG_TRUNCATED";
var logUnavailable = (message, cause) => new KvError("KV_LOG_UNAVAILABLE", message, { retryable: true, cause });

// src/sync/memory-log.ts
var MemoryServer = class {
  #records = [];
  #last = 0;
  #purged = 0;
  #manifest;
  #revisions = 0;
  #keys = /* @__PURE__ */ new Map();
  #listeners = /* @__PURE__ */ new Set();
  #faults;
  /** `faults` say which calls fail; by default none does. */
  constructor(faults = {}) {
    this.#faults = faults;
  }
  /** All records that are there. */
  get records() {
    return this.#records;
  }
  /** Forgets all records after a position, as servers that restart from stale disks do. */
  loseHistory(after) {
    this.#records = this.#records.filter(({ position }) => position <= after);
    this.#last = Math.min(this.#last, after);
    for (const [key, position] of this.#keys) if (position > after) this.#keys.delete(key);
  }
  /** Forgets which appends it has seen, as servers do after some time. */
  forgetKeys() {
    this.#keys.clear();
  }
  /** @internal */
  append(record, { idempotencyKey, expect }) {
    const known2 = this.#keys.get(idempotencyKey);
    if (known2 !== void 0) return known2;
    if (expect !== void 0 && expect !== this.#last) throw logConflict(`the newest record is at ${this.#last}, not at ${expect}`);
    const position = ++this.#last;
    this.#keys.set(idempotencyKey, position);
    this.#records.push({ position, serverTime: (this.#faults.serverTime ?? Date.now)(), record: record.slice() });
    for (const listener of this.#listeners) if (this.#faults.isWakeLost?.() !== true) queueMicrotask(listener);
    return position;
  }
  /** @internal */
  read(after, limit) {
    if (after < this.#purged) throw this.#truncated();
    return this.#records.filter(({ position }) => position > after).slice(0, limit);
  }
  /** @internal */
  at(position) {
    if (position <= this.#purged && position > 0) throw this.#truncated();
    return this.#records.find((each) => each.position === position);
  }
  /** @internal */
  manifest() {
    return this.#manifest;
  }
  /** @internal */
  replaceManifest(previous, next) {
    if ((this.#manifest?.revision ?? 0) !== previous) throw logConflict("the manifest was replaced meanwhile");
    this.#manifest = { revision: ++this.#revisions, manifest: next.slice() };
    return this.#manifest.revision;
  }
  /** @internal */
  purge(upTo) {
    this.#purged = Math.max(this.#purged, upTo);
    this.#records = this.#records.filter(({ position }) => position > upTo);
  }
  /** @internal */
  wake(listener) {
    const own = () => listener();
    this.#listeners.add(own);
    return () => this.#listeners.delete(own);
  }
  /** @internal */
  async call(name, work) {
    const { isUnreachable, isReplyLost, delay } = this.#faults;
    await delay?.(name);
    if (isUnreachable?.(name) === true) throw logUnavailable(`${name}: the log in memory was told to be unreachable`);
    const result = work();
    if (isReplyLost?.(name) === true) throw logUnavailable(`${name}: the log in memory was told to lose the reply`);
    return result;
  }
  /** @internal */
  duplicates() {
    return this.#faults.isDuplicated?.() === true;
  }
  #truncated() {
    return logTruncated(`records up to ${this.#purged} were removed`);
  }
};
var MemoryLog = class {
  #server;
  #ends = /* @__PURE__ */ new Set();
  #isClosed = false;
  /** Connects to a server. */
  constructor(server2) {
    this.#server = server2;
  }
  append(record, options) {
    return this.#call("append", () => {
      const position = this.#server.append(record, options);
      if (options.expect === void 0 && this.#server.duplicates()) this.#server.append(record, { idempotencyKey: `${options.idempotencyKey} again` });
      return position;
    });
  }
  read(after, limit) {
    return this.#call("read", () => this.#server.read(after, limit));
  }
  at(position) {
    return this.#call("at", () => this.#server.at(position));
  }
  wake(listener) {
    const end = this.#server.wake(listener);
    this.#ends.add(end);
    return () => {
      this.#ends.delete(end);
      end();
    };
  }
  manifest() {
    return this.#call("manifest", () => this.#server.manifest());
  }
  replaceManifest(previous, next) {
    return this.#call("replaceManifest", () => this.#server.replaceManifest(previous, next));
  }
  purge(upTo) {
    return this.#call("purge", () => this.#server.purge(upTo));
  }
  close() {
    this.#isClosed = true;
    for (const end of this.#ends) end();
    this.#ends.clear();
    return Promise.resolve();
  }
  #call(name, work) {
    if (this.#isClosed) return Promise.reject(logUnavailable("the log is closed"));
    return this.#server.call(name, work);
  }
};

// src/base/async.ts
var symbols = Symbol;
var dispose = symbols.dispose ?? /* @__PURE__ */ Symbol.for("Symbol.dispose");
var asyncDispose = symbols.asyncDispose ?? /* @__PURE__ */ Symbol.for("Symbol.asyncDispose");
function ignore() {
}
var { setImmediate } = globalThis;
var waiting = /* @__PURE__ */ new WeakMap();
function onAbort(signal, call) {
  if (signal === void 0) return ignore;
  let shared = waiting.get(signal);
  if (shared === void 0) {
    const calls2 = /* @__PURE__ */ new Set();
    shared = { calls: calls2, listener: () => calls2.forEach((each) => each()) };
    waiting.set(signal, shared);
    signal.addEventListener("abort", shared.listener, { once: true });
  }
  const { calls, listener } = shared;
  calls.add(call);
  return () => {
    if (!calls.delete(call) || calls.size > 0) return;
    signal.removeEventListener("abort", listener);
    waiting.delete(signal);
  };
}
function abortable(promise, signal) {
  if (signal === void 0) return promise;
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    const forget = onAbort(signal, abort);
    promise.then(resolve, reject).finally(forget);
    if (signal.aborted) abort();
  });
}

// src/base/plain-error.ts
function fromPlain({ code, message, retryable }) {
  return new KvError(code, message, { retryable });
}

// src/sync/failures.ts
function toKvError(error) {
  if (error?.name === "KvError") return error;
  return new KvError("KV_IO", `sync failed: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
}
function toPlain(error) {
  const { code, message, retryable } = toKvError(error);
  return { code, message, retryable };
}

// src/sync/bell.ts
var Bell = class {
  #isRung = false;
  #wake;
  ring() {
    this.#isRung = true;
    this.#wake?.();
  }
  /** Resolves when it was rung, or after a time. */
  async wait(timeoutMs) {
    if (!this.#isRung) {
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, timeoutMs);
        timer.unref?.();
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    this.#isRung = false;
    this.#wake = void 0;
  }
};

// src/codec/key-text.ts
function toHex2(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
}
function keyText(key) {
  if (typeof key === "bigint") return `${key}n`;
  if (key instanceof Date) return Number.isNaN(key.getTime()) ? "invalid date" : key.toISOString();
  if (key instanceof Uint8Array) return toHex2(key);
  if (Array.isArray(key)) return `[${key.map(keyText).join(", ")}]`;
  return typeof key === "string" ? JSON.stringify(key) : String(key);
}

// src/sync/drain.ts
var MAX_BODY_BYTES = 900 << 10;
var GOOD_BODY_BYTES = 128 << 10;
var OP_BYTES = 16;
function toBounds(range) {
  const bound = (value, isExclusive) => value === void 0 ? void 0 : { bytes: encodeBound(keyCodecs.bytes, value), isExclusive };
  if (range.prefix !== void 0) {
    const { lower, upper } = prefixRange(keyCodecs.bytes, range.prefix);
    return { lower: bound(lower, false), upper: bound(upper, true) };
  }
  return { lower: bound(range.gt ?? range.gte, range.gt !== void 0), upper: bound(range.lt ?? range.lte, range.lt !== void 0) };
}
var Capture = class {
  #tables;
  #model;
  #now;
  transactions = [];
  #latest = /* @__PURE__ */ new Map();
  #ops = [];
  hlc;
  constructor(tables, model, state, now) {
    this.#tables = tables;
    this.#model = model;
    this.#now = now;
    this.hlc = fromHex(state.hlc);
  }
  set(table, key, value, expiresAt, version) {
    this.#ops.push({ type: "set", collection: table.name, key, value, expiresAt });
    const row = this.#model.row(table, key);
    this.#latest.set(row, { row, version, value: { value, expiresAt } });
  }
  delete(table, key, version) {
    const row = this.#model.row(table, key);
    const latest = this.#latest.get(row);
    const known2 = latest === void 0 ? row.overlay ?? (row.stamp?.isDead === false ? row.stamp : void 0) : latest.value ?? void 0;
    if (known2 === void 0 || known2.expiresAt !== 0 && known2.expiresAt <= this.#now) return;
    this.#ops.push({ type: "delete", collection: table.name, key });
    this.#latest.set(row, { row, version, value: null });
  }
  clear(table, lower, upper, version) {
    let isEffective = false;
    for (const row of this.#model.within(table, lower, upper)) {
      if (row.isStrict) continue;
      const latest = this.#latest.get(row);
      const isThere = latest === void 0 ? row.overlay?.isDelete === false || row.stamp?.isDead === false && row.overlay?.isDelete !== true : latest.value !== null;
      if (!isThere) continue;
      if (latest === void 0 && row.overlay === void 0 && row.isClean && row.entryVersion > version) continue;
      isEffective = true;
      this.#latest.set(row, { row, version, value: null });
    }
    if (!isEffective) return;
    this.#ops.push({ type: "clear", collection: table.name, lower, upper });
  }
  /** Ends a transaction. */
  end(base) {
    if (this.#ops.length === 0) return;
    this.hlc = tick(this.hlc, this.#now);
    this.transactions.push({ base, hlc: this.hlc, ops: this.#ops });
    this.#ops = [];
  }
  /** Puts the records into the outbox, and their keys into the overlay. */
  async save(tx, state, blobs) {
    if (this.transactions.length === 0) return state;
    const last = await putRecords(tx, this.#tables, state.nextTicket, 0, this.transactions, blobs);
    for (const { row, version, value } of this.#latest.values()) {
      const overlay = { ticket: last, captured: version, isDelete: value === null, expiresAt: value?.expiresAt ?? 0, base: row.overlay?.base };
      if (row.overlay === void 0 && row.isEntryFromSync && row.entryVersion > version) {
        const base = row.entry;
        row.setEntry(value);
        row.setOverlay({ ...overlay, captured: 0, base });
      } else {
        row.setOverlay(overlay);
      }
    }
    await this.#model.save();
    return { ...state, nextTicket: last + 1, hlc: toHex(this.hlc) };
  }
};
var BLOB_BYTES = 256 << 10;
async function withBlobs(tx, tables, op, blobs) {
  if (op.type !== "set" || op.value.length <= BLOB_BYTES) return op;
  const { hash, stored } = await blobs(op.value);
  await tx.collection(tables.blobs).set(toHexBytes(hash), stored);
  const { collection, key, value, expiresAt, stamp } = op;
  return { type: "blob", collection, key, hash, size: value.length, expiresAt, ...stamp && { stamp } };
}
async function putRecords(tx, tables, first, flags, given, blobs) {
  const transactions = blobs === void 0 ? given : await Promise.all(given.map(async (each) => ({
    ...each,
    ops: await Promise.all(each.ops.map((op) => withBlobs(tx, tables, op, blobs)))
  })));
  const body = encodeTransactions(transactions);
  const outbox = tx.collection(tables.outbox);
  if (body.length <= MAX_BODY_BYTES) {
    await outbox.set(first, encodeOutbox({ flags, expect: void 0, body }));
    return first;
  }
  const parts = chunksOf(body, MAX_BODY_BYTES);
  await outbox.setMany(parts.map((part, index) => [first + index, encodeOutbox({ flags: flags | CHUNK, expect: void 0, body: part })]));
  return first + parts.length - 1;
}
function describe2(table, key) {
  try {
    return keyText(table.key.decode(key));
  } catch {
    return "a key";
  }
}
function oneRecordOf(tables, commits) {
  let bytes = 0;
  const end = commits.findIndex((commit) => {
    if (bytes > GOOD_BODY_BYTES) return true;
    if (commit.isOwn) return false;
    for (const change of commit.changes) {
      if (!tables.byName.has(change.collection)) continue;
      bytes += OP_BYTES;
      if (change.type === "set") bytes += change.key.length + change.value.length;
      else if (change.type === "delete") bytes += change.key.length;
    }
    return false;
  });
  return end < 0 ? commits : commits.slice(0, end);
}
async function drainCommits(tx, tables, state, given, now, blobs) {
  const commits = oneRecordOf(tables, given);
  const model = new Model(tx, tables, now);
  const capture = new Capture(tables, model, state, now);
  const violations = [];
  let { drained, drainedBase } = state;
  let [count, isRescanNeeded] = [0, false];
  const points = [];
  for (const commit of commits) {
    if (commit.isOwn) continue;
    for (const change of commit.changes) {
      const table = tables.byName.get(change.collection);
      if (table === void 0) continue;
      if (change.type === "set" || change.type === "delete") points.push({ table, key: change.key });
      else if (change.type === "clear" || change.type === "drop") {
        const { lower, upper } = toBounds(change.type === "clear" ? change.range : {});
        await model.loadRange(table, lower, upper);
      }
    }
  }
  await model.load(points);
  const restore = (row) => {
    row.setEntry(row.copy);
    row.becomeClean();
  };
  for (const commit of commits) {
    if (isRescanNeeded) break;
    count++;
    drained = commit.version;
    if (commit.isOwn) {
      drainedBase = commit.base ?? drainedBase;
      continue;
    }
    let violated;
    for (const change of commit.changes) {
      if (change.type === "rename" && (tables.byName.has(change.collection) || tables.byName.has(change.to))) isRescanNeeded = true;
      const table = tables.byName.get(change.collection);
      if (table === void 0 || change.type === "rename") continue;
      if (change.type === "set" || change.type === "delete") {
        const row = model.row(table, change.key);
        if (row.isStrict) {
          if (change.type === "delete" && row.entry === null && !row.isLive(now)) continue;
          violated = { table, key: change.key };
          restore(row);
        } else if (change.type === "set") capture.set(table, change.key, change.value, change.expiresAt ?? 0, commit.version);
        else capture.delete(table, change.key, commit.version);
        continue;
      }
      const { lower, upper } = toBounds(change.type === "clear" ? change.range : {});
      if (table.modes.has("merge")) capture.clear(table, lower, upper, commit.version);
      for (const row of model.within(table, lower, upper)) {
        if (!row.isStrict) continue;
        if (row.copy !== null) violated = { table, key: void 0 };
        restore(row);
      }
    }
    if (violated !== void 0) violations.push(modeError(violated.table, violated.key));
    capture.end(drainedBase);
  }
  const isWorthIt = capture.transactions.length > 0 || violations.length > 0 || drained - state.drained > 500;
  let next = isWorthIt ? { ...state, drained, drainedBase } : state;
  if (capture.transactions.length > 0) next = await capture.save(tx, next, blobs);
  else await model.save();
  return { state: next, result: { count, base: drainedBase, violations, isRescanNeeded } };
}
function modeError(table, key) {
  const what = key === void 0 ? "a range" : describe2(table, key);
  return new KvError("KV_SYNC_MODE", `${what} of collection ${JSON.stringify(table.name)} was written without sync.transaction, which its mode "strict" requires; the write was undone`);
}
var SCAN_SLICE = 500;
async function* scan(tables, snapshot, version, now) {
  for (const table of tables.byName.values()) {
    const [data, stamps, overlay] = [snapshot.collection(table.data), snapshot.collection(table.stamps), snapshot.collection(table.overlay)];
    const check = async (key) => {
      const [entry, stamp, over] = await Promise.all([data.getEntry(key), stamps.getEntry(key), overlay.getEntry(key)]);
      const known2 = stamp && decodeStamp(stamp.value);
      const isLive = known2 !== void 0 && !known2.isDead && (known2.expiresAt === 0 || known2.expiresAt > now);
      const captured = !table.modes.isStrict(key) && over !== void 0 ? decodeOverlay(over.value) : void 0;
      if (entry === void 0) {
        const isCaptured = captured !== void 0 && captured.ticket > 0 && (captured.isDelete || captured.expiresAt !== 0 && captured.expiresAt <= now);
        if (isCaptured || captured === void 0 && !isLive) return void 0;
        return { table, key, value: null, version };
      }
      if (captured !== void 0 && captured.ticket > 0 && !captured.isDelete && (captured.captured || over?.version) === entry.version) return void 0;
      if (captured === void 0 && known2 !== void 0 && entry.version === (known2.dataVersion || stamp?.version)) return void 0;
      return { table, key, value: { value: entry.value, expiresAt: entry.expiresAt ?? 0 }, version: entry.version };
    };
    for (const from of [data, stamps]) {
      const keys = from.keys();
      for (; ; ) {
        const slice = await keys.nextMany(SCAN_SLICE);
        if (slice.length === 0) break;
        const found = (await Promise.all(slice.map(check))).filter((each) => each !== void 0 && each.value === null === (from === stamps));
        if (found.length > 0) yield found;
      }
    }
  }
}
async function captureFound(tx, tables, state, found, base, now, blobs) {
  const model = new Model(tx, tables, now);
  await model.load(found);
  const capture = new Capture(tables, model, state, now);
  const violations = [];
  for (const { table, key, value, version } of found) {
    const row = model.row(table, key);
    if (row.isStrict) {
      if (state.drained === -1 && row.stamp === void 0 && row.entry !== null) {
        throw new KvError("KV_SYNC_MODE", `collection ${JSON.stringify(table.name)} has entries from before it was synchronized, such as ${describe2(table, key)}; in mode "strict" all have to be written by sync.transaction: move them to another collection first`);
      }
      row.setEntry(row.copy);
      row.becomeClean();
      violations.push(modeError(table, key));
    } else if (value === null) capture.delete(table, key, version);
    else capture.set(table, key, value.value, value.expiresAt, version);
  }
  capture.end(base);
  if (capture.transactions.length > 0) return { state: await capture.save(tx, state, blobs), result: violations };
  await model.save();
  return { state: violations.length > 0 ? { ...state } : state, result: violations };
}

// src/sync/local-feed.ts
var MAX_OWN_COMMITS = 256;
function toLocal({ version, changes }) {
  const row = changes.find(({ collection }) => collection === STATE_COLLECTION);
  if (row === void 0) return { version, changes };
  const base = row.type === "set" ? valueCodecs.json().decode(row.value).cursor.position : void 0;
  return { version, base, isOwn: true };
}
var LocalFeed = class {
  #db;
  #probe;
  #onCommit;
  #commits;
  #queue = [];
  #failure;
  /** Commits up to this version are not of interest. */
  #after = -1;
  /**
   * `probe` asks the database for anything. `onCommit` is called when there is a commit of the
   * application, when many of sync are there, or a reason why there cannot be one.
   */
  constructor(db, probe, onCommit) {
    this.#db = db;
    this.#probe = probe;
    this.#onCommit = onCommit;
  }
  /** Starts, or starts anew, after a commit; by default with the next one. */
  start(since) {
    this.stop();
    this.#queue = [];
    this.#failure = void 0;
    this.#after = since ?? -1;
    this.#commits = this.#db.changes({ ...since !== void 0 && { since }, raw: true, only: STATE_COLLECTION });
    this.#pull();
  }
  stop() {
    this.#commits?.return().catch(() => void 0);
    this.#commits = void 0;
  }
  /** Whether the application has committed since. */
  get hasCommits() {
    return this.#queue.some(({ isOwn }) => !isOwn);
  }
  /** What is there. A view: `taken` removes from its front. */
  async peek() {
    for (let before = -1; before !== this.#queue.length && this.#queue.length < 4096; ) {
      before = this.#queue.length;
      for (let probes = 0; probes < 3; probes++) await this.#probe();
    }
    if (this.#queue.length === 0 && this.#failure !== void 0) throw this.#failure;
    return this.#queue;
  }
  /** Leaves out commits up to a version. */
  skipTo(version) {
    this.#after = version;
    this.#queue = this.#queue.filter((commit) => commit.version > version);
  }
  taken(count) {
    this.#queue.splice(0, count);
  }
  #pull() {
    const commits = this.#commits;
    if (commits === void 0) return;
    commits.next().then((step) => {
      if (commits !== this.#commits) return;
      if (step.done) throw new KvError("KV_CLOSED", "the database was closed");
      if (step.value.version > this.#after) {
        const commit = toLocal(step.value);
        this.#queue.push(commit);
        if (!commit.isOwn || this.#queue.length >= MAX_OWN_COMMITS) this.#onCommit();
      }
      this.#pull();
    }).catch((error) => {
      if (commits !== this.#commits) return;
      this.#failure = error;
      this.#onCommit();
    });
  }
};

// src/sync/mutex.ts
var Mutex = class {
  #tail = Promise.resolve();
  run(work) {
    const done = this.#tail.then(work, work);
    this.#tail = done.catch(() => void 0);
    return done;
  }
};

// src/sync/snapshot.ts
var BLOCK_BYTES = 64 << 10;
var COLLECTION = 1;
var ROW = 2;
var EXPIRED_ROW = 3;
var CHUNK_ROW = 4;
var END = 5;
var MARGIN_MS = 7 * 24 * 3600 * 1e3;
var ATTEMPTS = 5;
var utf82 = new TextEncoder();
var text = new TextDecoder();
var about = (key, index) => utf82.encode(`${key}|${index}`);
async function readManifest(log, wire) {
  const found = await log.manifest();
  if (found === void 0) return void 0;
  const content = JSON.parse(text.decode(await wire.open(found.manifest, utf82.encode("manifest"))));
  if (content.version !== 1) throw new KvError("KV_VERSION_UNSUPPORTED", `the log's manifest has version ${String(content.version)}: update the package`);
  return { revision: found.revision, content };
}
async function sealManifest(wire, manifest) {
  return wire.seal(utf82.encode(JSON.stringify(manifest)), utf82.encode("manifest"));
}
function streamOf(blocks) {
  return new ReadableStream({
    async pull(controller) {
      const step = await blocks.next();
      if (step.done) controller.close();
      else controller.enqueue(step.value);
    },
    cancel: () => void blocks.return(void 0)
  });
}
var Busy = class extends Error {
};
async function writeSnapshot(context, signal) {
  const { log, store, wire } = context;
  const previous = await readManifest(log, wire);
  const folder = /^snapshot\/[^/]+\//.exec(previous?.content.key ?? "")?.[0] ?? `snapshot/${randomId()}/`;
  const key = folder + randomId();
  for (let attempt = 1; ; attempt++) {
    const state = {};
    try {
      const blocks = snapshotBlocks(context, key, state);
      await store.put(key, streamOf(blocks), signal);
    } catch (error) {
      if (!(error instanceof Busy) && !(error.cause instanceof Busy)) throw error;
      if (attempt === ATTEMPTS) throw new KvError("KV_LOG_UNAVAILABLE", "sync.compact found writes that the log has not confirmed, at every attempt; call it when fewer are made", { retryable: true });
      continue;
    }
    const position = state.cursor?.position ?? 0;
    if (position === 0 || previous !== void 0 && previous.content.position >= position) {
      await store.delete(key);
      return void 0;
    }
    const purged = Math.max((previous?.content.position ?? 0) - 1, previous?.content.purged ?? 0, 0);
    const manifest = { version: 1, position, key, purged };
    try {
      await log.replaceManifest(previous?.revision ?? 0, await sealManifest(wire, manifest));
    } catch (error) {
      if (error.code === "KV_LOG_CONFLICT") await store.delete(key);
      throw error;
    }
    if (purged > 0) await log.purge(purged);
    for (const old of await store.list(folder)) if (old !== key && old !== previous?.content.key) await store.delete(old);
    return { position };
  }
}
async function* snapshotBlocks(context, key, into) {
  const { tables, wire, now } = context;
  const snapshot = await context.lock(async () => tables.db.snapshot());
  try {
    const state = await snapshot.collection(tables.state).get("state");
    if (state === void 0 || await snapshot.collection(tables.outbox).size > 0) throw new Busy();
    into.cursor = state.cursor;
    let index = 0;
    const block = async (bytes) => frame(await wire.seal(bytes, about(key, index++)));
    const { cursor, highTime, hlc, fence } = state;
    const applied = await snapshot.collection(tables.applied).entries().toArray();
    const header = { version: 1, cursor, highTime, hlc, fence, applied };
    yield await block(utf82.encode(JSON.stringify(header)));
    let sink = new ByteSink();
    let rows = 0;
    for await (const [[device, seq], part] of snapshot.collection(tables.chunks).entries()) {
      yield await block(sink.u8(CHUNK_ROW).text(device).uv(seq).bytes(part).done());
      sink = new ByteSink();
    }
    const horizon = toHlc(highTime - OFFLINE_LIMIT_MS - MARGIN_MS);
    for (const table of [...tables.byName.values()].sort((a, b) => compareBytes(utf82.encode(a.name), utf82.encode(b.name)))) {
      if (await hasLocalWrites(snapshot, table)) throw new Busy();
      sink.u8(COLLECTION).text(table.name);
      const data = snapshot.collection(table.data);
      for await (const { key: rowKey, value, version } of snapshot.collection(table.stamps).entries({ meta: true })) {
        const stamp = decodeStamp(value);
        if (stamp.isDead && stamp.h < horizon) continue;
        const entry = await data.getEntry(rowKey);
        const isExpired2 = stamp.expiresAt !== 0 && stamp.expiresAt <= now();
        if (entry === void 0 ? !stamp.isDead && !isExpired2 : entry.version !== (stamp.dataVersion || version)) throw new Busy();
        rows++;
        sink.u8(entry === void 0 && !stamp.isDead ? EXPIRED_ROW : ROW).bytes(rowKey).bytes(encodeStamp({ ...stamp, dataVersion: 0, epoch: 0 }));
        if (entry !== void 0) sink.bytes(entry.value);
        if (sink.length < BLOCK_BYTES) continue;
        yield await block(sink.done());
        sink = new ByteSink();
      }
    }
    yield await block(sink.u8(END).uv(rows).done());
    return void 0;
  } finally {
    await snapshot.close();
  }
}
async function hasLocalWrites(snapshot, { modes, overlay }) {
  if (!modes.has("merge")) return false;
  const rows = snapshot.collection(overlay);
  if (!modes.has("strict")) return await rows.size > 0;
  for await (const key of rows.keys()) if (!modes.isStrict(key)) return true;
  return false;
}
async function* readSealed(stream, key) {
  const reader2 = stream.getReader();
  let have = new Uint8Array(0);
  const fill = async (length) => {
    while (have.length < length) {
      const { done, value } = await reader2.read();
      if (done) return false;
      const more = new Uint8Array(have.length + value.length);
      more.set(have);
      more.set(value, have.length);
      have = more;
    }
    return true;
  };
  try {
    while (await fill(8)) {
      const view = new DataView(have.buffer, have.byteOffset);
      const [length, crc] = [view.getUint32(0), view.getUint32(4)];
      if (!await fill(8 + length)) throw damaged(key);
      const bytes = have.slice(8, 8 + length);
      have = have.subarray(8 + length);
      if (crc32c(bytes) !== crc) throw damaged(key);
      yield bytes;
    }
    if (have.length > 0) throw damaged(key);
  } finally {
    reader2.cancel().catch(() => void 0);
  }
}
async function* readBlocks(stream, wire, key) {
  let index = 0;
  for await (const sealed of readSealed(stream, key)) yield await wire.open(sealed, about(key, index++));
}
function readHeader(block, key) {
  const header = JSON.parse(text.decode(block));
  if (header.version !== 1) throw new KvError("KV_VERSION_UNSUPPORTED", `snapshot ${key} has version ${String(header.version)}: update the package`);
  return header;
}
function frame(sealed) {
  const head = new Uint8Array(8);
  new DataView(head.buffer).setUint32(0, sealed.length);
  new DataView(head.buffer).setUint32(4, crc32c(sealed));
  return new ByteSink().raw(head).raw(sealed).done();
}
var damaged = (key) => new KvError("KV_CORRUPT", `snapshot ${key} in the object store is damaged or cut off`);
async function loadSnapshot(context) {
  const { tables, log, store, wire } = context;
  const manifest = await readManifest(log, wire);
  if (manifest === void 0) throw logUnavailable("the log was cut off, and the server that was asked has no manifest that names a snapshot");
  const { key } = manifest.content;
  const stream = await store.get(key);
  if (stream === void 0) throw logUnavailable(`the object store has no ${key}, which the log's manifest names`);
  let header;
  let doubtful = Infinity;
  let table;
  let after;
  let [rows, isEnded] = [0, false];
  const seen = /* @__PURE__ */ new Set();
  const chunks = [];
  const finishTable = async () => {
    if (table !== void 0) await loadSlice(context, table, [], after, void 0, doubtful);
  };
  for await (const block of readBlocks(stream, wire, key)) {
    if (header === void 0) {
      header = readHeader(block, key);
      if (!context.isCopy) doubtful = await findLoss(context, manifest.content, header.cursor);
      continue;
    }
    const source = new ByteSource(block);
    let slice = [];
    const flush = async () => {
      const last = slice.at(-1);
      if (last === void 0) return;
      if (table !== void 0) await loadSlice(context, table, slice, after, last.key, doubtful);
      after = last.key;
      slice = [];
    };
    while (source.left > 0) {
      const kind = source.u8();
      if (kind === COLLECTION) {
        await flush();
        await finishTable();
        const name = source.text();
        seen.add(name);
        [table, after] = [tables.find(name), void 0];
      } else if (kind === ROW || kind === EXPIRED_ROW) {
        const [rowKey, stamp] = [source.raw(source.uv()), source.raw(source.uv())];
        const previous = slice.at(-1)?.key ?? after;
        if (previous !== void 0 && compareBytes(previous, rowKey) >= 0) throw damaged(key);
        slice.push({ key: rowKey, stamp, value: isDeadStamp(stamp) ? void 0 : kind === ROW ? source.raw(source.uv()) : NO_BYTES3 });
        rows++;
      } else if (kind === CHUNK_ROW) {
        chunks.push({ device: source.text(), seq: source.uv(), part: source.bytes() });
      } else if (kind === END) {
        await flush();
        isEnded = source.uv() === rows;
      } else throw damaged(key);
    }
    await flush();
  }
  if (header === void 0 || !isEnded) throw damaged(key);
  await finishTable();
  for (const [name, other] of tables.byName) if (!seen.has(name)) await loadSlice(context, other, [], void 0, void 0, doubtful);
  const cursor = doubtful === Infinity ? header.cursor : { ...header.cursor, position: doubtful };
  await finish(context, { ...header, cursor }, chunks);
}
async function findLoss(context, { key, purged }, cursor) {
  const there = await context.log.at(cursor.position).catch((error) => {
    if (!isTruncated(error)) throw error;
    throw logUnavailable("the snapshot is older than what the log begins with", error);
  });
  if (there !== void 0 && crcOf(there.record) === cursor.crc) return Infinity;
  if ((await readManifest(context.log, context.wire))?.content.key !== key) throw logUnavailable("the snapshot was replaced while it was read");
  await context.change(async (tx, state) => ({ state: state.rejoin === "lost" ? state : await context.rejoin(tx, state), result: void 0 }));
  return purged;
}
async function loadSlice(context, table, rows, after, last, doubtful) {
  const { tables } = context;
  const now = context.now();
  await context.change(async (tx, state) => {
    const model = new Model(tx, tables, now);
    const lower = after && { bytes: after, isExclusive: true };
    const upper = last && { bytes: last, isExclusive: false };
    if (await model.isBare(table, lower, upper)) {
      await addRows(tx, table, rows, now, (position) => position > doubtful ? state.epoch - 1 : state.epoch);
      return { state: rows.length > 0 ? { ...state } : state, result: void 0 };
    }
    await model.loadRange(table, lower, upper, rows.map(({ key }) => key));
    const listed = /* @__PURE__ */ new Set();
    for (const { key, stamp: stampBytes, value: bytes } of rows) {
      const row = model.row(table, key);
      const stamp = decodeStamp(stampBytes);
      const value = bytes === void 0 ? null : { value: bytes, expiresAt: stamp.expiresAt };
      listed.add(row);
      const mine = row.stamp;
      const order = mine === void 0 ? -1 : mine.h !== stamp.h ? mine.h < stamp.h ? -1 : 1 : mine.device !== stamp.device ? mine.device < stamp.device ? -1 : 1 : 0;
      if (order > 0 && state.rejoin !== void 0 && mine?.epoch !== state.epoch) continue;
      row.setStamp({ ...stamp, epoch: stamp.position > doubtful ? state.epoch - 1 : state.epoch });
      if (order !== 0 || !row.isClean) putBase(row, value, now);
    }
    for (const row of model.within(table, lower, upper)) {
      if (listed.has(row) || row.stamp === void 0) continue;
      if (state.rejoin === void 0 || row.stamp.epoch === state.epoch) row.forget();
    }
    await model.save();
    return { state: { ...state }, result: void 0 };
  });
}
var NO_BYTES3 = new Uint8Array(0);
async function addRows(tx, table, rows, now, epochOf) {
  const [data, stamps, copies] = [tx.collection(table.data), tx.collection(table.stamps), tx.collection(table.overlay)];
  const entries = [];
  const stamped = [];
  const copied = [];
  const expiring = [];
  for (const { key, stamp, value } of rows) {
    const head = decodeStampHead(stamp);
    stamped.push([key, stampInEpoch(stamp, head, epochOf(head.position))]);
    const { expiresAt } = head;
    if (value === void 0 || expiresAt !== 0 && expiresAt <= now) continue;
    if (expiresAt === 0) entries.push([key, value]);
    else expiring.push(data.set(key, value, { expireAt: expiresAt }));
    if (table.modes.isStrict(key)) copied.push([key, copyOf({ value, expiresAt })]);
  }
  const sets = [[data, entries], [stamps, stamped], [copies, copied]];
  await Promise.all([...expiring, ...sets.filter(([, list]) => list.length > 0).map(([into, list]) => into.setMany(list))]);
}
async function finish(context, header, chunks) {
  const { tables } = context;
  const now = context.now();
  const conflicts = await context.change(async (tx, state) => {
    const [applied, parts, outbox] = [tx.collection(tables.applied), tx.collection(tables.chunks), tx.collection(tables.outbox)];
    await applied.clear();
    await applied.setMany(header.applied);
    await parts.clear();
    await parts.setMany(chunks.map(({ device, seq: seq2, part }) => [[device, seq2], part]));
    const seqs = new Map(header.applied);
    const found = [];
    const seq = seqs.get(state.device);
    if (seq !== void 0 && state.offset !== void 0) {
      const ticket = Math.min(seq + state.offset, state.nextTicket - 1);
      await outbox.clear({ lte: ticket });
      await settleAll(tx, tables, ticket, now, found);
    }
    const hlc = fromHex(header.hlc) > fromHex(state.hlc) ? header.hlc : state.hlc;
    const { cursor, fence } = header;
    return { state: { ...state, cursor, fence, hlc, highTime: Math.max(state.highTime, header.highTime) }, result: found };
  });
  if (conflicts.length > 0) context.conflicts(conflicts);
}
async function settleAll(tx, tables, ticket, now, found) {
  const model = new Model(tx, tables, now);
  for (const table of tables.byName.values()) {
    if (!table.modes.has("merge")) continue;
    for await (const [key, bytes] of tx.collection(table.overlay).entries()) {
      if (table.modes.isStrict(key)) continue;
      const overlay = decodeOverlay(bytes);
      if (overlay.ticket === 0 || overlay.ticket > ticket) continue;
      await model.load([{ table, key }]);
      settle(model.row(table, key), ticket, now, (mine, theirs) => found.push({ collection: table.name, key, mine, theirs }));
    }
  }
  await model.save();
}

// src/sync/replica.ts
var READ_RECORDS = 256;
var MAX_ATTEMPTS = 5;
var VOID = { ticket: 0, device: "", isRefused: true };
var MAX_CONFLICTS = 1e6;
var MAX_UNSEEN = 20;
var REPAIR_SLICE = 500;
var SETTLE_MS = 5;
var Replica = class {
  tables;
  wire;
  #log;
  #snapshots;
  #isExclusive;
  #isCopy;
  #keepsConflicts;
  #events;
  #clock;
  #feed;
  #blobs;
  /** Local commits of sync, one at a time. */
  #local = new Mutex();
  #pulling = new Mutex();
  /** Sending, and with it the order of tickets. */
  #sending = new Mutex();
  /** The newest record that was offered. */
  #offered;
  /** The newest ticket that the log has acknowledged. */
  #sent = 0;
  /** The newest position known to be the log's end, for an exclusive writer. */
  #end = 0;
  /** How often the log had nothing more, although acknowledged records had not appeared. */
  #unseen = 0;
  #isChecked = false;
  #isCaughtUp = false;
  /** Whether this device became the only writer, and whether another one did since. */
  #isOwner = false;
  #isFenced = false;
  #isRescanNeeded = false;
  #isStopped = false;
  /** The log's position that was applied at the last commit taken from the feed. */
  #base;
  /** Writes past sync up to this version may have been undone. */
  #undone = -1;
  #attempts = /* @__PURE__ */ new Map();
  constructor(db, options, events) {
    this.tables = options.tables ?? new Tables(db, options.collections, options.mode ?? "merge");
    this.wire = new Wire(options.seal);
    this.#log = options.log;
    this.#snapshots = options.snapshots;
    this.#isExclusive = options.isExclusive ?? false;
    this.#isCopy = options.isCopy ?? false;
    this.#keepsConflicts = options.keepsConflicts ?? false;
    this.#clock = options.clock ?? Date.now;
    this.#events = events;
    this.#feed = new LocalFeed(db, () => this.tables.state.has("state"), () => events.changed());
    this.#blobs = this.#snapshots && ((value) => this.wire.blob(value));
  }
  /** Whether the log had nothing more when it was read last. */
  get isCaughtUp() {
    return this.#isCaughtUp;
  }
  /** Whether there are local commits that are not in the outbox, as far as is known. */
  get hasCommits() {
    return this.#feed.hasCommits;
  }
  async state() {
    return this.#change("relaxed", async (_, state) => ({ state, result: state }));
  }
  /** Number of records that the log has not confirmed. */
  pending() {
    return this.tables.outbox.size;
  }
  #change(durability, work) {
    return this.#local.run(() => this.tables.change(async (tx, state) => {
      const changed = await work(tx, state);
      if (this.#isStopped) throw new KvError("KV_CLOSED", "sync has ended in this tab");
      return changed;
    }, { durability }));
  }
  /** Reads what the database has of sync; to be called once before everything else. */
  async start() {
    const names3 = [...this.tables.byName.keys()];
    const state = await this.#change("strict", async (tx, before) => {
      const missing = names3.filter((name) => !before.collections.includes(name));
      if (missing.length === 0) return { state: before, result: before };
      const named = { ...before, collections: [...before.collections, ...missing].sort() };
      if (before.cursor.position === 0) return { state: named, result: named };
      const again = await rejoin(this.tables, tx, named, "reread");
      return { state: { ...again, drained: -1 }, result: { ...again, drained: -1 } };
    });
    const { drained } = await this.#checkWitness(state);
    this.#isRescanNeeded = drained < 0;
    this.#undone = drained;
    if (!this.#isRescanNeeded) this.#feed.start(drained);
  }
  /** A backup has no versions: in a restored database they are others, and the feed is empty. */
  async #checkWitness(state) {
    const { witness: witnesses } = this.tables;
    if (state.witness !== 0) {
      if ((await witnesses.getEntry("witness"))?.version === state.witness) return state;
      await this.#recognizeAll();
    }
    await this.#change("strict", async (tx, before) => {
      await tx.collection(witnesses).set("witness", null);
      return { state: { ...before }, result: void 0 };
    });
    const witness = (await witnesses.getEntry("witness"))?.version ?? 0;
    return this.#change("strict", async (_, before) => {
      const next = before.witness === 0 ? { ...before, witness } : { ...withNewId(before), witness, drained: -2 };
      return { state: next, result: next };
    });
  }
  async #recognizeAll() {
    for (const table of this.tables.byName.values()) {
      const keys = table.stamps.keys();
      for (; ; ) {
        const slice = await keys.nextMany(REPAIR_SLICE);
        if (slice.length === 0) break;
        await this.#change("relaxed", async (tx, state) => {
          const model = new Model(tx, this.tables, this.#clock());
          await model.load(slice.map((key) => ({ table, key })));
          for (const key of slice) model.row(table, key).recognize(checkOf);
          await model.save();
          return { state: { ...state }, result: void 0 };
        });
      }
    }
  }
  /** Nothing is committed from here on. */
  stop() {
    this.#isStopped = true;
    this.#feed.stop();
  }
  /** The connection to the log was interrupted: its history has to be checked again. */
  reconnect() {
    this.#isChecked = false;
    this.#isCaughtUp = false;
    this.#sent = 0;
  }
  // Incoming.
  /** Reads and applies what the log has, up to a limit; resolves to whether there may be more. */
  pull(signal) {
    return this.#pulling.run(() => this.#pull(signal));
  }
  async #pull(signal) {
    if (!this.#isChecked) await this.#checkHistory();
    const { cursor } = await this.state();
    const logged = await this.#log.read(cursor.position, READ_RECORDS, signal).catch(async (error) => {
      if (!isTruncated(error)) throw error;
      await this.#loadSnapshot();
      return void 0;
    });
    if (logged === void 0) return true;
    if (logged.length === 0) {
      if ((await this.state()).rejoin !== void 0) await this.#reconcile();
      this.#isCaughtUp = true;
      if (await this.pending() === 0) this.#unseen = 0;
      else if (this.#sent > 0 && ++this.#unseen % MAX_UNSEEN === 0) this.#sent = 0;
      return false;
    }
    this.#unseen = 0;
    const records = [];
    const alarms = [];
    for (const each of logged) records.push(await this.#read(each, alarms));
    const applied = await this.#apply(records);
    for (const alarm of alarms) this.#events.alarm(alarm);
    if (applied.isClone) this.#sent = 0;
    if (applied.conflicts.length > 0) this.#events.conflicts(applied.conflicts);
    for (const { device, from, to } of applied.gaps) {
      this.#events.alarm(new KvError("KV_SYNC_GAP", `the log has lost records ${from} to ${to} of device ${device}; if a device has their contents, it puts them back`));
    }
    if (applied.fencedBy !== void 0 && this.#isOwner) this.#isFenced = true;
    return true;
  }
  async #read(logged, alarms) {
    try {
      return await this.wire.unpack(logged);
    } catch (error) {
      if (error.code !== "KV_CORRUPT" || !this.#isLastAttempt(`unreadable ${logged.position}`)) throw error;
      alarms.push(error);
      const { position, serverTime, record } = logged;
      return { position, serverTime, crc: crcOf(record), isPassedOver: true, flags: 0, device: 0n, seq: 0, body: new Uint8Array(0) };
    }
  }
  async #apply(records) {
    const blobs = /* @__PURE__ */ new Map();
    for (let isGapAccepted = false; ; ) {
      try {
        return await this.#change("relaxed", async (tx, state) => {
          const applied = await applyRecords(tx, this.tables, state, records, { now: this.#clock(), blobs, isGapAccepted });
          await this.#keepConflicts(tx, state, applied.result.conflicts);
          return applied;
        });
      } catch (error) {
        if (error instanceof MissingBlobs) {
          for (const hash of error.hashes) blobs.set(toHexBytes(hash), await this.wire.fetchBlob(this.#snapshots, hash));
        } else {
          if (error.code !== "KV_SYNC_GAP" || isGapAccepted) throw error;
          const { cursor } = await this.state();
          if (!this.#isLastAttempt(`gap after ${cursor.position}`)) throw error;
          isGapAccepted = true;
        }
      }
    }
  }
  async #keepConflicts(tx, { serial }, conflicts) {
    if (!this.#keepsConflicts || conflicts.length === 0) return;
    await tx.collection(this.tables.conflicts).setMany(conflicts.map((conflict, index) => [serial * MAX_CONFLICTS + index, conflict]));
  }
  /** The oldest conflict that was not handled yet. */
  async firstConflict() {
    const first = await this.tables.conflicts.first();
    return first && { id: first[0], conflict: first[1] };
  }
  removeConflict(id) {
    return this.#change("relaxed", async (tx, state) => {
      await tx.collection(this.tables.conflicts).delete(id);
      return { state: { ...state }, result: void 0 };
    });
  }
  #isLastAttempt(what) {
    const attempts = (this.#attempts.get(what) ?? 0) + 1;
    this.#attempts.set(what, attempts);
    return attempts >= MAX_ATTEMPTS;
  }
  /** Looks whether the log still has what this device read last. */
  async #checkHistory() {
    const { cursor } = await this.state();
    if (cursor.position === 0) {
      if (await readManifest(this.#log, this.wire) !== void 0) await this.#loadSnapshot();
    } else {
      try {
        const there = await this.#log.at(cursor.position);
        if (there === void 0 || crcOf(there.record) !== cursor.crc) await this.#rejoinLost();
      } catch (error) {
        if (!isTruncated(error)) throw error;
        await this.#loadSnapshot();
      }
    }
    this.#isChecked = true;
  }
  async #rejoinLost() {
    await this.#change("strict", async (tx, state) => ({ state: await rejoin(this.tables, tx, state, "lost"), result: void 0 }));
    this.#sent = 0;
    this.#isCaughtUp = false;
    if (await readManifest(this.#log, this.wire) !== void 0) await this.#loadSnapshot();
  }
  async #loadSnapshot() {
    const snapshots = this.#snapshots;
    if (snapshots === void 0) throw new KvError("KV_LOG_TRUNCATED", "the log begins with a snapshot, which the option `snapshots` has to provide");
    await loadSnapshot({
      tables: this.tables,
      log: this.#log,
      store: snapshots,
      wire: this.wire,
      now: this.#clock,
      isCopy: this.#isCopy,
      change: (work) => this.#change("relaxed", work),
      conflicts: (conflicts) => this.#events.conflicts(conflicts),
      rejoin: (tx, state) => rejoin(this.tables, tx, state, "lost")
    });
  }
  /** Ends a rejoin: what the log turned out not to have is put back, or deleted. */
  async #reconcile() {
    let records = 0;
    const { rejoin: kind, epoch } = await this.state();
    for (const table of this.tables.byName.values()) {
      const keys = table.stamps.keys();
      for (; ; ) {
        const slice = await keys.nextMany(REPAIR_SLICE);
        if (slice.length === 0) break;
        records += await this.#change("strict", async (tx, state) => {
          const model = new Model(tx, this.tables, this.#clock());
          await model.load(slice.map((key) => ({ table, key })));
          const ops = [];
          for (const key of slice) {
            const row = model.row(table, key);
            const { stamp } = row;
            if (stamp === void 0 || stamp.epoch === epoch) continue;
            if (kind === "reread") {
              row.forget();
              continue;
            }
            const value = row.isStrict ? row.copy : row.isClean ? row.entry : row.overlay?.base;
            if (value === void 0 || value === null && !stamp.isDead) continue;
            const { h, device, isStrict } = stamp;
            const named = { collection: table.name, key, stamp: { h, device, isStrict } };
            ops.push(value === null ? { type: "delete", ...named } : { type: "set", value: value.value, expiresAt: value.expiresAt, ...named });
          }
          await model.save();
          if (ops.length === 0) return { state: kind === "reread" ? { ...state } : state, result: 0 };
          const last = await putRecords(tx, this.tables, state.nextTicket, REPAIR, [{ base: 0, hlc: fromHex(state.hlc), ops }], this.#blobs);
          return { state: { ...state, nextTicket: last + 1 }, result: 1 };
        });
      }
    }
    await this.#change("strict", async (_, state) => ({ state: { ...state, rejoin: void 0 }, result: void 0 }));
    if (kind === "lost") this.#events.repaired(records);
  }
  // Outgoing.
  /** Puts local commits into the outbox; resolves to whether there may be more. */
  drain() {
    return this.#sending.run(() => this.#drain());
  }
  async #drain() {
    if (!await this.#finishOpenStrict()) return false;
    if (this.#isRescanNeeded) {
      await this.#rescan();
      return true;
    }
    const commits = await this.#feed.peek().catch((error) => {
      if (error.code !== "KV_TRUNCATED_FEED") throw error;
      this.#isRescanNeeded = true;
      return void 0;
    });
    if (commits === void 0) return true;
    if (commits.length === 0) return false;
    const batch = commits.slice(0, 1024);
    const { count, base, violations, isRescanNeeded } = await this.#change("strict", async (tx, state) => {
      const from = this.#base === void 0 ? state : { ...state, drainedBase: this.#base };
      const { state: next, result } = await drainCommits(tx, this.tables, from, batch, this.#clock(), this.#blobs);
      return { state: next === from ? state : next, result };
    });
    this.#base = base;
    this.#feed.taken(count);
    if (isRescanNeeded) this.#isRescanNeeded = true;
    if (violations.length > 0) this.#undone = batch[count - 1].version;
    for (const violation of violations) this.#events.alarm(violation);
    return true;
  }
  async #rescan() {
    this.#feed.start();
    const snapshot = this.tables.db.snapshot();
    try {
      const version = await snapshot.version;
      this.#undone = version;
      const base = (await snapshot.collection(this.tables.state).get("state"))?.cursor.position ?? 0;
      for await (const found of scan(this.tables, snapshot, version, this.#clock())) {
        const violations = await this.#change("strict", (tx, state) => captureFound(tx, this.tables, state, found, base, this.#clock(), this.#blobs));
        for (const violation of violations) this.#events.alarm(violation);
      }
      await this.#change("strict", async (_, state) => ({ state: { ...state, drained: version, drainedBase: base }, result: void 0 }));
      this.#base = base;
      this.#feed.skipTo(version);
      this.#isRescanNeeded = false;
    } finally {
      await snapshot.close();
    }
  }
  /** Sends the next record of the outbox; resolves to whether there was one. */
  publish(signal) {
    return this.#sending.run(() => this.#publish(signal));
  }
  async #publish(signal) {
    if (!this.#isCaughtUp) return false;
    if (this.#isFenced) throw fenced();
    if (!await this.#finishOpenStrict(signal)) return false;
    const next = await this.tables.outbox.first({ gt: this.#sent });
    if (next === void 0) return false;
    const [ticket, bytes] = next;
    const row = decodeOutbox(bytes);
    if (row.expect !== void 0) return this.#finishStrict(ticket, signal);
    const state = await this.#withOffset(ticket);
    if (state.rejoin !== void 0) return false;
    const expect = this.#isExclusive ? Math.max(this.#end, state.cursor.position) : void 0;
    const position = await this.#append(state, ticket, row, expect, signal).catch(async (error) => {
      if (error.code !== "KV_LOG_CONFLICT") throw error;
      this.#end = 0;
      while (await this.pull(signal)) ;
      return void 0;
    });
    if (position === void 0) return true;
    this.#sent = ticket;
    this.#end = Math.max(this.#end, position);
    return true;
  }
  /** Sequence numbers of an id begin with 1, at the first ticket that it sends. */
  async #withOffset(ticket) {
    const state = await this.state();
    if (state.offset !== void 0) return state;
    return this.#change("strict", async (_, before) => {
      const next = before.offset === void 0 ? { ...before, offset: ticket - 1 } : before;
      return { state: next, result: next };
    });
  }
  async #append(state, ticket, row, expect, signal) {
    await this.#uploadBlobs(signal);
    const seq = ticket - state.offset;
    const record = await this.wire.pack(row.flags, deviceOf(state), seq, row.body);
    return this.#log.append(record, { idempotencyKey: `${state.device}:${seq}`, expect, signal });
  }
  /** Objects come before the records that refer to them. */
  async #uploadBlobs(signal) {
    for (let next = await this.tables.blobs.first(); next !== void 0; next = await this.tables.blobs.first()) {
      const [hash, bytes] = next;
      await this.#snapshots?.put(blobKey(hash), toStream(bytes), signal).catch((error) => {
        if (error.code !== "KV_LOG_CONFLICT") throw error;
      });
      await this.#change("relaxed", async (tx, state) => {
        await tx.collection(this.tables.blobs).delete(hash);
        return { state: { ...state }, result: void 0 };
      });
    }
  }
  // Strict transactions and fences: records that have to follow the newest one.
  /**
   * Whether a snapshot of a version, with commits up to `drained` in the outbox, may have writes to
   * strict collections that went past sync: they are undone, or were undone since.
   */
  async isDisturbed(version, drained) {
    const commits = await this.#feed.peek();
    return this.#undone > drained || commits.some((commit) => commit.version <= version && !commit.isOwn && commit.changes.some((change) => this.tables.isStrictChange(change)));
  }
  /** Reads all of the log, sends all of the outbox, and waits until it has come back. */
  async settle(signal) {
    for (; ; ) {
      signal?.throwIfAborted();
      while (await this.pull(signal)) ;
      while (await this.drain()) ;
      while (await this.publish(signal)) ;
      while (await this.pull(signal)) ;
      if (await this.pending() === 0) return;
      await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
    }
  }
  /**
   * Takes a record that has to follow the one at `expect` for sending; `undefined` if something else
   * has to be sent first, or the id was given up. `outcomeOf` sends it.
   */
  offer(flags, ops, expect, { id } = {}) {
    return this.#sending.run(async () => {
      if (this.#isFenced) throw fenced();
      const record = await this.#change("strict", async (tx, state) => {
        const outbox = tx.collection(this.tables.outbox);
        if (await outbox.first() !== void 0) return { state, result: void 0 };
        const hlc = tick(fromHex(state.hlc), this.#clock());
        const body = encodeTransactions([{ base: expect, hlc, ops }]);
        if (body.length > MAX_BODY_BYTES) {
          throw new KvError("KV_VALUE_TOO_LARGE", `a strict transaction may write 900 KiB, this one writes ${body.length} bytes; split it`);
        }
        const ticket = state.nextTicket;
        if (id !== void 0) {
          const offered = tx.collection(this.tables.offered);
          if (await offered.has(id)) return { state, result: void 0 };
          await offered.set(id, { ticket, device: state.device, isRefused: false });
        }
        await outbox.set(ticket, encodeOutbox({ flags, expect, body }));
        return { state: { ...state, hlc: toHex(hlc), nextTicket: ticket + 1 }, result: { ticket, device: state.device, id, isRefused: false } };
      });
      if (record !== void 0) this.#offered = record;
      return record;
    });
  }
  /**
   * Whether a record is in the log and applied; if not, it never will be. After a failure of the log
   * that is unknown, and this has to be called again.
   */
  outcomeOf(record, signal) {
    return this.#sending.run(() => this.#outcomeOf(record, signal));
  }
  /**
   * The same for a record that was offered under an id, maybe to another tab that synchronized. If
   * none was, the id is given up: an offer that is still on its way is refused.
   */
  outcomeOfId(id, signal) {
    return this.#sending.run(async () => {
      const row = await this.#change("relaxed", async (tx, state) => {
        const offered = tx.collection(this.tables.offered);
        const found = await offered.get(id);
        if (found !== void 0) return { state, result: found };
        await offered.set(id, VOID);
        return { state: { ...state }, result: VOID };
      });
      return row.isRefused ? false : this.#outcomeOf({ ...row, id }, signal);
    });
  }
  /** Removes ids whose outcome nobody will ask for again. Those that were given up stay as long as their tab. */
  forget(isOver) {
    return this.#change("relaxed", async (tx, state) => {
      const offered = tx.collection(this.tables.offered);
      const ids = (await offered.entries().toArray()).filter(([id, row]) => isOver(id, row.ticket === 0)).map(([id]) => id);
      if (ids.length === 0) return { state, result: void 0 };
      await offered.deleteMany(ids);
      return { state: { ...state }, result: void 0 };
    });
  }
  async #outcomeOf(record, signal) {
    for (; ; ) {
      signal?.throwIfAborted();
      if (await this.#isRefused(record)) return false;
      await this.#checkDevice(record);
      const isDone = await this.#finishStrict(record.ticket, signal);
      await this.#checkDevice(record);
      if (isDone) return true;
      if (!await this.#isRefused(record)) await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
    }
  }
  async #isRefused({ id, isRefused }) {
    return isRefused || id !== void 0 && (await this.tables.offered.get(id))?.isRefused === true;
  }
  /** Fails if the device began to read the log again under a new id: then its records are another's. */
  async #checkDevice(record) {
    if ((await this.state()).device === record.device) return;
    throw new KvError("KV_CONFLICT", "the log lost its history while this transaction was sent, which may have taken effect; read what it should have written before you call it again");
  }
  /** Sends a record with `expect` until it is known whether it is in the log. */
  async #finishStrict(ticket, signal) {
    const bytes = await this.tables.outbox.get(ticket);
    if (bytes === void 0) return true;
    const row = decodeOutbox(bytes);
    const state = await this.#withOffset(ticket);
    try {
      await this.#append(state, ticket, row, row.expect, signal);
    } catch (error) {
      if (error.code !== "KV_LOG_CONFLICT") throw error;
    }
    while (await this.pull(signal)) ;
    if (!await this.tables.outbox.has(ticket)) return true;
    const { cursor } = await this.state();
    if (cursor.position === row.expect) return false;
    await this.#change("strict", async (tx, before) => {
      await tx.collection(this.tables.outbox).delete(ticket);
      const offered = tx.collection(this.tables.offered);
      for (const [id, each] of await offered.entries().toArray()) if (each.ticket === ticket) await offered.set(id, { ...each, isRefused: true });
      return { state: { ...before, nextTicket: ticket }, result: void 0 };
    });
    if (this.#offered?.ticket === ticket) this.#offered.isRefused = true;
    return false;
  }
  /** A strict record whose outcome is not known, as before a restart: nothing may take a number after it. */
  async #finishOpenStrict(signal) {
    const last = await this.tables.outbox.last();
    if (last === void 0 || decodeOutbox(last[1]).expect === void 0) return true;
    await this.#finishStrict(last[0], signal);
    return !await this.tables.outbox.has(last[0]);
  }
  /** Becomes the only writer: from here on, appends of earlier ones fail. */
  async fence(signal) {
    for (let isIn = false; !isIn; ) {
      await this.settle(signal);
      const record = await this.offer(FENCE, [], (await this.state()).cursor.position);
      isIn = record !== void 0 && await this.outcomeOf(record, signal);
    }
    this.#isOwner = true;
  }
  /** Writes a snapshot of the base, and removes what the log no longer needs. */
  async compact(signal) {
    const store = this.#snapshots;
    if (store === void 0) throw new KvError("KV_INVALID_ARGUMENT", "sync.compact needs the option `snapshots`");
    await this.settle(signal);
    return writeSnapshot({ tables: this.tables, log: this.#log, store, wire: this.wire, now: this.#clock, lock: (work) => this.#local.run(work) }, signal);
  }
};
function fenced() {
  return new KvError("KV_SYNC_FENCED", "another server became the only writer of this log; what is pending here stays here. Stop this server, or start sync again to take over");
}
async function dropOpenStrict(tx, tables) {
  const outbox = tx.collection(tables.outbox);
  const last = await outbox.last();
  if (last !== void 0 && decodeOutbox(last[1]).expect !== void 0) await outbox.delete(last[0]);
}
async function rejoin(tables, tx, state, kind) {
  await tx.collection(tables.applied).clear();
  await tx.collection(tables.chunks).clear();
  await dropOpenStrict(tx, tables);
  return { ...withNewId(state), epoch: state.epoch + 1, cursor: { position: 0, serverTime: 0, crc: 0 }, rejoin: kind };
}

// src/sync/leader.ts
var POLL_MS = 3e4;
var BURST_MS = 2;
var GATHER_MS = 10;
var MIN_BACKOFF_MS = 50;
var MAX_BACKOFF_MS = 3e4;
var FINAL = /* @__PURE__ */ new Set(["KV_CLOSED", "KV_SYNC_FENCED", "KV_SYNC_MODE", "KV_VERSION_UNSUPPORTED", "KV_VERSION_CHANGED", "KV_INVALID_ARGUMENT", "KV_READ_ONLY", "KV_CODEC_MISMATCH", "KV_INDEX_MISMATCH"]);
var isFinal = (error) => FINAL.has(error.code ?? "");
function decodeConflict(tables, { collection, key, mine, theirs }) {
  const table = tables.byName.get(collection);
  if (table === void 0) return void 0;
  const { key: keys, value: values } = table;
  return { collection, key: keys.decode(key), mine: mine ? values.decode(mine.value) : void 0, theirs: theirs ? values.decode(theirs.value) : void 0 };
}
var Leader = class {
  replica;
  /** Resolves when the replica has started; rejects if it never will. */
  started;
  #options;
  #events;
  #stop = new AbortController();
  #incoming = new Bell();
  #outgoing = new Bell();
  #conflicted = new Bell();
  /** Of loops that wait after a failure. */
  #pauses = /* @__PURE__ */ new Set();
  #ended;
  #sentAt = -Infinity;
  #failure;
  constructor(db, tables, log, options, events) {
    this.#options = options;
    this.#events = events;
    const { snapshots, collections, mode, seal, exclusive, resolve } = options;
    this.replica = new Replica(db, { log, snapshots, collections, mode, seal, tables, isExclusive: exclusive, keepsConflicts: resolve !== void 0 }, {
      conflicts: (conflicts) => {
        events.conflicts(conflicts);
        this.#conflicted.ring();
      },
      alarm: (error) => events.alarm(error),
      repaired: (records) => events.repaired(records),
      changed: () => this.#outgoing.ring()
    });
    this.started = this.#start();
    this.started.catch(() => void 0);
    this.#ended = this.started.then(() => this.#run());
    this.#ended.catch(() => void 0);
  }
  /** Aborted when this ends, for whatever reason. */
  get signal() {
    return this.#stop.signal;
  }
  /** Resolves after `end`; rejects with the failure that ended it otherwise. */
  async ended() {
    try {
      await this.#ended;
    } catch (error) {
      if (this.#failure !== void 0 || !this.#isStopped) throw error;
    } finally {
      this.end(new KvError("KV_CLOSED", "sync has ended"));
    }
  }
  /** Commits nothing from here on, and sends nothing that is not on its way. */
  end(reason) {
    this.replica.stop();
    if (!this.#isStopped) this.#stop.abort(reason);
    for (const bell of [this.#incoming, this.#outgoing, this.#conflicted, ...this.#pauses]) bell.ring();
  }
  /** There may be something new in the log. */
  wake() {
    this.#incoming.ring();
  }
  /** The network may be back: what has failed is tried again now. */
  retry() {
    for (const bell of this.#pauses) bell.ring();
    this.#incoming.ring();
  }
  get #isStopped() {
    return this.#stop.signal.aborted;
  }
  async #start() {
    await this.replica.start();
    if (this.#options.exclusive) await this.#fence();
  }
  async #run() {
    await Promise.all([this.#loop(this.#incoming, () => this.#receive()), this.#loop(this.#outgoing, () => this.#send()), this.#loop(this.#conflicted, () => this.#resolveConflicts())]);
    if (this.#failure !== void 0) throw this.#failure;
  }
  async #fence() {
    for (let wait = MIN_BACKOFF_MS; ; wait = Math.min(wait * 2, MAX_BACKOFF_MS)) {
      this.#stop.signal.throwIfAborted();
      try {
        await this.replica.fence(this.#stop.signal);
        return;
      } catch (error) {
        this.#stop.signal.throwIfAborted();
        if (isFinal(error)) throw error;
        this.replica.reconnect();
        this.#events.state({ status: "offline", lastError: toKvError(error) });
      }
      await this.#incoming.wait(wait);
    }
  }
  /** Does work when the bell rings, and again, later and later, after failures. */
  async #loop(bell, work) {
    for (let backoff = MIN_BACKOFF_MS; !this.#isStopped; ) {
      try {
        await work();
        backoff = MIN_BACKOFF_MS;
        if (!this.#isStopped) await bell.wait(POLL_MS);
      } catch (error) {
        if (this.#isStopped) return;
        if (isFinal(error)) {
          this.#failure = toKvError(error);
          return this.end(this.#failure);
        }
        this.replica.reconnect();
        this.#events.state({ status: "offline", lastError: toKvError(error) });
        if (error.code !== "KV_LOG_UNAVAILABLE") this.#events.alarm(toKvError(error));
        await this.#pause(backoff * (0.5 + Math.random() / 2));
        backoff = Math.min(backoff * 2, MAX_BACKOFF_MS);
        this.#incoming.ring();
      }
    }
  }
  async #pause(milliseconds) {
    const pause = new Bell();
    this.#pauses.add(pause);
    await pause.wait(milliseconds);
    this.#pauses.delete(pause);
  }
  async #refresh(change) {
    const [pending, { cursor }] = await Promise.all([this.replica.pending(), this.replica.state()]);
    if (!this.#isStopped) this.#events.state({ ...change, pending, position: cursor.position });
  }
  async #receive() {
    while (!this.#isStopped && await this.replica.pull(this.#stop.signal)) await this.#refresh({ status: "catching-up" });
    if (this.#isStopped) return;
    await this.#refresh({ status: "live", lastError: void 0 });
    this.#outgoing.ring();
  }
  async #send() {
    if (performance.now() - this.#sentAt < BURST_MS && this.replica.hasCommits) await this.#pause(GATHER_MS);
    while (!this.#isStopped && await this.replica.drain()) ;
    let isSent = false;
    while (!this.#isStopped && await this.replica.publish(this.#stop.signal)) isSent = true;
    const pending = await this.replica.pending();
    if (!this.#isStopped) this.#events.state({ pending });
    if (!isSent) return;
    this.#sentAt = performance.now();
    this.#incoming.ring();
  }
  async #resolveConflicts() {
    const { resolve } = this.#options;
    if (resolve === void 0) return;
    for (let next = await this.replica.firstConflict(); next !== void 0 && !this.#isStopped; next = await this.replica.firstConflict()) {
      try {
        const conflict = decodeConflict(this.replica.tables, next.conflict);
        if (conflict !== void 0) await resolve(conflict);
      } catch (error) {
        return this.#events.alarm(toKvError(error));
      }
      await this.replica.removeConflict(next.id);
    }
  }
};

// src/sync/strict.ts
var WRITES = {
  set: ([key]) => [key],
  setStream: ([key]) => [key],
  delete: ([key]) => [key],
  update: ([key]) => [key],
  getOrInsert: ([key]) => [key],
  getOrInsertComputed: ([key]) => [key],
  deleteMany: ([keys]) => keys,
  setMany: ([entries]) => Array.from(entries, ([key]) => key)
};
var Recorder = class {
  #tx;
  #tables;
  #touched = /* @__PURE__ */ new Map();
  constructor(tx, tables) {
    this.#tx = tx;
    this.#tables = tables;
  }
  collection(collection) {
    const name = typeof collection === "string" ? collection : collection.name;
    const handle = this.#tx.collection(collection);
    return this.#recording(name, handle);
  }
  #recording(name, handle) {
    return new Proxy(handle, {
      get: (target, property) => {
        const member = Reflect.get(target, property, target);
        if (typeof member !== "function") return member;
        const call = member.bind(target);
        if (property === "clear") return (...args) => this.#clear(name, target, args, call);
        const keysOf = typeof property === "string" && Object.hasOwn(WRITES, property) ? WRITES[property] : void 0;
        if (keysOf === void 0) return call;
        return async (...given) => {
          const [first, ...rest] = given;
          const args = property === "setMany" || property === "deleteMany" ? [[...first], ...rest] : given;
          const table = this.#writable(name);
          for (const key of keysOf(args)) this.#touch(table, key);
          return call(...args);
        };
      }
    });
  }
  async #clear(name, target, args, call) {
    const table = this.#writable(name);
    for await (const key of target.keys(...args.slice(0, 1))) this.#touch(table, key);
    return call(...args);
  }
  #writable(name) {
    const table = this.#tables.byName.get(name);
    if (table?.modes.has("strict") === true) return table;
    throw new KvError("KV_SYNC_MODE", `sync.transaction writes collections in mode "strict" only, and ${JSON.stringify(name)} is not one; write it with db.transaction`);
  }
  #touch(table, given) {
    const key = table.key.encode(given);
    if (!table.modes.isStrict(key)) {
      throw new KvError("KV_SYNC_MODE", `sync.transaction writes keys in mode "strict" only, and ${keyText(given)} of collection ${JSON.stringify(table.name)} is not one; write it with db.transaction`);
    }
    let keys = this.#touched.get(table);
    if (keys === void 0) this.#touched.set(table, keys = /* @__PURE__ */ new Map());
    keys.set(keyId(key), key.slice());
  }
  /** What the transaction leaves of each key that it wrote. */
  async ops() {
    const reads = [];
    for (const [table, keys] of this.#touched) {
      const data = this.#tx.collection(table.data);
      for (const key of keys.values()) {
        reads.push(data.getEntry(key).then(async (entry) => {
          if (entry === void 0) return { type: "delete", collection: table.name, key };
          await this.#checkUnique(table, key, entry.value);
          return { type: "set", collection: table.name, key, value: entry.value, expiresAt: entry.expiresAt ?? 0 };
        }));
      }
    }
    return Promise.all(reads);
  }
  /** A commit would check this; but this transaction is not committed, its record is applied. */
  async #checkUnique(table, key, value) {
    for (const { name, keysOf } of table.unique) {
      const index = this.#tx.collection(table.data).index(name);
      for (const indexKey of keysOf(value, key)) {
        const owners = await index.keys({ eq: indexKey, limit: 2 }).toArray();
        if (owners.every((owner) => keyId(owner) === keyId(key))) continue;
        throw new KvError("KV_UNIQUE", `the key ${keyText(indexKey)} of the unique index ${JSON.stringify(name)} of collection ${JSON.stringify(table.name)} belongs to another entry; nothing was stored`);
      }
    }
  }
};
var MAX_WAIT_MS = 200;
async function isInLog(host, sent, record, signal) {
  const isIn = await host.outcomeOf(record, signal);
  sent.open = void 0;
  return isIn;
}
async function runStrict(host, fn, { maxRetries = 100, signal }, sent = {}) {
  const { tables } = host;
  const { open: open2 } = sent;
  if (open2 !== void 0 && await isInLog(host, sent, open2.record, signal)) return open2.result;
  for (let attempt = 0; attempt <= maxRetries; attempt++) {
    await host.settle(signal);
    const tx = tables.db.begin({ timeout: Infinity, ...signal && { signal } });
    try {
      const version = await tx.baseVersion;
      const state = await tx.collection(tables.state).get("state");
      const recorder = new Recorder(tx, tables);
      const result = await fn(recorder);
      const ops = await recorder.ops();
      if (state !== void 0 && state.rejoin === void 0 && !await host.isDisturbed(version, state.drained, signal)) {
        if (ops.length === 0) return result;
        const record = await host.offer(STRICT2, ops, state.cursor.position, { ...signal && { signal } });
        if (record !== void 0) {
          sent.open = { record, result };
          if (await isInLog(host, sent, record, signal)) return result;
        }
      }
    } finally {
      tx.rollback();
    }
    await new Promise((resolve) => setTimeout(resolve, Math.random() * Math.min(MAX_WAIT_MS, 2 ** attempt)));
  }
  throw new KvError("KV_CONFLICT", `sync.transaction: other devices wrote to the log before each of ${maxRetries + 1} runs was in it; write less often, or split the data into several databases`, { retryable: true });
}

// src/storage/web-lock.ts
var MAX_TIMER_MS = 2 ** 31 - 1;
function isLocked(name, cause) {
  return new KvError("KV_LOCKED", `${name} is open in another tab or handle; close it there first`, { cause, retryable: true });
}
async function lockByName(name, timeoutMs, signal) {
  const locks = globalThis.navigator?.locks;
  if (locks === void 0) throw new KvError("KV_UNSUPPORTED", "this browser has no Web Locks, or the page is not served over HTTPS");
  const controller = new AbortController();
  signal?.throwIfAborted();
  const abort = () => controller.abort();
  signal?.addEventListener("abort", abort, { once: true });
  const timer = timeoutMs > MAX_TIMER_MS ? void 0 : setTimeout(abort, timeoutMs);
  const options = timeoutMs > 0 ? { signal: controller.signal } : { ifAvailable: true };
  try {
    return await new Promise((resolve, reject) => {
      const held = (lock) => {
        if (lock === null) return void reject(isLocked(name));
        return new Promise((release) => resolve(release));
      };
      locks.request(`mangrove-kv:${name}`, options, held).catch(reject);
    });
  } catch (error) {
    signal?.throwIfAborted();
    if (error instanceof KvError) throw error;
    if (controller.signal.aborted) throw isLocked(name, error);
    throw new KvError("KV_UNSUPPORTED", `the browser refuses a lock for ${name}`, { cause: error });
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
  }
}

// src/sync/tabs.ts
var VERSION = 1;
var HELLO_MS = 5e3;
var MAX_UNANSWERED = 3;
var gone = () => logUnavailable("the tab that synchronizes this database is gone, or another one took over");
var Tabs = class {
  id = randomId();
  #scope;
  #events;
  #stop;
  #channel;
  /** The newest term that was heard, or the own one. */
  #term = 0;
  #isLeading = false;
  #state;
  #unanswered = 0;
  #timer;
  #nextAsk = 1;
  #asks = /* @__PURE__ */ new Map();
  /** What others ask for, by tab and number. */
  #serving = /* @__PURE__ */ new Map();
  #isAsleep = false;
  #election = new AbortController();
  #woken;
  #alive;
  /** Works until `stop` is aborted. */
  constructor({ persistence, path }, events, stop) {
    if (typeof BroadcastChannel !== "function") throw new KvError("KV_UNSUPPORTED", "this browser has no BroadcastChannel, over which tabs share sync");
    this.#scope = `${persistence} ${path}`;
    this.#events = events;
    this.#stop = stop;
    this.#channel = new BroadcastChannel(`mangrove-kv:sync ${VERSION} of ${this.#scope}`);
    this.#channel.onmessage = ({ data }) => this.#receive(data);
    this.#timer = setInterval(() => this.#greet(), HELLO_MS);
    this.#alive = lockByName(this.#aliveName(this.id), Infinity, stop).then((release) => stop.addEventListener("abort", release));
    this.#alive.catch(() => void 0);
    this.#watchPage();
    this.#post({ type: "hello" });
  }
  #aliveName(tab) {
    return `sync of ${this.#scope}: tab ${tab}`;
  }
  /** Resolves when this tab is the one that synchronizes, until it calls what this resolves to. */
  async elect() {
    for (; ; ) {
      this.#stop.throwIfAborted();
      if (this.#isAsleep) {
        await new Promise((resolve) => {
          this.#woken = resolve;
        });
        continue;
      }
      const election = this.#election = new AbortController();
      const abort = () => election.abort();
      this.#stop.addEventListener("abort", abort);
      try {
        const release = await lockByName(`sync of ${this.#scope}`, Infinity, election.signal);
        if (!this.#isAsleep) return this.#lead(release);
        release();
      } catch (error) {
        if (!election.signal.aborted) throw error;
      } finally {
        this.#stop.removeEventListener("abort", abort);
      }
    }
  }
  #lead(release) {
    this.#term = Math.max(Date.now(), this.#term + 1);
    this.#isLeading = true;
    this.#rejectAsks();
    return () => {
      if (!this.#isLeading) return;
      this.#isLeading = false;
      this.#state = void 0;
      for (const controller of this.#serving.values()) controller.abort(gone());
      this.#serving.clear();
      this.#post({ type: "gone", term: this.#term });
      release();
    };
  }
  /** Tells the others; if this tab synchronizes. */
  tellState(state) {
    this.#state = state;
    if (this.#isLeading) this.#post({ type: "state", term: this.#term, state: { ...state, lastError: state.lastError && toPlain(state.lastError) } });
  }
  tell(notice) {
    if (this.#isLeading) this.#post({ type: "notice", term: this.#term, notice });
  }
  /** Ids of tabs that are not there any more. */
  async isOver() {
    const { held = [] } = await navigator.locks.query();
    const names3 = new Set(held.map(({ name }) => name));
    return (tab) => !names3.has(`mangrove-kv:${this.#aliveName(tab)}`);
  }
  /**
   * Asks the tab that synchronizes. Rejects with KV_LOG_UNAVAILABLE if it is not heard any more, or
   * another one takes its place: then it may or may not have been done.
   */
  async ask(verb, args, signal) {
    await this.#alive;
    signal.throwIfAborted();
    if (this.#isLeading) throw gone();
    const [tab, id] = [this.id, this.#nextAsk++];
    let onAbort2 = () => void 0;
    try {
      return await new Promise((resolve, reject) => {
        onAbort2 = () => {
          this.#post({ type: "cancel", tab, id });
          reject(signal.reason);
        };
        signal.addEventListener("abort", onAbort2);
        this.#asks.set(id, { resolve, reject });
        this.#post({ type: "ask", tab, id, verb, args });
      });
    } finally {
      this.#asks.delete(id);
      signal.removeEventListener("abort", onAbort2);
    }
  }
  close() {
    clearInterval(this.#timer);
    this.#woken?.();
    this.#rejectAsks();
    this.#channel.onmessage = null;
    this.#channel.close();
  }
  #post(message) {
    if (!this.#stop.aborted || message.type === "gone") this.#channel.postMessage(message);
  }
  #rejectAsks() {
    for (const { reject } of this.#asks.values()) reject(gone());
  }
  #receive(message) {
    if (this.#stop.aborted) return;
    switch (message.type) {
      case "hello":
        if (this.#isLeading && this.#state !== void 0) this.tellState(this.#state);
        break;
      case "ask":
        if (this.#isLeading) void this.#serve(message);
        break;
      case "cancel":
        this.#serving.get(`${message.tab}/${message.id}`)?.abort(gone());
        break;
      case "answer":
        if (message.tab === this.id) this.#answered(message);
        break;
      default:
        this.#hear(message);
    }
  }
  /** Something that the synchronizing tab tells. */
  #hear(message) {
    if (this.#isLeading || message.term < this.#term) return;
    if (message.term > this.#term) {
      if (this.#term > 0) this.#rejectAsks();
      this.#term = message.term;
    }
    this.#unanswered = 0;
    if (message.type === "gone") {
      this.#rejectAsks();
      this.#events.state(void 0);
    } else if (message.type === "notice") this.#events.notice(message.notice);
    else if (message.type === "state") this.#events.state({ ...message.state, lastError: message.state.lastError && fromPlain(message.state.lastError) });
  }
  #greet() {
    if (this.#isLeading || this.#isAsleep) return;
    if (this.#unanswered++ >= MAX_UNANSWERED) {
      navigator.locks.query().catch(() => void 0);
      this.#term = 0;
      this.#rejectAsks();
      this.#events.state(void 0);
    }
    this.#post({ type: "hello" });
  }
  async #serve({ tab, id, verb, args }) {
    const [name, controller] = [`${tab}/${id}`, new AbortController()];
    this.#serving.set(name, controller);
    const term = this.#term;
    const answer = await this.#events.asked(verb, args, controller.signal).then(
      (result) => ({ result, error: void 0 }),
      (error) => ({ result: void 0, error: toPlain(error) })
    );
    this.#serving.delete(name);
    if (this.#isLeading && this.#term === term) this.#post({ type: "answer", tab, id, ...answer });
  }
  #answered({ id, result, error }) {
    this.#unanswered = 0;
    const ask = this.#asks.get(id);
    if (error === void 0) ask?.resolve(result);
    else ask?.reject(fromPlain(error));
  }
  // A page that is frozen, or kept by the browser after it was left, must not hold the lock.
  #onSleep = () => {
    this.#isAsleep = true;
    this.#election.abort();
    this.#events.sleep();
  };
  #onWake = () => {
    this.#isAsleep = false;
    this.#woken?.();
    this.#post({ type: "hello" });
  };
  #watchPage() {
    const { document: document2, window } = globalThis;
    const on = (target, types, listener) => {
      for (const type of types) {
        target?.addEventListener(type, listener);
        this.#stop.addEventListener("abort", () => target?.removeEventListener(type, listener));
      }
    };
    on(document2, ["freeze"], this.#onSleep);
    on(document2, ["resume"], this.#onWake);
    on(window, ["pagehide"], this.#onSleep);
    on(window, ["pageshow"], this.#onWake);
    on(globalThis, ["online", "offline"], () => this.#events.online());
  }
};

// src/sync/verbs.ts
var PERFORM = {
  settle: (replica, _, signal) => replica.settle(signal),
  compact: (replica, _, signal) => replica.compact(signal),
  isDisturbed: (replica, args) => replica.isDisturbed(...args),
  offer: async (replica, [id, flags, ops, expect]) => await replica.offer(flags, ops, expect, { id }) !== void 0,
  outcome: (replica, [id], signal) => replica.outcomeOfId(id, signal),
  // An id that was given up may still be on its way.
  forget: (replica, [id]) => replica.forget((each, isVoid) => each === id && !isVoid)
};
function perform(replica, verb, args, signal) {
  return PERFORM[verb](replica, args, signal);
}
function hostOf(tables, tab, call) {
  return {
    tables,
    settle: (signal) => call("settle", [], signal),
    isDisturbed: (version, drained, signal) => call("isDisturbed", [version, drained], signal),
    offer: async (flags, ops, expect, { signal }) => {
      const id = `${tab}/${randomId()}`;
      try {
        return await call("offer", [id, flags, ops, expect], signal) ? id : void 0;
      } catch (error) {
        if (error.code !== "KV_LOG_UNAVAILABLE") throw error;
        return id;
      }
    },
    outcomeOf: async (id, signal) => {
      const isIn = await call("outcome", [id], signal);
      call("forget", [id], void 0).catch(() => void 0);
      return isIn;
    }
  };
}

// src/sync/sync.ts
var active = /* @__PURE__ */ new WeakSet();
var Sync = class extends EventTarget {
  #db;
  #options;
  #tables;
  #stop = new AbortController();
  /** The tabs that have this database, where there can be several. */
  #tabs;
  /** While this tab synchronizes. */
  #leader;
  #release;
  #state = { status: "connecting", pending: 0, position: 0, lastError: void 0 };
  #ended;
  /** @internal Use `syncDatabase`. */
  constructor(db, options) {
    super();
    this.#db = db;
    this.#options = options;
    this.#tables = new Tables(db, options.collections, options.mode ?? "merge");
    if (["opfs", "indexeddb"].includes(db.persistence)) {
      this.#tabs = new Tabs(db, {
        state: (state) => this.#set(state ?? { status: "waiting" }),
        notice: (notice) => this.#hear(notice),
        asked: (verb, args, signal) => this.#lead(verb, args, signal),
        online: () => this.#leader?.retry(),
        sleep: () => this.#resign()
      }, this.#stop.signal);
      this.#state = { ...this.#state, status: "waiting" };
    } else if (options.log === void 0) {
      throw new KvError("KV_INVALID_ARGUMENT", `syncDatabase: the option \`log\` is missing, and no other thread can synchronize a database with persistence "${db.persistence}"`);
    }
    active.add(db);
    this.#ended = this.#run();
  }
  /** How far sync is. */
  get state() {
    return this.#state;
  }
  /** Calls `onChange` when there is a new state; returns the function that ends this. */
  subscribe = (onChange) => {
    this.addEventListener("state", onChange);
    return () => this.removeEventListener("state", onChange);
  };
  /**
   * Runs `fn` on the newest state of the log, and resolves when its writes are in the log and in
   * the database. If another device wrote meanwhile, everything is undone and `fn` runs again:
   * strict transactions of all devices take effect one after another. Waits while the log cannot
   * be reached.
   *
   * @throws KvError KV_SYNC_MODE for writes to collections that are not in mode "strict";
   * KV_CONFLICT (retryable) after too many conflicts; KV_CLOSED if sync is stopped: if the record
   * was sent, it may still take effect.
   */
  async transaction(fn, options = {}) {
    const run2 = (host) => {
      const sent = {};
      return this.#online(async (signal) => {
        try {
          return await runStrict(await host(signal), fn, { ...options, signal }, sent);
        } catch (error) {
          if (sent.open !== void 0 && error.code === "KV_LOG_REFUSED") throw logUnavailable("the log does not tell the outcome of a transaction", error);
          throw error;
        }
      }, options.signal);
    };
    const tabs = this.#tabs;
    return tabs === void 0 ? run2(async (signal) => (await this.#started(signal)).replica) : run2(async () => hostOf(this.#tables, tabs.id, (verb, args, signal = this.#stop.signal) => this.#call(verb, args, signal)));
  }
  /**
   * Resolves when everything written before is in the log. Waits while the log cannot be reached,
   * which can be long: no user interface should wait for it.
   */
  flush({ signal } = {}) {
    return this.#online((stop) => this.#call("settle", [], stop), signal);
  }
  /**
   * Writes a snapshot of all collections to the object store, and removes records from the log that
   * are in the snapshot before it. One device has to do this from time to time. Resolves to the
   * snapshot's position, or to undefined if there was nothing new.
   *
   * @throws KvError KV_LOG_UNAVAILABLE (retryable) if local writes never paused long enough;
   * KV_LOG_CONFLICT (retryable) if another device compacted at the same time.
   */
  compact({ signal } = {}) {
    return this.#online((stop) => this.#call("compact", [], stop), signal, false);
  }
  /**
   * Stops, and closes the log; local commits stay for the next time. Other tabs go on. Idempotent.
   */
  async close() {
    const reason = new KvError("KV_CLOSED", "sync was closed");
    this.#leader?.end(reason);
    this.#stop.abort(reason);
    await this.#ended;
  }
  addEventListener(...listener) {
    super.addEventListener(...listener);
  }
  #tell(type, fields) {
    this.dispatchEvent(Object.assign(new Event(type), fields));
  }
  #tellConflicts(conflicts) {
    for (const raw2 of conflicts) {
      const conflict = decodeConflict(this.#tables, raw2);
      if (conflict !== void 0) this.#tell("conflict", { conflict });
    }
  }
  /** What the tab that synchronizes tells. */
  #hear(notice) {
    if (notice.type === "conflicts") this.#tellConflicts(notice.conflicts);
    else if (notice.type === "repair") this.#tell("repair", { records: notice.records });
    else this.#tell("error", { error: fromPlain(notice.error) });
  }
  /** What this tab knows because it synchronizes. */
  #announce(notice) {
    this.#hear(notice);
    this.#tabs?.tell(notice);
  }
  #set(change) {
    const last = this.#state.lastError;
    const next = { ...this.#state, ...change };
    if (next.lastError?.code === last?.code && next.lastError?.message === last?.message) next.lastError = last;
    const names3 = ["status", "pending", "position", "lastError"];
    if (names3.every((name) => next[name] === this.#state[name])) return;
    this.#state = next;
    if (this.#leader !== void 0) this.#tabs?.tellState(next);
    this.#tell("state", { state: next });
  }
  get #isStopped() {
    return this.#stop.signal.aborted;
  }
  /** Retries work that needs the log until it succeeds or fails with an error that is not transient. */
  async #online(work, given, isRepeated = true) {
    const stop = new AbortController();
    const abort = () => stop.abort(given?.aborted ? given.reason : this.#stop.signal.reason);
    for (const signal of [given, this.#stop.signal]) {
      if (signal?.aborted) abort();
      signal?.addEventListener("abort", abort, { once: true });
    }
    try {
      for (let wait = MIN_BACKOFF_MS; ; wait = Math.min(wait * 2, MAX_BACKOFF_MS)) {
        stop.signal.throwIfAborted();
        try {
          return await work(stop.signal);
        } catch (error) {
          stop.signal.throwIfAborted();
          const { code } = error;
          if (!isRepeated || code !== "KV_LOG_UNAVAILABLE" && code !== "KV_SYNC_GAP") throw error;
        }
        await new Promise((resolve) => {
          const end = () => {
            clearTimeout(timer);
            stop.signal.removeEventListener("abort", end);
            this.removeEventListener("state", onState);
            resolve();
          };
          const onState = () => {
            if (this.#state.status === "live") end();
          };
          const timer = setTimeout(end, wait);
          stop.signal.addEventListener("abort", end);
          this.addEventListener("state", onState);
        });
      }
    } finally {
      for (const signal of [given, this.#stop.signal]) signal?.removeEventListener("abort", abort);
      this.#leader?.wake();
    }
  }
  /** The leader, when it has started. Rejects if it ends before. */
  async #started(signal) {
    const leader = this.#leader;
    if (leader === void 0) throw logUnavailable("this tab does not synchronize the database");
    await abortable(leader.started, signal);
    return leader;
  }
  /** Asks the tab that synchronizes, which may be this one. */
  async #call(verb, args, signal) {
    return this.#leader === void 0 && this.#tabs !== void 0 ? this.#tabs.ask(verb, args, signal) : this.#lead(verb, args, signal);
  }
  async #lead(verb, args, signal) {
    const leader = await this.#started(signal);
    const stop = new AbortController();
    const abort = () => stop.abort();
    const signals = [signal, leader.signal];
    for (const each of signals) {
      if (each.aborted) abort();
      each.addEventListener("abort", abort);
    }
    try {
      return await perform(leader.replica, verb, args, stop.signal);
    } catch (error) {
      signal.throwIfAborted();
      if (leader.signal.aborted && !this.#isStopped) throw logUnavailable("this tab has stopped to synchronize the database");
      throw error;
    } finally {
      for (const each of signals) each.removeEventListener("abort", abort);
    }
  }
  async #run() {
    const onClosed = () => void this.close();
    this.#db.addEventListener("close", onClosed);
    try {
      const { log } = this.#options;
      if (log === void 0) await new Promise((resolve) => this.#stop.signal.addEventListener("abort", resolve));
      while (log !== void 0 && !this.#isStopped) {
        if (this.#tabs !== void 0) this.#release = await this.#tabs.elect();
        await this.#follow(log);
      }
    } catch (error) {
      if (!this.#isStopped) this.#fail(error);
    } finally {
      this.#resign();
      this.#db.removeEventListener("close", onClosed);
      this.#tabs?.close();
      active.delete(this.#db);
      await this.#options.log?.close().catch(() => void 0);
      this.#set({ status: "stopped" });
    }
  }
  /** Follows the log until this tab stops, or has to leave that to another one. */
  async #follow(log) {
    const leader = new Leader(this.#db, this.#tables, log, this.#options, {
      state: (change) => this.#set(change),
      conflicts: (conflicts) => this.#announce({ type: "conflicts", conflicts }),
      repaired: (records) => this.#announce({ type: "repair", records }),
      alarm: (error) => this.#announce({ type: "error", error: toPlain(error) })
    });
    this.#leader = leader;
    this.#set({ status: "connecting" });
    this.#tabs?.tellState(this.#state);
    this.#forgetOthers(leader).catch(() => void 0);
    const endWake = log.wake(() => leader.wake());
    try {
      await leader.ended();
    } finally {
      endWake();
      if (this.#leader === leader) this.#resign();
    }
  }
  /** What tabs that are gone have offered: nobody will ask for it. */
  async #forgetOthers(leader) {
    await leader.started;
    const isOver = await this.#tabs?.isOver();
    if (isOver !== void 0) await leader.replica.forget((id) => isOver(id.split("/")[0]));
  }
  /** Leaves synchronizing to another tab. */
  #resign() {
    this.#leader?.end(new KvError("KV_CLOSED", "another tab synchronizes"));
    this.#leader = void 0;
    this.#release?.();
    this.#release = void 0;
    if (this.#tabs !== void 0 && !this.#isStopped) this.#set({ status: "waiting" });
  }
  #fail(error) {
    const failure = toKvError(error);
    this.#set({ lastError: failure });
    this.#tell("error", { error: failure });
    this.#stop.abort(failure);
  }
};
function syncDatabase(db, options) {
  const plain = db;
  return new Promise((resolve) => {
    if (active.has(plain)) throw new KvError("KV_LOCKED", "this database is being synchronized already: close that first", { retryable: true });
    resolve(new Sync(plain, options));
  });
}

// perf.utT0.ts
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
var dir = mkdtempSync(join(tmpdir(), "perf-"));
var server = new MemoryServer();
var document = (number) => ({ title: `note ${number}`, text: "x".repeat(50), done: false, number });
var names2 = ["off", "raw", "only", "sync"];
var dbs = [];
for (const name of names2) {
  const db = await open(join(dir, name), { feed: true });
  if (name === "raw" || name === "only") (async () => {
    for await (const _ of db.changes({ raw: true, ...name === "only" && { only: "mangrove:sync" } })) ;
  })().catch(() => 0);
  if (name === "sync") await syncDatabase(db, { log: new MemoryLog(server), collections: { notes: {} } });
  dbs.push(db);
}
for (const durability of ["strict", "relaxed"]) {
  const t = names2.map(() => []);
  for (let round = 0; round < 12; round++) for (const [w, db] of dbs.entries()) {
    const notes = db.collection("notes");
    for (let i = 0; i < 300; i++) {
      const b = performance.now();
      await notes.set(`${durability}${round}/${i}`, document(i), { durability });
      if (round > 1) t[w].push(performance.now() - b);
    }
    await new Promise((f) => setTimeout(f, 200));
  }
  for (const [w, name] of names2.entries()) {
    const x = t[w].sort((p, q) => p - q);
    console.log(durability, name, "p25", x[x.length >> 2].toFixed(4), "median", x[x.length >> 1].toFixed(4), "mean", (x.reduce((p, q) => p + q) / x.length).toFixed(4), "p90", x[Math.floor(x.length * 0.9)].toFixed(4));
  }
}
rmSync(dir, { recursive: true, force: true });
process.exit(0);
