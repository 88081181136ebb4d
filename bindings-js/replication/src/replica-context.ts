// What the steps of a replica share.
import type { KvError, Transaction } from 'mangrove-kv';
import type { RawConflict } from './apply.ts';
import type { LocalCommits } from './local-commits.ts';
import type { BlobMaker } from './outbox.ts';
import type { Position, RemoteLog, SnapshotStore } from './remote-log.ts';
import type { ReplicaState } from './state.ts';
import type { Bytes } from './tables.ts';
import type { Wire } from './wire.ts';

/** Keys of a collection whose entries were not what the log says, from the first to the last. */
export interface RawDivergence {
  readonly collection: string;
  readonly entries: number;
  readonly from: Bytes;
  readonly to: Bytes;
}

/** What a replica tells. All of it has been committed. */
export interface ReplicaEvents {
  conflicts(conflicts: readonly RawConflict[]): void;
  /** Something is wrong, and replication goes on. */
  alarm(error: KvError): void;
  /** The log had lost history; `records` put back what this device has of it. */
  repaired(records: number): void;
  /** This device had not what the log says; it has now. */
  diverged(divergences: readonly RawDivergence[]): void;
  /** There are local commits. */
  changed(): void;
}

/** What is known of the log. */
export class Link {
  /** The newest ticket that the log has acknowledged. */
  sent = 0;
  /** Positions of acknowledged tickets, in the order of the tickets. */
  readonly acknowledged = new Map<number, Position>();
  /** Strict records of this device that the log has at another place than they were meant for: they have no effect. */
  readonly voided = new Set<number>();
  /** Counts connections: what was learnt over an earlier one may be over. */
  connections = 0;
  /** Counts when records may have got other numbers. */
  renumbered = 0;
  /** The newest position known to be the log's end, for an exclusive writer. */
  end = 0;
  isChecked = false;
  /** Whether the log had nothing more when it was read last. */
  isCaughtUp = false;
  /** Whether this device became the only writer, and whether another one did since. */
  isOwner = false;
  /** Time of the fence of this device, to the counter: no other fence has it. */
  fence: bigint | undefined;
  isFenced = false;

  /** The connection to the log was interrupted: its history has to be checked again. */
  reconnect(): void {
    this.connections++;
    this.isChecked = false;
    this.isCaughtUp = false;
    // What was acknowledged and not read yet may be lost.
    this.sendAgain();
  }

  /** Everything in the outbox is sent again. */
  sendAgain(): void {
    this.renumbered++;
    this.sent = 0;
    this.acknowledged.clear();
  }

  /** The position of the outbox's oldest ticket, if it was acknowledged. Forgets those of confirmed tickets. */
  positionOf(oldest: number): Position | undefined {
    for (const ticket of this.acknowledged.keys()) {
      if (ticket >= oldest) break;
      this.acknowledged.delete(ticket);
    }
    return this.acknowledged.get(oldest);
  }
}

/** A commit's work: returns the state, which is written if it differs. */
export type Work<T> = (
  tx: Transaction,
  state: ReplicaState,
) => Promise<{ readonly state: ReplicaState; readonly result: T }>;

/**
 * Commits what changes the base. What the application has committed before is put into the outbox in
 * the same commit: otherwise nothing would tell its entries from the base's.
 */
export type Advance = <T>(durability: 'strict' | 'relaxed', work: Work<T>) => Promise<T>;

export interface ReplicaContext {
  readonly local: LocalCommits;
  readonly log: RemoteLog;
  readonly link: Link;
  readonly wire: Wire;
  readonly snapshots: SnapshotStore | undefined;
  readonly blobs: BlobMaker | undefined;
  readonly events: ReplicaEvents;
  /** Milliseconds since 1970. */
  readonly clock: () => number;
  readonly advance: Advance;
  /** Reads all that the log has now, one call after the other. */
  readonly catchUp: (signal?: AbortSignal) => Promise<void>;
}
