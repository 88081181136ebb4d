// Reads one collection in one state: the newest version, a snapshot or a transaction.
import type { IndexReadOptions, KvIterator, LiveIndex, RangeOptions, Reader, SignalOptions } from '../types/index.ts';
import { loadChunk } from '../base/load-chunk.ts';
import { LazyPromise, attempt, checkFunction } from '../base/async.ts';
import { CursorIterator } from './cursor.ts';
import { KvIndex } from './index-reader.ts';
import { ReadVerbs } from './read-verbs.ts';
import type { LoadValueStream } from './read-verbs.ts';
import type { Scan } from './scan.ts';
import { derive, promised, runPromised, verbsOf } from './task.ts';
import type { Promised } from './task.ts';
import type { Target } from '../wire/collection-target.ts';
import type { View } from '../wire/contracts.ts';

type Lookups = 'getMany' | 'getEntry' | 'has' | 'hasMany';
type Ranges = 'first' | 'last' | 'count' | 'at' | 'rank';
type Scans = 'entries' | 'keys' | 'values' | 'prefix';

export const loadValueStream: LoadValueStream = () => loadChunk(import('./value-stream.ts'));

export interface CollectionReader<K, V> extends Promised<ReadVerbs<K, V>, Lookups | Ranges>, Pick<Reader<K, V>, Scans> {}

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

derive(CollectionReader, ['getMany', 'getEntry', 'has', 'hasMany'] satisfies Lookups[], runPromised);
derive(CollectionReader, ['first', 'last', 'count'] satisfies Ranges[], runPromised, 0);
derive(CollectionReader, ['at', 'rank'] satisfies Ranges[], runPromised, 1);
derive(CollectionReader, ['entries', 'keys', 'values', 'prefix'] satisfies Scans[], (self, name, args) => new CursorIterator(verbsOf<Scan<unknown, unknown>>(self)[name]!(...args)));
