// The database as a whole. Every method that returns a promise rejects with a KvError whose `code`
// is stable; it never throws synchronously. n is the number of entries in the collection.
import type { LeaderInfo } from './sharing.ts';
import type { Key } from '../codec/keys.ts';
import type { KvError } from '../base/errors.ts';
import type { Collection, CollectionOptions, WriteOptions } from './collection.ts';
import type { Encryption } from './sources.ts';
import type { ChangesOptions, CommitIterator } from './feed.ts';
import type { Layout, LayoutOptions } from './layout.ts';
import type { SignalOptions } from './range.ts';
import type { Stats } from './stats.ts';
import type { SyncDatabase } from './synchronous.ts';
import type { Batch, BatchOp, CommitInfo, Result, Snapshot, Transaction, TransactionOptions } from './transaction.ts';
import type { MaintenanceOptions, VerifyReport } from './maintenance.ts';

/** Events that a database dispatches. */
export interface DatabaseEventMap {
  /**
   * The database is closed: `reason` is the error that ended it, or undefined after `close()`. `leader`
   * is the process that led it last, where processes share it.
   */
  close: Event & { readonly reason: unknown; readonly leader: LeaderInfo | undefined };
  /**
   * Somebody is waiting for this database.
   *
   * - Where a single opener has the database: an `open` in the same thread starts to wait for it,
   *   for up to its `lockTimeout`. Close this database to let it in.
   * - Where tabs share the database: no tab has answered this tab's calls for a second, or a tab
   *   with another version of the package is waiting for this one. Ask the user to reload.
   * - Where processes share it: the one that leads, `leader`, has not answered for a second.
   * - A `restore` or `recover` of this database waits for all tabs to close it, for up to its
   *   `lockTimeout`. Each tab gets the event about twice a second until then.
   */
  blocked: Event & { readonly leader: LeaderInfo | undefined };
  /** Another process leads the database from now on, or this one does: see the option `share`. */
  leader: Event & { readonly leader: LeaderInfo };
  /**
   * The database is being upgraded to another schema version, `version`, by a tab that runs newer
   * code. Calls on this handle fail with KV_VERSION_CHANGED from now on: close it and ask the user
   * to reload the page. Only handles that were opened with a version get this event.
   */
  versionchange: Event & { readonly version: number };
  /** The engine stopped, or background work failed: `error` is a KvError. */
  error: Event & { readonly error: KvError };
}

type ListenerArguments = Parameters<EventTarget['addEventListener']>;

