// Files that can be flushed without blocking their thread.
import type { StorageFile } from '../types/index.ts';

/** A file that another thread can flush. */
export interface FlushableFile extends StorageFile {
  /**
   * Flushes all earlier writes in another thread, then calls `done` with the error, if any. Calls
   * `done` before it returns if it had to flush in this thread.
   */
  flushLater(done: (error: unknown) => void): void;
}
