// The same API without promises, available where the engine runs in the calling thread.
import type { Key, KeyPrefix } from '../codec/keys.ts';
import type { Collection, CollectionOptions, Entry, SetOptions, Updated, WriteOptions } from './collection.ts';
import type { SyncIndex } from './indexes.ts';
import type { Bounds, Range, WithMeta } from './range.ts';

/**
 * Reads of the synchronous API: like those of `Reader`, but returning plain values. Iterators are
 * JavaScript's own, with their helpers, and see the state at the time of the call.
 */
export interface SyncReader<K, V> {
  /** Returns the value, or `undefined` if and only if there is no entry. O(log n). */
  get(key: K): V | undefined;
  /** Returns the values in the order of `keys`, all from the same state. */
  getMany(keys: Iterable<K>): (V | undefined)[];
  /** Returns the entry with its metadata, or `undefined` if there is none. O(log n). */
  getEntry(key: K): Entry<K, V> | undefined;
  /** Whether there is an entry. O(log n); does not read the value. */
  has(key: K): boolean;
  /** Like `has` for several keys, in the order of `keys`, all from the same state. */
  hasMany(keys: Iterable<K>): boolean[];
  /** Iterates over entries in key order; with `{ meta: true }`, including version and expiry. */
  entries(options: Range<K> & WithMeta): IterableIterator<Entry<K, V>>;
  /** Iterates over entries in key order. */
  entries(options?: Range<K>): IterableIterator<[K, V]>;
  /** Iterates over keys in order, without reading values. */
  keys(options?: Range<K>): IterableIterator<K>;
  /** Iterates over values in key order. */
  values(options?: Range<K>): IterableIterator<V>;
  /** Iterates over entries whose keys start with `prefix`, including version and expiry. */
  prefix(prefix: KeyPrefix<K>, options: Range<K> & WithMeta): IterableIterator<Entry<K, V>>;
  /** Iterates over entries whose keys start with `prefix`. */
  prefix(prefix: KeyPrefix<K>, options?: Omit<Range<K>, 'prefix'>): IterableIterator<[K, V]>;
  /** Returns the first item of `entries(options)`. O(log n). */
  first(options?: Range<K>): [K, V] | undefined;
  /** Returns the last item of `entries(options)`. O(log n). */
  last(options?: Range<K>): [K, V] | undefined;
  /** Returns the number of items in `entries(options)`. O(log n). */
  count(options?: Range<K>): number;
  /** Number of entries. O(1). */
  readonly size: number;
  /**
   * Returns the item of `entries(options)` at position `index`; a negative index counts from the
   * end. O(log n).
   */
  at(index: number, options?: Range<K>): [K, V] | undefined;
  /**
   * Returns the number of keys that sort before `key`, whether or not `key` exists; with bounds,
   * counts only keys within them. O(log n).
   */
  rank(key: K, options?: Bounds<K>): number;
  /**
   * Reads through one of the indexes that the collection was opened with. Throws
   * KV_INDEX_INCOMPLETE while the index is being built.
   */
  index(name: string): SyncIndex<K, V>;
  /** Same as `entries()`. */
  [Symbol.iterator](): IterableIterator<[K, V]>;
}

/** Same as `Updater`, but not asynchronous. */
export type SyncUpdater<K, V, I = V> = (old: V | undefined, key: K, entry: Entry<K, V> | undefined) => Updated<I>;

/**
 * Writes of the synchronous API: like those of `Writer`, but each returns once it has the requested
 * durability.
 */
