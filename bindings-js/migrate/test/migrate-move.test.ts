// Moving an object store: interrupted anywhere, by several at once, and with a source that changes.
import 'fake-indexeddb/auto';
import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import * as idbKeyval from 'idb-keyval';
import { open, valueCodecs } from 'mangrove-kv';
import type { Collection, Database, Key } from 'mangrove-kv';
import { code, withMemory, withPath } from '../../kv/test/support/kit.ts';
import { dropStores, moveStore } from '../src/twin/move.ts';
import type { Move } from '../src/twin/move.ts';
import { fromStored, stored } from '../src/twin/stored.ts';
import { databaseNames, hooked, isEmptied, until } from './support/hooks.ts';
import { same } from './support/show.ts';

type Entry = [IDBValidKey, unknown];

const ENTRIES: Entry[] = Array.from({ length: 60 }, (_, index) => [index, { index, set: new Set([index]) }]);
ENTRIES.push(
  ['a', undefined],
  ['b', null],
  ['c', { file: new Blob(['x'.repeat(1000)], { type: 'text/x' }) }],
  [[1, 'd'], new Map([[1n, new Date(5)]])],
);

let sources = 0;
/** Fills a database as idb-keyval does; returns its name. */
async function fill(entries: Entry[] = ENTRIES, name = `source ${++sources}`): Promise<string> {
  const db = await new Promise<IDBDatabase>((resolve, reject) => {
    const request = indexedDB.open(name);
    request.onupgradeneeded = () => request.result.createObjectStore('kv');
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  const transaction = db.transaction('kv', 'readwrite');
  for (const [key, value] of entries) transaction.objectStore('kv').put(value, key);
  await idbKeyval.promisifyRequest(transaction);
  db.close();
  return name;
}

const connections: IDBDatabase[] = [];
afterEach(() => {
  for (const connection of connections.splice(0)) connection.close();
});

/** The program of an old tab, whose connection stays open until it is closed: until then fake-indexeddb waits, busily. */
async function oldTab(name: string): Promise<{ old: idbKeyval.UseStore; close: () => void }> {
  const old = idbKeyval.createStore(name, 'kv');
  const connection = await old('readonly', (store) => store.transaction.db);
  connections.push(connection);
  return { old, close: () => connection.close() };
}

function moveOf(name: string, into: Collection<Key, unknown>, options: Partial<Move> = {}): Move {
  return { name, store: 'kv', into, keepSource: false, onUnmovable: 'throw', ...options };
}

/** The entries of a source; `undefined` if there is no such database. */
async function sourceEntries(name: string): Promise<Entry[] | undefined> {
  if (!(await databaseNames()).includes(name)) return undefined;
  const { old, close } = await oldTab(name);
  const entries = await idbKeyval.entries<IDBValidKey, unknown>(old);
  close();
  return entries;
}

async function copies(into: Collection<Key, unknown>): Promise<[Key, unknown][]> {
  return (await into.entries().toArray()).map(([key, value]) => [key, fromStored(value)]);
}

test('moves all entries, then empties the source', () =>
  withMemory({}, async (db) => {
    const name = await fill();
    const kv = db.collection('kv');
    await moveStore(db, moveOf(name, kv));
    await same(await copies(kv), ENTRIES);
    await until(() => isEmptied(name));
    // Values without Blobs are stored as they are, for programs that read them with the default codec.
    assert.deepEqual(await kv.get(7), ENTRIES[7]?.[1]);
  }));

test('a source that is not there is not created, nor an object store', () =>
  withMemory({}, async (db) => {
    const before = await databaseNames();
    await moveStore(db, moveOf('absent', db.collection('kv')));
    assert.deepEqual(await databaseNames(), before);
    const name = await fill();
    await moveStore(db, moveOf(name, db.collection('other'), { store: 'other' }));
    await same(await sourceEntries(name), ENTRIES);
    assert.equal(await db.collection('other').size, 0);
    // What appears later is not moved: the twin's data are newer.
    await fill(ENTRIES, 'absent');
    await moveStore(db, moveOf('absent', db.collection('kv')));
    assert.equal(await db.collection('kv').size, 0);
  }));

test('with keepSource the source stays as it is', () =>
  withMemory({}, async (db) => {
    const name = await fill();
    await moveStore(db, moveOf(name, db.collection('kv'), { keepSource: true }));
    await same(await copies(db.collection('kv')), ENTRIES);
    await same(await sourceEntries(name), ENTRIES);
  }));

test('a move that fails at any call of IndexedDB is continued, and loses nothing', { timeout: 120_000 }, async () => {
  let isReached = true;
  let failures = 0;
  for (let at = 1; isReached; at++) {
    isReached = false;
    await withMemory({}, async (db) => {
      const name = await fill();
      const kv = db.collection('kv');
      const fail = (call: number): void => {
        if (call !== at) return;
        isReached = true;
        throw new Error('killed');
      };
      const failed = await hooked(fail, async () => {
        const outcome = await moveStore(db, moveOf(name, kv)).catch((error: unknown) => error);
        // The end of the move is in the background.
        await new Promise((resolve) => {
          setTimeout(resolve, 20);
        });
        return outcome;
      });
      if (failed !== undefined) {
        failures++;
        await same(await sourceEntries(name), ENTRIES, `source after call ${at}`);
      }
      await moveStore(db, moveOf(name, kv));
      await same(await copies(kv), ENTRIES, `call ${at}`);
    });
  }
  // Opening, copying, counting and comparing all failed at some time.
  assert.ok(failures > 10, String(failures));
});

test('a move whose database is closed at any moment is continued', { timeout: 120_000 }, async () => {
  let isReached = true;
  for (let at = 1; isReached; at++) {
    isReached = false;
    await withPath(async (path) => {
      const name = await fill();
      const db = await open(path, { durability: 'relaxed' });
      const close = (call: number): void => {
        if (call !== at) return;
        isReached = true;
        void db.close();
      };
      await hooked(close, async () => {
        await moveStore(db, moveOf(name, db.collection('kv'))).catch((error: unknown) =>
          assert.ok(code('KV_CLOSED')(error)),
        );
        await db.close();
      });
      const again = await open(path);
      await moveStore(again, moveOf(name, again.collection('kv')));
      await same(await copies(again.collection('kv')), ENTRIES, `call ${at}`);
      await again.close();
    });
  }
});

test('several at once move once, and nothing overwrites what is written after the first is done', {
  timeout: 120_000,
}, async () => {
  for (let round = 0; round < 15; round++) {
    await withPath(async (path) => {
      const name = await fill();
      const handles: Database[] = await Promise.all([0, 1, 2].map(() => open(path, { durability: 'relaxed' })));
      await Promise.all(
        handles.map(async (db, tab) => {
          // They meet at different places.
          await new Promise((resolve) => {
            setTimeout(resolve, (tab * round) / 2);
          });
          const kv = db.collection('kv');
          await moveStore(db, moveOf(name, kv));
          await kv.set(tab, `written by ${tab}`);
          await kv.delete(10 + tab);
          await kv.set(`new ${tab}`, tab);
        }),
      );
      const expected = new Map<unknown, unknown>(ENTRIES.map(([key, value]) => [JSON.stringify(key), value]));
      for (const tab of [0, 1, 2]) {
        expected.set(JSON.stringify(tab), `written by ${tab}`);
        expected.set(JSON.stringify(`new ${tab}`), tab);
        expected.delete(JSON.stringify(10 + tab));
      }
      const found = await copies((handles[0] as Database).collection('kv'));
      assert.equal(found.length, expected.size);
      for (const [key, value] of found) await same(value, expected.get(JSON.stringify(key)), `round ${round}`);
      for (const db of handles) await db.close();
    });
  }
});

test('a commit of a move that comes after another has completed it is refused', () =>
  withMemory({}, async (db) => {
    const name = await fill();
    const kv = db.collection('kv');
    let completed: Promise<void> | undefined;
    // Before the first batch is read, another tab moves everything, and the program deletes and changes entries.
    const meanwhile = async (): Promise<void> => {
      await moveStore(db, moveOf(name, kv, { keepSource: true }));
      await kv.set(1, 'newer');
      await kv.delete(2);
    };
    const original = db.batch.bind(db);
    let batches = 0;
    const late = Object.assign(Object.create(db) as Database, {
      collection: db.collection.bind(db),
      transaction: db.transaction.bind(db),
      batch: () => {
        const batch = original();
        if (batches++ > 0) return batch;
        const commit = batch.commit.bind(batch);
        return Object.assign(batch, {
          collection: batch.collection.bind(batch),
          commit: async (...args: Parameters<typeof commit>) => {
            completed = meanwhile();
            await completed;
            return commit(...args);
          },
        });
      },
    });
    await moveStore(late, moveOf(name, kv, { keepSource: true }));
    assert.ok(completed !== undefined);
    assert.equal(await kv.get(1), 'newer');
    assert.equal(await kv.has(2), false);
    assert.equal(await kv.size, ENTRIES.length - 1);
  }));

test('what another tab writes to the source before it is compared is moved', () =>
  withMemory({}, async (db) => {
    const name = await fill();
    const { old, close } = await oldTab(name);
    let written: Promise<unknown> | undefined;
    const kv = db.collection('kv');
    // The comparison reads the first batch anew: the fourth transaction that reads all.
    let reads = 0;
    await hooked(
      (_, call) => {
        if (call !== 'getAllKeys' || ++reads !== 3) return;
        written = Promise.all([idbKeyval.set(3, 'late', old), idbKeyval.del(4, old), idbKeyval.set('z', 1, old)]);
      },
      () => moveStore(db, moveOf(name, kv)),
    );
    assert.ok(written !== undefined);
    await written;
    close();
    assert.deepEqual([await kv.get(3), await kv.has(4), await kv.get('z')], ['late', false, 1]);
    assert.equal(await kv.size, ENTRIES.length);
  }));

for (const [key, value] of [
  ['late', 'only here'],
  [5, 'only here'],
  // Of the size and type of the Blob that was there.
  ['c', { file: new Blob(['y'.repeat(1000)], { type: 'text/x' }) }],
] as const) {
  test(`what another tab writes to the source after the comparison stays there: ${key}`, () =>
    withMemory({}, async (db) => {
      const name = await fill();
      const { old, close } = await oldTab(name);
      const kv = db.collection('kv');
      await moveStore(db, moveOf(name, kv, { keepSource: true }));
      await idbKeyval.set(key, value, old);
      // This call is to empty the source.
      await moveStore(db, moveOf(name, kv));
      const moves = db.collection<Key, { isDone: boolean }>('@mangrove-kv/migrate');
      // Or until it has done what it must not do.
      const isEmpty = async (): Promise<boolean> => (await idbKeyval.keys(old)).length === 0;
      await until(async () => (await moves.get(['moved', name, 'kv']))?.isDone === true || (await isEmpty()));
      await same(await idbKeyval.get(key, old), value);
      close();
      assert.equal((await sourceEntries(name))?.length, ENTRIES.length + (key === 'late' ? 1 : 0));
      await same(fromStored(await kv.get(key)), ENTRIES.find(([other]) => other === key)?.[1]);
    }));
}

test('a copy that is wrong is found, and made again', () =>
  withMemory({}, async (db) => {
    for (const damage of [
      (kv: Collection<Key, unknown>) => kv.set(5, { index: 5, set: new Set([6]) }),
      (kv: Collection<Key, unknown>) => kv.delete(59),
      (kv: Collection<Key, unknown>) => kv.set('zz', 'never in the source'),
      (kv: Collection<Key, unknown>) => kv.set('c', { file: 'no Blob' }),
      async (kv: Collection<Key, unknown>) =>
        kv.set('c', await stored({ file: new Blob(['y'.repeat(1000)], { type: 'text/x' }) })),
    ]) {
      const name = await fill();
      const kv = db.collection(`into ${name}`);
      let isDamaged = false;
      const closing = db.collection('@mangrove-kv/migrate');
      // Damages the copy as soon as it is complete.
      const subscription = closing.subscribe({}, ({ changes }) => {
        for (const change of changes) {
          if (change.type === 'set' && (change.value as { isComplete?: boolean }).isComplete && !isDamaged) {
            isDamaged = true;
            void damage(kv);
          }
        }
      });
      let reads = 0;
      await hooked(
        (_, call) => {
          if (call === 'getAllKeys') reads++;
        },
        () => moveStore(db, moveOf(name, kv, { keepSource: true })),
      );
      subscription.unsubscribe();
      assert.ok(isDamaged);
      await same(await copies(kv), ENTRIES);
      assert.ok(reads > 6, `compared once only: ${reads}`);
    }
  }));

test('an entry that cannot be stored ends the move with its name, or stays where it is', () =>
  withMemory({}, async (db) => {
    const long = 'x'.repeat(5000);
    const name = await fill([...ENTRIES.slice(0, 5), [long, 1]]);
    const kv = db.collection('kv');
    await assert.rejects(moveStore(db, moveOf(name, kv)), (error: Error) => {
      assert.ok(code('KV_KEY_TOO_LARGE')(error));
      assert.match(error.message, /kv: "xxx/);
      return true;
    });
    assert.equal((await sourceEntries(name))?.length, 6);
    await moveStore(db, moveOf(name, kv, { onUnmovable: 'leave' }));
    assert.equal(await kv.size, 5);
    assert.equal((await sourceEntries(name))?.length, 6);
    let deep: IDBValidKey = 1;
    for (let depth = 0; depth < 100; depth++) deep = [deep];
    const other = await fill([...ENTRIES.slice(0, 5), [deep, 1]]);
    const rest = db.collection('with a deep key');
    await assert.rejects(moveStore(db, moveOf(other, rest)), code('KV_INVALID_KEY'));
    await moveStore(db, moveOf(other, rest, { onUnmovable: 'leave' }));
    assert.deepEqual([await rest.size, (await sourceEntries(other))?.length], [5, 6]);
  }));

test('a value that is nested as deep as one can be moves', () =>
  withMemory({}, async (db) => {
    let deepest: unknown = 1;
    for (let value: unknown = [1]; ; value = [value]) {
      try {
        valueCodecs.structured().encode(value);
        deepest = value;
      } catch {
        break;
      }
    }
    const name = await fill([['deep', deepest]]);
    const kv = db.collection('kv');
    await moveStore(db, moveOf(name, kv));
    assert.equal(await kv.size, 1);
    await until(() => isEmptied(name));
  }));

test('only the moved object store is emptied, and a database with other data stays', async () => {
  const name = 'several';
  const db = await new Promise<IDBDatabase>((resolve) => {
    const request = indexedDB.open(name, 3);
    request.onupgradeneeded = () => ['kv', 'other', 'helper'].map((store) => request.result.createObjectStore(store));
    request.onsuccess = () => resolve(request.result);
  });
  db.onversionchange = () => db.close();
  const transaction = db.transaction(['kv', 'other', 'helper'], 'readwrite');
  for (const store of ['kv', 'other', 'helper']) transaction.objectStore(store).put(store, 1);
  await idbKeyval.promisifyRequest(transaction);
  connections.push(db);
  await withMemory({}, async (target) => {
    const move = (store: string): Promise<void> => moveStore(target, moveOf(name, target.collection(store), { store }));
    await move('kv');
    const count = (store: string): Promise<number> =>
      idbKeyval.promisifyRequest(db.transaction(store).objectStore(store).count());
    await until(async () => (await count('kv')) === 0);
    assert.deepEqual([await count('other'), await count('helper'), db.version], [1, 1, 3]);
    await move('other');
    await until(async () => (await count('other')) === 0);
    assert.equal(await count('helper'), 1);
    assert.deepEqual([await target.collection('kv').get(1), await target.collection('other').get(1)], ['kv', 'other']);
  });
});

test('a database that an old connection still uses is emptied, and keeps what the old program writes then', async () => {
  const name = await fill();
  const { old, close } = await oldTab(name);
  await withMemory({}, async (db) => {
    const kv = db.collection('kv');
    await moveStore(db, moveOf(name, kv));
    await until(async () => (await idbKeyval.keys(old)).length === 0);
    await idbKeyval.set('late', 1, old);
    close();
    await new Promise((resolve) => {
      setTimeout(resolve, 50);
    });
    await same(await sourceEntries(name), [['late', 1]]);
    await same(await copies(kv), ENTRIES);
  });
});

test('what an old program writes anew is kept, also if it is what was there', async () => {
  const name = await fill([['token', 'a']]);
  const { old, close } = await oldTab(name);
  await withMemory({}, async (db) => {
    const move = moveOf(name, db.collection('kv'));
    await moveStore(db, move);
    const moves = db.collection<Key, { isDone: boolean }>('@mangrove-kv/migrate');
    await until(async () => (await moves.get(['moved', name, 'kv']))?.isDone === true);
    assert.deepEqual(await idbKeyval.keys(old), []);
    await idbKeyval.set('token', 'a', old);
    close();
    await moveStore(db, move);
    await new Promise((resolve) => {
      setTimeout(resolve, 50);
    });
    await same(await sourceEntries(name), [['token', 'a']]);
  });
});

test('no connection is asked to close, and none that a program opens has to wait', async () => {
  const name = await fill();
  const { old, close } = await oldTab(name);
  let asked = 0;
  connections[0]?.addEventListener('versionchange', () => asked++);
  await withMemory({}, async (db) => {
    await moveStore(db, moveOf(name, db.collection('kv')));
    await until(async () => (await idbKeyval.keys(old)).length === 0);
    await dropStores(db, { name, keepSource: false });
    (await oldTab(name)).close();
    assert.equal(asked, 0);
    close();
  });
});

test('a drop that fails in IndexedDB has dropped nothing', () =>
  withMemory({}, async (db) => {
    const name = await fill();
    const kv = db.collection('kv');
    await moveStore(db, moveOf(name, kv, { keepSource: true }));
    const fail = (_: number, call: string): void => {
      if (call === 'clear') throw new Error('no');
    };
    await assert.rejects(hooked(fail, () => dropStores(db, { name, stores: ['kv'], keepSource: false })));
    await same(await copies(kv), ENTRIES);
    await dropStores(db, { name, stores: ['kv'], keepSource: false });
    assert.equal(await kv.size, 0);
    assert.ok(await isEmptied(name));
  }));

test('dropping a store also drops what was not moved yet', () =>
  withMemory({}, async (db) => {
    const name = await fill();
    await dropStores(db, { name, stores: ['kv'], keepSource: false });
    const kv = db.collection('kv');
    await moveStore(db, moveOf(name, kv));
    assert.equal(await kv.size, 0);
    await until(() => isEmptied(name));
    const kept = await fill();
    await dropStores(db, { name: kept, keepSource: true });
    await moveStore(db, moveOf(kept, kv));
    assert.equal(await kv.size, 0);
    assert.equal((await sourceEntries(kept))?.length, ENTRIES.length);
  }));

test('a store is dropped while another tab upgrades the source', () =>
  withMemory({}, async (db) => {
    const name = await fill();
    let upgraded: Promise<void> | undefined;
    const upgrade = (): Promise<void> =>
      new Promise((resolve) => {
        const request = indexedDB.open(name, 2);
        request.onsuccess = () => {
          request.result.close();
          resolve();
        };
      });
    await hooked(
      () => {
        upgraded ??= Promise.resolve().then(upgrade);
      },
      () => dropStores(db, { name, stores: ['kv'], keepSource: false }),
    );
    await upgraded;
    await until(() => isEmptied(name));
  }));
