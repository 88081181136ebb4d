import { show } from './page.ts';
import type { Row } from './page.ts';

function settled<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error('failed'));
  });
}

await show(async () => {
  const opening = indexedDB.open('bench-start-indexeddb', 1);
  opening.onupgradeneeded = () => void opening.result.createObjectStore('rows');
  const db = await settled(opening);
  return {
    seed: (rows) =>
      new Promise((resolve, reject) => {
        const transaction = db.transaction('rows', 'readwrite');
        rows.forEach((row, index) => transaction.objectStore('rows').put(row, index));
        transaction.oncomplete = () => resolve();
        transaction.onabort = () => reject(transaction.error ?? new Error('aborted'));
      }),
    first: (limit) => settled(db.transaction('rows').objectStore('rows').getAll(undefined, limit)) as Promise<Row[]>,
  };
});
