// A collection: what is read of one, written to one, and how one is opened.
import type { KeyCodec, KeyPrefix } from '../codec/keys.ts';
import type { ValueCodec } from '../codec/values.ts';
import type { Watchable } from './feed.ts';
import type { Bounds, KvIterator, RangeOptions, SignalOptions, WithMeta } from './range.ts';
import type { StandardSchema } from './schema.ts';

/** An entry with what is known about it. */
export interface Entry<K, V> {
  readonly key: K;
  readonly value: V;
  /** Number of the commit that wrote it; 0 in the transaction that wrote it. */
  readonly version: number;
  /** When it expires, in milliseconds since 1970; missing if it does not. */
  readonly expiresAt?: number;
}

/** Reads one collection. Values are decoded anew for each call: none is shared with the database or another caller. */
export interface Reader<K, V> {
  /** The value, or `undefined` if and only if there is no entry. O(log n). */
  get(key: K): Promise<V | undefined>;
  /** Values in the order of `keys`, all of one state. */
  getMany(keys: Iterable<K>): Promise<(V | undefined)[]>;
  /** The value with what is known about its entry. O(log n). */
  getEntry(key: K): Promise<Entry<K, V> | undefined>;
  /** Whether there is an entry. O(log n), without reading the value. */
  has(key: K): Promise<boolean>;
  /** As `has`, in the order of `keys`, all of one state. */
  hasMany(keys: Iterable<K>): Promise<boolean[]>;
  /** Entries in key order; with `{ meta: true }` with version and expiry. */
  entries(options: RangeOptions<K> & WithMeta): KvIterator<Entry<K, V>, K>;
  /** Entries in key order. */
  entries(options?: RangeOptions<K>): KvIterator<[K, V], K>;
  /** Keys in order; values are not read. */
  keys(options?: RangeOptions<K>): KvIterator<K, K>;
  /** Values in the order of their keys. */
  values(options?: RangeOptions<K>): KvIterator<V, K>;
  /** As `entries`. */
  range(options: RangeOptions<K> & WithMeta): KvIterator<Entry<K, V>, K>;
  /** As `entries`. */
  range(options: RangeOptions<K>): KvIterator<[K, V], K>;
  /** Entries whose keys begin with `prefix`, with version and expiry. */
  prefix(prefix: KeyPrefix<K>, options: RangeOptions<K> & WithMeta): KvIterator<Entry<K, V>, K>;
  /** Entries whose keys begin with `prefix`. */
  prefix(prefix: KeyPrefix<K>, options?: Omit<RangeOptions<K>, 'prefix'>): KvIterator<[K, V], K>;
  /** What `entries(options)` would give first. O(log n). `first({ gte: key })` is the entry at or after `key`. */
  first(options?: RangeOptions<K>): Promise<[K, V] | undefined>;
  /** What `entries(options)` would give last. O(log n). `last({ lte: key })` is the entry at or before `key`. */
  last(options?: RangeOptions<K>): Promise<[K, V] | undefined>;
  /** How many entries `entries(options)` would give. O(log n). */
  count(options?: RangeOptions<K>): Promise<number>;
  /** Number of entries, O(1). It is asked for when it is awaited. */
  readonly size: Promise<number>;
  /** What `entries(options)` would give at position `index`, a negative one counted from the end. O(log n). */
  at(index: number, options?: RangeOptions<K>): Promise<[K, V] | undefined>;
  /** How many keys sort before `key`, whether or not it is there; with bounds, how many of those within. O(log n). */
  rank(key: K, options?: Bounds<K> & SignalOptions): Promise<number>;
  /** Calls `fn` with each entry in order and awaits what it gives. */
  forEach(fn: (value: V, key: K) => unknown, options?: RangeOptions<K>): Promise<void>;
  /** As `entries()`. */
  [Symbol.asyncIterator](): KvIterator<[K, V], K>;
}

/**
 * When a write's promise resolves, in the words of IndexedDB.
 *
 * - `"strict"`: when it survives a power cut. Writes called in one tick share the flush.
 * - `"relaxed"`: when it survives the death of the process.
 * - `"none"`: when it is visible; it survives from the next `flush()`, stronger write or `close()` on.
 *
 * After a crash there is always a prefix of the commits, each whole.
 */
export type Durability = 'strict' | 'relaxed' | 'none';

/** Options of every write. */
export interface WriteOptions extends SignalOptions {
  /** Default: the database's. */
  durability?: Durability | undefined;
}

/** Options of a write that stores a value. Without a time the entry does not expire, whatever there was before; only `update` keeps that. */
export interface SetOptions extends WriteOptions {
  /**
   * Milliseconds from now until the entry expires. At once it is invisible to all reads. A fraction of a millisecond counts as a whole one;
   * `Infinity` is never, also where the collection has an `expireIn` of its own.
   */
  expireIn?: number | undefined;
  /** When it expires, as a Date or in milliseconds since 1970. A fraction counts as a whole millisecond. */
  expireAt?: number | Date | undefined;
}

