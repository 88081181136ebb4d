// The public interfaces. Every method that gives a promise rejects with a KvError whose `code` is stable, and never
// throws before that. n is the number of entries of the collection.
import type { Bound, Key, KeyCodec, KeyPrefix } from './codec/keys.ts';
import type { ValueCodec } from './codec/values.ts';
import type { KvError, KvErrorCode } from './errors.ts';
import type { ChangesOptions, CommitIterator, Watchable } from './feed-types.ts';
import type { StandardSchema } from './schema-types.ts';

/** Bounds in key order, also where entries are read in reverse. All that are given apply together. */
export interface Bounds<K> {
  /** Only keys after this one. */
  gt?: Bound<K> | undefined;
  /** Only this key and those after it. */
  gte?: Bound<K> | undefined;
  /** Only keys before this one. */
  lt?: Bound<K> | undefined;
  /** Only this key and those before it. */
  lte?: Bound<K> | undefined;
  /** Only keys that begin like this: a string's or byte string's start, or a tuple's leading elements. */
  prefix?: KeyPrefix<K> | undefined;
}

/** Which entries, in which order. */
export interface Range<K> extends Bounds<K> {
  /** From the last key to the first. Default false. */
  reverse?: boolean | undefined;
  /** Most entries. Default Infinity. */
  limit?: number | undefined;
  /** Entries left out at the start, O(log n). Default 0. */
  offset?: number | undefined;
}

/** Of a call that waits. */
export interface SignalOptions {
  /**
   * Ends the wait: the promise rejects with the signal's reason. If it is aborted already, nothing is done at all. A write that was
   * called before the abort is not undone and takes effect as if nobody waited for it.
   */
  signal?: AbortSignal | undefined;
}

/** A range that is read until a signal says otherwise. */
export interface RangeOptions<K> extends Range<K>, SignalOptions {}

/**
 * Reads entries in order, in chunks and a chunk ahead. It sees the state of the moment it was asked for, whatever is
 * written later. The helpers are those of the iterators of JavaScript.
 *
 * Its place in the engine is given back at its end, by `return()` (which leaving a `for await` loop calls), or when
 * it is garbage collected. Until then the file keeps what it may still read.
 */
export interface KvIterator<T, K = unknown> extends AsyncIterableIterator<T, undefined> {
  /** The next item. */
  next(): Promise<IteratorResult<T, undefined>>;
  /** Ends it and gives its place back. */
  return(): Promise<IteratorResult<T, undefined>>;
  /** The iterator itself. */
  [Symbol.asyncIterator](): this;
  /** As `return()`. */
  [Symbol.asyncDispose](): Promise<void>;
  /** The next `max` items, fewer at the end, `[]` after it. Several times faster than as many `next()`. */
  nextMany(max: number): Promise<T[]>;
  /** Goes on at the first key at or past `key` in this direction, also backwards. Without effect after the end. */
  seek(key: KeyPrefix<K>): void;
  /** All that is left. */
  toArray(): Promise<T[]>;
  /** What `fn` gives for each item. */
  map<U>(fn: (item: T, index: number) => U | Promise<U>): KvIterator<U, K>;
  /** The items of which `fn` says so. */
  filter<S extends T>(fn: (item: T, index: number) => item is S): KvIterator<S, K>;
  /** The items for which `fn` gives something true. */
  filter(fn: (item: T, index: number) => unknown): KvIterator<T, K>;
  /** At most `count` items, then the end. */
  take(count: number): KvIterator<T, K>;
  /** All but the first `count` items. */
  drop(count: number): KvIterator<T, K>;
  /** All items of what `fn` gives for each. */
  flatMap<U>(fn: (item: T, index: number) => Iterable<U> | AsyncIterable<U>): KvIterator<U, K>;
  /** Reads to the end; gives what the last call of `fn` gave. */
  reduce<A>(fn: (acc: A, item: T, index: number) => A | Promise<A>, initial: A): Promise<A>;
  /** Reads to the end. */
  forEach(fn: (item: T, index: number) => unknown): Promise<void>;
  /** Whether there is such an item; reads up to the first. */
  some(fn: (item: T, index: number) => unknown): Promise<boolean>;
  /** Whether all are such; reads up to the first that is not. */
  every(fn: (item: T, index: number) => unknown): Promise<boolean>;
  /** The first such item; reads up to it. */
  find(fn: (item: T, index: number) => unknown): Promise<T | undefined>;
}

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
  /** Entries in key order. */
  entries(options?: RangeOptions<K>): KvIterator<[K, V], K>;
  /** Keys in order; values are not read. */
  keys(options?: RangeOptions<K>): KvIterator<K, K>;
  /** Values in the order of their keys. */
  values(options?: RangeOptions<K>): KvIterator<V, K>;
  /** As `entries`. */
  range(options: RangeOptions<K>): KvIterator<[K, V], K>;
  /** Entries whose keys begin with `prefix`. */
  prefix(prefix: KeyPrefix<K>, options?: RangeOptions<K>): KvIterator<[K, V], K>;
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

