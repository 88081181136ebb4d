// What a storage of one's own has to do.

/** A user's own place for files: synchronous, and every read and write is whole or throws. */
export interface CustomStorage {
  /** Opens a file for reading and writing, creating it empty if it is missing. */
  open(file: string): StorageFile;
  /** Names of all files there are. */
  list(): string[];
  /** Removes a file that is not open; a missing one is no error. */
  remove(file: string): void;
  /**
   * Bytes by which the data file is kept longer than its content, so that entries can be removed where there is no room left; at least 32
   * nodes. For storages whose `truncate` takes the room for what it adds. Default 0: none.
   */
  readonly reserveBytes?: number | undefined;
}

/**
 * One open file; offsets and sizes are bytes. An exception with the `code` `"KV_QUOTA_EXCEEDED"`, `"ENOSPC"` or
 * `"EDQUOT"` says that there is no room.
 */
export interface StorageFile {
  /** Fills `into`, which is valid during the call only. */
  read(at: number, into: Uint8Array): void;
  /** Writes all of `from`, which is valid during the call only, growing the file as needed. */
  write(at: number, from: Uint8Array): void;
  /** Returns when everything written before survives a power cut. */
  flush(): void;
  /** Its size in bytes. */
  size(): number;
  /** Cuts the file or extends it with zeros. */
  truncate(size: number): void;
  /** Idempotent. */
  close(): void;
}