export interface SyncWriter<K, V, I = V> {
  /** Inserts or replaces an entry; returns the collection itself, as `Map` does. */
  set(key: K, value: I, options?: SetOptions): this;
  /** Inserts or replaces all entries or none. */
  setMany(entries: Iterable<readonly [K, I]>, options?: SetOptions): void;
  /** Deletes an entry; returns whether there was one. */
  delete(key: K, options?: WriteOptions): boolean;
  /** Deletes all of the keys or none; returns the number of entries that existed. */
  deleteMany(keys: Iterable<K>, options?: WriteOptions): number;
  /**
   * Deletes all items of `entries(range)`. Like `Writer.clear`, refuses options that are
   * `undefined`.
   */
  clear(): void;
  /** Same as `clear()`, for a range. */
  clear(range: Range<K>, options?: WriteOptions): void;
  /** Same as `clear()`, with options. */
  clear(range: undefined, options: WriteOptions): void;
  /** Inserts unless there is an entry; returns the value that is stored afterwards. */
  getOrInsert(key: K, value: I, options?: SetOptions): V;
  /** Same as `getOrInsert`, but calls `compute` only if there is no entry. */
  getOrInsertComputed(key: K, compute: (key: K) => I, options?: SetOptions): V;
  /**
   * Changes an entry by a function of its value, which returns the new value, `DELETE` or `KEEP`;
   * returns the value that is stored afterwards. The entry keeps its expiry unless the call or the
   * collection sets one; `{ expireIn: Infinity }` clears it.
   */
  update(key: K, fn: SyncUpdater<K, V, I>, options?: SetOptions): V | undefined;
}

/** A collection with synchronous calls. */
export interface SyncCollection<K, V, I = V> extends SyncReader<K, V>, SyncWriter<K, V, I> {
  /** The collection's name; `""` for the database's default collection. */
  readonly name: string;
}

/** What the callback of a synchronous transaction reads and writes. */
export interface SyncTransaction<K = Key, V = unknown, I = V> extends SyncCollection<K, V, I> {
  /** Another collection in the same transaction: by a handle of either API, or by name, with the options with which it is opened. */
  collection<K2 = Key, V2 = unknown, I2 = V2>(
    collection: Collection<K2, V2, I2> | SyncCollection<K2, V2, I2> | string,
    options?: CollectionOptions<K2, V2, I2>,
  ): SyncCollection<K2, V2, I2>;
}

/** Synchronous reads of one state. */
export interface SyncView<K = Key, V = unknown> extends SyncReader<K, V> {
  /** Another collection in the same state, by a handle of either API. */
  collection<K2, V2, I2>(collection: Collection<K2, V2, I2> | SyncCollection<K2, V2, I2>): SyncReader<K2, V2>;
  /** Another collection in the same state, by name and with the options with which it is opened. */
  collection<K2 = Key, V2 = unknown, I2 = V2>(
    name: string,
    options?: CollectionOptions<K2, V2, I2>,
  ): SyncReader<K2, V2>;
}

/**
 * A snapshot: the state at the time of the call. Until it is closed or garbage-collected, the file
 * keeps the space that it can still read.
 */
export interface SyncSnapshot<K = Key, V = unknown> extends SyncView<K, V> {
  /** Number of the commit that the snapshot sees. */
  readonly version: number;
  /** Releases the snapshot. Idempotent. Iterators already started on it continue. */
  close(): void;
  /** Same as `close()`. */
  [Symbol.dispose](): void;
}

/**
 * A database whose engine runs in this thread, with synchronous calls. They take effect in order
 * with those of the asynchronous API.
 */
export interface SyncDatabase<K = Key, V = unknown, I = V> extends SyncCollection<K, V, I> {
  /** Another collection, by a handle of either API. */
  collection<K2, V2, I2>(collection: Collection<K2, V2, I2> | SyncCollection<K2, V2, I2>): SyncCollection<K2, V2, I2>;
  /** Returns the named collection, which its first write creates. */
  collection<K2 = Key, V2 = unknown, I2 = V2>(
    name: string,
    options?: CollectionOptions<K2, V2, I2>,
  ): SyncCollection<K2, V2, I2>;
  /**
   * Runs `fn` in a transaction and commits it; if `fn` throws, the transaction is rolled back. `fn`
   * must not be asynchronous. It runs once more if it declares an index that the database did not
   * have.
   */
  transaction<T>(fn: (tx: SyncTransaction<K, V, I>) => T, options?: WriteOptions): T;
  /** Takes a snapshot of the current state, readable until it is closed. */
  snapshot(): SyncSnapshot<K, V>;
  /** Makes everything written so far survive a power cut. */
  flush(): void;
  /** Closes the database. Idempotent. */
  close(): void;
  /** Same as `close()`. */
  [Symbol.dispose](): void;
}
