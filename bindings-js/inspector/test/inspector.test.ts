// Keys and values as the inspector formats and parses them; its views are tested in a browser.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keyCodecs, open, valueCodecs } from 'mangrove-kv';
import type { Collection, Database } from 'mangrove-kv';
import { toCells } from '../src/file-view.ts';
import { keyText, parseKey, parseRange } from '../src/key-text.ts';
import { kindOf, stateOf } from '../src/order.ts';
import { Source } from '../src/source.ts';
import type { InspectedCollection, InspectedDatabase } from '../src/source.ts';
import { shortText } from '../src/value-tree.ts';

test('any database and any collection can be inspected', () => {
  // Only the types matter.
  const take = (_database: InspectedDatabase, ..._collections: InspectedCollection[]): void => undefined;
  const typed = (db: Database<string, { a: number }>, collection: Collection<readonly [string, number], Date>): void =>
    take(db, collection);
  assert.equal(typeof typed, 'function');
});

test('keys are formatted as text and parsed back', () => {
  const keys = [null, true, 1.5, -3n, new Date(86_400_000), 'plain text', ['a', 1, [2n]]];
  for (const key of keys)
    assert.deepEqual(
      parseKey('any', keyText(key).replace(/, \[2n\]/, ', [2]')),
      Array.isArray(key) ? ['a', 1, [2]] : key,
    );
  assert.equal(parseKey('any', '"12"'), '12');
  assert.equal(parseKey('string', '12'), '12');
  assert.equal(parseKey('int53', '12'), 12);
  assert.equal(parseKey('uint64', '12'), 12n);
  assert.deepEqual(parseKey('bytes', '0x0aff'), new Uint8Array([10, 255]));
  assert.deepEqual(parseKey('tuple', 'Quito'), ['Quito']);
  assert.throws(() => parseKey('bytes', 'abc'), /hexadecimal/);
  assert.throws(() => parseKey('uint32', 'x'), /not a number/);
});

test('the typed text determines the range that is read', async () => {
  const db = await open('inspected', { storage: 'memory' });
  const cities = db.collection('cities', {
    key: keyCodecs.tuple<[string, string, number]>(),
    value: valueCodecs.json(),
  });
  for (const [index, name] of ['Quilmes', 'Quito', 'Quito', 'Riga'].entries())
    await cities.set([name, 'EC', index], { index });
  const names = db.collection('names', { key: keyCodecs.string });
  for (const name of ['a', 'ab', 'b', '12']) await names.set(name, 1);
  const source = new Source(db, []);
  const layout = await source.layout(false);
  const read = async (name: string, texts: { prefix?: string; from?: string; to?: string }): Promise<string[]> => {
    const one = layout.collections.find((collection) => collection.name === name)!;
    const range = parseRange(one.keyCodec, { prefix: '', from: '', to: '', ...texts });
    const entries = await source.open(one)!.entries(range).toArray();
    return entries.map(([key]) => keyText(key));
  };
  assert.equal((await read('cities', {})).length, 4);
  assert.equal((await read('cities', { prefix: 'Qui' })).length, 3);
  assert.equal((await read('cities', { prefix: '["Quito"]' })).length, 2);
  assert.equal((await read('cities', { prefix: 'Qui', from: 'Quito' })).length, 2);
  assert.equal((await read('cities', { prefix: 'Qui', from: 'A' })).length, 3);
  assert.equal((await read('cities', { to: 'Quilmes' })).length, 1);
  assert.deepEqual(await read('names', { prefix: 'a' }), ['a', 'ab']);
  assert.deepEqual(await read('names', { from: 'ab', to: 'b' }), ['ab', 'b']);
  await db.close();
});

test('a collection with its own codecs is read through the given handle', async () => {
  const db = await open('inspected', { storage: 'memory' });
  const codec = {
    id: 'reversed',
    encode: (text: string) => Uint8Array.from([...text].reverse(), (one) => one.charCodeAt(0)),
    decode: (bytes: Uint8Array) =>
      String.fromCharCode(...bytes)
        .split('')
        .reverse()
        .join(''),
  };
  const own = db.collection('own', { value: codec });
  await own.set('k', 'abc');
  const layout = (await db.layout()).collections.find(({ name }) => name === 'own')!;
  assert.equal(new Source(db, []).open(layout), undefined);
  assert.deepEqual(await new Source(db, [own]).open(layout)?.entries().toArray(), [['k', 'abc']]);
  await db.close();
});