/** Options of a write that stores a value. Without a time the entry does not expire, whatever there was before. */
export interface SetOptions extends WriteOptions {
  /** Milliseconds from now until the entry expires. At once it is invisible to all reads. */
  expireIn?: number | undefined;
  /** When it expires, as a Date or in milliseconds since 1970. */
  expireAt?: number | Date | undefined;
}

/** Returned by the callback of `update`: delete the entry. */
export const DELETE: unique symbol = Symbol.for('mangrove-kv.DELETE');
/** Returned by the callback of `update`: leave everything as it is. */
export const KEEP: unique symbol = Symbol.for('mangrove-kv.KEEP');

/** What the callback of `update` may return. */
export type Updated<V> = V | typeof DELETE | typeof KEEP;

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
   * `offset` it is a transaction, which is run again after conflicts and takes its place in the order of calls when it commits.
   */
  clear(range?: RangeOptions<K>, options?: WriteOptions): Promise<void>;
  /** Inserts unless there is an entry; gives the value that is there then. */
  getOrInsert(key: K, value: I, options?: SetOptions): Promise<V>;
  /**
   * As `getOrInsert`; `compute` is called only if there is no entry. What it gives is dropped if there is one by then.
   */
  getOrInsertComputed(key: K, compute: (key: K) => I | Promise<I>, options?: SetOptions): Promise<V>;
  /**
   * Changes an entry by a function of its value, atomically; gives the value that is there then. `fn` may be asynchronous, and is called
   * again if the entry was changed meanwhile. It returns the new value, `DELETE` or `KEEP`; `undefined` is refused.
   */
  update(key: K, fn: (old: V | undefined, key: K) => Updated<I> | Promise<Updated<I>>, options?: SetOptions): Promise<V | undefined>;
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
  /** Milliseconds after which entries expire that are stored through this handle without a time of their own. Default: never. */
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

/** One change of `batch(ops)`: of the database itself, or of the collection it names. */
export type BatchOp<K = Key, I = unknown> =
  | ({ readonly type: 'set'; readonly key: K; readonly value: I; readonly collection?: undefined } & Expiry)
  | { readonly type: 'delete'; readonly key: K; readonly collection?: undefined }
  | { readonly type: 'check'; readonly key: K; readonly version: number | null; readonly collection?: undefined }
  | ({ readonly type: 'set'; readonly key: unknown; readonly value: unknown; readonly collection: CollectionReference } & Expiry)
  | { readonly type: 'delete'; readonly key: unknown; readonly collection: CollectionReference }
  | { readonly type: 'check'; readonly key: unknown; readonly version: number | null; readonly collection: CollectionReference };

/** When an entry expires, as in `SetOptions`. */
export interface Expiry {
  readonly expireIn?: number | undefined;
  readonly expireAt?: number | Date | undefined;
}

/** What a commit gave. */
export interface CommitInfo {
  /** Number of the commit: each is greater than those before. */
  readonly version: number;
}

/** Changes of any collections that become one atomic commit. Keys and values are encoded when they are added. */
export interface Batch<K, I> {
  /**
   * Throws a KvError for a key or value that cannot be stored; the batch stays as it was. Where a schema validates asynchronously, the commit
   * waits for it and rejects instead.
   */
  set(key: K, value: I, options?: Expiry): this;
  /** Throws a KvError for a key that cannot be stored; the batch stays as it was. */
  delete(key: K): this;
  /** The batch is applied only if the entry is of this version, or, with `null`, if there is none; otherwise KV_CONFLICT. */
  check(key: K, version: number | null): this;
  /** The same batch, writing another collection. */
  collection<K2, V2, I2>(collection: Collection<K2, V2, I2>): Batch<K2, I2>;
  /** Number of changes. */
  readonly length: number;
  /** Applies all or none; afterwards the batch is closed. */
  commit(options?: WriteOptions): Promise<CommitInfo>;
  /** As `commit`; that a check failed is a result, not an exception. */
  tryCommit(options?: WriteOptions): Promise<Result<void>>;
  /** Drops what was not committed. */
  [Symbol.dispose](): void;
}

