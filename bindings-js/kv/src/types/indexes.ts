// Secondary indexes: how to declare and read them.
import type { Bound, Key } from '../codec/keys.ts';
import type { CommitIterator } from './feed.ts';
import type { Bounds, KvIterator, Range, RangeOptions, SignalOptions, WithMeta } from './range.ts';

/** How the entries of a collection are indexed. */
export interface IndexOptions<K, V> {
  /**
   * Returns the index key of an entry: any key of the default codec, arrays for compound ones, or
   * `undefined` if the entry does not belong to the index. With `multi` it returns an array of index
   * keys, of which repeated ones count once.
   *
   * It has to depend on nothing but its arguments. It runs in the caller's thread, once for each
   * write, and while the index is built. If it throws, the write is refused with KV_INVALID_VALUE.
   *
   * `'stored'` reads an index as it is stored, without its function, with `unique` and `version` as
   * `stats().indexes` has them. A handle with such an index declares and builds nothing, and its
   * writes are refused with KV_INDEX_MISMATCH; reading and deleting work.
   */
  readonly key: ((value: V, key: K) => Key | undefined) | 'stored';
  /** Whether an entry has several index keys. Default: false. */
  readonly multi?: boolean | undefined;
  /**
   * Whether no two entries may have the same index key. A write that breaks this is refused with
   * KV_UNIQUE. Default: false.
   */
  readonly unique?: boolean | undefined;
  /**
   * Version of `key`, a whole number. Increase it whenever `key` changes: that builds the index anew,
   * and programs that still declare an older version can no longer write. Default: 1.
   */
  readonly version?: number | undefined;
}

/** An entry as it is found in an index. */
export interface IndexEntry<K, V> {
  readonly indexKey: Key;
  readonly key: K;
  readonly value: V;
}

/** As `IndexEntry`, with what `getEntry` adds. */
export interface IndexEntryWithMeta<K, V> extends IndexEntry<K, V> {
  readonly version: number;
  readonly expiresAt?: number;
}

/** A range of index keys, for synchronous calls. */
export interface SyncIndexRange extends Range<Key> {
  /** Only this index key. Refused together with other bounds. */
  eq?: Bound<Key>;
}

/** A range of index keys. */
export interface IndexRange extends RangeOptions<Key> {
  /** Only this index key. Refused together with other bounds. */
  eq?: Bound<Key>;
}

/**
 * Reads a collection in the order of an index: by index key, and entries with the same one by key.
 * An entry with several index keys is there several times. Ranges, `seek`, `at` and `rank` are about
 * index keys.
 *
 * Reads of an index that is being built fail with KV_INDEX_INCOMPLETE, or wait, as
 * `whenIncomplete` says.
 */
export interface Index<K, V> {
  /** Its name. */
  readonly name: string;
  /** Iterates over entries with their index keys, version and expiry included. */
  entries(options: IndexRange & WithMeta): KvIterator<IndexEntryWithMeta<K, V>, Key>;
  /** Iterates over entries with their index keys. */
  entries(options?: IndexRange): KvIterator<IndexEntry<K, V>, Key>;
  /** Iterates over the keys of the entries, without reading values. */
  keys(options?: IndexRange): KvIterator<K, Key>;
  /** Iterates over the values of the entries. */
  values(options?: IndexRange): KvIterator<V, Key>;
  /** Returns the value of the first entry with this index key, or `undefined`. O(log n). */
  get(indexKey: Key): Promise<V | undefined>;
  /** Returns the first item of `entries(options)`. O(log n). */
  first(options?: IndexRange): Promise<IndexEntry<K, V> | undefined>;
  /** Returns the last item of `entries(options)`. O(log n). */
  last(options?: IndexRange): Promise<IndexEntry<K, V> | undefined>;
  /**
   * Returns the item of `entries(options)` at position `index`; a negative index counts from the
   * end. O(log n).
   */
  at(index: number, options?: IndexRange): Promise<IndexEntry<K, V> | undefined>;
  /** Returns the number of items in `entries(options)`. O(log n). */
  count(options?: IndexRange): Promise<number>;
  /** Returns the number of items in `entries(options)` with index keys below this one. O(log n). */
  rank(indexKey: Key, options?: IndexRange): Promise<number>;
  /** Same as `entries()`. */
  [Symbol.asyncIterator](): KvIterator<IndexEntry<K, V>, Key>;
}