/** Returned by the callback of `update`: delete the entry. */
export const DELETE: unique symbol = Symbol.for('mangrove-kv.DELETE');
/** Returned by the callback of `update`: leave everything as it is. */
export const KEEP: unique symbol = Symbol.for('mangrove-kv.KEEP');

/** What the callback of `update` may return. */
export type Updated<V> = V | typeof DELETE | typeof KEEP;

/** The callback of `update`: the value, its key, and the entry with version and expiry; no value and no entry where there is none. */
export type Updater<K, V, I = V> = (old: V | undefined, key: K, entry: Entry<K, V> | undefined) => Updated<I> | Promise<Updated<I>>;

/**
 * Writes one collection. Every call is one atomic commit, takes effect in the order of calls and at once is seen by later ones. `I` is what may
 * be given as a value: another type than `V` only where a schema makes one of the other.
 */
export interface Writer<K, V, I = V> {
  /** Inserts or replaces. `undefined` cannot be stored. */
  set(key: K, value: I, options?: SetOptions): Promise<void>;
  /**
   * Inserts or replaces all or none. An array of more entries than can be encoded in some 8 ms is encoded bit by bit, where the engine has a
   * thread of its own, so that the caller's goes on meanwhile: the array may be changed at once, the values in it only once this is done.
   */
  setMany(entries: Iterable<readonly [K, I]>, options?: SetOptions): Promise<void>;
  /** Removes; tells whether there was an entry. */
  delete(key: K, options?: WriteOptions): Promise<boolean>;
  /** Removes all or none; tells how many there were. */
  deleteMany(keys: Iterable<K>, options?: WriteOptions): Promise<number>;
  /**
   * Removes all that `entries(range)` would give, O(log n) pages: `clear({ reverse: true, offset: 100 })` leaves the last 100. With `limit` or
   * `offset` it is a transaction, which is run again after conflicts and takes its place in the order of calls when it commits. `clear()`, `clear({})`
   * and `clear(undefined, options)` remove everything; a bound, `prefix`, `limit` or `offset` that is `undefined` is refused, and so is
   * `undefined` as the only argument.
   */
  clear(): Promise<void>;
  /** As `clear()`, of a range. */
  clear(range: RangeOptions<K>, options?: WriteOptions): Promise<void>;
  /** As `clear()`, with options. */
  clear(range: undefined, options: WriteOptions): Promise<void>;
  /** Inserts unless there is an entry; gives the value that is there then. */
  getOrInsert(key: K, value: I, options?: SetOptions): Promise<V>;
  /**
   * As `getOrInsert`; `compute` is called only if there is no entry. What it gives is dropped if there is one by then.
   */
  getOrInsertComputed(key: K, compute: (key: K) => I | Promise<I>, options?: SetOptions): Promise<V>;
  /**
   * Changes an entry by a function of its value, atomically; gives the value that is there then. `fn` may be asynchronous. It returns the new
   * value, `DELETE` or `KEEP`; `undefined` is refused. Calls for one entry on one database take turns, and `fn` is called again only if something
   * else changed the entry meanwhile, or if it takes longer than a second, after which the next in turn goes on.
   *
   * The entry keeps its expiry unless the call or the collection has a time; `{ expireIn: Infinity }` clears it.
   */
  update(key: K, fn: Updater<K, V, I>, options?: SetOptions): Promise<V | undefined>;
}

/** A named ordered map inside a database. */
export interface Collection<K, V, I = V> extends Reader<K, V>, Writer<K, V, I>, Watchable<K, V> {
  /** `""` for the database's own. */
  readonly name: string;
}

/** How a collection stores keys and values. The codecs are recorded with its first write and compared from then on. */
export interface CollectionOptions<K, V, I = V> {
  /** Default `keyCodecs.any`. */
  key?: KeyCodec<K> | undefined;
  /** Default `valueCodecs.structured()`. */
  value?: ValueCodec<V> | undefined;
  /**
   * Refuse instances of classes with KV_INVALID_VALUE, which names the class and where in the value it is; without it they come back without
   * their class. It is about the default value codec: with `value` it is KV_INVALID_ARGUMENT. Default: that of `open`, and there false.
   */
  strictValues?: boolean | undefined;
  /** Milliseconds after which entries expire that are stored through this handle without a time of their own, as in `SetOptions`. Default: never. */
  expireIn?: number | undefined;
  /**
   * Every value that is written through this handle has to fit it, and what it makes of the value is stored; KV_INVALID_VALUE otherwise, with
   * the issues as `cause`. What is read is not validated. If it validates asynchronously, a write takes its place in the order of calls when
   * that is done, and the synchronous API throws KV_SYNC_UNAVAILABLE.
   */
  schema?: StandardSchema<I, V> | undefined;
}

/** A collection by handle, or by name with the default codecs. */
export type CollectionReference = string | { readonly name: string };

/** When an entry expires, as in `SetOptions`. */
export interface Expiry {
  readonly expireIn?: number | undefined;
  readonly expireAt?: number | Date | undefined;
}
