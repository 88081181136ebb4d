// Reads of one collection in one state: the newest, or a snapshot's.
import type { KeyCodec, KeyPrefix } from '../codec/keys.ts';
import type { ValueCodec } from '../codec/values.ts';
import { KvError } from '../errors.ts';
import type { Bounds, Entry, KvIterator, RangeOptions, Reader } from '../types.ts';
import { LazyPromise, attempt, checkFunction } from './async.ts';
import { decodeKey, decodeValue, encodeKey } from './codecs.ts';
import type { Connection } from './connection.ts';
import { CursorIterator } from './cursor.ts';
import { Op } from './protocol.ts';
import type { ReplyReader, RequestWriter } from './protocol.ts';
import { encodeSeek, refuseWindow, toWindow } from './range.ts';
import type { Window } from './range.ts';
import type { Validate } from './schema.ts';

/** Which state a reader sees. */
export interface View {
  /** 0 for the newest. */
  readonly id: number;
  readonly isClosed: boolean;
}

export const NEWEST: View = { id: 0, isClosed: false };

/** A collection as the client knows it. */
export interface Target<K, V> {
  readonly connection: Connection;
  readonly name: string;
  /** Its number in the connection. */
  readonly index: number;
  readonly key: KeyCodec<K>;
  readonly value: ValueCodec<V>;
  /** Milliseconds until entries expire that are stored without a time. */
  readonly expireIn: number | undefined;
  /** Gives what is stored for a value. */
  readonly validate: Validate<V> | undefined;
}

type Pair<K, V> = [K, V] | undefined;

export class CollectionReader<K, V> implements Reader<K, V> {
  /** @internal */
  readonly target: Target<K, V>;
  readonly #view: View;

  constructor(target: Target<K, V>, view: View) {
    this.target = target;
    this.#view = view;
  }

  get(key: K): Promise<V | undefined> {
    return attempt(() => {
      const bytes = encodeKey(this.target.key, key);
      return this.#request(Op.get, (writer) => writer.bytes(bytes), (reader) => this.#optionalValue(reader));
    });
  }

  getMany(keys: Iterable<K>): Promise<(V | undefined)[]> {
    return this.#many(Op.getMany, keys, (reader) => reader.optional(), (bytes) => bytes && this.#value(bytes));
  }

