// Collections: how to read, write and open one.
import type { KeyCodec, KeyPrefix } from '../codec/keys.ts';
import type { ValueCodec } from '../codec/values.ts';
import type { Watchable } from './feed.ts';
import type { Index, IndexOptions, IndexReadOptions, Indexed, LiveIndex } from './indexes.ts';
import type { Bounds, KvIterator, RangeOptions, SignalOptions, WithMeta } from './range.ts';

/** An entry with its metadata. */
export interface Entry<K, V> {
  readonly key: K;
  readonly value: V;
  /** Number of the commit that wrote it; 0 inside the transaction that wrote it. */
  readonly version: number;
  /** Expiry time in milliseconds since 1970; absent if the entry does not expire. */
  readonly expiresAt?: number;
}

/**
 * Reads one collection. Every call decodes its values afresh: no value is shared with the database
 * or with another caller.
 */
export interface Reader<K, V> {
  /** Returns the value, or `undefined` if and only if there is no entry. O(log n). */
  get(key: K): Promise<V | undefined>;
  /**
   * Returns the bytes of a value from `start` (default 0) to `end` (default: its end), as
   * `Uint8Array.slice` does: negative numbers count from the end, and what lies beyond it is left
   * out. `undefined` if there is no entry. Reads only the blocks of the value that overlap the
   * range, 1 MiB each. For collections with the value codec `bytes`, or that of
   * `mangrove-kv/blob`, of whose values these are the contents.
   *
   * @throws KvError KV_INVALID_ARGUMENT with another value codec.
   */
  getRange(key: K, start?: number, end?: number): Promise<Uint8Array<ArrayBuffer> | undefined>;
  /**
   * Returns the bytes of a value as a stream of parts of at most 1 MiB, or `undefined` if there is
   * no entry. Each part is read when the stream's reader asks for it, all from the state at the
   * call; the stream keeps that state's space until it is read to its end or cancelled. For the
   * value codecs of `getRange`.
   *
   * @throws KvError KV_INVALID_ARGUMENT with another value codec. Reading the stream fails with
   * KV_SNAPSHOT_LOST if another tab has taken over the database since and there were commits, and
   * with KV_TIMEOUT after `idleTimeout` without a read.
   */
  getStream(key: K, options?: SignalOptions): Promise<ReadableStream<Uint8Array<ArrayBuffer>> | undefined>;
  /** Returns the values in the order of `keys`, all from the same state. */
  getMany(keys: Iterable<K>): Promise<(V | undefined)[]>;
  /** Returns the entry with its metadata, or `undefined` if there is none. O(log n). */
  getEntry(key: K): Promise<Entry<K, V> | undefined>;
  /** Whether there is an entry. O(log n); does not read the value. */
  has(key: K): Promise<boolean>;
  /** Like `has` for several keys, in the order of `keys`, all from the same state. */
  hasMany(keys: Iterable<K>): Promise<boolean[]>;
  /** Iterates over entries in key order; with `{ meta: true }`, including version and expiry. */
  entries(options: RangeOptions<K> & WithMeta): KvIterator<Entry<K, V>, K>;
  /** Iterates over entries in key order. */
  entries(options?: RangeOptions<K>): KvIterator<[K, V], K>;
  /** Iterates over keys in order, without reading values. */
  keys(options?: RangeOptions<K>): KvIterator<K, K>;
  /** Iterates over values in key order. */
  values(options?: RangeOptions<K>): KvIterator<V, K>;
  /** Iterates over entries whose keys start with `prefix`, including version and expiry. */
  prefix(prefix: KeyPrefix<K>, options: RangeOptions<K> & WithMeta): KvIterator<Entry<K, V>, K>;
  /** Iterates over entries whose keys start with `prefix`. */
  prefix(prefix: KeyPrefix<K>, options?: Omit<RangeOptions<K>, 'prefix'>): KvIterator<[K, V], K>;
  /**
   * Returns the first item of `entries(options)`. O(log n). `first({ gte: key })` is the entry at
   * or after `key`.
   */
  first(options?: RangeOptions<K>): Promise<[K, V] | undefined>;
  /**
   * Returns the last item of `entries(options)`. O(log n). `last({ lte: key })` is the entry at or
   * before `key`.
   */
  last(options?: RangeOptions<K>): Promise<[K, V] | undefined>;
  /** Returns the number of items in `entries(options)`. O(log n). */
  count(options?: RangeOptions<K>): Promise<number>;
  /** Number of entries. O(1). The request is sent when the promise is awaited. */
  readonly size: Promise<number>;
  /**
   * Returns the item of `entries(options)` at position `index`; a negative index counts from the
   * end. O(log n).
   */
  at(index: number, options?: RangeOptions<K>): Promise<[K, V] | undefined>;
  /**
   * Returns the number of keys that sort before `key`, whether or not `key` exists; with bounds,
   * counts only keys within them. O(log n).
   */
  rank(key: K, options?: Bounds<K> & SignalOptions): Promise<number>;
  /** Calls `fn` for each entry in order and awaits its result. */
  forEach(fn: (value: V, key: K) => unknown, options?: RangeOptions<K>): Promise<void>;
  /**
   * An index of the collection, which was opened with its declaration.
   *
   * @throws KvError KV_INVALID_ARGUMENT if it was not.
   */
  index(name: string, options?: IndexReadOptions): Index<K, V>;
  /** Same as `entries()`. */
  [Symbol.asyncIterator](): KvIterator<[K, V], K>;
}

