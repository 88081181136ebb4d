// Statistics of a database.
import type { ClientInfo } from './sharing.ts';

/** An index as it is stored, and how far it is built. */
export interface IndexStats {
  /** Name of its collection; `""` for the default one. */
  readonly collection: string;
  /** Its name. */
  readonly name: string;
  /** Version of the function that computed its keys. */
  readonly version: number;
  /** Whether no two entries may have the same index key. */
  readonly unique: boolean;
  /** Whether it covers every entry, so that it can be read. */
  readonly complete: boolean;
  /** Number of its entries: one for each index key of each entry of the collection. */
  readonly count: number;
  /** Number of entries of the collection that a build has reached so far; `total` at its end. */
  readonly done: number;
  /** Number of entries of the collection. */
  readonly total: number;
}

/**
 * Statistics of an open database. Sizes are in bytes; counters start at 0 when the database is
 * opened.
 */
export interface Stats {
  /** Number of the newest commit. */
  readonly version: number;
  /** Number of the newest commit that survives a power cut. */
  readonly durableVersion: number;
  /** Number of collections, including the default one. */
  readonly collections: number;
  /** Number of entries in all collections. */
  readonly entries: number;
  /** Size of the data file. */
  readonly fileSize: number;
  /** Part of the data file that can be reused immediately. */
  readonly freeSize: number;
  /**
   * Part of the data file that is kept for snapshots and iterators, or until the next checkpoint.
   */
  readonly keptSize: number;
  /** Size of an allocation unit. */
  readonly unitSize: number;
  /**
   * The indexes of all collections, by name of the collection and in the order of their declaration.
   * O(log n) for each.
   */
  readonly indexes: readonly IndexStats[];
  /** Number of levels of the deepest collection. */
  readonly depth: number;
  /**
   * Maximum key size of an entry that does not expire, as encoded by the collection's codec: the
   * default codec writes one byte before the UTF-8 of a string and before bytes; other codecs of
   * `keyCodecs` may write none.
   */
  readonly maxKeySize: number;
  /** Maximum key size of an entry that expires: 8 less than `maxKeySize`. */
  readonly maxExpiringKeySize: number;
  /** Number of nodes found in memory. */
  readonly cacheHits: number;
  /** Number of nodes that had to be read. */
  readonly cacheMisses: number;
  /** Memory of the cached nodes. */
  readonly cacheSize: number;
  /** Memory of changes not yet merged into the trees. */
  readonly dirtySize: number;
  /** Number of open snapshots and iterators. */
  readonly openSnapshots: number;
  /** Number of the commit that the oldest of them sees. */
  readonly oldestSnapshot?: number;
  /** Number of checkpoints made. */
  readonly checkpoints: number;
  /** Size of the log file. */
  readonly logSize: number;
  /** Bytes appended to the log. */
  readonly logBytesWritten: number;
  /** Number of records appended to the log, each of one or more commits. */
  readonly logRecords: number;
  /** Number of log flushes, each for one or more commits. */
  readonly logFlushes: number;
  /** Memory of the engine's WebAssembly instance, which never shrinks. */
  readonly memorySize: number;
  /**
   * Whether the newest checkpoint was damaged when the database was opened, and the previous one
   * plus the log gave the same state. The next checkpoint repairs it.
   */
  readonly recoveredFromOlder: boolean;
  /** Bytes read from the data file. */
  readonly bytesRead: number;
  /** Bytes written to the data file. */
  readonly bytesWritten: number;
  /**
   * Where processes share the database: the handles that the one that leads serves. It is not among
   * them itself.
   */
  readonly clients?: readonly ClientInfo[];
}