/** What became of something that may lose a race: an expected outcome is a value, a fault rejects. */
export type Result<T> =
  | { readonly ok: true; readonly value: T; readonly version: number }
  | { readonly ok: false; readonly reason: 'conflict' | 'rollback' | 'timeout'; readonly error: KvError };

/** Options of a transaction. */
export interface TransactionOptions extends WriteOptions {
  /** With "readonly" writes are refused, and it cannot conflict. Default "readwrite". */
  mode?: 'readwrite' | 'readonly' | undefined;
  /**
   * "serializable", the default: the commit fails if a later one changed anything that was read, absent keys and ranges included.
   * "snapshot": only if a later one wrote a key that this one writes.
   */
  isolation?: 'serializable' | 'snapshot' | undefined;
  /** How often a callback is run again after conflicts. Default 10. */
  maxRetries?: number | undefined;
  /**
   * Milliseconds until it is rolled back, or `Infinity`: a forgotten transaction keeps space in the file. `transaction` rejects with KV_TIMEOUT
   * then, though its callback may still wait for something. Default 60 000.
   */
  timeout?: number | undefined;
  /**
   * Rolls it back, also between two runs of a callback; `transaction` rejects with the signal's reason at once, and so does what the callback
   * still calls on it. A commit that is under way is not undone.
   */
  signal?: AbortSignal | undefined;
}

/** A state of a transaction to go back to. */
export interface Savepoint {
  /** Undoes what was written since. It can be gone back to again. */
  rollback(): Promise<void>;
}

/**
 * Reads one state of the database and its own writes, which nobody else sees before the commit. It locks nothing and may wait for anything
 * between its calls. Iterators see what was written before they were made.
 */
export interface Transaction<K = Key, V = unknown, I = V> extends Reader<K, V>, Writer<K, V, I> {
  /** Whether it may write. */
  readonly mode: 'readwrite' | 'readonly';
  /** Whether it takes calls. */
  readonly status: 'active' | 'committed' | 'rolled-back';
  /** Number of the commit that it reads. It is asked for when it is awaited. */
  readonly baseVersion: Promise<number>;
  /** Another collection in the same transaction. */
  collection<K2, V2, I2>(collection: Collection<K2, V2, I2>): Reader<K2, V2> & Writer<K2, V2, I2>;
  /** A collection by name, with the default codecs. */
  collection<K2 = Key, V2 = unknown>(name: string): Reader<K2, V2> & Writer<K2, V2>;
  /** Removes a collection with its entries and codecs; tells whether there was one. */
  dropCollection(name: string): Promise<boolean>;
  /** A state to go back to. O(1), whatever was written. */
  savepoint(): Savepoint;
  /** Makes the writes visible and durable as one commit, or rejects with KV_CONFLICT, retryable. */
  commit(options?: WriteOptions): Promise<CommitInfo>;
  /** As `commit`; a conflict is a result, not an exception. */
  tryCommit(options?: WriteOptions): Promise<Result<void>>;
  /** Undoes everything. Inside a callback it throws, so that the callback ends there. */
  rollback(reason?: unknown): void;
  /** Rolls back unless it was committed. */
  [Symbol.dispose](): void;
}

/**
 * A read view: the state of the moment it was asked for. The file keeps what it can still read until it is closed or
 * garbage collected.
 */
