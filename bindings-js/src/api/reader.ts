// Reads one collection in one state: the newest version, a snapshot or a transaction.
import type { KeyPrefix } from '../codec/keys.ts';
import { KvError } from '../base/errors.ts';
import type { Names } from '../base/names.ts';
import type { Bounds, Entry, IndexReadOptions, LiveIndex, KvIterator, RangeOptions, Reader, SignalOptions, WithMeta } from '../types/index.ts';
import { LazyPromise, attempt, checkFunction } from '../base/async.ts';
import { FOLLOW, META, PREFIXED, READ, SIGNAL, checkNames } from './names.ts';
import { ReadCalls, checkOpen, itemDecoders } from './calls.ts';
import type { Call, Items, Pair } from './calls.ts';
import { Content } from '../wire/chunk.ts';
import type { DecodeItem } from '../wire/chunk.ts';
import { CursorIterator } from './cursor.ts';
import { KvIndex } from './index-reader.ts';
import { Op } from '../wire/opcodes.ts';
import { ASK } from '../wire/target.ts';
import type { Target, View } from '../wire/target.ts';
import { encodeKey } from '../wire/codecs.ts';
import { encodeSeek, toWindow } from './range.ts';
import type { Window } from './range.ts';

/** What reads and writes values in parts. */
type Parts = typeof import('./parts.ts');

const ENTRIES: Names<RangeOptions<unknown> & WithMeta> = { ...READ, ...META };
const PREFIXED_UNTIL: Names<Omit<RangeOptions<unknown>, 'prefix'> & WithMeta> = { ...PREFIXED, ...SIGNAL };

export class CollectionReader<K, V> implements Reader<K, V> {
  /** @internal */
  readonly target: Target<K, V>;
  readonly #view: View;
  readonly #calls: ReadCalls<K, V>;

  constructor(target: Target<K, V>, view: View) {
    this.target = target;
    this.#view = view;
    this.#calls = new ReadCalls(target, view, true);
  }

  /** Id of the snapshot or transaction that is read; 0 for the newest version. */
  protected get viewId(): number {
    return this.#view.id;
  }

  get(key: K): Promise<V | undefined> {
    return attempt(() => {
      if (this.target.value.isBlob) return this.inParts('get', key);
      const found = this.#calls.find(key);
      return found === ASK ? this.#send(this.#calls.get(key)) : Promise.resolve(found);
    });
  }

  getRange(key: K, start?: number, end?: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
    return this.inParts('getRange', key, start, end);
  }

  getStream(key: K, options?: SignalOptions): Promise<ReadableStream<Uint8Array<ArrayBuffer>> | undefined> {
    return this.inParts('getStream', key, options);
  }