  getEntry(key: K): Promise<Entry<K, V> | undefined> {
    return attempt(() => {
      const bytes = encodeKey(this.target.key, key);
      return this.#request(Op.entry, (writer) => writer.bytes(bytes), (reader) => {
        const value = reader.optional();
        if (value === undefined) return undefined;
        const version = reader.uv();
        const expiresAt = reader.uv();
        const entry = { key: this.#key(bytes), value: this.#value(value), version };
        return expiresAt === 0 ? entry : { ...entry, expiresAt };
      });
    });
  }

  has(key: K): Promise<boolean> {
    return this.hasMany([key]).then(([has]) => has === true);
  }

  hasMany(keys: Iterable<K>): Promise<boolean[]> {
    return this.#many(Op.hasMany, keys, (reader) => reader.u8() !== 0, (has) => has);
  }

  entries(options?: RangeOptions<K>): KvIterator<[K, V], K> {
    return this.#iterate(options, true, true, (reader) => {
      const key = reader.bytes();
      const value = reader.bytes();
      return [this.#key(key), this.#value(value)];
    });
  }

  keys(options?: RangeOptions<K>): KvIterator<K, K> {
    return this.#iterate(options, true, false, (reader) => this.#key(reader.bytes()));
  }

  values(options?: RangeOptions<K>): KvIterator<V, K> {
    return this.#iterate(options, false, true, (reader) => this.#value(reader.bytes()));
  }

  range(options: RangeOptions<K>): KvIterator<[K, V], K> {
    return this.entries(options);
  }

  prefix(prefix: KeyPrefix<K>, options?: RangeOptions<K>): KvIterator<[K, V], K> {
    return this.entries({ ...options, prefix });
  }

  first(options?: RangeOptions<K>): Promise<Pair<K, V>> {
    return this.at(0, options);
  }

  last(options?: RangeOptions<K>): Promise<Pair<K, V>> {
    return this.at(-1, options);
  }

  at(index: number, options?: RangeOptions<K>): Promise<Pair<K, V>> {
    return attempt(() => {
      if (!Number.isSafeInteger(index)) throw new KvError('KV_INVALID_ARGUMENT', 'index has to be a whole number');
      const window = toWindow(this.target.key, options);
      return index < 0 ? this.#atFromEnd(-index - 1, window) : this.#atFromStart(index, window);
    }, options?.signal);
  }

  count(options?: RangeOptions<K>): Promise<number> {
    return attempt(() => {
      const window = toWindow(this.target.key, options);
      return this.#countIn(window);
    }, options?.signal);
  }

  get size(): Promise<number> {
    return new LazyPromise(() => this.count());
  }

  rank(key: K, options?: Bounds<K> & { signal?: AbortSignal | undefined }): Promise<number> {
    return attempt(() => {
      refuseWindow(options);
      const { range } = toWindow(this.target.key, options);
      const bytes = encodeKey(this.target.key, key);
      return this.#request(Op.rank, (writer) => writer.range(range).bytes(bytes), (reader) => reader.uv());
    }, options?.signal);
  }

  forEach(fn: (value: V, key: K) => unknown, options?: RangeOptions<K>): Promise<void> {
    return attempt(async () => {
      checkFunction(fn);
      for await (const [key, value] of this.entries(options)) await fn(value, key);
    }, options?.signal);
  }

  [Symbol.asyncIterator](): KvIterator<[K, V], K> {
    return this.entries();
  }

  #key(bytes: Uint8Array): K {
    return decodeKey(this.target.key, bytes);
  }

  #value(bytes: Uint8Array): V {
    return decodeValue(this.target.value, bytes);
  }

  #optionalValue(reader: ReplyReader): V | undefined {
    const bytes = reader.optional();
    return bytes && this.#value(bytes);
  }

  #pair(reader: ReplyReader): Pair<K, V> {
    if (reader.u8() === 0) return undefined;
    const key = reader.bytes();
    const value = reader.bytes();
    return [this.#key(key), this.#value(value)];
  }

  /** Sends a request that begins with view and collection. */
  #request<T>(op: number, write: (writer: RequestWriter) => unknown, read: (reader: ReplyReader) => T): Promise<T> {
    this.#checkOpen();
    const { connection, index } = this.target;
    return connection.request((writer) => write(writer.u8(op).uv(this.#view.id).uv(index)), read);
  }

  #many<Raw, T>(
    op: number,
    keys: Iterable<K>,
    read: (reader: ReplyReader) => Raw,
    decode: (raw: Raw) => T,
  ): Promise<T[]> {
    return attempt(() => {
      const encoded = Array.from(keys, (key) => encodeKey(this.target.key, key));
      return this.#request(op, (writer) => {
        writer.uv(encoded.length);
        for (const bytes of encoded) writer.bytes(bytes);
      }, (reader) => encoded.map(() => read(reader)).map(decode));
    });
  }

  #countIn({ range, offset, limit }: Window): Promise<number> {
    const count = this.#request(Op.count, (writer) => writer.range(range), (reader) => reader.uv());
    return count.then((all) => Math.min(Math.max(all - offset, 0), limit));
  }

  #atFromStart(index: number, { range, reverse, offset, limit }: Window): Promise<Pair<K, V>> {
    const position = offset + index;
    if (index >= limit || !Number.isSafeInteger(position)) return Promise.resolve(undefined);
    return this.#atPosition(range, reverse, position);
  }

  async #atFromEnd(index: number, window: Window): Promise<Pair<K, V>> {
    const { range, reverse, offset, limit } = window;
    if (offset === 0 && limit === Infinity) return this.#atPosition(range, !reverse, index);
    // Where the end is has to be asked first, in a state that stays the same meanwhile.
    const { connection } = this.target;
    const id = this.#view.id || connection.newId();
    const isOwn = id !== this.#view.id;
    if (isOwn) connection.post((writer) => writer.u8(Op.snapshotOpen).uv(id), (reader) => reader.uv());
    const fixed = isOwn ? new CollectionReader(this.target, { id, isClosed: false }) : this;
    try {
      const count = await fixed.#countIn(window);
      return index < count ? await fixed.#atFromStart(count - 1 - index, window) : undefined;
    } finally {
      if (isOwn) connection.post((writer) => writer.u8(Op.snapshotClose).uv(id), () => undefined);
    }
  }

  #atPosition(range: Window['range'], fromEnd: boolean, index: number): Promise<Pair<K, V>> {
    const read = (reader: ReplyReader): Pair<K, V> => this.#pair(reader);
    const end = fromEnd ? 1 : 0;
    // An edge is found without counting.
    return index === 0
      ? this.#request(Op.edge, (writer) => writer.range(range).u8(end), read)
      : this.#request(Op.at, (writer) => writer.range(range).u8(end).uv(index), read);
  }

  #iterate<T>(
    options: RangeOptions<K> | undefined,
    keys: boolean,
    values: boolean,
    decode: (reader: ReplyReader) => T,
  ): KvIterator<T, K> {
    const { connection, index, key } = this.target;
    return new CursorIterator<T, K>({
      connection,
      window: () => {
        this.#checkOpen();
        return toWindow(key, options);
      },
      writeSource: (writer) => writer.uv(this.#view.id).uv(index),
      keys,
      values,
      signal: options?.signal,
      decode,
      encodeSeek: (prefix) => encodeSeek(key, prefix),
    });
  }

  #checkOpen(): void {
    if (this.#view.isClosed) throw new KvError('KV_CLOSED', 'the snapshot is closed');
  }
}