export interface Snapshot<K = Key, V = unknown> extends Reader<K, V> {
  /** Number of the commit that it sees. It is asked for when it is awaited. */
  readonly version: Promise<number>;
  /** Synchronous reads of the same state, where `Database.sync` is available. */
  readonly sync: SyncReader<K, V>;
  /** Another collection in the same state. */
  collection<K2, V2, I2>(collection: Collection<K2, V2, I2>): Reader<K2, V2>;
  /** A collection by name, with the default codecs. */
  collection<K2 = Key, V2 = unknown>(name: string): Reader<K2, V2>;
  /** Idempotent. Iterators that were begun on it go on. */
  close(): Promise<void>;
  /** Closes it. */
  [Symbol.dispose](): void;
}

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
  /** Entries in key order. */
  entries(options?: Range<K>): IterableIterator<[K, V]>;
  /** Keys in order; values are not read. */
  keys(options?: Range<K>): IterableIterator<K>;
  /** Values in the order of their keys. */
  values(options?: Range<K>): IterableIterator<V>;
  /** As `entries`. */
  range(options: Range<K>): IterableIterator<[K, V]>;
  /** Entries whose keys begin with `prefix`. */
  prefix(prefix: KeyPrefix<K>, options?: Range<K>): IterableIterator<[K, V]>;
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
  /** Removes all that `entries(range)` would give. */
  clear(range?: Range<K>, options?: WriteOptions): void;
  /** Inserts unless there is an entry; gives the value that is there then. */
  getOrInsert(key: K, value: I, options?: SetOptions): V;
  /** As `getOrInsert`; `compute` is called only if there is no entry. */
  getOrInsertComputed(key: K, compute: (key: K) => I, options?: SetOptions): V;
  /** Changes an entry by a function of its value, which returns the new value, `DELETE` or `KEEP`; gives the value that is there then. */
  update(key: K, fn: (old: V | undefined, key: K) => Updated<I>, options?: SetOptions): V | undefined;
}

/** A collection, synchronously. */
export interface SyncCollection<K, V, I = V> extends SyncReader<K, V>, SyncWriter<K, V, I> {
  /** `""` for the database's own. */
  readonly name: string;
}

/** What the callback of a synchronous transaction reads and writes. */
export interface SyncTransaction<K = Key, V = unknown, I = V> extends SyncCollection<K, V, I> {
  /** Another collection, of a handle of the asynchronous API. */
  collection<K2, V2, I2>(collection: Collection<K2, V2, I2>): SyncCollection<K2, V2, I2>;
  /** A collection by name, with the default codecs. */
  collection<K2 = Key, V2 = unknown>(name: string): SyncCollection<K2, V2>;
}

/** A database whose engine runs in this thread, synchronously. Calls take effect in order with those of the asynchronous API. */
export interface SyncDatabase<K = Key, V = unknown, I = V> extends SyncCollection<K, V, I> {
  /** Another collection, of a handle of the asynchronous API. */
  collection<K2, V2, I2>(collection: Collection<K2, V2, I2>): SyncCollection<K2, V2, I2>;
  /** A collection by name, created by its first write. */
  collection<K2 = Key, V2 = unknown, I2 = V2>(name: string, options?: CollectionOptions<K2, V2, I2>): SyncCollection<K2, V2, I2>;
  /** Runs `fn` in a transaction and commits it; whatever it throws rolls back. It may not be asynchronous. */
  transaction<T>(fn: (tx: SyncTransaction<K, V, I>) => T, options?: WriteOptions): T;
  /** Makes everything written so far survive a power cut. */
  flush(): void;
  /** Idempotent. */
  close(): void;
  /** As `close()`. */
  [Symbol.dispose](): void;
}

/** A user's own place for files: synchronous, and every read and write is whole or throws. */
export interface CustomStorage {
  /** Opens a file for reading and writing, creating it empty if it is missing. */
  open(file: string): StorageFile;
  /** Names of all files there are. */
  list(): string[];
  /** Removes a file that is not open; a missing one is no error. */
  remove(file: string): void;
  /**
   * Bytes by which the data file is kept longer than its content, so that entries can be removed where there is no room left; at least 32
   * nodes. For storages whose `truncate` takes the room for what it adds. Default 0: none.
   */
  readonly reserveBytes?: number | undefined;
}

/**
 * One open file; offsets and sizes are bytes. An exception with the `code` `"KV_QUOTA_EXCEEDED"`, `"ENOSPC"` or
 * `"EDQUOT"` says that there is no room.
 */
export interface StorageFile {
  /** Fills `into`, which is valid during the call only. */
  read(at: number, into: Uint8Array): void;
  /** Writes all of `from`, which is valid during the call only, growing the file as needed. */
  write(at: number, from: Uint8Array): void;
  /** Returns when everything written before survives a power cut. */
  flush(): void;
  /** Its size in bytes. */
  size(): number;
  /** Cuts the file or extends it with zeros. */
  truncate(size: number): void;
  /** Idempotent. */
  close(): void;
}

// Taken from the environment, so that a program without the types of browsers compiles too. `object`, as a module has
// no members by which to tell it from a number.
type ModuleType = typeof globalThis extends { WebAssembly: { Module: new (...args: never[]) => infer M } } ? M & object : never;
type ResponseType = typeof globalThis extends { Response: new (...args: never[]) => infer R } ? R : never;
type WorkerType = typeof globalThis extends { Worker: new (...args: never[]) => infer W } ? W : never;

