// Records of a log in larger objects, and which of them a point in time needs. Below `archive/`:
//
//     segment/<16 digits>    records after this position; there is one for each position at most
//     snapshot/<16 digits>   which snapshot has the database as of this position
//     snapshots/             copies of snapshots, in the form of `s3Snapshots`
//
// The first two are in frames that have their key in the bucket: what another archive of the database
// has, under its prefix, is not taken for this one's.
import { KvError } from 'mangrove-kv';
import type { ArchivedSnapshot, LogArchive, RestorePlan } from '@mangrove-kv/replication/archive';
import { ByteSink, ByteSource, concat, isTruncated } from '@mangrove-kv/replication/internal';
import { logConflict } from '@mangrove-kv/replication';
import type { LoggedRecord, Position, RemoteLog, SnapshotStore } from '@mangrove-kv/replication';
import { Bucket } from './bucket.ts';
import { decodeFrames, encodeFrames } from './frames.ts';
import type { S3DatabaseOptions } from './index.ts';
import { databaseFolder } from './names.ts';
import { probeBucket } from './probe.ts';
import { S3Snapshots } from './snapshots.ts';

const SEGMENT_BYTES = 4 * 1024 * 1024;
/** Of records of a MiB, this many are in memory. */
const BATCH = 100;
/** How often a segment is asked for, and how long the first wait is, half of it. */
const TRIES = 5;
const WAIT_MS = 100;

const digits = (position: Position): string => String(position).padStart(16, '0');
const snapshotName = (position: Position): string => `snapshot/${digits(position)}`;
const segmentName = (after: Position): string => `segment/${digits(after)}`;
const positionIn = (key: string): Position => Number(key.slice(key.lastIndexOf('/') + 1));

/** The records of a log in a bucket, from which a database of an earlier time can be made. */
export class S3Archive implements LogArchive {
  /** Copies of snapshots, which no compaction deletes: see `archiveSnapshot` of `@mangrove-kv/replication/archive`. */
  readonly snapshots: SnapshotStore;
  readonly #bucket: Bucket;
  readonly #options: S3DatabaseOptions;

  /** @internal */
  constructor(options: S3DatabaseOptions) {
    const folder = `${databaseFolder(options.database)}archive/`;
    this.#options = options;
    this.#bucket = new Bucket(options, folder);
    this.snapshots = new S3Snapshots(options, folder);
  }

