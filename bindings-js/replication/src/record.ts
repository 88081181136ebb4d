// The bytes of a record in the log; docs/REPLICATION.md has the format.
//
//   version u8 · flags u8 · device u64 · seq uv · back uv · body · CRC-32C u32 of all before
//
// The body is plain, compressed or sealed, as the flags say. Plain, it is a list of transactions, or a
// part of one.
import { KvError } from 'mangrove-kv';
import { ByteSink, ByteSource, crc32c } from './bytes.ts';
import type { LoggedRecord, Position } from './remote-log.ts';
import type { WriteStamp } from './row.ts';
import type { Cursor, Digest } from './state.ts';

export const RECORD_VERSION = 1;
/** Counts what programs learn to read: operations, flags and versions of records. */
export const UNDERSTANDING = 1;
/** Instead of that: large values of records could not be had. Each start tries again. */
export const INCOMPLETE = 0;
/** A record is at most this long. */
export const MAX_RECORD_BYTES = 1 << 20;

/** The transactions ran on the log's newest state: they always win. */
export const STRICT = 1;
/** The operations have stamps of their own. */
export const REPAIR = 2;
/** A part of a body that is too long for one record. */
export const CHUNK = 4;
/** The body is compressed with raw deflate. */
export const COMPRESSED = 8;
/** The body is sealed with AES-GCM. */
export const SEALED = 16;
/** The device claims to be the only writer from here on. */
export const FENCE = 32;
/** What the writer had applied is of a history that the log has lost: it knew nothing of the present one. */
export const UNBASED = 64;
/** The writer's digests of the base, as of the record before this one. */
export const CHECK = 128;
const KNOWN_FLAGS = 255;

export interface RecordHeader {
  readonly flags: number;
  readonly device: bigint;
  /** Numbers of a device grow. */
  readonly seq: number;
  /** How far back the device's record before this one is; `seq` for its first one. Without it this one is not applied. */
  readonly back: number;
}

export type ReplicationOp =
  | {
      readonly type: 'set';
      readonly collection: string;
      readonly key: Uint8Array;
      readonly value: Uint8Array;
      readonly expiresAt: number;
      readonly stamp?: WriteStamp;
    }
  | {
      readonly type: 'blob';
      readonly collection: string;
      readonly key: Uint8Array;
      readonly hash: Uint8Array;
      readonly size: number;
      readonly check: number;
      readonly expiresAt: number;
      readonly stamp?: WriteStamp;
    }
  | { readonly type: 'delete'; readonly collection: string; readonly key: Uint8Array; readonly stamp?: WriteStamp }
  | { readonly type: 'clear'; readonly collection: string; readonly lower: KeyBound; readonly upper: KeyBound };

/** Undefined: the range has no bound on that side. */
export type KeyBound = { readonly bytes: Uint8Array; readonly isExclusive: boolean } | undefined;

export interface SyncTransaction {
  /** The log's position that the writer had applied when it committed. */
  readonly base: Position;
  /** Hybrid logical clock: 48 bits of milliseconds since 1970, 16 bits of counter. */
  readonly hlc: bigint;
  readonly ops: readonly ReplicationOp[];
}

const SET = 1;
const DELETE = 2;
const CLEAR = 3;
const BLOB = 4;
const STAMPED = 0x40;
const STAMPED_STRICT = 0x80;

function putBound(sink: ByteSink, bound: KeyBound): void {
  if (bound === undefined) sink.u8(0);
  else sink.u8(bound.isExclusive ? 2 : 1).bytes(bound.bytes);
}

function readBound(source: ByteSource): KeyBound {
  const kind = source.u8();
  if (kind > 2) throw new KvError('KV_CORRUPT', 'a bound in a replication record is of an unknown kind');
  return kind === 0 ? undefined : { bytes: source.bytes(), isExclusive: kind === 2 };
}

/** What a record says. */
export interface RecordBody {
  /** Counts the records of the device in the order in which they were captured: one that is sent again keeps it. */
  readonly n: number;
  /** How the writer declares the collections that are named here. */
  readonly declared: ReadonlyMap<string, string>;
  readonly transactions: readonly SyncTransaction[];
  /** Of a check: of each collection. */
  readonly digests?: { readonly [name: string]: Digest } | undefined;
}

export function encodeBody({ n, declared, transactions, digests }: RecordBody): Uint8Array<ArrayBuffer> {
  const sink = new ByteSink();
  const names = new Map<string, number>();
  sink.uv(n).uv(transactions.length);
  for (const { base, hlc, ops } of transactions) {
    sink.uv(base).u64(hlc).uv(ops.length);
    for (const op of ops) {
      const stamp = op.type === 'clear' ? undefined : op.stamp;
      const code = op.type === 'set' ? SET : op.type === 'delete' ? DELETE : op.type === 'clear' ? CLEAR : BLOB;
      sink.u8(code | (stamp === undefined ? 0 : STAMPED) | (stamp?.isStrict ? STAMPED_STRICT : 0));
      if (stamp !== undefined) sink.u64(stamp.h).u64(stamp.device).uv(stamp.n);
      const known = names.get(op.collection);
      sink.uv(known ?? names.size);
      if (known === undefined) {
        names.set(op.collection, names.size);
        sink.text(op.collection).text(declared.get(op.collection) ?? '');
      }
      if (op.type === 'clear') {
        putBound(sink, op.lower);
        putBound(sink, op.upper);
        continue;
      }
      sink.bytes(op.key);
      if (op.type === 'set') sink.uv(op.expiresAt).bytes(op.value);
      else if (op.type === 'blob') sink.uv(op.expiresAt).uv(op.size).uv(op.check).raw(op.hash);
    }
  }
  if (digests !== undefined)
    for (const [name, [count, sum]] of Object.entries(digests)) sink.text(name).uv(count).uv(sum);
  return sink.done();
}