/**
 * Where the engine's module is: a URL (a relative one begins at the page, outside browsers at the working directory),
 * the `Response` to a request for it, its bytes, or a compiled `WebAssembly.Module`.
 * `openSync` can neither fetch nor wait for a response.
 */
export type WasmSource = string | URL | ResponseType | ArrayBuffer | ArrayBufferView | ModuleType;

/**
 * Where the worker's script is, or a function that starts a module worker with it: `worker-indexeddb.js` if its argument is "indexeddb",
 * else `worker.js`.
 */
export type WorkerSource = string | URL | ((storage: 'opfs' | 'indexeddb' | 'memory') => WorkerType);

/** Options of `open`. */
export interface OpenOptions<K = Key, V = unknown, I = V> extends CollectionOptions<K, V, I> {
  /**
   * Where the database is kept. `"auto"`, the default, is `"opfs"` in browsers and `"fs"` elsewhere; there is no
   * silent change to another. `"indexeddb"` is for browsers where there is no OPFS: the whole database is in memory.
   */
  storage?: 'auto' | 'opfs' | 'indexeddb' | 'fs' | 'memory' | CustomStorage | undefined;
  /** Create it if it does not exist; otherwise KV_NOT_FOUND. Default true. */
  create?: boolean | undefined;
  /** Fail with KV_EXISTS if it exists. Default false. */
  exclusive?: boolean | undefined;
  /**
   * Refuse all writes with KV_READ_ONLY. In Node, Deno and Bun nothing is locked and no permission to write is needed: the database can be read
   * while another process writes to it. It shows the state of its opening until `refresh()`; what was overwritten meanwhile is answered with
   * KV_STALE. In a browser it is about this opening's writes: others may write meanwhile, and what they commit is seen at once. Default false.
   */
  readOnly?: boolean | undefined;
  /**
   * What becomes of an `open` for which a browser has no OPFS or no workers, as in private windows and on pages without HTTPS: KV_UNSUPPORTED,
   * or a database in IndexedDB, or one in memory that is lost with the page. `Database.persistence` tells where it is. What is in one place is
   * not seen in the other. It has no effect with another storage than "auto" and "opfs", nor outside browsers. Default "throw".
   */
  onUnavailable?: 'throw' | 'indexeddb' | 'memory' | undefined;
  /**
   * Milliseconds to wait for files that another process, tab or handle still holds, then KV_LOCKED; may be `Infinity`. Where tabs share the database also for a tab
   * that answers, then KV_TIMEOUT. Default 10 000.
   */
  lockTimeout?: number | undefined;
  /**
   * Where the engine runs: in a worker of its own, or in the thread that opens it, which the synchronous API needs. `"auto"`, the default, is
   * the same thread in Node, Deno and Bun, where a call costs a few microseconds and flushes are made in another thread, and a worker
   * in browsers. There `"same"` with OPFS works in dedicated workers only. A storage of your own is always used in the same thread.
   */
  thread?: 'auto' | 'worker' | 'same' | undefined;
  /** For all writes that do not say otherwise. Default "strict". */
  durability?: Durability | undefined;
  /** Memory for cached parts of the file in bytes. Default 32 MiB. */
  cacheBytes?: number | undefined;
  /** Of what is stored; fixed at creation, later ignored. Default "lz4". */
  compression?: 'lz4' | 'none' | undefined;
  /** Allocation unit in bytes, a power of two from 512 to 65 536; fixed at creation, later ignored. Default 4096. */
  unitBytes?: number | undefined;
  /** Size of a tree node in bytes, 256 to 65 536; fixed at creation, later ignored. Default 16 384. */
  nodeBytes?: number | undefined;
  /**
   * Keep the newest commits in the file, for `changes({ since })`. `true` keeps 10 000, as does an object without `retainCommits`. Each
   * commit is stored once more then. Default false, which leaves a feed that the database already keeps as it is. Following commits while
   * the database is open takes no feed.
   */
  feed?: boolean | { readonly retainCommits?: number | undefined } | undefined;
  /** Ends the wait, for a lock too; `open` rejects with the signal's reason, and nothing stays open. */
  signal?: AbortSignal | undefined;
  /**
   * The engine's module, where the file beside the script is not it: from another place, fetched or compiled already,
   * or where a bundler has lost it. It has to be the `mangrove_bg.wasm` of this version. Each source is compiled once.
   */
  wasm?: WasmSource | undefined;
  /**
   * The worker's script, where the file beside the script is not it, or a function that starts it: under Trusted
   * Types, or where a bundler has its own way. The function is called once for each `open`, and its worker belongs to
   * the database, which ends it. Without effect with a custom storage and outside browsers, where there is no worker.
   */
  worker?: WorkerSource | undefined;
}

