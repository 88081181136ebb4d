// Requests of the object store that a store calls back with, on idb-keyval and on the twin.
import 'fake-indexeddb/auto';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as original from 'idb-keyval';
import { close, clear, createStore, entries, set, setMany } from '@mangrove-kv/idb-keyval';

for (const [name, store] of [
  ['idb-keyval', original.createStore('original', 'kv')],
  ['twin', createStore('twin', 'kv', { storage: 'memory' })],
] as const) {
  test(`a request that fails does not abort the transaction if its listener prevents that: ${name}`, async () => {
    await set('taken', 1, store);
    for (const isProperty of [true, false]) {
      const ended = await store('readwrite', (objects) => {
        const request = objects.add('other', 'taken');
        const onError = (event: Event): void => {
          event.preventDefault();
          event.stopPropagation();
        };
        if (isProperty) request.onerror = onError;
        else request.addEventListener('error', onError);
        objects.put(2, `beside ${isProperty}`);
        return new Promise((resolve) => {
          objects.transaction.oncomplete = () => resolve('complete');
          objects.transaction.onabort = () => resolve('abort');
        });
      });
      assert.equal(ended, 'complete');
    }
    assert.deepEqual(await entries(store), [
      ['beside false', 2],
      ['beside true', 2],
      ['taken', 1],
    ]);
    await close(store);
  });

  test(`a cursor does not go back to a key: ${name}`, async () => {
    await clear(store);
    await setMany(
      [...'abcd', 'taken'].map((key) => [key, key]),
      store,
    );
    const visit = (direction: IDBCursorDirection, to: string): Promise<unknown> =>
      store('readonly', (objects) => {
        const seen: IDBValidKey[] = [];
        return new Promise((resolve, reject) => {
          const request = objects.openCursor(null, direction);
          request.onsuccess = () => {
            const cursor = request.result;
            if (cursor === null) return resolve(seen);
            seen.push(cursor.key);
            try {
              cursor.continue(seen.length === 2 ? to : undefined);
            } catch (error) {
              reject(error);
            }
          };
        });
      });
    const refused = { name: 'DataError' };
    for (const to of ['a', 'b', '']) await assert.rejects(visit('next', to), refused);
    assert.deepEqual(await visit('next', 'bb'), ['a', 'b', 'c', 'd', 'taken']);
    assert.deepEqual(await visit('next', 'd'), ['a', 'b', 'd', 'taken']);
    for (const to of ['taken', 'd', 'dd']) await assert.rejects(visit('prev', to), refused);
    assert.deepEqual(await visit('prev', 'b'), ['taken', 'd', 'b', 'a']);
    await close(store);
  });
}
