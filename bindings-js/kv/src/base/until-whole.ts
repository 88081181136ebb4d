// Reads of many entries at once while tabs come and go.
import { isSnapshotLost } from './superseded.ts';

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