  /** The position of the last archived record; 0 if there is none. */
  async position(): Promise<Position> {
    return (await this.#lastRecord())?.position ?? 0;
  }

  async #lastRecord(): Promise<LoggedRecord | undefined> {
    const newest = (await this.#bucket.list('segment/')).slice(-1);
    let last: LoggedRecord | undefined;
    for await (const { records } of this.#segmentsFrom(newest, 0)) last = [...records].at(-1);
    return last;
  }

  /** Segments that were listed, or those after `start`, and what follows them: a listing may lag behind. */
  async *#segmentsFrom(
    listed: readonly string[],
    start: Position,
  ): AsyncGenerator<{ readonly after: Position; readonly records: Iterable<LoggedRecord> }> {
    let last = start;
    for (let at = 0; ; at++) {
      const isListed = at < listed.length;
      const name = listed[at] ?? segmentName(last);
      const bytes = await (isListed ? this.#segment(name) : this.#find(name));
      if (bytes === undefined) return;
      const after = positionIn(name);
      yield { after, records: this.#recordsIn(name, bytes) };
      if (at < listed.length - 1) continue;
      last = [...this.#recordsIn(name, bytes)].at(-1)?.position ?? 0;
      if (last <= after) throw new KvError('KV_CORRUPT', `${name} of the archive has no records after its position`);
    }
  }

  #recordsIn(name: string, bytes: Uint8Array): Iterable<LoggedRecord> {
    return recordsIn(decodeFrames(this.#bucket.keyOf(name), bytes));
  }

  async #segment(name: string, signal?: AbortSignal): Promise<Uint8Array> {
    const bytes = await this.#find(name, signal);
    if (bytes === undefined)
      throw new KvError(
        'KV_NOT_FOUND',
        `the archive lacks the records after position ${positionIn(name)}: ${name} is missing`,
      );
    return bytes;
  }

  /** Reads a segment, retrying while the service does not answer: a restore has no other source. */
  async #find(name: string, signal?: AbortSignal): Promise<Uint8Array | undefined> {
    for (let tries = 1; ; tries++) {
      try {
        return (await this.#bucket.get(name, signal))?.bytes;
      } catch (error) {
        signal?.throwIfAborted();
        if ((error as Partial<KvError>).code !== 'KV_LOG_UNAVAILABLE' || tries === TRIES) throw error;
        await new Promise((resolve) => setTimeout(resolve, WAIT_MS * 2 ** tries));
      }
    }
  }

  /**
   * Archives what a log has after the last archived record, and returns the position of the last
   * one. Rejects with `KV_LOG_TRUNCATED` if records in between were purged: then note a snapshot
   * with `addSnapshot` and continue `after` its position, as `archiveLog` of
   * `@mangrove-kv/replication/archive` does. Rejects with `KV_LOG_CONFLICT` if the log has something else
   * where the archive ends: it lost its history, or is that of another database; archive it under
   * another prefix. Several archivers do no harm.
   */
  async archive(
    log: RemoteLog,
    { after, signal }: { readonly after?: Position; readonly signal?: AbortSignal } = {},
  ): Promise<Position> {
    if (this.#options.probe !== false) await probeBucket(this.#options);
    const archived = await this.#lastRecord();
    let last = Math.max(archived?.position ?? 0, after ?? 0);
    if (archived?.position === last) await checkHistory(log, archived);
    for (;;) {
      const records: LoggedRecord[] = [];
      for (let bytes = 0, from = last; bytes < SEGMENT_BYTES; ) {
        const more = await log.read(from, BATCH, signal);
        if (more.length === 0) break;
        records.push(...more);
        bytes += more.reduce((sum, { record }) => sum + record.length, 0);
        from = (more.at(-1) as LoggedRecord).position;
      }
      if (records.length === 0) return last;
      const key = segmentName(last);
      if (await this.#bucket.create(key, encodeFrames(this.#bucket.keyOf(key), records.map(frameOf)), signal)) {
        last = (records.at(-1) as LoggedRecord).position;
        continue;
      }
      // Another archiver was faster. Of creators that race, the winner's object may not be there yet.
      if (await this.#bucket.has(key))
        last = [...this.#recordsIn(key, await this.#segment(key, signal))].at(-1)?.position ?? last;
    }
  }

  /** The snapshot of a position that was noted, if there is one. */
  async snapshotAt(position: Position): Promise<ArchivedSnapshot | undefined> {
    const name = snapshotName(position);
    const object = await this.#bucket.get(name);
    if (object === undefined) return undefined;
    const note = concat([...decodeFrames(this.#bucket.keyOf(name), object.bytes)]);
    return {
      position,
      ...(JSON.parse(new TextDecoder().decode(note)) as { readonly serverTime: number; readonly key: string }),
    };
  }

  /** Notes a snapshot. Rejects with `KV_LOG_CONFLICT` if there is another one of the same position. */
  async addSnapshot({ position, serverTime, key }: ArchivedSnapshot): Promise<void> {
    if (!Number.isSafeInteger(position) || position < 0)
      throw new KvError('KV_INVALID_ARGUMENT', `position has to be one of the log, not ${position}`);
    const name = snapshotName(position);
    const note = new TextEncoder().encode(JSON.stringify({ serverTime, key }));
    if (await this.#bucket.create(name, encodeFrames(this.#bucket.keyOf(name), [note]))) return;
    const found = await this.snapshotAt(position);
    if (found?.serverTime === serverTime && found.key === key) return;
    throw logConflict(`there is another snapshot of position ${position} already`);
  }

  /**
   * What makes the database as it was: up to the last record before the first one that is later
   * than `time` (milliseconds since 1970, by the log's clock) or after `position`; by default, up
   * to the last archived one. Rejects with `KV_NOT_FOUND` if the archive does not reach back so far.
   * While the records are read, `KV_NOT_FOUND` says that some of them are missing, and `KV_CORRUPT`
   * which object is damaged and up to which position the archive can be restored nevertheless.
   */
  async restore({
    time = Infinity,
    position: upTo = Infinity,
  }: {
    readonly time?: number;
    readonly position?: Position;
  } = {}): Promise<RestorePlan> {
    let snapshot: ArchivedSnapshot | undefined;
    for (const name of (await this.#bucket.list('snapshot/')).reverse()) {
      const position = positionIn(name);
      const found = position <= upTo ? await this.snapshotAt(position) : undefined;
      if (found === undefined || found.serverTime > time) continue;
      snapshot = found;
      break;
    }
    const start = snapshot?.position ?? 0;
    const segments = await this.#bucket.list('segment/');
    const first = segments.filter((name) => positionIn(name) <= start).length - 1;
    if (first < 0 && segments.length > 0 && snapshot === undefined) {
      throw new KvError(
        'KV_NOT_FOUND',
        `the archive begins after position ${positionIn(segments[0] as string)} and has no earlier snapshot`,
      );
    }
    const end = { hasMore: false };
    return {
      snapshot,
      snapshots: this.snapshots,
      records: this.#records(first < 0 ? segments : segments.slice(first), start, time, upTo, end),
      hasMore: () => end.hasMore,
    };
  }

  async *#records(
    segments: readonly string[],
    start: Position,
    time: number,
    upTo: Position,
    end: { hasMore: boolean },
  ): AsyncGenerator<LoggedRecord> {
    let last = start;
    for await (const { after, records } of this.#segmentsFrom(segments, start)) {
      if (last >= upTo) {
        end.hasMore = true;
        return;
      }
      if (after > last)
        throw new KvError('KV_NOT_FOUND', `the archive lacks the records after position ${last}, up to ${after}`);
      try {
        for (const record of records) {
          // Those of archivers that began after different snapshots overlap.
          if (record.position <= last) continue;
          if (record.serverTime > time || record.position > upTo) {
            end.hasMore = true;
            return;
          }
          last = record.position;
          yield record;
        }
      } catch (error) {
        if ((error as Partial<KvError>).code !== 'KV_CORRUPT') throw error;
        const instead = last === 0 ? '' : `, or restore up to position ${last}`;
        if (last < upTo) throw new KvError('KV_CORRUPT', (error as KvError).message + instead, { cause: error });
        // The damage lies behind the requested position.
        end.hasMore = true;
        return;
      }
    }
    if (upTo !== Infinity && last < upTo)
      throw new KvError('KV_NOT_FOUND', `the archive ends at position ${last}, before ${upTo}`);
  }
}

/** A log that lost history would go on behind records that it does not have. */
async function checkHistory(log: RemoteLog, archived: LoggedRecord): Promise<void> {
  const { position } = archived;
  try {
    const there = await log.at(position);
    if (there !== undefined && isSame(there.record, archived.record)) return;
  } catch (error) {
    // `archive` goes on if the purge ends with this record.
    if (isTruncated(error)) return;
    throw error;
  }
  throw new KvError(
    'KV_LOG_CONFLICT',
    `the log does not have the last archived record, of position ${position}: it lost its history, or is that of another database; archive it under another prefix`,
  );
}

function isSame(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, at) => byte === b[at]);
}

function frameOf({ position, serverTime, sender = '', record }: LoggedRecord): Uint8Array {
  return new ByteSink().u64(BigInt(position)).u64(BigInt(serverTime)).text(sender).raw(record).done();
}

function* recordsIn(frames: Iterable<Uint8Array>): Generator<LoggedRecord> {
  for (const frame of frames) {
    const source = new ByteSource(frame);
    const [position, serverTime, sender] = [Number(source.u64()), Number(source.u64()), source.text()];
    yield { position, serverTime, ...(sender !== '' && { sender }), record: source.rest().slice() };
  }
}
