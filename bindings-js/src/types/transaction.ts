// What belongs together: batches, transactions, snapshots.
import type { Key } from '../codec/keys.ts';
import type { KvError } from '../errors.ts';
import type { Collection, CollectionReference, Expiry, Reader, WriteOptions, Writer } from './collection.ts';
import type { SyncView } from './sync.ts';

/** One change of `batch(ops)`: of the database itself, or of the collection it names. */
export type BatchOp<K = Key, I = unknown> =
  | ({ readonly type: 'set'; readonly key: K; readonly value: I; readonly collection?: undefined } & Expiry)
  | { readonly type: 'delete'; readonly key: K; readonly collection?: undefined }
  | { readonly type: 'check'; readonly key: K; readonly version: number | null | undefined; readonly collection?: undefined }
  | ({ readonly type: 'set'; readonly key: unknown; readonly value: unknown; readonly collection: CollectionReference } & Expiry)
  | { readonly type: 'delete'; readonly key: unknown; readonly collection: CollectionReference }
  | { readonly type: 'check'; readonly key: unknown; readonly version: number | null | undefined; readonly collection: CollectionReference };

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
  /**
   * The batch is applied only if the entry is of this version, or, with `null` or `undefined`, if there is none; otherwise KV_CONFLICT. So
   * `check(key, (await db.getEntry(key))?.version)` says "unless it was changed since".
   */
  check(key: K, version: number | null | undefined): this;
  /** The same batch, writing another collection: of a handle, or by name with the default codecs. */
  collection<K2 = Key, V2 = unknown, I2 = V2>(collection: Collection<K2, V2, I2> | string): Batch<K2, I2>;
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
  /** Another collection in the same transaction: of a handle, or by name with the default codecs. */
  collection<K2 = Key, V2 = unknown, I2 = V2>(collection: Collection<K2, V2, I2> | string): Reader<K2, V2> & Writer<K2, V2, I2>;
  /** Removes a collection with its entries and codecs; tells whether there was one. */
  dropCollection(name: string): Promise<boolean>;
  /** Gives a collection another name, as `Database.renameCollection`. */
  renameCollection(from: string, to: string): Promise<boolean>;
  /** A state to go back to. O(1), whatever was written. */
  savepoint(): Savepoint;
  /**
   * Makes the writes visible and durable as one commit, or rejects with KV_CONFLICT, retryable. It waits for writes that were called before. If one
   * of them failed and nobody has taken notice of that, by `await`, `catch` or the like, nothing is committed and it rejects with that error.
   */
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
  readonly sync: SyncView<K, V>;
  /** Another collection in the same state: of a handle, or by name with the default codecs. */
  collection<K2 = Key, V2 = unknown, I2 = V2>(collection: Collection<K2, V2, I2> | string): Reader<K2, V2>;
  /** Idempotent. Iterators that were begun on it go on. */
  close(): Promise<void>;
  /** Closes it. */
  [Symbol.dispose](): void;
}
