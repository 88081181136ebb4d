// What an archive gives to those that restore from it, and takes from those that fill it.
import type { LoggedRecord, Position, RemoteLog, SnapshotStore } from '../remote-log.ts';

/** A snapshot that the archive knows. */
export interface ArchivedSnapshot {
  /** The position of the last record that is in it. */
  readonly position: Position;
  /** The time of that record, in milliseconds since 1970. */
  readonly serverTime: number;
  /** Its key in the store of snapshots. */
  readonly key: string;
}

/** What makes a database of a point in time: the snapshot first, then the records in order. */
export interface RestorePlan {
  /** Undefined if records from the first one on are all that is needed. */
  readonly snapshot: ArchivedSnapshot | undefined;
  /** Where the archive keeps copies of snapshots. */
  readonly snapshots?: SnapshotStore | undefined;
  /** Records after the snapshot, read as they are asked for. */
  readonly records: AsyncIterable<LoggedRecord>;
  /**
   * After all records were read: whether the archive has later ones. If not, the log may have
   * records of the time asked for that were not archived.
   */
  readonly hasMore?: (() => boolean) | undefined;
}

/** An archive that keeps records and copies of snapshots, as `S3Archive` does. */
export interface LogArchive {
  /** Copies of snapshots, under the keys that they have in the database's own store. */
  readonly snapshots: SnapshotStore;
  /** The position of the last archived record; 0 if there is none. */
  position(): Promise<Position>;
  /**
   * Archives what a log has after the last archived record, or after a later position, and resolves
   * to the position of the last one. Rejects with `KV_LOG_TRUNCATED` if records in between were purged.
   */
  archive(log: RemoteLog, options?: { readonly after?: Position; readonly signal?: AbortSignal }): Promise<Position>;
  /** The snapshot of a position that was noted, if there is one. */
  snapshotAt(position: Position): Promise<ArchivedSnapshot | undefined>;
  /** Notes a snapshot, after it was copied. */
  addSnapshot(snapshot: ArchivedSnapshot): Promise<void>;
}
