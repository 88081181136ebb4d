// What an application gives to replication, and is told by it.
import type { KvError } from 'mangrove-kv';
import type { Position, RemoteLog, SnapshotStore } from './remote-log.ts';
import type { ReplicationMode } from './modes.ts';
import type { ReplicatedCollectionOptions } from './tables.ts';
import type { Seal } from './wire.ts';

/** Options of `replicate`. */
export interface ReplicationOptions {
  /**
   * The log of this database. Replication closes it at the end. Without one this thread never replicates,
   * but leaves it to another tab, or to a worker; only where threads share the database.
   */
  readonly log?: RemoteLog | undefined;
  /** Where snapshots and large values are. Without it there are none: see docs/REPLICATION.md. */
  readonly snapshots?: SnapshotStore | undefined;
  /**
   * What is replicated: names of collections, with the options with which they are opened; `""` is
   * the default collection, with those of `open`. All devices have to use the same ones. Other
   * collections stay local.
   */
  readonly collections: { readonly [name: string]: ReplicatedCollectionOptions };
  /** Mode of collections without a mode of their own. Default: "merge". */
  readonly mode?: ReplicationMode | undefined;
  /** Seals everything that leaves the device. Default: nothing is sealed. */
  readonly seal?: Seal | undefined;
  /**
   * For servers: this database becomes the only writer of the log. One that was it before is fenced
   * off: its next record is refused, and its replication stops with KV_REPLICATION_FENCED. Default: false.
   */
  readonly exclusive?: boolean | undefined;
  /**
   * Called for each conflict, at least once and one at a time; may write a merged value to the
   * database. If it throws, it is called for the others, and again later. What it still does when replication
   * closes is not waited for, and comes again after the next start. Default: the winner stays.
   */
  readonly resolve?: ((conflict: ReplicationConflict) => void | Promise<void>) | undefined;
}

/** A write of this device lost against a write of another device that did not know it. */
export interface ReplicationConflict {
  readonly collection: string;
  readonly key: unknown;
  /** What this device wrote; undefined: it deleted the entry. */
  readonly mine: unknown;
  /** What the entry is now; undefined: it is deleted. */
  readonly theirs: unknown;
}

/**
 * - "waiting": another tab replicates this database, and has not told its state for a while.
 * - "connecting": nothing was heard of the log yet.
 * - "catching-up": the log has more.
 * - "live": the log had nothing more when it was read last.
 * - "offline": the log cannot be reached; `lastError` says why. Replication keeps trying.
 * - "stopped": replication ended, by `close` or with `lastError`.
 */
export type ReplicationStatus = 'waiting' | 'connecting' | 'catching-up' | 'live' | 'offline' | 'stopped';

/**
 * How far replication is; in all tabs of a database what the replicating one knows. Never changes; a new
 * state is a new object.
 */
export interface ReplicationProgress {
  readonly status: ReplicationStatus;
  /** Number of records that the log has not confirmed. */
  readonly pending: number;
  /** The log's position up to which the database has everything. */
  readonly position: Position;
  /** The newest failure since replication was live. */
  readonly lastError: KvError | undefined;
}

/** Events that replication dispatches, in all tabs of a database. */
export interface ReplicationEventMap {
  /** `Replication.state` changed. */
  state: Event & { readonly state: ReplicationProgress };
  conflict: Event & { readonly conflict: ReplicationConflict };
  /** The log had lost history; this device put back what it has of it, in so many records. */
  repair: Event & { readonly records: number };
  /**
   * Entries of a collection were not what the log says, from one key to another: a check that another
   * device wrote did not agree with them. The log was read once more, and they are now. Keys are
   * undefined if this program does not know the collection.
   */
  diverged: Event & {
    readonly collection: string;
    readonly entries: number;
    readonly from: unknown;
    readonly to: unknown;
  };
  /** Something is wrong: replication goes on unless the state is "stopped". */
  error: Event & { readonly error: KvError };
}