  /** Reads or writes a value in parts, by a file that is loaded then. */
  protected inParts<T>(call: keyof Parts, key: K, ...args: unknown[]): Promise<T> {
    return attempt(async () => {
      const { target } = this;
      const place = { target, view: this.#view, key: encodeKey(target, key) };
      return (await import('./parts.ts') as unknown as Record<string, (...args: unknown[]) => Promise<T>>)[call]!(place, ...args);
    });
  }

  getMany(keys: Iterable<K>): Promise<(V | undefined)[]> {
    return attempt(() => this.#sendUnlessFound(this.#calls.getMany(keys)));
  }

  getEntry(key: K): Promise<Entry<K, V> | undefined> {
    return attempt(() => this.#send(this.#calls.getEntry(key)));
  }

  has(key: K): Promise<boolean> {
    return attempt(() => {
      const found = this.#calls.hasMany([key]);
      return Array.isArray(found) ? Promise.resolve(found[0] === true) : this.#send(found).then(([has]) => has === true);
    });
  }

  hasMany(keys: Iterable<K>): Promise<boolean[]> {
    return attempt(() => this.#sendUnlessFound(this.#calls.hasMany(keys)));
  }

  entries(options: RangeOptions<K> & WithMeta): KvIterator<Entry<K, V>, K>;
  entries(options?: RangeOptions<K>): KvIterator<[K, V], K>;
  entries(options?: RangeOptions<K> & Partial<WithMeta>): KvIterator<[K, V], K> | KvIterator<Entry<K, V>, K> {
    return this.#entries('entries', options);
  }

  keys(options?: RangeOptions<K>): KvIterator<K, K> {
    return this.#iterate('keys', options, READ, Content.keys, 'key');
  }

  values(options?: RangeOptions<K>): KvIterator<V, K> {
    return this.#iterate('values', options, READ, Content.values, 'value');
  }

  range(options: RangeOptions<K> & WithMeta): KvIterator<Entry<K, V>, K>;
  range(options: RangeOptions<K>): KvIterator<[K, V], K>;
  range(options: RangeOptions<K>): KvIterator<[K, V], K> | KvIterator<Entry<K, V>, K> {
    return this.#entries('range', options);
  }

  prefix(prefix: KeyPrefix<K>, options: Omit<RangeOptions<K>, 'prefix'> & WithMeta): KvIterator<Entry<K, V>, K>;
  prefix(prefix: KeyPrefix<K>, options?: Omit<RangeOptions<K>, 'prefix'>): KvIterator<[K, V], K>;
  prefix(prefix: KeyPrefix<K>, options?: Omit<RangeOptions<K>, 'prefix'>): KvIterator<[K, V], K> | KvIterator<Entry<K, V>, K> {
    return this.#entries('prefix', { ...options, prefix }, () => checkNames('prefix', options, PREFIXED_UNTIL));
  }

  #entries(call: string, options?: RangeOptions<K> & Partial<WithMeta>, check?: () => void): KvIterator<[K, V], K> | KvIterator<Entry<K, V>, K> {
    if (options?.meta) return this.#iterate(call, options, ENTRIES, Content.meta, 'meta', check);
    return this.#iterate(call, options, ENTRIES, Content.entries, 'entry', check);
  }

  first(options?: RangeOptions<K>): Promise<Pair<K, V>> {
    return this.#at('first', 0, options);
  }

  last(options?: RangeOptions<K>): Promise<Pair<K, V>> {
    return this.#at('last', -1, options);
  }

  at(index: number, options?: RangeOptions<K>): Promise<Pair<K, V>> {
    return this.#at('at', index, options);
  }

  #at(call: string, index: number, options: RangeOptions<K> | undefined): Promise<Pair<K, V>> {
    return attempt(() => {
      if (!Number.isSafeInteger(index)) throw new KvError('KV_INVALID_ARGUMENT', 'index has to be a whole number');
      const window = toWindow(this.target, call, options, READ);
      const found = index < 0 ? this.#atFromEnd(-index - 1, window) : this.#atFromStart(index, window);
      return index === 0 || index === -1 ? this.#unlessMisread(found, options) : found;
    }, options?.signal);
  }

  count(options?: RangeOptions<K>): Promise<number> {
    return attempt(() => {
      const window = toWindow(this.target, 'count', options, READ);
      return this.#unlessMisread(this.#send(this.#calls.count(window)), options);
    }, options?.signal);
  }

  get size(): Promise<number> {
    return new LazyPromise(() => this.count());
  }

  rank(key: K, options?: Bounds<K> & SignalOptions): Promise<number> {
    return attempt(() => this.#send(this.#calls.rank(key, options, FOLLOW)), options?.signal);
  }

  forEach(fn: (value: V, key: K) => unknown, options?: RangeOptions<K>): Promise<void> {
    return attempt(async () => {
      checkFunction(fn);
      const entries = this.#iterate('forEach', options, READ, Content.entries, 'entry');
      for await (const [key, value] of entries) await fn(value, key);
    }, options?.signal);
  }

  index(name: string, options?: IndexReadOptions): LiveIndex<K, V> {
    return new KvIndex(this.target, this.#view, name, options);
  }

  [Symbol.asyncIterator](): KvIterator<[K, V], K> {
    return this.entries();
  }

  #send<T>({ write, read }: Call<T>): Promise<T> {
    return this.target.connection.request(write, read);
  }

  #sendUnlessFound<T>(found: T[] | Call<T[]>): Promise<T[]> {
    return Array.isArray(found) ? Promise.resolve(found) : this.#send(found);
  }

  /** If nothing was found, fails if `ReadCalls.misread` can explain that. */
  #unlessMisread<T>(found: Promise<T>, options: RangeOptions<K> | undefined): Promise<T> {
    const call = this.#calls.misread(options);
    return call === undefined ? found : found.then((result) => (result ? result : this.#send(call).then(() => result)));
  }

  #atFromStart(index: number, { range, reverse, offset, limit }: Window): Promise<Pair<K, V>> {
    const position = offset + index;
    if (index >= limit || !Number.isSafeInteger(position)) return Promise.resolve(undefined);
    return this.#send(this.#calls.at(range, reverse, position));
  }

  async #atFromEnd(index: number, window: Window): Promise<Pair<K, V>> {
    const { range, reverse, offset, limit } = window;
    if (offset === 0 && limit === Infinity) return this.#send(this.#calls.at(range, !reverse, index));
    // The end's position must be known first, in one unchanging state.
    const { connection } = this.target;
    const id = this.#view.id || connection.newId();
    const isOwn = id !== this.#view.id;
    if (isOwn) connection.post((writer) => writer.u8(Op.snapshotOpen).uv(id), (reader) => reader.uv());
    const fixed = isOwn ? new CollectionReader(this.target, { id, isClosed: false }) : this;
    try {
      const count = await fixed.#send(fixed.#calls.count(window));
      // Not awaited, so that the request to close the snapshot travels in the same message.
      return index < count ? fixed.#atFromStart(count - 1 - index, window) : undefined;
    } finally {
      if (isOwn) connection.post((writer) => writer.u8(Op.snapshotClose).uv(id), () => undefined);
    }
  }

  #iterate<N extends keyof Items<K, V>>(
    call: string,
    options: RangeOptions<K> | undefined,
    names: Names<RangeOptions<K>>,
    content: number,
    kind: N,
    check?: () => void,
  ): KvIterator<Items<K, V>[N], K> {
    const { target } = this;
    const { connection, index } = target;
    const decoders = itemDecoders(target);
    return new CursorIterator<Items<K, V>[N], K>({
      connection,
      window: () => {
        checkOpen(this.#view);
        check?.();
        return toWindow(target, call, options, names);
      },
      writeSource: (writer) => writer.uv(this.#view.id).uv(index),
      content,
      signal: options?.signal,
      decode: decoders[kind] as DecodeItem<Items<K, V>[N]>,
      isFast: decoders.isFast,
      whenEmpty: () => this.#unlessMisread(Promise.resolve(), options),
      encodeSeek: (prefix) => encodeSeek(target, prefix),
    });
  }
}
