// What an application gives to sync, and is told by it.
import type { KvError } from '../base/errors.ts';
import type { Position, RemoteLog, SnapshotStore } from './remote-log.ts';
import type { SyncMode } from './modes.ts';
import type { SyncCollectionOptions } from './tables.ts';
import type { Seal } from './wire.ts';

/** Options of `syncDatabase`. */
export interface SyncOptions {
  /**
   * The log of this database. Sync closes it at the end. Without one this thread never synchronizes,
   * but leaves it to another tab, or to a worker; only where threads share the database.
   */
  readonly log?: RemoteLog | undefined;
  /** Where snapshots and large values are. Without it there are none: see docs/SYNC.md. */
  readonly snapshots?: SnapshotStore | undefined;
  /**
   * What is synchronized: names of collections, with the options with which they are opened; `""` is
   * the default collection, with those of `open`. All devices have to use the same ones. Other
   * collections stay local.
   */
  readonly collections: { readonly [name: string]: SyncCollectionOptions };
  /** Mode of collections without a mode of their own. Default: "merge". */
  readonly mode?: SyncMode | undefined;
  /** Seals everything that leaves the device. Default: nothing is sealed. */
  readonly seal?: Seal | undefined;
  /**
   * For servers: this database becomes the only writer of the log. One that was it before is fenced
   * off: its next record is refused, and its sync stops with KV_SYNC_FENCED. Default: false.
   */
  readonly exclusive?: boolean | undefined;
  /**
   * Called for each conflict, at least once and one at a time; may write a merged value to the
   * database. If it throws, it is called for the others, and again later. What it still does when sync
   * closes is not waited for, and comes again after the next start. Default: the winner stays.
   */
  readonly resolve?: ((conflict: SyncConflict) => void | Promise<void>) | undefined;
}

/** A write of this device lost against a write of another device that did not know it. */
export interface SyncConflict {
  readonly collection: string;
  readonly key: unknown;
  /** What this device wrote; undefined: it deleted the entry. */
  readonly mine: unknown;
  /** What the entry is now; undefined: it is deleted. */
  readonly theirs: unknown;
}

/**
 * - "waiting": another tab synchronizes this database, and has not told its state for a while.
 * - "connecting": nothing was heard of the log yet.
 * - "catching-up": the log has more.
 * - "live": the log had nothing more when it was read last.
 * - "offline": the log cannot be reached; `lastError` says why. Sync keeps trying.
 * - "stopped": sync ended, by `close` or with `lastError`.
 */
export type SyncStatus = 'waiting' | 'connecting' | 'catching-up' | 'live' | 'offline' | 'stopped';

/**
 * How far sync is; in all tabs of a database what the synchronizing one knows. Never changes; a new
 * state is a new object.
 */
export interface SyncProgress {
  readonly status: SyncStatus;
  /** Number of records that the log has not confirmed. */
  readonly pending: number;
  /** The log's position up to which the database has everything. */
  readonly position: Position;
  /** The newest failure since sync was live. */
  readonly lastError: KvError | undefined;
}

/** Events that sync dispatches, in all tabs of a database. */
export interface SyncEventMap {
  /** `Sync.state` changed. */
  state: Event & { readonly state: SyncProgress };
  conflict: Event & { readonly conflict: SyncConflict };
  /** The log had lost history; this device put back what it has of it, in so many records. */
  repair: Event & { readonly records: number };
  /**
   * Entries of a collection were not what the log says, from one key to another: a check that another
   * device wrote did not agree with them. The log was read once more, and they are now. Keys are
   * undefined if this program does not know the collection.
   */
  diverged: Event & { readonly collection: string; readonly entries: number; readonly from: unknown; readonly to: unknown };
  /** Something is wrong: sync goes on unless the state is "stopped". */
  error: Event & { readonly error: KvError };
}
