// The same without promises, where the engine is in the calling thread.
import type { Key, KeyPrefix } from '../codec/keys.ts';
import type { Collection, CollectionOptions, Entry, SetOptions, Updated, WriteOptions } from './collection.ts';
import type { Bounds, Range, WithMeta } from './range.ts';

/**
 * Reads of the synchronous API: as those of `Reader`, with plain values. Iterators are those of the language, with its helpers, and see the
 * state of the call.
 */
export interface SyncReader<K, V> {
  /** The value, or `undefined` if and only if there is no entry. O(log n). */
  get(key: K): V | undefined;
  /** Values in the order of `keys`, all of one state. */
  getMany(keys: Iterable<K>): (V | undefined)[];
  /** The value with what is known about its entry. O(log n). */
  getEntry(key: K): Entry<K, V> | undefined;
  /** Whether there is an entry. O(log n), without reading the value. */
  has(key: K): boolean;
  /** As `has`, in the order of `keys`, all of one state. */
  hasMany(keys: Iterable<K>): boolean[];
  /** Entries in key order; with `{ meta: true }` with version and expiry. */
  entries(options: Range<K> & WithMeta): IterableIterator<Entry<K, V>>;
  /** Entries in key order. */
  entries(options?: Range<K>): IterableIterator<[K, V]>;
  /** Keys in order; values are not read. */
  keys(options?: Range<K>): IterableIterator<K>;
  /** Values in the order of their keys. */
  values(options?: Range<K>): IterableIterator<V>;
  /** As `entries`. */
  range(options: Range<K> & WithMeta): IterableIterator<Entry<K, V>>;
  /** As `entries`. */
  range(options: Range<K>): IterableIterator<[K, V]>;
  /** Entries whose keys begin with `prefix`, with version and expiry. */
  prefix(prefix: KeyPrefix<K>, options: Range<K> & WithMeta): IterableIterator<Entry<K, V>>;
  /** Entries whose keys begin with `prefix`. */
  prefix(prefix: KeyPrefix<K>, options?: Omit<Range<K>, 'prefix'>): IterableIterator<[K, V]>;
  /** What `entries(options)` would give first. O(log n). */
  first(options?: Range<K>): [K, V] | undefined;
  /** What `entries(options)` would give last. O(log n). */
  last(options?: Range<K>): [K, V] | undefined;
  /** How many entries `entries(options)` would give. O(log n). */
  count(options?: Range<K>): number;
  /** Number of entries, O(1). */
  readonly size: number;
  /** What `entries(options)` would give at position `index`, a negative one counted from the end. O(log n). */
  at(index: number, options?: Range<K>): [K, V] | undefined;
  /** How many keys sort before `key`, whether or not it is there; with bounds, how many of those within. O(log n). */
  rank(key: K, options?: Bounds<K>): number;
  /** As `entries()`. */
  [Symbol.iterator](): IterableIterator<[K, V]>;
}

/** As `Updater`, without waiting. */
export type SyncUpdater<K, V, I = V> = (old: V | undefined, key: K, entry: Entry<K, V> | undefined) => Updated<I>;

/** Writes of the synchronous API: as those of `Writer`; each returns when it has the durability that was asked for. */
export interface SyncWriter<K, V, I = V> {
  /** Gives the collection itself, as `Map` does. */
  set(key: K, value: I, options?: SetOptions): this;
  /** Inserts or replaces all or none. */
  setMany(entries: Iterable<readonly [K, I]>, options?: SetOptions): void;
  /** Removes; tells whether there was an entry. */
  delete(key: K, options?: WriteOptions): boolean;
  /** Removes all or none; tells how many there were. */
  deleteMany(keys: Iterable<K>, options?: WriteOptions): number;
  /** Removes all that `entries(range)` would give. What is `undefined` in it is refused, as by `Writer.clear`. */
  clear(): void;
  /** As `clear()`, of a range. */
  clear(range: Range<K>, options?: WriteOptions): void;
  /** As `clear()`, with options. */
  clear(range: undefined, options: WriteOptions): void;
  /** Inserts unless there is an entry; gives the value that is there then. */
  getOrInsert(key: K, value: I, options?: SetOptions): V;
  /** As `getOrInsert`; `compute` is called only if there is no entry. */
  getOrInsertComputed(key: K, compute: (key: K) => I, options?: SetOptions): V;
  /**
   * Changes an entry by a function of its value, which returns the new value, `DELETE` or `KEEP`; gives the value that is there then. The entry
   * keeps its expiry unless the call or the collection has a time; `{ expireIn: Infinity }` clears it.
   */
  update(key: K, fn: SyncUpdater<K, V, I>, options?: SetOptions): V | undefined;
}

/** A collection, synchronously. */
export interface SyncCollection<K, V, I = V> extends SyncReader<K, V>, SyncWriter<K, V, I> {
  /** `""` for the database's own. */
  readonly name: string;
}

/** What the callback of a synchronous transaction reads and writes. */
export interface SyncTransaction<K = Key, V = unknown, I = V> extends SyncCollection<K, V, I> {
  /** Another collection, of a handle of the asynchronous API, or by name with the default codecs. */
  collection<K2 = Key, V2 = unknown, I2 = V2>(collection: Collection<K2, V2, I2> | string): SyncCollection<K2, V2, I2>;
}

/** Synchronous reads of one state. */
export interface SyncView<K = Key, V = unknown> extends SyncReader<K, V> {
  /** Another collection in the same state. */
  collection<K2, V2, I2>(collection: Collection<K2, V2, I2>): SyncReader<K2, V2>;
  /** A collection by name, with the default codecs. */
  collection<K2 = Key, V2 = unknown>(name: string): SyncReader<K2, V2>;
}

/** A read view: the state of the moment it was asked for. The file keeps what it can still read until it is closed or garbage collected. */
export interface SyncSnapshot<K = Key, V = unknown> extends SyncView<K, V> {
  /** Number of the commit that it sees. */
  readonly version: number;
  /** Idempotent. Iterators that were begun on it go on. */
  close(): void;
  /** As `close()`. */
  [Symbol.dispose](): void;
}

/** A database whose engine runs in this thread, synchronously. Calls take effect in order with those of the asynchronous API. */
export interface SyncDatabase<K = Key, V = unknown, I = V> extends SyncCollection<K, V, I> {
  /** Another collection, of a handle of the asynchronous API. */
  collection<K2, V2, I2>(collection: Collection<K2, V2, I2>): SyncCollection<K2, V2, I2>;
  /** A collection by name, created by its first write. */
  collection<K2 = Key, V2 = unknown, I2 = V2>(name: string, options?: CollectionOptions<K2, V2, I2>): SyncCollection<K2, V2, I2>;
  /** Runs `fn` in a transaction and commits it; whatever it throws rolls back. It may not be asynchronous. */
  transaction<T>(fn: (tx: SyncTransaction<K, V, I>) => T, options?: WriteOptions): T;
  /** The state of now, to be read from until it is closed. */
  snapshot(): SyncSnapshot<K, V>;
  /** Makes everything written so far survive a power cut. */
  flush(): void;
  /** Idempotent. */
  close(): void;
  /** As `close()`. */
  [Symbol.dispose](): void;
}