/** An open database, which is itself its default collection. */
export interface Database<K = Key, V = unknown, I = V> extends Collection<K, V, I>, EventTarget {
  /** Name under which it was opened; with `"fs"`, the absolute path of its directory. */
  readonly path: string;
  /** Whether the database accepts calls. */
  readonly status: 'open' | 'closing' | 'closed';
  /** Where the data is kept. */
  readonly persistence: 'opfs' | 'indexeddb' | 'fs' | 'memory' | 'custom';
  /** Name of the storage bucket that it is in; `undefined` in the default storage. */
  readonly bucket: string | undefined;
  /**
   * Returns a handle for the named collection, which its first write creates. `""` is the default
   * collection, here with the options given instead of those of `open`.
   */
  collection<K2 = Key, V2 = unknown, I2 = V2>(
    name: string,
    options?: CollectionOptions<K2, V2, I2>,
  ): Collection<K2, V2, I2>;
  /** Names of all collections that were written to, in order, except the default one. */
  collections(): Promise<string[]>;
  /** Deletes a collection with its entries and codecs; resolves to whether it existed. */
  dropCollection(name: string): Promise<boolean>;
  /**
   * Renames a collection with its entries, their versions and its codecs; resolves to whether it
   * existed. O(1).
   *
   * Handles refer to collections by name. Those of the old name find nothing any more, and a write
   * through one creates a new collection; those of the new name find the entries. Snapshots and
   * iterators do not change.
   *
   * @throws KvError KV_EXISTS if a collection has the new name already.
   */
  renameCollection(from: string, to: string): Promise<boolean>;
  /** Starts an empty batch. */
  batch(): Batch<K, I>;
  /** Applies all operations or none. */
  batch(ops: Iterable<BatchOp<K, I>>, options?: WriteOptions): Promise<CommitInfo>;
  /**
   * Runs `fn` in a transaction and commits it. After a conflict everything is undone and `fn` runs
   * again, so it should have no other effects. If it throws, the transaction is rolled back and the
   * promise rejects with what it threw.
   */
  transaction<T>(fn: (tx: Transaction<K, V, I>) => T | Promise<T>, options?: TransactionOptions): Promise<T>;
  /** Begins a transaction on the current state. */
  begin(options?: TransactionOptions): Transaction<K, V, I>;
  /**
   * Same as `transaction`, but too many conflicts, a rollback or a timeout is a result, not an
   * exception.
   */
  tryTransaction<T>(fn: (tx: Transaction<K, V, I>) => T | Promise<T>, options?: TransactionOptions): Promise<Result<T>>;
  /**
   * With `readOnly`: makes visible what another process has committed since the database was
   * opened; resolves to whether there was anything new. Costs as much as opening. Snapshots and
   * iterators do not change.
   */
  refresh(): Promise<boolean>;
  /**
   * The synchronous API. Throws KV_SYNC_UNAVAILABLE unless the engine runs in this thread, as it
   * does in Node, Deno and Bun.
   */
  readonly sync: SyncDatabase<K, V, I>;
  /**
   * Removes expired entries from the file; resolves to how many were removed. Reads do not see
   * expired entries in any case, and a background task removes some about once a minute. After an
   * abort, what was removed stays removed.
   */
  purgeExpired(options?: SignalOptions): Promise<number>;
  /**
   * The commits of all collections after `since`, including those from before the database was
   * opened if a feed is kept (see `OpenOptions.feed`). Commits that changed nothing are left out.
   *
   * Keys and values are decoded with the codecs with which a collection of that name was opened on
   * this database, if the stored ids match them; otherwise with the default codecs, if the stored
   * ids match those. Failing both they are bytes and marked `raw`. So are changes of a dropped
   * collection whose codec ids are in a part of the feed that is no longer kept or was not read.
   *
   * Fails with KV_TRUNCATED_FEED if commits after `since` are no longer kept: read a snapshot in
   * that case, and continue from its version.
   */
  changes(options?: ChangesOptions): CommitIterator;
  /** Takes a snapshot of the state after all calls made before this one. */
  snapshot(): Snapshot<K, V>;
  /** Resolves when everything written before survives a power cut. */
  flush(options?: SignalOptions): Promise<void>;
  /** Current statistics. */
  stats(): Promise<Stats>;
  /**
   * Reports how the file's space is used and how full the trees are at this moment, for tools that
   * display it. Takes O(inner nodes + out-of-line values), in slices between which other calls get
   * their turn; leaves are not read. `onProgress` counts entries. Until the layout is done or
   * aborted, the file keeps the space that it may still read.
   *
   * @throws KvError KV_CORRUPT if an inner node cannot be read (`verify` reports all damage);
   * KV_SNAPSHOT_LOST if the tab whose engine was asked is gone.
   */
  layout(options?: LayoutOptions): Promise<Layout>;
  /**
   * Reads and checks the entire current state. Takes O(file size), in slices between which other
   * calls get their turn; the last slice checks how the file's space is used. `onProgress` counts
   * entries. Until verification is done or aborted, the file keeps the space that it may still
   * read.
   */
  verify(options?: MaintenanceOptions): Promise<VerifyReport>;
  /**
   * Changes the key of an encrypted database: from now on it opens with the new one only. No data is
   * rewritten: they have a key of their own, which the file holds encrypted under this one. The old
   * key still opens copies and backups made before; after a leak, call `reencrypt`, too. Tabs that have the database open go on, but fail with KV_WRONG_KEY when they
   * have to open the files, except the one that made this call. Rejects with KV_INVALID_ARGUMENT if
   * the database is not encrypted, and with KV_READ_ONLY.
   */
  changeKey(encryption: Encryption): Promise<void>;
  /**
   * Encrypts everything anew under another data key: what older copies and backups hold then opens
   * nothing of the current files. The key that the database opens with stays; see `changeKey`.
   * Blocks are moved in slices between which other calls get their turn, and the file grows by a few
   * slices, and by what open snapshots keep. `onProgress` receives the bytes moved so far and the
   * bytes in use. After an abort, a crash or a change of the leading tab the next call continues.
   * While values are being written with `setStream` that were begun before the call, it waits for
   * them. Takes O(file size). Rejects with KV_INVALID_ARGUMENT if the database is not encrypted, with
   * KV_READ_ONLY, and with KV_CORRUPT if a block is damaged: everything stays readable then.
   */
  reencrypt(options?: MaintenanceOptions): Promise<void>;
  /**
   * Returns free space inside the file to the file system, in place; resolves to the file's size in
   * bytes before and after. Blocks are moved in slices between which other calls get their turn.
   * `onProgress` receives the bytes saved so far and the bytes that can be saved. Open snapshots
   * and iterators reduce the savings. After an abort, blocks that were moved stay moved.
   */
  compact(options?: MaintenanceOptions): Promise<{ readonly before: number; readonly after: number }>;
  /**
   * A backup of the current state for `restore`, as a stream of bytes that is produced as it is
   * read, while other calls get their turn. The end of the stream is checked: a stream that was cut
   * off is not a backup. Entries keep their expiry; the feed and the entries' versions are not
   * included. `onProgress` counts entries. Until the stream is read to its end or cancelled, the
   * file keeps the space that it may still read.
   */
  backup(options?: MaintenanceOptions): ReadableStream<Uint8Array<ArrayBuffer>>;
  /**
   * Completes the calls made before, then releases the files. Idempotent. Later calls reject with
   * KV_CLOSED.
   */
  close(): Promise<void>;
  /** Same as `close()`. */
  [Symbol.asyncDispose](): Promise<void>;
  /**
   * Listens for events of the database; listeners work as everywhere on the platform. Without a
   * listener, nothing is thrown.
   */
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
