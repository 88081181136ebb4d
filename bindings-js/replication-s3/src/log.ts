// RemoteLog on objects that are created once. Below the database's folder:
//
//     log/<12 digits>        records: position 1 is the first one, and there are no gaps
//     purge/<12 digits>      revisions of how far the log is purged: a position, in digits
//     manifest/<12 digits>   revisions of the manifest
//
// Where each of them ends is found by asking for keys. Listings may lag behind: they only say which
// purged records are still to be deleted.
import { KvError } from 'mangrove-kv';
import { inParallel } from '@mangrove-kv/replication/internal';
import { logConflict, logRefused, logTruncated, logUnavailable } from '@mangrove-kv/replication';
import type { AppendOptions, LoggedRecord, Position, RemoteLog } from '@mangrove-kv/replication';
import { Bucket, PARALLEL, timeOf } from './bucket.ts';
import type { S3LogOptions } from './index.ts';
import { probeBucket } from './probe.ts';
import { Revisions } from './revisions.ts';
import type { Revision } from './revisions.ts';

const LAST = 999_999_999_999;
const VERSION = 1;
const MAX_RECORD = 16 * 1024 * 1024;
const KEY = /^[!-~]{1,200}$/;

const digits = (number: number): string => String(number).padStart(12, '0');
const slotOf = (position: Position): string => `log/${digits(position)}`;
const numberIn = (key: string): number => Number(key.slice(key.lastIndexOf('/') + 1));

interface Slot {
  readonly key: string;
  readonly record: Uint8Array;
  readonly serverTime: number;
}

const floorOf = (purge: Revision | undefined): Position =>
  purge === undefined ? 0 : Number(new TextDecoder().decode(purge.bytes));

/** A key `<device>:<sequence>` and where it is in the log. */
interface Keyed {
  readonly key: string;
  readonly sequence: number;
  readonly position: Position;
}

function parse(key: string): { readonly device: string; readonly sequence: number } {
  const [, device, sequence] = /^(.*):(\d+)$/.exec(key) ?? [];
  return device === undefined ? { device: key, sequence: 0 } : { device, sequence: Number(sequence) };
}

/** `<version> <length of the key> <key> <record>`. */
function encode(key: string, record: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(2 + key.length + record.length);
  bytes[0] = VERSION;
  bytes[1] = key.length;
  bytes.set(new TextEncoder().encode(key), 2);
  bytes.set(record, 2 + key.length);
  return bytes;
}

export class S3Log implements RemoteLog {
  readonly #bucket: Bucket;
  readonly #options: S3LogOptions;
  readonly #purges: Revisions;
  readonly #manifests: Revisions;
  #opening: Promise<void> | undefined;
  #isClosed = false;
  /** Slots up to here are known to be taken. */
  #head: Position = 0;
  /** Whose keys are known: all slots after the one position up to the other; undefined if none are. */
  #known: { readonly from: Position; to: Position } | undefined;
  /** The last known record of each device. */
  readonly #lastOf = new Map<string, Keyed>();
  #tail: Promise<unknown> = Promise.resolve();
  readonly #wakers = new Set<() => void>();
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor(options: S3LogOptions, folder: string) {
    this.#options = options;
    this.#bucket = new Bucket(options, folder);
    this.#purges = new Revisions(this.#bucket, (revision) => `purge/${digits(revision)}`);
    this.#manifests = new Revisions(this.#bucket, (revision) => `manifest/${digits(revision)}`);
  }