/** Which databases `destroy` and `list` are about. */
export interface PlaceOptions {
  /** Those that were opened with `storage: "indexeddb"`; otherwise those of the default storage. */
  storage?: 'indexeddb' | undefined;
}

/** Figures of an open database. Sizes are bytes; counters begin at 0 when it is opened. */
export interface Stats {
  /** Number of the newest commit. */
  readonly version: number;
  /** Number of the newest commit that survives a power cut. */
  readonly durableVersion: number;
  /** Collections, the default one included. */
  readonly collections: number;
  /** Entries of all collections. */
  readonly entries: number;
  /** Size of the file. */
  readonly fileSize: number;
  /** Part of the file that can be used at once. */
  readonly freeSize: number;
  /** Part of the file that is kept for snapshots and iterators, or until the next checkpoint. */
  readonly keptSize: number;
  /** Allocation unit. */
  readonly unitSize: number;
  /** Levels of the deepest collection. */
  readonly depth: number;
  /** Longest key. */
  readonly maxKeySize: number;
  /** Nodes found in memory. */
  readonly cacheHits: number;
  /** Nodes that had to be read. */
  readonly cacheMisses: number;
  /** Unchanged nodes in memory. */
  readonly cacheSize: number;
  /** Changed nodes in memory that are not written yet. */
  readonly dirtySize: number;
  /** Snapshots and iterators that are open. */
  readonly openSnapshots: number;
  /** Number of the commit that the oldest of them sees. */
  readonly oldestSnapshot?: number;
  /** Times that commits were made durable. */
  readonly checkpoints: number;
  /** Size of the log's file. */
  readonly logSize: number;
  /** Handed to the log. */
  readonly logBytesWritten: number;
  /** Records handed to the log, each of one commit or more. */
  readonly logRecords: number;
  /** Flushes of the log, each for one commit or more. */
  readonly logFlushes: number;
  /** Memory of the engine's WebAssembly instance, which never shrinks. */
  readonly memorySize: number;
  /** The newest checkpoint was damaged at opening; the one before it and the log gave the same state. The next checkpoint heals it. */
  readonly recoveredFromOlder: boolean;
  /** Read from the data file. */
  readonly bytesRead: number;
  /** Written to the data file. */
  readonly bytesWritten: number;
}

/** Options of upkeep that may take long. */
export interface MaintenanceOptions extends SignalOptions {
  /** How far it is; `total` may change. What it throws ends the work. */
  onProgress?: ((done: number, total: number) => void) | undefined;
}

/** What `verify` found. */
export interface VerifyReport {
  /** Whether nothing is damaged. */
  readonly ok: boolean;
  /** Blocks that were read and checked. */
  readonly pagesChecked: number;
  /** Entries in them. */
  readonly entries: number;
  /** Damage, in the order it was found. */
  readonly problems: readonly VerifyProblem[];
}

/** One damage that `verify` found. */
export interface VerifyProblem {
  /** As of a `KvError`. */
  readonly code: KvErrorCode;
  /** Names the damage. */
  readonly message: string;
  /** Allocation unit where the damaged block begins. */
  readonly page?: number;
  /** Name of the collection it is in, if that is known. */
  readonly collection?: string;
}

/** Options of `layout`. */
export interface LayoutOptions extends MaintenanceOptions {
  /** Most extents in the layout. Default 4096. */
  maxExtents?: number | undefined;
}

/**
 * What an extent of the file holds: `superblock` where the file begins, the `catalog` of collections, the `free-map`; `inner` nodes and leaves (`leaf`)
 * of a collection, and each `value` that has blocks of its own; collections of the engine's own (`internal`), for the feed and for what expires;
 * what is `kept` for snapshots or until the next checkpoints, or is `free`; and what commits use that are not visible yet (`pending`).
 */
export type ExtentKind =
  'superblock' | 'catalog' | 'free-map' | 'inner' | 'leaf' | 'value' | 'internal' | 'kept' | 'free' | 'pending';

