// Reads of many entries at once while tabs come and go.

/** How often a read begins anew. Each time another tab has taken the database over. */
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
      if ((error as { code?: unknown }).code !== 'KV_SNAPSHOT_LOST' || attempt === ATTEMPTS) throw error;
    }
  }
}
