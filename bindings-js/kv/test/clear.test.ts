// `clear` with a part of a range: removes what `entries` would yield and nothing else, wherever it
// is called.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MAX_KEY, keyCodecs } from 'mangrove-kv';
import type { Collection, Database, Range } from 'mangrove-kv';
import { withMemory } from './support/kit.ts';

const KEYS = ['a', 'ab', 'abc', 'b', 'ba', 'c', 'd'];

const RANGES: Range<string>[] = [];
for (const bounds of [
  {},
  { gt: 'a' },
  { gte: 'ab', lt: 'c' },
  { lte: 'b' },
  { prefix: 'a' },
  { prefix: 'a', gt: 'ab' },
  { gt: 'x' },
  { gt: 'c', lt: 'a' },
]) {
  for (const reverse of [false, true]) {
    for (const offset of [0, 1, 3, 10]) {
      for (const limit of [0, 1, 2, 10, Infinity]) RANGES.push({ ...bounds, reverse, offset, limit });
    }
  }
}

type Letters = Collection<string, number>;

/** Ways to call `clear`. */
const WAYS: Record<string, (db: Database, letters: Letters, range: Range<string>) => unknown> = {
  'a collection': (_, letters, range) => letters.clear(range),
  'a transaction': (db, letters, range) => db.transaction((tx) => tx.collection(letters).clear(range)),
  'the synchronous API': (db, letters, range) => db.sync.collection(letters).clear(range),
  'a synchronous transaction': (db, letters, range) => db.sync.transaction((tx) => tx.collection(letters).clear(range)),
};

for (const [name, clear] of Object.entries(WAYS)) {
  test(`clear in ${name}`, () =>
    withMemory({ durability: 'none' }, async (db) => {
      const letters = db.collection<string, number>('letters', { key: keyCodecs.string });
      for (const range of RANGES) {
        await letters.setMany(KEYS.map((key, index) => [key, index]));
        const gone = await letters.keys(range).toArray();
        await clear(db, letters, range);
        assert.deepEqual(
          await letters.keys().toArray(),
          KEYS.filter((key) => !gone.includes(key)),
          JSON.stringify(range),
        );
      }
    }));
}

test('clear of the database itself, with tuples as keys', () =>
  withMemory<[string, number]>({}, async (db) => {
    await db.setMany([
      [['a', 1], 1],
      [['a', 2], 2],
      [['a', 3], 3],
      [['b', 1], 4],
    ]);
    await db.clear({ prefix: ['a'], reverse: true, offset: 1 });
    assert.deepEqual(await db.keys().toArray(), [
      ['a', 3],
      ['b', 1],
    ]);
    await db.clear({ lt: ['a', MAX_KEY], limit: 5 });
    assert.deepEqual(await db.keys().toArray(), [['b', 1]]);
  }));

test('clear in a transaction includes its own writes', () =>
  withMemory<number>({}, async (db) => {
    await db.setMany([
      [1, 'a'],
      [3, 'b'],
    ]);
    await db.transaction(async (tx) => {
      await tx.set(2, 'own');
      await tx.clear({ limit: 2 });
      assert.deepEqual(await tx.keys().toArray(), [3]);
    });
    assert.deepEqual(await db.keys().toArray(), [3]);
  }));

test('many concurrent clears leave the right entries', () =>
  withMemory<number>({ durability: 'none' }, async (db) => {
    const work: Promise<unknown>[] = [];
    for (let key = 0; key < 40; key++) {
      work.push(db.set(key, key));
      if (key % 4 === 3) work.push(db.clear({ reverse: true, offset: 3 }));
    }
    await Promise.all(work);
    await db.clear({ reverse: true, offset: 3 });
    assert.deepEqual(await db.keys().toArray(), [37, 38, 39]);
  }));
