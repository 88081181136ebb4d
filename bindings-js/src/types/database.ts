// The database as a whole. Every method that gives a promise rejects with a KvError whose `code` is stable, and never
// throws before that. n is the number of entries of the collection.
import type { Key } from '../codec/keys.ts';
import type { KvError } from '../errors.ts';
import type { Collection, CollectionOptions, WriteOptions } from './collection.ts';
import type { ChangesOptions, CommitIterator } from './feed.ts';
import type { Layout, LayoutOptions } from './layout.ts';
import type { SignalOptions } from './range.ts';
import type { Stats } from './stats.ts';
import type { SyncDatabase } from './sync.ts';
import type { Batch, BatchOp, CommitInfo, Result, Snapshot, Transaction, TransactionOptions } from './transaction.ts';
import type { MaintenanceOptions, VerifyReport } from './upkeep.ts';

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
  /**
   * Gives a collection another name, with its entries, their versions and its codecs; tells whether there was one. O(1). Handles go by name: those of
   * the old one find nothing any more, and a write of theirs makes a new collection; those of the new one find the entries. Snapshots and iterators
   * stay what they were.
   *
   * @throws KvError KV_EXISTS if there is a collection of the new name.
   */
  renameCollection(from: string, to: string): Promise<boolean>;
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