test('an index is read as it is stored, or through the given handle', async () => {
  const db = await open<string, { due: number }>('inspected', {
    storage: 'memory',
    indexes: { byDue: { key: ({ due }) => due } },
  });
  await db.set('default', { due: 1 });
  const notes = db.collection<string, string[]>('notes', {
    indexes: { byTag: { key: (tags) => tags, multi: true, version: 2 } },
  });
  await notes.setMany([
    ['a', ['x', 'y']],
    ['b', ['x']],
  ]);
  const codec = { ...valueCodecs.json<number>(), id: 'own' };
  const own = db.collection('own', { value: codec, indexes: { byValue: { key: (value) => value, unique: true } } });
  const undeclared = db.collection('own', { value: codec });
  await own.set('k', 7);
  const before = await db.stats();
  const read = async (given: InspectedCollection[], name: string): Promise<unknown> => {
    const source = new Source(db, given);
    const { collections } = await source.layout(false);
    const { indexes } = await source.stats();
    const index = source.openIndex(
      collections.find((one) => one.name === name)!,
      indexes.find(({ collection }) => collection === name)!,
    );
    return index && [await index.count({ eq: 'x' }), await index.entries().toArray()];
  };
  assert.deepEqual(await read([], 'notes'), [
    2,
    [
      { indexKey: 'x', key: 'a', value: ['x', 'y'] },
      { indexKey: 'x', key: 'b', value: ['x'] },
      { indexKey: 'y', key: 'a', value: ['x', 'y'] },
    ],
  ]);
  assert.deepEqual(await read([], ''), [0, [{ indexKey: 1, key: 'default', value: { due: 1 } }]]);
  assert.equal(await read([], 'own'), undefined);
  assert.equal(await read([undeclared], 'own'), undefined);
  assert.deepEqual(await read([own], 'own'), [0, [{ indexKey: 7, key: 'k', value: 7 }]]);
  assert.equal((await db.stats()).version, before.version, 'the inspector declares nothing');
  await db.close();
});

test('an index is described with its progress', () => {
  const index = {
    collection: 'notes',
    name: 'byTag',
    version: 2,
    unique: false,
    complete: true,
    count: 1234,
    done: 700,
    total: 700,
  };
  assert.deepEqual([kindOf(index), stateOf(index)], ['version 2, multi', 'complete']);
  assert.equal(kindOf({ ...index, count: 700 }), 'version 2');
  assert.equal(kindOf({ ...index, count: 699, unique: true }), 'version 2, unique, leaves out 1 entry');
  const building = { ...index, unique: true, complete: false, count: 1, done: 350 };
  assert.deepEqual([kindOf(building), stateOf(building)], ['version 2, unique', '350 of 700, 50.0 %']);
});

test('values fit on one line', () => {
  const cyclic: unknown[] = [1];
  cyclic.push(cyclic);
  assert.equal(
    shortText(
      new Map<unknown, unknown>([
        ['a', new Set([1n, 2])],
        [1, -0],
      ]),
    ),
    'Map {"a": Set [1n, 2], 1: -0}',
  );
  assert.equal(
    shortText({ a: [undefined, null], b: new Date(0), c: /x/g }),
    '{a: [undefined, null], b: 1970-01-01T00:00:00.000Z, c: /x/g}',
  );
  assert.equal(shortText(new Uint8Array([1, 255])), 'Uint8Array(2 B) 01 ff');
  assert.ok(shortText(cyclic).length < 200);
  assert.ok(shortText('x'.repeat(1e6)).length <= 120);
});

test('the map has a cell for each part of the file', () => {
  const extents = [
    { offset: 0, length: 10, kind: 'superblock' },
    { offset: 10, length: 25, kind: 'leaf', collection: 'a' },
    { offset: 35, length: 5, kind: 'free' },
  ] as const;
  const cells = toCells({ extents, fileSize: 40 }, 10);
  assert.deepEqual(
    cells.map(({ from, to, main }) => [from, to, main.kind]),
    [
      [0, 10, 'superblock'],
      [10, 20, 'leaf'],
      [20, 30, 'leaf'],
      [30, 40, 'leaf'],
    ],
  );
});