/**
 * When a write's promise resolves, in IndexedDB's terms.
 *
 * - `"strict"`: when the write survives a power cut. Writes called in one tick share the flush.
 * - `"relaxed"`: when the write survives the death of the process.
 * - `"none"`: when the write is visible. The next `flush()`, stronger write or `close()` makes it
 *   durable.
 *
 * After a crash the database always holds a prefix of the commits, each of them whole.
 */
export type Durability = 'strict' | 'relaxed' | 'none';

/** Options of every write. */
export interface WriteOptions extends SignalOptions {
  /** When the promise resolves. Default: the database's setting. */
  durability?: Durability | undefined;
}

/**
 * Options of a write that stores a value. Without an expiry the new entry does not expire, even if
 * the previous one did; only `update` keeps the previous expiry.
 */
export interface SetOptions extends WriteOptions {
  /**
   * Milliseconds from now until the entry expires. From that moment no read sees it. A fraction of
   * a millisecond is rounded up. `Infinity` means never, also in a collection with its own
   * `expireIn`.
   */
  expireIn?: number | undefined;
  /**
   * Expiry time, as a Date or in milliseconds since 1970. A fraction of a millisecond is rounded
   * up.
   */
  expireAt?: number | Date | undefined;
}

/** Options of `setStream`. */
export interface StreamOptions extends SetOptions {
  /** Media type of the Blob. Default: empty. */
  type?: string | undefined;
  /** Name of the file; the value is then a File. Default: none. */
  name?: string | undefined;
  /** When the file was last changed, in milliseconds since 1970. Default: now. */
  lastModified?: number | undefined;
}

/** Return this from the callback of `update` to delete the entry. */
export const DELETE: unique symbol = Symbol.for('mangrove-kv.DELETE');
/** Return this from the callback of `update` to leave everything unchanged. */
export const KEEP: unique symbol = Symbol.for('mangrove-kv.KEEP');

/** What the callback of `update` may return. */
export type Updated<V> = V | typeof DELETE | typeof KEEP;

/**
 * The callback of `update`. It receives the value, its key, and the entry with version and expiry;
 * `old` and `entry` are `undefined` if there is no entry.
 */
export type Updater<K, V, I = V> = (
  old: V | undefined,
  key: K,
  entry: Entry<K, V> | undefined,
) => Updated<I> | Promise<Updated<I>>;

/**
 * Writes one collection. Every call is one atomic commit. Calls take effect in the order they are
 * made, and later calls see them immediately. `I` is the type of values accepted for writing; it
 * differs from `V` only with a schema that transforms values.
 */
export interface Writer<K, V, I = V> {
  /**
   * Inserts or replaces an entry. `undefined` cannot be stored.
   *
   * A Blob (`mangrove-kv/blob`) is read and written in parts first, and takes its place in the order
   * of calls when that is done. Within a transaction it is read into memory as a whole.
   */
  set(key: K, value: I, options?: SetOptions): Promise<void>;
  /**
   * Inserts or replaces an entry whose value is what a stream yields, in a collection with the value
   * codec `bytes` or that of `mangrove-kv/blob`. The stream is written in parts of 1 MiB as it is
   * read, and the entry changes when it has ended: an error or abort of the stream leaves the entry
   * as it was, and takes no space. A schema does not see the value. Within a transaction the value
   * is read into memory as a whole.
   *
   * @throws KvError KV_INVALID_ARGUMENT with another value codec, or in a collection with indexes;
   * KV_SNAPSHOT_LOST (retryable) if another tab takes over the database meanwhile; KV_VALUE_TOO_LARGE
   * from 2 GiB on; what the stream fails with.
   */
  setStream(
    key: K,
    stream: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>,
    options?: StreamOptions,
  ): Promise<void>;
  /**
   * Inserts or replaces all entries or none. Blobs (`mangrove-kv/blob`) may have up to 256 KiB.
   *
   * If the engine has its own thread, an array that takes more than about 8 ms to encode is encoded
   * in slices, so that the calling thread stays responsive. The array itself may be changed
   * immediately after the call, the values in it only after the promise has settled.
   */
  setMany(entries: Iterable<readonly [K, I]>, options?: SetOptions): Promise<void>;
  /** Deletes an entry; resolves to whether there was one. */
  delete(key: K, options?: WriteOptions): Promise<boolean>;
  /** Deletes all of the keys or none; resolves to the number of entries that existed. */
  deleteMany(keys: Iterable<K>, options?: WriteOptions): Promise<number>;
  /**
   * Deletes all items of `entries(range)`, touching O(log n) pages.
   * `clear({ reverse: true, offset: 100 })` keeps the last 100.
   *
   * With `limit` or `offset`, `clear` is a transaction: it is retried after conflicts, and takes
   * its place in the order of calls when it commits.
   *
   * `clear()`, `clear({})` and `clear(undefined, options)` delete everything. A bound, `prefix`,
   * `limit` or `offset` that is `undefined` is refused, and so is `undefined` as the only argument.
   */
  clear(): Promise<void>;
  /** Same as `clear()`, for a range. */
  clear(range: RangeOptions<K>, options?: WriteOptions): Promise<void>;
  /** Same as `clear()`, with options. */
  clear(range: undefined, options: WriteOptions): Promise<void>;
  /** Inserts unless there is an entry; returns the value that is stored afterwards. */
  getOrInsert(key: K, value: I, options?: SetOptions): Promise<V>;
  /**
   * Same as `getOrInsert`, but calls `compute` only if there is no entry. The result of `compute`
   * is discarded if an entry exists by then.
   */
  getOrInsertComputed(key: K, compute: (key: K) => I | Promise<I>, options?: SetOptions): Promise<V>;
  /**
   * Changes an entry atomically by a function of its value; returns the value that is stored
   * afterwards. `fn` may be asynchronous. It returns the new value, `DELETE` or `KEEP`; `undefined`
   * is refused.
   *
   * Calls for the same entry on one database take turns. `fn` runs again only if something else
   * changed the entry in the meantime. A callback that runs longer than a second no longer holds up
   * the next call, which may then be what changes the entry.
   *
   * The entry keeps its expiry unless the call or the collection sets one; `{ expireIn: Infinity }`
   * clears it.
   */
  update(key: K, fn: Updater<K, V, I>, options?: SetOptions): Promise<V | undefined>;
}

