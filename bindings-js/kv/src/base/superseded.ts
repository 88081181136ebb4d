// Failures of reads and transactions after which the same work can run again. They are told by their
// code, since the class may be loaded more than once.
import type { KvError } from './errors.ts';

/** Whether what was read is lost with the tab that kept it. */
export function isSnapshotLost(error: unknown): boolean {
  return (error as Partial<KvError> | undefined)?.code === 'KV_SNAPSHOT_LOST';
}

/** Whether a transaction has to run again: its reads are outdated or lost. */
export function isSuperseded(error: unknown): boolean {
  return (error as Partial<KvError> | undefined)?.code === 'KV_CONFLICT' || isSnapshotLost(error);
}

/** Attempts per read. Each failed one means that another tab took over the database. */
const ATTEMPTS = 10;

/**
 * Reads again if the state that is being read is lost with the tab that kept it. `read` must not
 * depend on what it has read before.
 */
export async function untilWhole<T>(read: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await read();
    } catch (error) {
      if (!isSnapshotLost(error) || attempt === ATTEMPTS) throw error;
    }
  }
}
