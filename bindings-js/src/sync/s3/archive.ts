// Records of a log in larger objects, and which of them a point in time needs. Below `archive/`:
//
//     segment/<16 digits>    records after this position; there is one for each position at most
//     snapshot/<16 digits>   which snapshot has the database as of this position
import { KvError } from '../../base/errors.ts';
import { logConflict, logRefused } from '../remote-log.ts';
import type { LoggedRecord, Position, RemoteLog } from '../remote-log.ts';
import { Bucket } from './bucket.ts';
import type { S3DatabaseOptions } from './index.ts';
import { databaseFolder } from './names.ts';
import { probeBucket } from './probe.ts';

const SEGMENT_BYTES = 4 * 1024 * 1024;
const BATCH = 500;
const VERSION = 1;
/** Of a segment: version, last position. */
const HEADER = 9;
/** Of a record in it: position, time, length. */
const FRAME = 20;

const digits = (position: Position): string => String(position).padStart(16, '0');
const positionIn = (key: string): Position => Number(key.slice(key.lastIndexOf('/') + 1));

/** A snapshot that the archive knows. */
export interface ArchivedSnapshot {
  /** The position of the last record that is in it. */
  readonly position: Position;
  /** The time of that record, in milliseconds since 1970. */
  readonly serverTime: number;
  /** Its key in the store of snapshots. */
  readonly key: string;
}

/** What makes a database of a point in time: the snapshot first, then the records in order. */
export interface RestorePlan {
  /** Undefined if records from the first one on are all that is needed. */
  readonly snapshot: ArchivedSnapshot | undefined;
  /** Records after the snapshot, read as they are asked for. */
  readonly records: AsyncIterable<LoggedRecord>;
}

/** The records of a log in a bucket, from which a database of an earlier time can be made. */
export class S3Archive {
  readonly #bucket: Bucket;
  readonly #options: S3DatabaseOptions;

  /** @internal */
  constructor(options: S3DatabaseOptions) {
    this.#options = options;
    this.#bucket = new Bucket(options, `${databaseFolder(options.database)}archive/`);
  }