/** A named ordered map inside a database. */
export interface Collection<K, V, I = V> extends Reader<K, V>, Writer<K, V, I>, Watchable<K, V>, Indexed {
  /** The collection's name; `""` for the database's default collection. */
  readonly name: string;
  /**
   * An index of the collection, which was opened with its declaration.
   *
   * @throws KvError KV_INVALID_ARGUMENT if it was not.
   */
  index(name: string, options?: IndexReadOptions): LiveIndex<K, V>;
}

/**
 * How a collection stores keys and values. Its first write records the codecs, which are checked
 * from then on.
 */
export interface CollectionOptions<K, V, I = V> {
  /** Codec for keys. Default: `keyCodecs.any`. */
  key?: KeyCodec<K> | undefined;
  /** Codec for values. Default: `valueCodecs.structured()`. */
  value?: ValueCodec<V> | undefined;
  /**
   * Refuses class instances with KV_INVALID_VALUE; the message names the class and where in the
   * value the instance is. Otherwise instances lose their class when stored. Applies to the default
   * value codec only: together with `value` it is KV_INVALID_ARGUMENT. Default: the setting of
   * `open`, which defaults to false.
   */
  strictValues?: boolean | undefined;
  /**
   * Milliseconds after which entries stored through this handle expire unless the write sets its
   * own expiry; see `SetOptions`. Default: never.
   */
  expireIn?: number | undefined;
  /**
   * Schema that every value written through this handle must fit; the schema's output is what is
   * stored. A value that does not fit is KV_INVALID_VALUE, with the issues as `cause`. Reads are
   * not validated.
   *
   * If the schema validates asynchronously, a write takes its place in the order of calls when
   * validation is done, and the synchronous API throws KV_SYNC_UNAVAILABLE.
   */
  schema?: StandardSchema<I, V> | undefined;
  /**
   * Indexes of the collection, by name. All writes to the collection keep them right, in the same
   * commit, so every program that writes entries has to declare all of them, in the same version:
   * other writes are refused with KV_INDEX_MISMATCH. Deleting and clearing need no declaration.
   */
  indexes?: { readonly [name: string]: IndexOptions<K, V> } | undefined;
}

/** A collection by handle, or by name with the default codecs. */
export type CollectionReference = string | { readonly name: string };

/** When an entry expires; see `SetOptions`. */
export interface Expiry {
  readonly expireIn?: number | undefined;
  readonly expireAt?: number | Date | undefined;
}

// The part of Standard Schema (https://standardschema.dev; Zod, Valibot, ArkType and others
// implement it) that is used here, declared so that the package's types depend on no other package.

/** A schema whose `~standard` property follows version 1 of Standard Schema. */
export interface StandardSchema<Input = unknown, Output = Input> {
  /** What the standard requires. */
  readonly '~standard': {
    /** Version of the standard. */
    readonly version: 1;
    /** Name of the library. */
    readonly vendor: string;
    /** Returns the value to store, or what is wrong with the input. */
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    /** Exists for type inference only. */
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** Result of a validation: the value to store, or what is wrong with the input. */
export type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

/** What is wrong with a value, and where in it. */
export interface SchemaIssue {
  /** What is wrong. */
  readonly message: string;
  /** Where: keys and indices from the outermost inwards. */
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}