/** `flags` are those of the record: digests follow the transactions of a check. */
export function decodeBody(body: Uint8Array, flags = 0): RecordBody {
  const source = new ByteSource(body);
  const names: string[] = [];
  const declared = new Map<string, string>();
  const transactions: SyncTransaction[] = [];
  const n = source.uv();
  for (let left = source.uv(); left > 0; left--) {
    const [base, hlc] = [source.uv(), source.u64()];
    const ops: ReplicationOp[] = [];
    for (let more = source.uv(); more > 0; more--) ops.push(readOp(source, names, declared));
    transactions.push({ base, hlc, ops });
  }
  if (flags & CHECK) {
    const digests: { [name: string]: Digest } = {};
    while (source.left > 0) digests[source.text()] = [source.uv(), source.uv()];
    return { n, declared, transactions, digests };
  }
  if (source.left > 0) throw new KvError('KV_CORRUPT', 'a replication record is longer than its transactions');
  return { n, declared, transactions };
}

function readOp(source: ByteSource, names: string[], declared: Map<string, string>): ReplicationOp {
  const code = source.u8();
  const stamp =
    (code & STAMPED) === 0
      ? {}
      : { stamp: { h: source.u64(), device: source.u64(), n: source.uv(), isStrict: (code & STAMPED_STRICT) !== 0 } };
  const index = source.uv();
  if (index > names.length)
    throw new KvError('KV_CORRUPT', 'a replication record refers to a collection that it does not name');
  const isNew = index === names.length;
  const collection = (names[index] ??= source.text());
  if (isNew) declared.set(collection, source.text());
  const type = code & ~(STAMPED | STAMPED_STRICT);
  if (type === CLEAR) return { type: 'clear', collection, lower: readBound(source), upper: readBound(source) };
  const key = source.bytes();
  switch (type) {
    case SET: {
      const expiresAt = source.uv();
      return { type: 'set', collection, key, value: source.bytes(), expiresAt, ...stamp };
    }
    case DELETE:
      return { type: 'delete', collection, key, ...stamp };
    case BLOB: {
      const [expiresAt, size, check] = [source.uv(), source.uv(), source.uv()];
      return { type: 'blob', collection, key, expiresAt, size, check, hash: source.raw(32).slice(), ...stamp };
    }
    default:
      throw new KvError(
        'KV_VERSION_UNSUPPORTED',
        `a replication record has operation ${type}, which this version does not know: update the package`,
      );
  }
}

/** The bytes of a record before its body. They are authenticated when the body is sealed. */
export function encodeHeader({ flags, device, seq, back }: RecordHeader): Uint8Array<ArrayBuffer> {
  return new ByteSink().u8(RECORD_VERSION).u8(flags).u64(device).uv(seq).uv(back).done();
}

export function encodeRecord(header: RecordHeader, body: Uint8Array): Uint8Array<ArrayBuffer> {
  const sink = new ByteSink().raw(encodeHeader(header)).raw(body);
  const crc = new Uint8Array(4);
  new DataView(crc.buffer).setUint32(0, crc32c(sink.view()));
  return sink.raw(crc).done();
}

/** Whether the checksum is right. Records of all versions end with one: a flipped bit is no newer version. */
export function isIntact(record: Uint8Array): boolean {
  const end = record.length - 4;
  return (
    record.length >= 16 &&
    new DataView(record.buffer, record.byteOffset + end).getUint32(0) === crc32c(record.subarray(0, end))
  );
}

/** Checks version and CRC; the body is a view. */
export function decodeRecord(bytes: Uint8Array): { readonly header: RecordHeader; readonly body: Uint8Array } {
  if (bytes.length < 16) throw new KvError('KV_CORRUPT', 'a replication record is too short');
  if (!isIntact(bytes)) throw new KvError('KV_CORRUPT', 'the checksum of a replication record is wrong');
  const end = bytes.length - 4;
  if (bytes[0] !== RECORD_VERSION) {
    throw new KvError(
      'KV_VERSION_UNSUPPORTED',
      `a replication record has version ${bytes[0]}, this package knows ${RECORD_VERSION}: update the package`,
    );
  }
  const source = new ByteSource(bytes.subarray(1, end));
  const flags = source.u8();
  if (flags > KNOWN_FLAGS)
    throw new KvError(
      'KV_VERSION_UNSUPPORTED',
      `a replication record has flags ${flags}, which this version does not know: update the package`,
    );
  return { header: { flags, device: source.u64(), seq: source.uv(), back: source.uv() }, body: source.rest() };
}

/** CRC-32C as the record ends with it: tells apart two records at one position. */
export function crcOf(record: Uint8Array): number {
  if (record.length < 4) return 0;
  return new DataView(record.buffer, record.byteOffset + record.length - 4).getUint32(0);
}

/**
 * Whether the record at a cursor is the one that was read there. In another history the same record
 * may have come to the same place once more: then the log has taken it at another time.
 */
export function isRead({ crc, serverTime }: Cursor, there: LoggedRecord | undefined): boolean {
  return there !== undefined && crcOf(there.record) === crc && there.serverTime === serverTime;
}