/** A part of the file. */
export interface LayoutExtent {
  /** Where it begins, in bytes. */
  readonly offset: number;
  /** Its length in bytes. */
  readonly length: number;
  /** What it holds. */
  readonly kind: ExtentKind;
  /** Name of the collection whose nodes or values it holds. */
  readonly collection?: string;
}

/** The nodes of one level of a collection's tree. Sizes are bytes. */
export interface LevelLayout {
  /** Nodes. */
  readonly nodes: number;
  /** Those of them that were changed in memory and are not written yet. */
  readonly dirtyNodes: number;
  /** In use in all of them, before compression: at most `nodes` times `Layout.nodeSize`. */
  readonly usedSize: number;
  /** What they take of the file. */
  readonly fileSize: number;
}

/** How one collection lies in the file. */
export interface CollectionLayout {
  /** `""` for the database's own. */
  readonly name: string;
  /** Entries, with those that have expired and were not purged yet. */
  readonly entries: number;
  /** Id of the key codec it is stored with. */
  readonly keyCodec: string;
  /** Id of the value codec it is stored with. */
  readonly valueCodec: string;
  /** From the leaves up to the root; none if it is empty. */
  readonly levels: readonly LevelLayout[];
  /** Blocks of values that have blocks of their own. */
  readonly valueBlocks: number;
  /** What those take of the file, in bytes. */
  readonly valueSize: number;
}

/** How a database lies in its file. Sizes are bytes. */
export interface Layout {
  /** Number of the newest commit it shows. */
  readonly version: number;
  /** Size of the file. */
  readonly fileSize: number;
  /** Allocation unit. */
  readonly unitSize: number;
  /** Most that can be in use in a node. */
  readonly nodeSize: number;
  /** False if there were more extents than `maxExtents`: each then stands for what takes most of its place. */
  readonly isExact: boolean;
  /** The whole file by offset, neighbours of one kind together. */
  readonly extents: readonly LayoutExtent[];
  /** In the order of their names. */
  readonly collections: readonly CollectionLayout[];
}

/** What a database reports by events. */
export interface DatabaseEventMap {
  /** It is closed: `reason` is the error that ended it, or undefined after `close()`. */
  close: Event & { readonly reason: unknown };
  /**
   * Somebody waits. Where one opener has the database, an `open` in the same thread begins to wait for it, for as long as its `lockTimeout`: close
   * this one to let it in. Where tabs share it, no tab has answered this one's calls for a second, or a tab with another version of the package waits
   * for this one: ask the user to reload.
   */
  blocked: Event;
  /** The engine stopped, or work in the background failed: `error` is a KvError. */
  error: Event & { readonly error: KvError };
}

type ListenerArguments = Parameters<EventTarget['addEventListener']>;

