// Files whose flushes need not hold up their thread.
import type { StorageFile } from '../types/index.ts';

/** A file that another thread can flush. */
export interface FlushableFile extends StorageFile {
  /** Flushes what was written before, in another thread, and calls `done` with what that failed with, if it did. */
  flushLater(done: (error: unknown) => void): void;
}
