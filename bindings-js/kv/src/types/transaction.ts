// Multi-entry operations: batches, transactions, snapshots.
import type { Key } from '../codec/keys.ts';
import type { KvError } from '../base/errors.ts';
import type {
  Collection,
  CollectionOptions,
  CollectionReference,
  Expiry,
  Reader,
  WriteOptions,
  Writer,
} from './collection.ts';
import type { SyncView } from './synchronous.ts';

/**
 * One operation of `batch(ops)`, on the database's default collection or on the collection that it
 * names.
 */
export type BatchOp<K = Key, I = unknown> =
  | ({ readonly type: 'set'; readonly key: K; readonly value: I; readonly collection?: undefined } & Expiry)
  | { readonly type: 'delete'; readonly key: K; readonly collection?: undefined }
  | {
      readonly type: 'check';
      readonly key: K;
      readonly version: number | null | undefined;
      readonly collection?: undefined;
    }
  | ({
      readonly type: 'set';
      readonly key: unknown;
      readonly value: unknown;
      readonly collection: CollectionReference;
    } & Expiry)
  | { readonly type: 'delete'; readonly key: unknown; readonly collection: CollectionReference }
  | {
      readonly type: 'check';
      readonly key: unknown;
      readonly version: number | null | undefined;
      readonly collection: CollectionReference;
    };

/** Result of a commit. */
export interface CommitInfo {
  /** Number of the commit, greater than that of every earlier commit. */
  readonly version: number;
}

/**
 * Changes to any number of collections, applied as one atomic commit. Keys and values are encoded
 * when they are added.
 */
export interface Batch<K, I> {
  /**
   * Adds a set. Throws a KvError for a key or value that cannot be stored, and leaves the batch
   * unchanged. If a schema validates asynchronously, the commit waits for it and rejects instead.
   */
  set(key: K, value: I, options?: Expiry): this;
  /**
   * Adds a delete. Throws a KvError for a key that cannot be stored, and leaves the batch
   * unchanged.
   */
  delete(key: K): this;
  /**
   * Applies the batch only if the entry has this version, or, with `null` or `undefined`, if there
   * is no entry; otherwise the commit fails with KV_CONFLICT. So
   * `check(key, (await db.getEntry(key))?.version)` means "unless it was changed since".
   */
  check(key: K, version: number | null | undefined): this;
  /**
   * The same batch, writing to another collection: by handle, or by name, with the options with which it is opened.
   */
  collection<K2 = Key, V2 = unknown, I2 = V2>(
    collection: Collection<K2, V2, I2> | string,
    options?: CollectionOptions<K2, V2, I2>,
  ): Batch<K2, I2>;
  /** Number of operations. */
  readonly length: number;
  /** Bytes of the operations, to keep a batch to a size; without values that are validated or read asynchronously. */
  readonly byteLength: number;
  /** Applies all operations or none; the batch is closed afterwards. */
  commit(options?: WriteOptions): Promise<CommitInfo>;
  /** Same as `commit`, but a failed check is a result, not an exception. */
  tryCommit(options?: WriteOptions): Promise<Result<void>>;
  /** Discards what was not committed. */
  [Symbol.dispose](): void;
}

/** Outcome of something that may lose a race: an expected outcome is a value, a fault rejects. */
export type Result<T> =
  | { readonly ok: true; readonly value: T; readonly version: number }
  | { readonly ok: false; readonly reason: 'conflict' | 'rollback' | 'timeout'; readonly error: KvError };

