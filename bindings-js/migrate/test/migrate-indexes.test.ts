// Indexes of IndexedDB and of Dexie's schemas after a migration: Dexie's own answers are the
// measure.
import 'fake-indexeddb/auto';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Dexie } from 'dexie';
import type { Database, Key } from 'mangrove-kv';
import { dexieIndexes, indexesOf, migrateIndexedDB } from '@mangrove-kv/migrate';
import { PEOPLE, compareIndexes, fillPeople, peopleOf } from './support/dexie-people.ts';
import { chance, code, rejects, withMemory } from '../../kv/test/support/kit.ts';

const dexieOf = (name: string): Dexie => new Dexie(name, { indexedDB, IDBKeyRange });

test('each index has the order and the contents that Dexie has, and keeps them with later writes', async () => {
  for (const seed of [1, 2, 3]) {
    const dexie = dexieOf(`people ${seed}`);
    const table = await fillPeople(dexie, 150, chance(seed));
    await withMemory({}, async (db) => {
      assert.equal(await migrateIndexedDB(db, { name: dexie.name, batchSize: 40 }), 150);
      const people = db.collection<Key, unknown>('people', { indexes: dexieIndexes(PEOPLE) });
      const first = await compareIndexes(table, people);
      assert.deepEqual(first.wrong, []);
      assert.ok(first.compared > 500, `${first.compared} index entries`);
      // The same declaration serves new entries.
      const later = peopleOf(60, chance(seed + 100)).map((person, at) => ({
        ...person,
        email: `later ${at}`,
        phones: [-at - 1],
        id: at * 3 + 1,
      }));
      await table.bulkPut(later);
      await people.setMany(later.map((person) => [person.id, person]));
      await table.bulkDelete([5, 6, 7]);
      await people.deleteMany([5, 6, 7]);
      assert.deepEqual((await compareIndexes(table, people)).wrong, []);
      await assert.rejects(table.add({ email: 'later 3' }), { name: 'ConstraintError' });
      await rejects(people.set(1000, { email: 'later 3' }), 'KV_UNIQUE');
    });
    dexie.close();
  }
});

test('an interrupted migration ends with the same indexes', async () => {
  const dexie = dexieOf('interrupted people');
  const table = await fillPeople(dexie, 100, chance(9));
  await withMemory({}, async (db) => {
    const stop = new AbortController();
    const options = {
      name: dexie.name,
      batchSize: 30,
      onProgress: ({ done }: { done: number }) => void (done === 60 && stop.abort(new Error('enough'))),
    };
    await assert.rejects(migrateIndexedDB(db, { ...options, signal: stop.signal }), /enough/);
    assert.equal(await migrateIndexedDB(db, options), 40);
    assert.deepEqual(
      (await compareIndexes(table, db.collection('people', { indexes: dexieIndexes(PEOPLE) }))).wrong,
      [],
    );
  });
  dexie.close();
});

test('keys of each kind stay keys, and indexes follow transformed values', async () => {
  const dexie = dexieOf('kinds of keys');
  dexie
    .version(1)
    .stores({ outside: ',name', counted: '++,name', inside: 'id,name', compound: '[a+b],name', guid: 'key.id,name' });
  await dexie.table('outside').bulkAdd([{ name: 'b' }, { name: 'a' }], ['x', 'y']);
  await dexie.table('counted').bulkAdd([{ name: 'b' }, { name: 'a' }]);
  await dexie.table('inside').add({ id: 'i', name: 'n' });
  await dexie.table('compound').add({ a: 1, b: 'z', name: 'n' });
  await dexie.table('guid').add({ key: { id: 7 }, name: 'n' });
  await withMemory({}, async (db) => {
    const transform = ({ key, value }: { key: Key; value: unknown }) =>
      [key, { ...(value as object), name: (value as { name: string }).name.toUpperCase() }] as const;
    await migrateIndexedDB(db, { name: dexie.name, transform });
    const namesOf = async (store: string): Promise<unknown[]> => {
      const entries = await db
        .collection(store, { indexes: dexieIndexes('id, name') })
        .index('name')
        .entries()
        .toArray();
      return entries.map(({ indexKey, key }) => [indexKey, key]);
    };
    assert.deepEqual(await namesOf('outside'), [
      ['A', 'y'],
      ['B', 'x'],
    ]);
    assert.deepEqual(await namesOf('counted'), [
      ['A', 2],
      ['B', 1],
    ]);
    assert.deepEqual(await namesOf('inside'), [['N', 'i']]);
    assert.deepEqual(await namesOf('compound'), [['N', [1, 'z']]]);
    assert.deepEqual(await namesOf('guid'), [['N', 7]]);
  });
  dexie.close();
});