  /** The position of the last archived record; 0 if there is none. */
  async position(): Promise<Position> {
    const newest = (await this.#bucket.list('segment/')).at(-1);
    if (newest === undefined) return 0;
    const object = await this.#bucket.get(newest);
    return object === undefined ? this.position() : lastIn(object.bytes, newest);
  }

  /**
   * Archives what a log has after the last archived record, and returns the position of the last
   * one. Rejects with `KV_LOG_TRUNCATED` if records in between were purged: then note a snapshot
   * with `addSnapshot` and continue `after` its position. Several archivers do no harm.
   */
  async archive(log: RemoteLog, { after, signal }: { readonly after?: Position; readonly signal?: AbortSignal } = {}): Promise<Position> {
    if (this.#options.probe !== false) await probeBucket(this.#options);
    let last = Math.max(await this.position(), after ?? 0);
    for (;;) {
      const records: LoggedRecord[] = [];
      for (let bytes = 0, from = last; bytes < SEGMENT_BYTES;) {
        const more = await log.read(from, BATCH, signal);
        if (more.length === 0) break;
        records.push(...more);
        bytes += more.reduce((sum, { record }) => sum + record.length, 0);
        from = (more.at(-1) as LoggedRecord).position;
      }
      if (records.length === 0) return last;
      const key = `segment/${digits(last)}`;
      if (await this.#bucket.create(key, encode(records), signal)) {
        last = (records.at(-1) as LoggedRecord).position;
        continue;
      }
      // Another archiver was faster.
      const object = await this.#bucket.get(key, signal);
      if (object !== undefined) last = lastIn(object.bytes, key);
    }
  }

  /** Notes a snapshot. Rejects with `KV_LOG_CONFLICT` if there is another one of the same position. */
  async addSnapshot({ position, serverTime, key }: ArchivedSnapshot): Promise<void> {
    if (!Number.isSafeInteger(position) || position < 0) throw new KvError('KV_INVALID_ARGUMENT', `position has to be one of the log, not ${position}`);
    const name = `snapshot/${digits(position)}`;
    const bytes = new TextEncoder().encode(JSON.stringify({ serverTime, key }));
    if (await this.#bucket.create(name, bytes)) return;
    const found = await this.#bucket.get(name);
    if (found !== undefined && new TextDecoder().decode(found.bytes) === new TextDecoder().decode(bytes)) return;
    throw logConflict(`there is another snapshot of position ${position} already`);
  }

  /**
   * What makes the database as it was: up to the last record before the first one that is later
   * than `time` (milliseconds since 1970, by the log's clock) or after `position`; by default, up
   * to the last archived one. Rejects with `KV_NOT_FOUND` if the archive does not reach back so far.
   * While the records are read, `KV_NOT_FOUND` says that some of them are missing.
   */
  async restore({ time = Infinity, position: upTo = Infinity }: { readonly time?: number; readonly position?: Position } = {}): Promise<RestorePlan> {
    let snapshot: ArchivedSnapshot | undefined;
    for (const name of (await this.#bucket.list('snapshot/')).reverse()) {
      const position = positionIn(name);
      const object = position <= upTo ? await this.#bucket.get(name) : undefined;
      if (object === undefined) continue;
      const { serverTime, key } = JSON.parse(new TextDecoder().decode(object.bytes)) as { readonly serverTime: number; readonly key: string };
      if (serverTime > time) continue;
      snapshot = { position, serverTime, key };
      break;
    }
    const start = snapshot?.position ?? 0;
    const segments = await this.#bucket.list('segment/');
    const first = segments.filter((name) => positionIn(name) <= start).length - 1;
    if (first < 0 && segments.length > 0 && snapshot === undefined) {
      throw new KvError('KV_NOT_FOUND', `the archive begins after position ${positionIn(segments[0] as string)} and has no earlier snapshot`);
    }
    return { snapshot, records: this.#records(first < 0 ? segments : segments.slice(first), start, time, upTo) };
  }

  async *#records(segments: readonly string[], start: Position, time: number, upTo: Position): AsyncGenerator<LoggedRecord> {
    let last = start;
    for (const name of segments) {
      const after = positionIn(name);
      if (last >= upTo) return;
      if (after > last) throw new KvError('KV_NOT_FOUND', `the archive lacks the records after position ${last}, up to ${after}`);
      const object = await this.#bucket.get(name);
      if (object === undefined) throw new KvError('KV_NOT_FOUND', `the archive lacks the records after position ${after}: ${name} is missing`);
      for (const record of decode(object.bytes, name)) {
        if (record.position <= start) continue;
        if (record.serverTime > time || record.position > upTo) return;
        yield record;
      }
      last = lastIn(object.bytes, name);
    }
    if (upTo !== Infinity && last < upTo) throw new KvError('KV_NOT_FOUND', `the archive ends at position ${last}, before ${upTo}`);
  }
}

function encode(records: readonly LoggedRecord[]): Uint8Array {
  const bytes = new Uint8Array(HEADER + records.reduce((sum, { record }) => sum + FRAME + record.length, 0));
  const view = new DataView(bytes.buffer);
  bytes[0] = VERSION;
  view.setBigUint64(1, BigInt((records.at(-1) as LoggedRecord).position));
  let at = HEADER;
  for (const { position, serverTime, record } of records) {
    view.setBigUint64(at, BigInt(position));
    view.setBigUint64(at + 8, BigInt(serverTime));
    view.setUint32(at + 16, record.length);
    bytes.set(record, at + FRAME);
    at += FRAME + record.length;
  }
  return bytes;
}

function viewOf(bytes: Uint8Array, name: string): DataView {
  if (bytes.length < HEADER || bytes[0] !== VERSION) throw logRefused(`${name} of the archive has version ${bytes[0]}, which this driver does not know: update mangrove-kv`);
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function lastIn(bytes: Uint8Array, name: string): Position {
  return Number(viewOf(bytes, name).getBigUint64(1));
}

function* decode(bytes: Uint8Array, name: string): Generator<LoggedRecord> {
  const view = viewOf(bytes, name);
  for (let at = HEADER; at < bytes.length;) {
    const length = at + FRAME <= bytes.length ? view.getUint32(at + 16) : Infinity;
    if (at + FRAME + length > bytes.length) throw new KvError('KV_CORRUPT', `${name} of the archive ends in the middle of a record`);
    yield { position: Number(view.getBigUint64(at)), serverTime: Number(view.getBigUint64(at + 8)), record: bytes.slice(at + FRAME, at + FRAME + length) };
    at += FRAME + length;
  }
}
