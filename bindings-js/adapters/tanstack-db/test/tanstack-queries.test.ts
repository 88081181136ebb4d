// What is read for a predicate and an order, with any indexes, is what TanStack DB's own evaluator and
// comparator find among all rows.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { IR } from '@tanstack/db';
import fc from 'fast-check';
import { open } from 'mangrove-kv';
import type { Key } from 'mangrove-kv';
import { Rows, toColumns } from '../src/indexes.ts';
import { plan } from '../src/plan.ts';
import { readRows } from '../src/read.ts';
import { expected, indexes, key, query, row } from './support/queries.ts';
import type { Row } from './support/queries.ts';

test('random predicates, orders and windows over random indexes', async () => {
  const db = await open('queries', { storage: 'memory' });
  let at = 0;
  await fc.assert(
    fc.asyncProperty(
      indexes,
      fc.uniqueArray(fc.tuple(key, row), { selector: ([id]) => id, maxLength: 40 }),
      fc.array(query, { minLength: 1, maxLength: 12 }),
      async (declared, entries, queries) => {
        const rows = new Rows(db, `rows ${at++}`, declared.map(toColumns));
        await rows.collection.setMany(entries);
        const stored = (await rows.collection.entries().toArray()) as [Key, Row][];
        for (const asked of queries) {
          const read = await readRows({ rows: rows.collection, indexes: rows.indexes }, asked);
          assert.deepEqual(
            read.map(({ key: id }) => id),
            expected(stored, asked).map(([id]) => id),
          );
        }
        await db.dropCollection(rows.name);
      },
    ),
    { numRuns: 400 },
  );
  await db.close();
});

const ref = (path: string): IR.PropRef => new IR.PropRef([path]);
const eq = (path: string, value: unknown): IR.BasicExpression<boolean> =>
  new IR.Func('eq', [ref(path), new IR.Value(value)]);
const byAge: IR.OrderBy = [
  { expression: ref('age'), compareOptions: { direction: 'desc', nulls: 'last', stringSort: 'lexical' } },
];

test('predicates and orders are ranges of the index with the fewest rows', async () => {
  const db = await open('plans', { storage: 'memory' });
  const rows = new Rows(db, 'people', ['city', 'age', ['city', 'age']].map(toColumns));
  await rows.collection.setMany(
    Array.from({ length: 1000 }, (_, id): [Key, Row] => [id, { id, city: `city ${id % 10}`, age: id % 97 }]),
  );
  const planned = (asked: Parameters<typeof plan>[2]): ReturnType<typeof plan> =>
    plan(rows.indexes, (name) => rows.collection.index(name), asked, 1000);

  const city = await planned({ where: eq('city', 'city 3') });
  assert.equal(city?.count, 100);
  const both = await planned({ where: new IR.Func('and', [eq('city', 'city 3'), eq('age', 13)]) });
  assert.ok(both!.count <= 2);
  assert.match(both!.index, /city.*age/);
  const ordered = await planned({ where: eq('city', 'city 3'), orderBy: byAge, limit: 5 });
  assert.match(ordered!.index, /city.*age/);
  assert.deepEqual(ordered!.order, { column: 1, isAnyText: false });
  assert.equal((await planned({ orderBy: byAge, limit: 5 }))?.order?.column, 0);
  assert.equal(await planned({ orderBy: byAge }), undefined, 'all rows are wanted');
  assert.equal(await planned({ where: eq('id', 7) }), undefined, 'no index has the property');
  assert.equal((await planned({ where: eq('city', null) }))?.count, 0);
  await db.close();
});

test('values that an index key does not tell apart', async () => {
  const db = await open('values', { storage: 'memory' });
  const rows = new Rows(db, 'rows', ['text', 'time'].map(toColumns));
  const long = 'x'.repeat(128);
  const texts = [long, `${long}a`, `${long}b`, 'x'.repeat(127), 'b', 'A', 'a', 'B', 'é'];
  await rows.collection.setMany([
    ...texts.map((text, id): [Key, Row] => [id, { text }]),
    ...[5, new Date(5), 6].map((time, at): [Key, Row] => [100 + at, { time }]),
  ]);
  const stored = (await rows.collection.entries().toArray()) as [Key, Row][];
  const compare = (name: string, path: string, value: unknown): IR.BasicExpression<boolean> =>
    new IR.Func(name, [ref(path), new IR.Value(value)]);
  const order = (direction: 'asc' | 'desc', stringSort: 'lexical' | 'locale'): IR.OrderBy => [
    { expression: ref('text'), compareOptions: { direction, nulls: 'last', stringSort } },
  ];
  const asked = [
    ...['gt', 'gte', 'lt', 'lte', 'eq'].flatMap((name) =>
      texts.map((text) => ({ where: compare(name, 'text', text) })),
    ),
    ...[5, new Date(5), 5n].flatMap((time) =>
      ['eq', 'gt', 'lte'].map((name) => ({ where: compare(name, 'time', time) })),
    ),
    ...(['asc', 'desc'] as const).flatMap((direction) =>
      (['lexical', 'locale'] as const).flatMap((sort) =>
        [1, 2, 3, 5].map((limit) => ({ orderBy: order(direction, sort), limit, where: compare('gte', 'text', 'A') })),
      ),
    ),
  ];
  for (const each of asked) {
    const read = await readRows({ rows: rows.collection, indexes: rows.indexes }, each);
    assert.deepEqual(
      read.map(({ key: id }) => id),
      expected(stored, each).map(([id]) => id),
    );
  }
  await db.close();
});

test('a date finds the row whose key is the number of its milliseconds', async () => {
  const db = await open('dates', { storage: 'memory' });
  const rows = new Rows(db, 'rows', []);
  await rows.collection.set(5, { id: 5 });
  for (const where of [eq('id', new Date(5)), new IR.Func<boolean>('in', [ref('id'), new IR.Value([new Date(5)])])]) {
    const all = await readRows({ rows: rows.collection, indexes: rows.indexes }, { where });
    const byKey = await readRows({ rows: rows.collection, indexes: rows.indexes, keyPath: ['id'] }, { where });
    assert.deepEqual(byKey, all);
  }
  await db.close();
});