/** Options of a transaction. */
export interface TransactionOptions extends WriteOptions {
  /** With "readonly", writes are refused and conflicts are impossible. Default: "readwrite". */
  mode?: 'readwrite' | 'readonly' | undefined;
  /**
   * What makes a commit conflict. Default: "serializable".
   *
   * - "serializable": a later commit changed anything that this transaction read, including absent
   *   keys and ranges.
   * - "snapshot": a later commit wrote a key that this transaction writes.
   */
  isolation?: 'serializable' | 'snapshot' | undefined;
  /**
   * How many times a callback is retried after conflicts, or because what it read is lost with the
   * tab that kept it. From the third retry on it takes turns with the others of this page or process
   * that have lost as often, and what begins meanwhile waits for them. Default: 10.
   */
  maxRetries?: number | undefined;
  /**
   * Milliseconds until the transaction is rolled back, or `Infinity`. `transaction` rejects with
   * KV_TIMEOUT at that moment, even if its callback is still waiting for something. The limit
   * exists because a forgotten transaction keeps space in the file. Default: 60 000.
   */
  timeout?: number | undefined;
  /**
   * Rolls the transaction back, also between two runs of a callback. `transaction` rejects with the
   * signal's reason immediately, and so do the callback's further calls on the transaction. A
   * commit in flight is not undone.
   */
  signal?: AbortSignal | undefined;
}

/** A state of a transaction that can be restored. */
export interface Savepoint {
  /** Undoes everything written since the savepoint, which can be used again. */
  rollback(): Promise<void>;
}

/**
 * Reads one state of the database plus its own writes, which nobody else sees before the commit. It
 * locks nothing, so it may await anything between its calls. Iterators see what was written before
 * they were created.
 */
export interface Transaction<K = Key, V = unknown, I = V> extends Reader<K, V>, Writer<K, V, I> {
  /** Whether the transaction may write. */
  readonly mode: 'readwrite' | 'readonly';
  /** Whether the transaction accepts calls. */
  readonly status: 'active' | 'committed' | 'rolled-back';
  /**
   * Number of the commit that the transaction reads. The request is sent when the promise is
   * awaited.
   */
  readonly baseVersion: Promise<number>;
  /** Another collection in the same transaction: by handle, or by name, with the options with which it is opened. */
  collection<K2 = Key, V2 = unknown, I2 = V2>(
    collection: Collection<K2, V2, I2> | string,
    options?: CollectionOptions<K2, V2, I2>,
  ): Reader<K2, V2> & Writer<K2, V2, I2>;
  /** Deletes a collection with its entries and codecs; resolves to whether it existed. */
  dropCollection(name: string): Promise<boolean>;
  /** Renames a collection, like `Database.renameCollection`. */
  renameCollection(from: string, to: string): Promise<boolean>;
  /** Marks a state to which the transaction can return. O(1), however much was written. */
  savepoint(): Savepoint;
  /**
   * Makes the writes visible and durable as one commit, or rejects with KV_CONFLICT, which is
   * retryable. Waits for writes called before. If one of them failed and its failure was not
   * handled, by `await`, `catch` or the like, nothing is committed and the promise rejects with
   * that error.
   */
  commit(options?: WriteOptions): Promise<CommitInfo>;
  /** Same as `commit`, but a conflict is a result, not an exception. */
  tryCommit(options?: WriteOptions): Promise<Result<void>>;
  /** Undoes everything. Inside a callback it throws, which ends the callback. */
  rollback(reason?: unknown): void;
  /** Rolls back unless the transaction was committed. */
  [Symbol.dispose](): void;
}

/**
 * A snapshot: the state at the time of the call. Until it is closed or garbage-collected, the file
 * keeps the space that it can still read.
 */
export interface Snapshot<K = Key, V = unknown> extends Reader<K, V> {
  /**
   * Number of the commit that the snapshot sees. The request is sent when the promise is awaited.
   */
  readonly version: Promise<number>;
  /** Synchronous reads of the same state, where `Database.sync` is available. */
  readonly sync: SyncView<K, V>;
  /** Another collection in the same state: by handle, or by name, with the options with which it is opened. */
  collection<K2 = Key, V2 = unknown, I2 = V2>(
    collection: Collection<K2, V2, I2> | string,
    options?: CollectionOptions<K2, V2, I2>,
  ): Reader<K2, V2>;
  /** Releases the snapshot. Idempotent. Iterators already started on it continue. */
  close(): Promise<void>;
  /** Releases the snapshot. */
  [Symbol.dispose](): void;
}
