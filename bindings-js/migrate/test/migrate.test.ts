// Migration from databases as made by the libraries that pages use most.
import 'fake-indexeddb/auto';
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { Dexie } from 'dexie';
import * as idbKeyval from 'idb-keyval';
import { migrateIndexedDB, migrateLocalStorage } from '@mangrove-kv/migrate';
import type { MigrationProgress, MigrationTarget } from '@mangrove-kv/migrate';
import { code, rejects, withMemory } from '../../kv/test/support/kit.ts';

class FakeStorage implements Storage {
  [name: string]: unknown;
  readonly #items: [string, string][];

  constructor(items: Record<string, string>) {
    this.#items = Object.entries(items);
  }

  get length(): number {
    return this.#items.length;
  }

  key(index: number): string | null {
    return this.#items[index]?.[0] ?? null;
  }

  getItem(key: string): string | null {
    return this.#items.find(([name]) => name === key)?.[1] ?? null;
  }

  setItem(): void {}
  removeItem(): void {}
  clear(): void {}
}

test('idb-keyval', async () => {
  const keys = [1, 'text', new Date(5), [1, ['a']], new Uint8Array([1, 2]).buffer];
  await idbKeyval.setMany(keys.map((key, index) => [key, { index, set: new Set([index]) }]));
  await withMemory({}, async (db) => {
    assert.equal(await migrateIndexedDB(db, { name: 'keyval-store', into: () => db }), keys.length);
    for (const [index, key] of keys.entries()) assert.deepEqual(await db.get(key), { index, set: new Set([index]) });
    assert.equal(await db.size, keys.length);
  });
});

test('Dexie', async () => {
  const dexie = new Dexie('friends', { indexedDB, IDBKeyRange });
  dexie.version(3).stores({ friends: '++id, name', pets: '[owner+name]', empty: '' });
  await dexie
    .table('friends')
    .bulkAdd(Array.from({ length: 10 }, (_, index) => ({ name: `friend ${index}`, born: new Date(index) })));
  await dexie.table('pets').add({ owner: 1, name: 'Rex' });
  await withMemory({}, async (db) => {
    const steps: MigrationProgress[] = [];
    const onProgress = (progress: MigrationProgress): void => void steps.push(progress);
    assert.equal(await migrateIndexedDB(db, { name: 'friends', batchSize: 4, onProgress }), 11);
    assert.deepEqual(
      steps.map(({ done }) => done),
      [0, 4, 8, 10, 11],
    );
    assert.ok(steps.every(({ total }) => total === 11));
    assert.deepEqual(await db.collection('friends').get(10), { id: 10, name: 'friend 9', born: new Date(9) });
    assert.deepEqual(await db.collection('pets').get([1, 'Rex']), { owner: 1, name: 'Rex' });

    await db.collection('friends').delete(1);
    assert.equal(await migrateIndexedDB(db, { name: 'friends' }), 0);
    assert.equal(await db.collection('friends').has(1), false);
  });
  dexie.close();
});

test('localForage', async () => {
  Object.assign(globalThis, { self: globalThis });
  const localforage = createRequire(import.meta.url)('localforage') as typeof import('localforage');
  await localforage.setItem('user', { name: 'Ada', photo: new Uint8Array([1, 2, 3]) });
  await withMemory({}, async (db) => {
    const into = db.collection<string, unknown>('app');
    await migrateIndexedDB(db, { name: 'localforage', stores: ['keyvaluepairs'], into: () => into });
    assert.deepEqual(await into.get('user'), { name: 'Ada', photo: new Uint8Array([1, 2, 3]) });
  });
});

test('a migration resumes where it was interrupted', async () => {
  const store = idbKeyval.createStore('interrupted', 'entries');
  await idbKeyval.setMany(
    Array.from({ length: 100 }, (_, index) => [index, index]),
    store,
  );
  await withMemory({}, async (db) => {
    const controller = new AbortController();
    const run = (signal?: AbortSignal): Promise<number> =>
      migrateIndexedDB<number, string>(db, {
        name: 'interrupted',
        batchSize: 10,
        signal,
        transform: async ({ key, value }) => (value === 55 ? undefined : [key as number, `value ${value}`]),
        onProgress: ({ done }) => void (done === 40 && controller.abort(new Error('enough'))),
      });
    await assert.rejects(run(controller.signal), /enough/);
    const entries = db.collection<number, string>('entries');
    assert.equal(await entries.size, 40);
    await entries.set(7, 'changed');
    assert.equal(await run(), 60);
    assert.equal(await entries.size, 99);
    assert.equal(await entries.get(7), 'changed');
    assert.equal(await entries.get(99), 'value 99');
  });
});