/** Options of `index`. */
export interface IndexReadOptions {
  /**
   * What reads of an index do while it is being built: `'fail'` with KV_INDEX_INCOMPLETE, or
   * `'wait'` until all declared indexes of the collection are complete, for which they help to build.
   * Snapshots, and transactions that began before the end of a build, fail in both cases.
   * Default: `'fail'`.
   */
  whenIncomplete?: 'fail' | 'wait' | undefined;
}

/** As `Index`, with values instead of promises, and iterators of JavaScript's own. */
export interface SyncIndex<K, V> {
  /** Its name. */
  readonly name: string;
  /** Iterates over entries with their index keys, version and expiry included. */
  entries(options: SyncIndexRange & WithMeta): IterableIterator<IndexEntryWithMeta<K, V>>;
  /** Iterates over entries with their index keys. */
  entries(options?: SyncIndexRange): IterableIterator<IndexEntry<K, V>>;
  /** Iterates over the keys of the entries, without reading values. */
  keys(options?: SyncIndexRange): IterableIterator<K>;
  /** Iterates over the values of the entries. */
  values(options?: SyncIndexRange): IterableIterator<V>;
  /** Returns the value of the first entry with this index key, or `undefined`. O(log n). */
  get(indexKey: Key): V | undefined;
  /** Returns the first item of `entries(options)`. O(log n). */
  first(options?: SyncIndexRange): IndexEntry<K, V> | undefined;
  /** Returns the last item of `entries(options)`. O(log n). */
  last(options?: SyncIndexRange): IndexEntry<K, V> | undefined;
  /**
   * Returns the item of `entries(options)` at position `index`; a negative index counts from the
   * end. O(log n).
   */
  at(index: number, options?: SyncIndexRange): IndexEntry<K, V> | undefined;
  /** Returns the number of items in `entries(options)`. O(log n). */
  count(options?: SyncIndexRange): number;
  /** Returns the number of items in `entries(options)` with index keys below this one. O(log n). */
  rank(indexKey: Key, options?: SyncIndexRange): number;
  /** Same as `entries()`. */
  [Symbol.iterator](): IterableIterator<IndexEntry<K, V>>;
}

/** A range of index keys to follow. */
export interface IndexWatchOptions extends Bounds<Key>, SignalOptions {
  /** Only this index key. Refused together with other bounds. */
  eq?: Bound<Key>;
}

/** An index of a collection's newest state: it can be followed, too. */
export interface LiveIndex<K, V> extends Index<K, V> {
  /**
   * The commits that may change the range, from now on. As any change of an entry can take it out of
   * a range of index keys, these are the commits that change the collection, without exception. A
   * live query of the index draws only what has changed.
   */
  watch(options?: IndexWatchOptions): CommitIterator<K, V>;
  /** When the next entry of the collection expires, as `Collection.nextExpiry` without bounds. */
  nextExpiry(): Promise<number | undefined>;
}

/** Options of `buildIndexes`. */
export interface BuildIndexesOptions extends SignalOptions {
  /** Called before each slice, with the number of entries that the current index covers, and of all. */
  onProgress?:
    | ((progress: { readonly index: string; readonly done: number; readonly total: number }) => void)
    | undefined;
}

/** What is done with the indexes of a collection. */
export interface Indexed {
  /**
   * Resolves when every declared index is complete. An index of a collection that has entries is
   * built in slices between other calls, from where an earlier build was interrupted; calling this
   * is optional, as declaring it begins the build.
   *
   * @throws KvError KV_UNIQUE if the entries do not allow a unique index.
   */
  buildIndexes(options?: BuildIndexesOptions): Promise<void>;
  /**
   * Removes an index; resolves to whether it existed. Writes need not state its keys any more, so
   * leave it out where the collection is opened.
   */
  dropIndex(name: string): Promise<boolean>;
}