test('a program that leaves an index out cannot write, unless the migration has left them out', async () => {
  const dexie = dexieOf('left out');
  dexie.version(1).stores({ notes: '++id, author, *tags' });
  await dexie.table('notes').add({ author: 'Ada', tags: ['a'] });
  const write = (db: Database, schema: string): Promise<void> =>
    db.collection<number, object>('notes', { indexes: dexieIndexes(schema) }).set(2, { author: 'Eve' });
  await withMemory({}, async (db) => {
    await migrateIndexedDB(db, { name: 'left out' });
    await rejects(db.collection<number, object>('notes').set(2, { author: 'Eve' }), 'KV_INDEX_MISMATCH');
    await rejects(write(db, '++id, author'), 'KV_INDEX_MISMATCH');
    await rejects(write(db, '++id, &author, *tags'), 'KV_INDEX_MISMATCH');
    await write(db, '++id, author, *tags');
  });
  await withMemory({}, async (db) => {
    await migrateIndexedDB(db, { name: 'left out', indexes: false });
    await db.collection<number, object>('notes').set(2, { author: 'Eve' });
  });
  await withMemory({}, async (db) => {
    const notes = db.collection('notes', {
      indexes: { mine: { key: (value: unknown) => (value as { author: string }).author } },
    });
    await migrateIndexedDB(db, { name: 'left out', into: () => notes });
    assert.equal(await notes.index('mine').count({ eq: 'Ada' }), 1);
    await rejects(migrateIndexedDB(db, { name: 'left out', indexes: 1 as never }), 'KV_INVALID_ARGUMENT');
  });
  dexie.close();
});

test('an entry whose index key cannot be stored ends the migration, which names it', async () => {
  const dexie = dexieOf('long keys');
  dexie.version(1).stores({ notes: '++id, text' });
  await dexie.table('notes').bulkAdd([{ text: 'short' }, { text: 'x'.repeat(5000) }]);
  await withMemory({}, async (db) => {
    await assert.rejects(migrateIndexedDB(db, { name: 'long keys' }), {
      code: 'KV_KEY_TOO_LARGE',
      message: /notes: 2 cannot be stored in the index "text".*5012 bytes/,
    });
    const shorten = ({ key, value }: { key: Key; value: unknown }) =>
      [key, { text: (value as { text: string }).text.slice(0, 9) }] as const;
    assert.equal(await migrateIndexedDB(db, { name: 'long keys', transform: shorten }), 2);
  });
  dexie.close();
});

test('an array with holes is no key, and its neighbours are', async () => {
  const dexie = dexieOf('holes');
  dexie.version(1).stores({ notes: '++id, *tags, one' });
  const table = dexie.table<unknown, Key>('notes');
  const holes = new Array(2);
  await table.bulkAdd([
    { tags: [holes, 'a'], one: holes },
    { tags: [, 'b'], one: [holes] },
    { tags: holes, one: ['c'] },
  ]);
  await withMemory({}, async (db) => {
    await migrateIndexedDB(db, { name: 'holes' });
    const notes = db.collection<Key, unknown>('notes', { indexes: dexieIndexes('++id, *tags, one') });
    assert.deepEqual(await compareIndexes(table, notes), { wrong: [], compared: 3 });
    assert.deepEqual(
      (await notes.index('tags').entries().toArray()).map(({ indexKey }) => indexKey),
      ['a', 'b'],
    );
  });
  dexie.close();
});

test('schemas are read as Dexie reads them', async () => {
  const schemas = [
    '',
    'id',
    '++',
    '&id, name',
    ' ++id , name , *tags , &email , &*phones , [a+b] , [a.b+c] , a.b.c ',
    'id, $x, _y, ä',
    '[a+b], *c',
  ];
  for (const [at, schema] of schemas.entries()) {
    const dexie = dexieOf(`schema ${at}`);
    dexie.version(1).stores({ table: schema });
    await dexie.open();
    const objects = dexie.backendDB().transaction('table').objectStore('table');
    const theirs = indexesOf([...objects.indexNames].map((name) => objects.index(name)));
    const mine = dexieIndexes(schema);
    const shapeOf = (indexes: typeof mine): unknown =>
      Object.entries(indexes)
        .map(([name, { multi = false, unique }]) => ({ name, multi, unique }))
        .sort((a, b) => (a.name < b.name ? -1 : 1));
    assert.deepEqual(shapeOf(mine), shapeOf(theirs), schema);
    dexie.close();
  }
  assert.deepEqual(Object.keys(dexieIndexes('id, name, text: Y.Doc')), ['name']);
});

test('what is no index is refused', () => {
  for (const schema of [
    'id, name, name',
    'id, ++count',
    'id, ',
    'id, a b',
    'id, [a+ b]',
    'id, *[a+b]',
    'id, [a',
    'id, 1a',
    'id, a..b',
    undefined,
  ]) {
    assert.throws(() => dexieIndexes(schema as string), code('KV_INVALID_ARGUMENT'), schema);
  }
  for (const indexes of [
    undefined,
    'name',
    5,
    [undefined],
    [{}],
    [{ name: 'a' }],
    [{ name: '', keyPath: 'a' }],
    [{ name: 'a', keyPath: [] }],
    [{ name: 'a', keyPath: ['a', 1] }],
  ]) {
    assert.throws(() => indexesOf(indexes as never), code('KV_INVALID_ARGUMENT'));
  }
});