  append(record: Uint8Array, { idempotencyKey: key, expect, signal }: AppendOptions): Promise<Position> {
    if (!KEY.test(key))
      return Promise.reject(
        new KvError(
          'KV_INVALID_ARGUMENT',
          `idempotencyKey has to be 1 to 200 printable characters of ASCII without spaces, not ${JSON.stringify(key)}`,
        ),
      );
    if (record.length > MAX_RECORD)
      return Promise.reject(
        logRefused(`a record of ${record.length} bytes is refused: at most ${MAX_RECORD} are allowed`),
      );
    const appended = this.#tail.then(async () => {
      signal?.throwIfAborted();
      await this.#open();
      return this.#append(record, key, expect, signal);
    });
    this.#tail = appended.catch(() => undefined);
    return appended;
  }

  async #append(
    record: Uint8Array,
    key: string,
    expect: Position | undefined,
    signal: AbortSignal | undefined,
  ): Promise<Position> {
    const body = encode(key, record);
    for (let tries = 0; tries < 1000; tries++) {
      if (this.#known?.to !== this.#head || (expect ?? 0) > this.#head) await this.#catchUp();
      const earlier = await this.#find(key);
      if (earlier !== undefined) {
        const slot = await this.#slot(earlier);
        if (slot === undefined || !isSame(slot.record, record))
          throw logConflict(`position ${earlier} of the log has another record with the idempotency key ${key}`);
        return earlier;
      }
      if (expect !== undefined && expect !== this.#head)
        throw logConflict(
          `position ${expect} is not that of the newest record of the log, which is ${this.#head}: read on and try again`,
        );
      const position = this.#head + 1;
      if (position > LAST) throw logRefused('the log is full');
      if (!(await this.#bucket.create(slotOf(position), body, signal))) {
        // Raced, or an earlier try without an answer: the slot says which. The winner creates its next
        // record after one more request; a writer that made several before its next try would lose each race.
        const width = Math.min(PARALLEL, 4 ** tries);
        if ((await this.#slots(position - 1, width, signal, width)).length > 0) continue;
        await new Promise((resolve) => setTimeout(resolve, 10 + Math.random() * 50));
        await this.#catchUp();
        continue;
      }
      if ((await this.#floor()) >= position) {
        // A writer that slept through a purge finds a slot free again.
        await this.#bucket.delete(slotOf(position));
        this.#forget();
        continue;
      }
      this.#learn(position, key);
      return position;
    }
    throw logUnavailable('appending to the log: other devices were faster each time');
  }

  /** Finds the head, and learns the keys up to it. */
  async #catchUp(): Promise<void> {
    for (;;) {
      if (this.#known === undefined) {
        this.#head = await this.#floor();
        this.#known = { from: this.#head, to: this.#head };
      }
      const { to } = this.#known;
      if ((await this.#slots(to, PARALLEL)).length > 0) continue;
      if ((await this.#floor()) <= to) {
        this.#head = to;
        return;
      }
      this.#forget();
    }
  }

  #forget(): void {
    this.#known = undefined;
    this.#lastOf.clear();
  }

  #learn(position: Position, key: string): void {
    this.#head = Math.max(this.#head, position);
    if (this.#known === undefined || position !== this.#known.to + 1) return;
    this.#known.to = position;
    const { device, sequence } = parse(key);
    if (sequence >= (this.#lastOf.get(device)?.sequence ?? 0)) this.#lastOf.set(device, { key, sequence, position });
  }

  /** Where a key is in the log, if it is one of the known ones. */
  async #find(key: string): Promise<Position | undefined> {
    const { device, sequence } = parse(key);
    const last = this.#lastOf.get(device);
    if (last === undefined || last.sequence < sequence) return undefined;
    if (last.key === key) return last.position;
    for (let position = last.position - 1; position > (this.#known?.from ?? 0); position--) {
      if ((await this.#slot(position))?.key === key) return position;
    }
    return undefined;
  }

  /** Consecutive slots after a position, at most `limit`, up to the first one that is free. Reads `first` of them at once, and then more. */
  async #slots(after: Position, limit: number, signal?: AbortSignal, first = 1): Promise<Slot[]> {
    const found: Slot[] = [];
    // One request shows whether there is anything.
    for (let width = first; found.length < limit; width = Math.min(PARALLEL, width * 4)) {
      const wanted = Array.from(
        { length: Math.min(width, limit - found.length) },
        (_, at) => after + found.length + 1 + at,
      );
      const slots = await inParallel(PARALLEL, wanted, (position) => this.#slot(position, signal));
      const end = slots.indexOf(undefined);
      for (const slot of end < 0 ? slots : slots.slice(0, end)) {
        found.push(slot as Slot);
        this.#learn(after + found.length, (slot as Slot).key);
      }
      if (end >= 0) break;
    }
    return found;
  }

  async #slot(position: Position, signal?: AbortSignal): Promise<Slot | undefined> {
    const key = slotOf(position);
    const object = await this.#bucket.get(key, signal);
    if (object === undefined) return undefined;
    const serverTime = timeOf(object, (why) => {
      throw logRefused(
        `reading ${key} in the bucket ${this.#options.bucket}: ${why}; use a service that sends it (docs/REPLICATION-SERVERS.md)`,
      );
    });
    const [version, length = 0] = object.bytes;
    if (version !== VERSION)
      throw logRefused(
        `position ${position} of the log has version ${version}, and this driver knows version ${VERSION}: update mangrove-kv`,
      );
    return {
      key: new TextDecoder().decode(object.bytes.subarray(2, 2 + length)),
      record: object.bytes.slice(2 + length),
      serverTime,
    };
  }

  async read(after: Position, limit: number, signal?: AbortSignal): Promise<readonly LoggedRecord[]> {
    await this.#open();
    signal?.throwIfAborted();
    // A caller that reads from this position has already read its own earlier records.
    if (this.#known === undefined && after > 0) this.#known = { from: after, to: after };
    const slots = await this.#slots(after, limit, signal);
    const floor = await this.#floor();
    if (floor > after) {
      this.#forget();
      throw this.#truncated(after, floor);
    }
    return slots.map(({ record, serverTime }, at) => ({ position: after + 1 + at, serverTime, record }));
  }

  async at(position: Position): Promise<LoggedRecord | undefined> {
    await this.#open();
    if (position < 1 || position > LAST) return undefined;
    const slot = await this.#slot(position);
    const floor = await this.#floor();
    if (floor >= position) throw this.#truncated(position - 1, floor);
    return slot && { position, serverTime: slot.serverTime, record: slot.record };
  }

  wake(listener: () => void): () => void {
    const call = (): void => listener();
    this.#wakers.add(call);
    let seen = this.#head;
    let isAsking = false;
    this.#timer ??= setInterval(() => {
      if (isAsking) return;
      isAsking = true;
      void this.#bucket
        .has(slotOf(Math.max(seen, this.#head) + 1))
        .then((hasMore) => {
          if (!hasMore) return;
          seen = Math.max(seen, this.#head) + 1;
          for (const waker of [...this.#wakers]) waker();
        })
        .catch(() => undefined)
        .finally(() => {
          isAsking = false;
        });
    }, this.#options.pollInterval ?? 5000);
    return () => {
      this.#wakers.delete(call);
      if (this.#wakers.size === 0) this.#stop();
    };
  }

  #stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  async manifest(): Promise<{ readonly revision: Position; readonly manifest: Uint8Array } | undefined> {
    await this.#open();
    const newest = await this.#manifests.newest();
    return newest && { revision: newest.revision, manifest: newest.bytes };
  }

  async replaceManifest(previous: Position, next: Uint8Array): Promise<Position> {
    await this.#open();
    const current = (await this.#manifests.newest())?.revision ?? 0;
    const revision = previous + 1;
    // Revisions are never deleted, so a number is never free twice.
    if (current === previous && (await this.#manifests.create(revision, next))) return revision;
    const found = await this.#manifests.read(revision);
    // An answer may have been lost.
    if (found !== undefined && isSame(found, next)) return revision;
    throw logConflict(`the manifest's revision is ${Math.max(current, revision)}, not ${previous}: read it again`);
  }

  async purge(upTo: Position): Promise<void> {
    await this.#open();
    if (upTo < 1) return;
    if (upTo > this.#head) await this.#catchUp();
    if (upTo > this.#head)
      throw new KvError(
        'KV_INVALID_ARGUMENT',
        `the log ends at position ${this.#head}, so it cannot be purged up to ${upTo}`,
      );
    // Before the records: a reader or writer that misses one finds out why.
    const limit = new TextEncoder().encode(String(upTo));
    for (let isNoted = false; !isNoted; ) {
      const newest = await this.#purges.newest();
      isNoted = floorOf(newest) >= upTo || (await this.#purges.create((newest?.revision ?? 0) + 1, limit));
    }
    for await (const page of this.#bucket.pages('log/')) {
      await this.#bucket.deleteAll(page.filter((key) => numberIn(key) <= upTo));
      if (page.some((key) => numberIn(key) > upTo)) break;
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#stop();
  }

  #truncated(after: Position, floor: Position): KvError {
    return logTruncated(
      `the log is purged up to position ${floor}, so it cannot be read after ${after}: continue from a snapshot`,
    );
  }

  /** Up to where the log is purged. */
  async #floor(): Promise<Position> {
    return floorOf(await this.#purges.newest());
  }

  async #open(): Promise<void> {
    if (this.#isClosed) throw new KvError('KV_CLOSED', 'the log is closed');
    if (this.#options.probe === false) return;
    this.#opening ??= probeBucket(this.#options).catch((error: unknown) => {
      this.#opening = undefined;
      throw error;
    });
    await this.#opening;
  }
}

function isSame(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, at) => byte === b[at]);
}
