// Objects of any size that are created once. Below `snapshots/`:
//
//     object/<key>              the first part, or the name and number of the others
//     part/<random>/<6 digits>  parts of larger objects, which nothing names before all are there
//
// Both are in frames that have their name below `snapshots/`, so a copy in another store is as good.
import { KvError } from 'mangrove-kv';
import { concat } from '@mangrove-kv/replication/internal';
import { logConflict, logRefused, logUnavailable } from '@mangrove-kv/replication';
import type { SnapshotStore } from '@mangrove-kv/replication';
import { Bucket } from './bucket.ts';
import { decodeFrames, encodeFrames } from './frames.ts';
import type { S3SnapshotOptions } from './index.ts';
import { probeBucket } from './probe.ts';

const PART = 8 * 1024 * 1024;
const INLINE = 1;
const PARTS = 2;
const KEY = /^[A-Za-z0-9._=-]+(?:\/[A-Za-z0-9._=-]+)*$/;

const partOf = (name: string, at: number): string => `part/${name}/${String(at).padStart(6, '0')}`;

export class S3Snapshots implements SnapshotStore {
  readonly #bucket: Bucket;
  readonly #options: S3SnapshotOptions;
  #probed: Promise<void> | undefined;

  constructor(options: S3SnapshotOptions, folder = '') {
    this.#options = options;
    this.#bucket = new Bucket(options, `${folder}snapshots/`);
  }

  async put(key: string, bytes: ReadableStream<Uint8Array>, signal?: AbortSignal): Promise<void> {
    checkKey(key);
    await this.#probe();
    const taken = (): Error => logConflict(`there is a snapshot ${key} already; snapshots are created once`);
    if (await this.#bucket.has(`object/${key}`)) {
      await bytes.cancel();
      throw taken();
    }
    const name = [...crypto.getRandomValues(new Uint8Array(16))]
      .map((byte) => byte.toString(16).padStart(2, '0'))
      .join('');
    let count = 0;
    const putPart = async (part: Uint8Array): Promise<void> => {
      if (!(await this.#create(partOf(name, count), part, signal)))
        throw logUnavailable(`part ${count} of the snapshot ${key} was not taken: put it again`);
      count++;
    };
    let isNamed = false;
    try {
      let last: Uint8Array | undefined;
      // The last part stays here, as a small object has no other.
      for await (const part of parts(bytes, PART, signal)) {
        if (last !== undefined) await putPart(last);
        last = part;
      }
      let head = concat([Uint8Array.of(INLINE), last ?? new Uint8Array()]);
      if (count > 0) {
        await putPart(last as Uint8Array);
        head = concat([Uint8Array.of(PARTS), new TextEncoder().encode(JSON.stringify({ name, count }))]);
      }
      isNamed = true;
      if (await this.#create(`object/${key}`, head, signal)) return;
      const found = await this.#read(`object/${key}`);
      isNamed = found !== undefined && isSame(found, head);
      if (!isNamed) throw taken();
    } catch (error) {
      // Without an answer, the object may name these parts.
      if (!isNamed)
        await this.#bucket
          .deleteAll(Array.from({ length: count + 1 }, (_, at) => partOf(name, at)))
          .catch(() => undefined);
      throw error;
    }
  }

  async get(key: string, signal?: AbortSignal): Promise<ReadableStream<Uint8Array> | undefined> {
    checkKey(key);
    const head = await this.#read(`object/${key}`, signal);
    if (head === undefined) return undefined;
    const read = (part: string): Promise<Uint8Array | undefined> => this.#read(part, signal);
    const found = partsIn(head, key);
    let at = 0;
    return new ReadableStream<Uint8Array>(
      {
        async pull(controller) {
          if (at === (found?.count ?? 1)) {
            controller.close();
            return;
          }
          const bytes = found === undefined ? head.subarray(1) : await read(partOf(found.name, at));
          if (bytes === undefined)
            throw logRefused(`part ${at} of the snapshot ${key} is missing: it was deleted meanwhile`);
          at++;
          if (bytes.length > 0) controller.enqueue(bytes);
          else controller.close();
        },
      },
      { highWaterMark: 1 },
    );
  }

  async list(prefix: string): Promise<readonly string[]> {
    return (await this.#bucket.list(`object/${prefix}`)).map((key) => key.slice('object/'.length)).sort();
  }

  async delete(key: string): Promise<void> {
    checkKey(key);
    const head = await this.#read(`object/${key}`).catch((error: unknown) => {
      // Which parts it had nobody can tell.
      if ((error as Partial<KvError>).code !== 'KV_CORRUPT') throw error;
      return Uint8Array.of(INLINE);
    });
    if (head === undefined) return;
    await this.#bucket.delete(`object/${key}`);
    const found = partsIn(head, key);
    if (found !== undefined)
      await this.#bucket.deleteAll(Array.from({ length: found.count }, (_, at) => partOf(found.name, at)));
  }

  #create(name: string, content: Uint8Array, signal?: AbortSignal): Promise<boolean> {
    return this.#bucket.create(name, encodeFrames(name, [content]), signal);
  }

  async #read(name: string, signal?: AbortSignal): Promise<Uint8Array | undefined> {
    const object = await this.#bucket.get(name, signal);
    return object && concat([...decodeFrames(name, object.bytes, this.#bucket.keyOf(name))]);
  }

  #probe(): Promise<void> {
    if (this.#options.probe === false) return Promise.resolve();
    this.#probed ??= probeBucket(this.#options).catch((error: unknown) => {
      this.#probed = undefined;
      throw error;
    });
    return this.#probed;
  }
}

function partsIn(head: Uint8Array, key: string): { readonly name: string; readonly count: number } | undefined {
  if (head[0] === INLINE) return undefined;
  if (head[0] !== PARTS)
    throw logRefused(`the snapshot ${key} has version ${head[0]}, which this driver does not know: update mangrove-kv`);
  return JSON.parse(new TextDecoder().decode(head.subarray(1))) as { readonly name: string; readonly count: number };
}

function checkKey(key: string): void {
  if (typeof key !== 'string' || key.length > 500 || !KEY.test(key)) {
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      `the key of a snapshot has to be of letters, digits, ".", "_", "=", "-" and "/" between them, not ${JSON.stringify(key)}`,
    );
  }
}

/** A stream in parts of one size, of which only the last may be smaller. */
async function* parts(
  stream: ReadableStream<Uint8Array>,
  size: number,
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array> {
  const reader = stream.getReader();
  let isDone = false;
  try {
    let buffer = new Uint8Array(size);
    let used = 0;
    for (;;) {
      signal?.throwIfAborted();
      const { done, value } = await reader.read();
      if (done) break;
      for (let at = 0; at < value.length; ) {
        const taken = value.subarray(at, at + size - used);
        buffer.set(taken, used);
        used += taken.length;
        at += taken.length;
        if (used < size) continue;
        yield buffer;
        buffer = new Uint8Array(size);
        used = 0;
      }
    }
    isDone = true;
    if (used > 0) yield buffer.slice(0, used);
  } finally {
    if (!isDone) await reader.cancel().catch(() => undefined);
  }
}

function isSame(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, at) => byte === b[at]);
}
