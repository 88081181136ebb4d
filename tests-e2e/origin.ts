// Whether a browser that was killed still has what the page's origin stored in IndexedDB.
import type { Page } from '@playwright/test';

/**
 * Stores a record in an IndexedDB database that Mangrove knows nothing of. Returns `false` if the
 * record was missing: at the first call, and when the browser has lost all of the origin.
 *
 * Chromium appends to a LevelDB log whose last record a kill has torn. The next start finds a
 * checksum mismatch there and deletes every IndexedDB database of the origin. A test of what a
 * kill leaves of one database starts over when that happens.
 */
export function isOriginKept(page: Page): Promise<boolean> {
  return page.evaluate(async () => {
    const keep = (): Promise<boolean> =>
      new Promise((resolve, reject) => {
        let isNew = false;
        const request = indexedDB.open('control', 1);
        request.onupgradeneeded = () => {
          isNew = true;
          request.result.createObjectStore('kept');
        };
        request.onerror = () => reject(request.error);
        request.onsuccess = () => {
          const transaction = request.result.transaction('kept', 'readwrite', { durability: 'strict' });
          transaction.objectStore('kept').put(1, 1);
          transaction.onabort = () => reject(transaction.error);
          transaction.oncomplete = () => {
            request.result.close();
            resolve(!isNew);
          };
        };
      });
    // The open that finds the damage may fail; the next one creates the database.
    return keep().catch(keep);
  });
}