test('an entry that cannot be stored ends a migration before its batch', async () => {
  const store = idbKeyval.createStore('unfit', 'entries');
  await idbKeyval.setMany(
    [
      ['a', 1],
      ['b', 2],
      ['c'.repeat(5000), 3],
    ],
    store,
  );
  await withMemory({}, async (db) => {
    await rejects(migrateIndexedDB(db, { name: 'unfit', batchSize: 2 }), 'KV_KEY_TOO_LARGE');
    assert.deepEqual(await db.collection('entries').keys().toArray(), ['a', 'b']);
    const cut = {
      name: 'unfit',
      transform: ({ key, value }: { key: unknown; value: unknown }) => [String(key).slice(0, 10), value] as const,
    };
    assert.equal(await migrateIndexedDB(db, cut), 1);
    assert.equal(await db.collection('entries').get('c'.repeat(10)), 3);
  });
});

test('large values are copied in commits of a bounded size, also those behind small ones', async () => {
  const store = idbKeyval.createStore('photos', 'files');
  const photo = new Uint8Array(3 << 20).map((_, at) => at * 7);
  await idbKeyval.setMany(
    Array.from({ length: 300 }, (_, index) => [index, index]),
    store,
  );
  await idbKeyval.setMany(
    Array.from({ length: 40 }, (_, index) => [1000 + index, { index, photo }]),
    store,
  );
  for (const given of [{}, { batchSize: 340 }]) {
    await withMemory({}, async (db) => {
      const sizes: number[] = [];
      const measured: MigrationTarget = {
        collection: db.collection.bind(db),
        batch: () => {
          const batch = db.batch();
          return {
            collection: (collection) => batch.collection(collection),
            commit: (options) => {
              sizes.push(batch.byteLength);
              return batch.commit(options);
            },
          };
        },
      };
      const done: number[] = [];
      assert.equal(
        await migrateIndexedDB(measured, {
          name: 'photos',
          ...given,
          onProgress: (progress) => void done.push(progress.done),
        }),
        340,
      );
      assert.ok(Math.max(...sizes) < 20 << 20, `commits of ${sizes.join(', ')} bytes`);
      assert.equal(done.at(-1), 340);
      assert.equal(await db.collection('files').size, 340);
      assert.deepEqual(await db.collection('files').get(1039), { index: 39, photo });
    });
  }
});

test('failures of the source are KvErrors', async () => {
  await idbKeyval.set('a', 1, idbKeyval.createStore('source', 'entries'));
  await withMemory({}, async (db) => {
    await assert.rejects(
      migrateIndexedDB(db, { name: 'source', stores: ['entries', 'none'] }),
      (error) => code('KV_INVALID_ARGUMENT')(error) && /no object store "none", but "entries"/.test(String(error)),
    );
    assert.deepEqual(await db.collections(), []);
    const refused = new DOMException('The user denied it', 'SecurityError');
    const refusing = {
      open: () => {
        throw refused;
      },
    } as unknown as IDBFactory;
    await assert.rejects(
      migrateIndexedDB(db, { name: 'source', indexedDB: refusing }),
      (error) => code('KV_IO')(error) && (error as Error).cause === refused,
    );
  });
});

test('a missing database is not created', async () => {
  await withMemory({}, async (db) => {
    assert.equal(await migrateIndexedDB(db, { name: 'missing' }), 0);
    assert.deepEqual(await db.collections(), []);
    assert.ok((await indexedDB.databases()).every(({ name }) => name !== 'missing'));
    await assert.rejects(migrateIndexedDB(db, { name: 'missing', signal: AbortSignal.abort() }), {
      name: 'AbortError',
    });
  });
});

test('localStorage', async () => {
  const storage = new FakeStorage({ 'app:a': '{"n":1}', 'app:b': '2', other: 'text' });
  await withMemory({}, async (db) => {
    const transform = ({ key, value }: { key: unknown; value: unknown }) =>
      [String(key).slice(4), JSON.parse(String(value)) as unknown] as const;
    const into = db.collection<string, unknown>('app');
    await assert.rejects(migrateLocalStorage(db, { storage, into, transform }), SyntaxError);
    assert.equal(await into.size, 0);
    assert.equal(await migrateLocalStorage(db, { storage, into, prefix: 'app:', transform }), 2);
    assert.equal(await migrateLocalStorage(db, { storage, into, prefix: 'app:', transform }), 0);
    assert.deepEqual(await into.entries().toArray(), [
      ['a', { n: 1 }],
      ['b', 2],
    ]);
    assert.equal(await migrateLocalStorage(db, { storage }), 3);
    assert.equal(await db.collection('localStorage').get('other'), 'text');
  });
});
