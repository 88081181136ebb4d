// Reads one collection in one state: the newest version, a snapshot or a transaction.
import type { KeyPrefix } from '../codec/keys.ts';
import type {
  Bounds,
  Entry,
  IndexReadOptions,
  KvIterator,
  LiveIndex,
  RangeOptions,
  Reader,
  SignalOptions,
  WithMeta,
} from '../types/index.ts';
import { LazyPromise, attempt, checkFunction, loadChunk } from '../base/async.ts';
import { CursorIterator } from './cursor.ts';
import { KvIndex } from './index-reader.ts';
import { ReadVerbs } from './read-verbs.ts';
import type { LoadValueStream } from './read-verbs.ts';
import { promised, run } from './task.ts';
import type { Target } from '../wire/collection-target.ts';
import type { View } from '../wire/contracts.ts';

export const loadValueStream: LoadValueStream = () => loadChunk(import('./value-stream.ts'));

export class CollectionReader<K, V> implements Reader<K, V> {
  /** @internal */
  readonly verbs: ReadVerbs<K, V>;

  constructor(target: Target<K, V>, view: View, verbs = new ReadVerbs(target, view, loadValueStream)) {
    this.verbs = verbs;
  }

  /** @internal */
  get target(): Target<K, V> {
    return this.verbs.target;
  }

  get(key: K): Promise<V | undefined> {
    const { verbs } = this;
    try {
      return promised(verbs.target.connection, verbs.get(key));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  getRange(key: K, start?: number, end?: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
    return this.verbs.inParts('getRange', key, start, end);
  }

  getStream(key: K, options?: SignalOptions): Promise<ReadableStream<Uint8Array<ArrayBuffer>> | undefined> {
    return this.verbs.inParts('getStream', key, options);
  }

  getMany(keys: Iterable<K>): Promise<(V | undefined)[]> {
    return run(this.verbs, (verbs) => verbs.getMany(keys));
  }

  getEntry(key: K): Promise<Entry<K, V> | undefined> {
    return run(this.verbs, (verbs) => verbs.getEntry(key));
  }

  has(key: K): Promise<boolean> {
    return run(this.verbs, (verbs) => verbs.has(key));
  }

  hasMany(keys: Iterable<K>): Promise<boolean[]> {
    return run(this.verbs, (verbs) => verbs.hasMany(keys));
  }

  entries(options: RangeOptions<K> & WithMeta): KvIterator<Entry<K, V>, K>;
  entries(options?: RangeOptions<K>): KvIterator<[K, V], K>;
  entries(options?: RangeOptions<K> & Partial<WithMeta>): KvIterator<unknown, K> {
    return new CursorIterator(this.verbs.entries(options));
  }

  keys(options?: RangeOptions<K>): KvIterator<K, K> {
    return new CursorIterator(this.verbs.keys(options));
  }

  values(options?: RangeOptions<K>): KvIterator<V, K> {
    return new CursorIterator(this.verbs.values(options));
  }

  prefix(prefix: KeyPrefix<K>, options: RangeOptions<K> & WithMeta): KvIterator<Entry<K, V>, K>;
  prefix(prefix: KeyPrefix<K>, options?: Omit<RangeOptions<K>, 'prefix'>): KvIterator<[K, V], K>;
  prefix(prefix: KeyPrefix<K>, options?: RangeOptions<K> & Partial<WithMeta>): KvIterator<unknown, K> {
    return new CursorIterator(this.verbs.prefix(prefix, options));
  }

  first(options?: RangeOptions<K>): Promise<[K, V] | undefined> {
    return run(this.verbs, (verbs) => verbs.first(options), options);
  }

  last(options?: RangeOptions<K>): Promise<[K, V] | undefined> {
    return run(this.verbs, (verbs) => verbs.last(options), options);
  }

  at(index: number, options?: RangeOptions<K>): Promise<[K, V] | undefined> {
    return run(this.verbs, (verbs) => verbs.at(index, options), options);
  }

  count(options?: RangeOptions<K>): Promise<number> {
    return run(this.verbs, (verbs) => verbs.count(options), options);
  }

  rank(key: K, options?: Bounds<K> & SignalOptions): Promise<number> {
    return run(this.verbs, (verbs) => verbs.rank(key, options), options);
  }

  get size(): Promise<number> {
    return new LazyPromise(() => this.count());
  }

  forEach(fn: (value: V, key: K) => unknown, options?: RangeOptions<K>): Promise<void> {
    return attempt(async () => {
      checkFunction(fn);
      for await (const [key, value] of new CursorIterator(this.verbs.pairs('forEach', options))) await fn(value, key);
    }, options?.signal);
  }

  index(name: string, options?: IndexReadOptions): LiveIndex<K, V> {
    return new KvIndex(this.target, this.verbs.view, name, options);
  }

  [Symbol.asyncIterator](): KvIterator<[K, V], K> {
    return this.entries();
  }
}
