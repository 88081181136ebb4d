// What the steps of a replica share.
import type { KvError } from '../base/errors.ts';
import type { RawConflict } from './apply.ts';
import type { BlobMaker } from './drain.ts';
import type { LocalCommits } from './local-commits.ts';
import type { Position, RemoteLog, SnapshotStore } from './remote-log.ts';
import type { Unread } from './unread.ts';
import type { Wire } from './wire.ts';

/** What a replica tells. All of it has been committed. */
export interface ReplicaEvents {
  conflicts(conflicts: readonly RawConflict[]): void;
  /** Something is wrong, and sync goes on. */
  alarm(error: KvError): void;
  /** The log had lost history; `records` put back what this device has of it. */
  repaired(records: number): void;
  /** There are local commits. */
  changed(): void;
}

/** What is known of the log. */
export class Link {
  /** The newest ticket that the log has acknowledged. */
  sent = 0;
  /** Positions of acknowledged tickets, in the order of the tickets. */
  readonly acknowledged = new Map<number, Position>();
  /** The newest position known to be the log's end, for an exclusive writer. */
  end = 0;
  isChecked = false;
  /** Whether the log had nothing more when it was read last. */
  isCaughtUp = false;
  /** Whether this device became the only writer, and whether another one did since. */
  isOwner = false;
  isFenced = false;

  /** The connection to the log was interrupted: its history has to be checked again. */
  reconnect(): void {
    this.isChecked = false;
    this.isCaughtUp = false;
    // What was acknowledged and not read yet may be lost.
    this.sendAgain();
  }

  /** Everything in the outbox is sent again. */
  sendAgain(): void {
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

export interface Parts {
  readonly local: LocalCommits;
  readonly log: RemoteLog;
  readonly link: Link;
  readonly wire: Wire;
  readonly snapshots: SnapshotStore | undefined;
  readonly blobs: BlobMaker | undefined;
  readonly events: ReplicaEvents;
  /** Milliseconds since 1970. */
  readonly clock: () => number;
  /** What the application has written up to a version, and is not in the outbox. Never waits for the log. */
  readonly unread: (version: number) => Promise<Unread>;
  /** Reads the log on, one call after the other; resolves to whether there may be more. */
  readonly pull: (signal?: AbortSignal) => Promise<boolean>;
}