/** An open database; it is itself the default collection. */
export interface Database<K = Key, V = unknown, I = V> extends Collection<K, V, I>, EventTarget {
  /** The name it was opened under; with `"fs"` the absolute path of its directory. */
  readonly path: string;
  /** Whether it takes calls. */
  readonly status: 'open' | 'closing' | 'closed';
  /** Where it is kept. */
  readonly persistence: 'opfs' | 'indexeddb' | 'fs' | 'memory' | 'custom';
  /** A collection by name, created by its first write. */
  collection<K2 = Key, V2 = unknown, I2 = V2>(name: string, options?: CollectionOptions<K2, V2, I2>): Collection<K2, V2, I2>;
  /** Names of the collections that were written to, in order, without the default one. */
  collections(): Promise<string[]>;
  /** Removes a collection with its entries and codecs; tells whether there was one. */
  dropCollection(name: string): Promise<boolean>;
  /** Collects changes. */
  batch(): Batch<K, I>;
  /** Applies all or none. */
  batch(ops: Iterable<BatchOp<K, I>>, options?: WriteOptions): Promise<CommitInfo>;
  /**
   * Runs `fn` in a transaction and commits it. After a conflict everything is undone and `fn` runs again, so it should have no other effects.
   * Whatever it throws rolls back and rejects.
   */
  transaction<T>(fn: (tx: Transaction<K, V, I>) => T | Promise<T>, options?: TransactionOptions): Promise<T>;
  /** Begins a transaction at the state of this moment. */
  begin(options?: TransactionOptions): Transaction<K, V, I>;
  /** As `transaction`; that it conflicted too often, was rolled back or took too long is a result, not an exception. */
  tryTransaction<T>(fn: (tx: Transaction<K, V, I>) => T | Promise<T>, options?: TransactionOptions): Promise<Result<T>>;
  /**
   * Shows what another process has committed since a database was opened with `readOnly`; tells whether there was something. Costs what
   * opening costs. Snapshots and iterators stay what they were.
   */
  refresh(): Promise<boolean>;
  /** The synchronous API. Throws KV_SYNC_UNAVAILABLE unless the engine runs in this thread, as it does in Node, Deno and Bun. */
  readonly sync: SyncDatabase<K, V, I>;
  /**
   * Removes expired entries from the file; tells how many there were. They are invisible anyway, and about once a minute some are removed in
   * the background. After an abort what was removed stays removed.
   */
  purgeExpired(options?: SignalOptions): Promise<number>;
  /**
   * The commits of all collections after `since`, also those from before the database was opened if a feed is kept (see
   * `OpenOptions.feed`). Commits that changed nothing are left out.
   *
   * Keys and values are decoded with the codecs under which a collection of that name was opened here if their ids are those that are
   * stored; else with the default codecs if the ids are theirs; else they are bytes and marked `raw`, as is what was dropped and has its
   * ids in a part of the feed that is no longer kept or not read.
   *
   * It fails with KV_TRUNCATED_FEED if commits after `since` are no longer kept: read a snapshot then and begin at its version.
   */
  changes(options?: ChangesOptions): CommitIterator;
  /** The state after all calls before this one. */
  snapshot(): Snapshot<K, V>;
  /** Resolves when everything written before survives a power cut. */
  flush(options?: SignalOptions): Promise<void>;
  /** Figures of this moment. */
  stats(): Promise<Stats>;
  /**
   * How the file is used and how full the trees are, as it is now: for tools that show it. O(inner nodes + values that have blocks of their own), in
   * slices between which other calls get their turn; leaves are not read. `onProgress` is told entries. Until it is done or aborted, the file keeps
   * what it may still read.
   *
   * @throws KvError KV_CORRUPT if a node that leads to others cannot be read: `verify` tells of all damage; KV_SNAPSHOT_LOST if the tab whose engine
   * was asked is gone.
   */
  layout(options?: LayoutOptions): Promise<Layout>;
  /**
   * Reads and checks everything as it is now: O(the file's size), in slices between which other calls get their turn. The last slice looks at how the
   * file is used. `onProgress` is told entries. Until it is done or aborted, the file keeps what it may still read.
   */
  verify(options?: MaintenanceOptions): Promise<VerifyReport>;
  /**
   * Gives free space inside the file back to the file system, in place; gives the file's size in bytes before and after. Blocks are
   * moved in slices between which other calls get their turn. `onProgress` is told how many of the bytes that can be saved are saved.
   * Less is saved while snapshots and iterators are open. After an abort what was moved stays moved.
   */
  compact(options?: MaintenanceOptions): Promise<{ readonly before: number; readonly after: number }>;
  /**
   * The state of this moment as a stream of bytes for `restore`, made as it is read, while other calls get their turn. Its end is
   * checked: a stream that was cut off is no backup. Entries keep when they expire; the feed, and the versions of the entries, are not in it.
   * `onProgress` is told entries. Until the stream is read to its end or cancelled, the file keeps what it may still read.
   */
  backup(options?: MaintenanceOptions): ReadableStream<Uint8Array<ArrayBuffer>>;
  /** Finishes what was called before and lets go of the files. Idempotent. Later calls reject with KV_CLOSED. */
  close(): Promise<void>;
  /** As `close()`. */
  [Symbol.asyncDispose](): Promise<void>;
  /** Listens to what the database reports; listeners are those of the platform. Nothing is thrown if nobody listens. */
  addEventListener<E extends keyof DatabaseEventMap>(
    type: E,
    listener: (event: DatabaseEventMap[E]) => void,
    options?: ListenerArguments[2],
  ): void;
  addEventListener(...listener: ListenerArguments): void;
  removeEventListener<E extends keyof DatabaseEventMap>(
    type: E,
    listener: (event: DatabaseEventMap[E]) => void,
    options?: Parameters<EventTarget['removeEventListener']>[2],
  ): void;
  removeEventListener(...listener: Parameters<EventTarget['removeEventListener']>): void;
}

/** What `checkSupport` gives. */
export type Support =
  | { readonly ok: true; readonly storage: 'opfs' | 'fs' }
  | { readonly ok: false; readonly reason: UnsupportedReason; readonly message: string };

/** Why databases cannot be kept here. */
export type UnsupportedReason = 'insecure-context' | 'private-mode' | 'no-opfs' | 'no-worker';
