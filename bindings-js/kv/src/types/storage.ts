// What a custom storage must implement.

/** A custom place for files. Synchronous; every read and write completes in full or throws. */
export interface CustomStorage {
  /** Opens a file for reading and writing, creating it empty if it does not exist. */
  open(file: string): StorageFile;
  /** Returns the names of all existing files. */
  list(): string[];
  /** Removes a file that is not open; a missing file is not an error. */
  remove(file: string): void;
  /**
   * Bytes by which the data file is kept longer than its content, so that entries can be removed
   * even when there is no space left; at least 32 nodes. For storages whose `truncate` allocates
   * the space that it adds. Default: 0, no reserve.
   */
  readonly reserveBytes?: number | undefined;
}

/**
 * One open file. Offsets and sizes are in bytes. An exception with the `code`
 * `"KV_QUOTA_EXCEEDED"`, `"ENOSPC"` or `"EDQUOT"` means that there is no space left.
 */
export interface StorageFile {
  /** Fills `into`, which is valid only during the call. */
  read(at: number, into: Uint8Array): void;
  /** Writes all of `from`, which is valid only during the call, growing the file as needed. */
  write(at: number, from: Uint8Array): void;
  /** Returns once everything written before survives a power cut. */
  flush(): void;
  /** Returns the file's size in bytes. */
  size(): number;
  /** Shortens the file, or extends it with zeros. */
  truncate(size: number): void;
  /** Closes the file. Idempotent. */
  close(): void;
}
