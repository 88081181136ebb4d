// Figures of a database.

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
  /**
   * Longest key of an entry that does not expire, as the collection's codec writes it: the default codec writes one byte before the UTF-8 of a string
   * and before bytes, others of `keyCodecs` may write none.
   */
  readonly maxKeySize: number;
  /** Longest key of an entry that expires: 8 less than `maxKeySize`. */
  readonly maxExpiringKeySize: number;
  /** Nodes found in memory. */
  readonly cacheHits: number;
  /** Nodes that had to be read. */
  readonly cacheMisses: number;
  /** Memory of the nodes that are cached. */
  readonly cacheSize: number;
  /** Memory of changes that are not merged into the trees yet. */
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
