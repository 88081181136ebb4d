// Random work of several handles, in any order: in the end every collection and live query shows what a
// query of the database itself finds, and no row of a query is missing or too much.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createCollection, createLiveQueryCollection, eq, gte } from '@tanstack/db';
import fc from 'fast-check';
import { open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { mangroveCollectionOptions } from '@mangrove-kv/tanstack-db';
import { until } from './support/until.ts';

interface Item {
  id: number;
  group: number;
  rank: number;
}

const collectionOf = (database: Database, syncMode: 'eager' | 'on-demand') =>
  createCollection(
    mangroveCollectionOptions<Item, number>({
      database,
      id: syncMode,
      name: 'items',
      getKey: ({ id }) => id,
      keyPath: 'id',
      indexes: ['group', 'rank', ['group', 'rank']],
      syncMode,
      subsetGcTime: 0,
    }),
  );

type Items = ReturnType<typeof collectionOf>;

const queries = {
  group: (items: Items, n: number) =>
    createLiveQueryCollection((q) => q.from({ i: items }).where(({ i }) => eq(i.group, n % 3))),
  rank: (items: Items, n: number) =>
    createLiveQueryCollection((q) => q.from({ i: items }).where(({ i }) => gte(i.rank, n % 10))),
  key: (items: Items, n: number) =>
    createLiveQueryCollection((q) => q.from({ i: items }).where(({ i }) => eq(i.id, n))),
  top: (items: Items) =>
    createLiveQueryCollection((q) =>
      q
        .from({ i: items })
        .orderBy(({ i }) => i.rank, 'desc')
        .orderBy(({ i }) => i.id)
        .limit(4),
    ),
};

type Kind = keyof typeof queries;

/** The ids that a query should show. */
function expected(kind: Kind, n: number, rows: readonly Item[]): number[] {
  switch (kind) {
    case 'group':
      return rows.filter(({ group }) => group === n % 3).map(({ id }) => id);
    case 'rank':
      return rows.filter(({ rank }) => rank >= n % 10).map(({ id }) => id);
    case 'key':
      return rows.filter(({ id }) => id === n).map(({ id }) => id);
    case 'top':
      return [...rows]
        .sort((one, other) => other.rank - one.rank || one.id - other.id)
        .slice(0, 4)
        .map(({ id }) => id);
  }
}

const id = fc.integer({ min: 0, max: 25 });
const item = fc.record({ id, group: fc.integer({ min: 0, max: 2 }), rank: fc.integer({ min: 0, max: 9 }) });
const operation = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant('insert' as const), who: fc.nat(1), item }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('update' as const), who: fc.nat(1), item }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('delete' as const), who: fc.nat(1), item }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('set' as const), items: fc.array(item, { maxLength: 5 }) }) },
  fc.record({ do: fc.constant('clear' as const), from: id, to: id }),
  fc.record({ do: fc.constant('drop' as const) }),
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant('query' as const),
      kind: fc.constantFrom('group', 'rank', 'key', 'top' as const),
      n: id,
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('stop' as const), n: fc.nat(5) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('restart' as const) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('wait' as const), turns: fc.nat(3) }) },
);

test('random work of several handles', { timeout: 300_000 }, async () => {
  const db = await open('model', { storage: 'memory' });
  await fc.assert(
    fc.asyncProperty(fc.array(operation, { minLength: 5, maxLength: 40 }), async (operations) => {
      await db.dropCollection('items');
      const eager = collectionOf(db, 'eager');
      const lazy = collectionOf(db, 'on-demand');
      const indexed = db.collection<number, Item>('items');
      await eager.preload();
      const rows = async (): Promise<Item[]> => indexed.values().toArray();
      const live: { kind: Kind; n: number; query: ReturnType<(typeof queries)['top']> }[] = [];
      const settling: Promise<unknown>[] = [];
      // A row may be there, or be gone, by the time of a write: then it fails as a whole.
      const write = (change: () => { isPersisted: { promise: Promise<unknown> } }): void => {
        try {
          settling.push(
            change().isPersisted.promise.catch((error: { code?: string }) => assert.equal(error.code, 'KV_EXISTS')),
          );
        } catch (error) {
          assert.match(String(error), /CollectionOperationError|DuplicateKeyError/);
        }
      };
      for (const step of operations) {
        const collection = 'who' in step && step.who === 1 ? lazy : eager;
        switch (step.do) {
          case 'insert':
            write(() => collection.insert(step.item));
            break;
          case 'update':
            write(() =>
              collection.update(step.item.id, (draft) =>
                Object.assign(draft, { group: step.item.group, rank: step.item.rank }),
              ),
            );
            break;
          case 'delete':
            write(() => collection.delete(step.item.id));
            break;
          case 'set': {
            const declared = db.collection<number, Item>('items');
            settling.push(
              declared
                .setMany(step.items.map((each) => [each.id, each]))
                .catch((error: { code?: string }) => assert.equal(error.code, 'KV_INDEX_MISMATCH')),
            );
            break;
          }
          case 'clear':
            settling.push(indexed.clear({ gte: step.from, lt: step.to }));
            break;
          case 'drop':
            settling.push(db.dropCollection('items'));
            break;
          case 'query': {
            const query = queries[step.kind](lazy, step.n);
            live.push({ kind: step.kind, n: step.n, query: query as never });
            settling.push(query.preload().catch(() => undefined));
            break;
          }
          case 'stop': {
            const [stopped] = live.splice(step.n, 1);
            if (stopped !== undefined) settling.push(stopped.query.cleanup());
            break;
          }
          case 'restart':
            for (const { query } of live.splice(0)) settling.push(query.cleanup());
            await Promise.all(settling);
            await lazy.cleanup();
            break;
          case 'wait':
            for (let turn = 0; turn < step.turns; turn++) await new Promise((resolve) => setTimeout(resolve));
        }
      }
      await Promise.all(settling);
      // When its own write is persisted, a collection has all commits before it, too.
      for (const [at, collection] of [eager, lazy].entries())
        await collection.insert({ id: 1000 + at, group: 9, rank: -1 }).isPersisted.promise;
      const stored = await rows();
      const same = (one: readonly number[], other: readonly number[]): boolean =>
        JSON.stringify(one) === JSON.stringify(other);
      const ids = (some: Iterable<{ id: number }>): number[] =>
        [...some].map((each) => each.id).sort((one, other) => one - other);
      const isDone = (): boolean =>
        same(ids(eager.values()), ids(stored)) &&
        live.every(({ kind, n, query }) => {
          const shown = query.toArray.map((each) => each.id);
          return same(kind === 'top' ? shown : shown.sort((one, other) => one - other), expected(kind, n, stored));
        });
      const late = Date.now() + 20_000;
      await until(() => isDone() || Date.now() > late);
      assert.deepEqual(ids(eager.values()), ids(stored));
      for (const { kind, n, query } of live) {
        assert.deepEqual(
          new Set(query.toArray.map((each) => each.id)),
          new Set(expected(kind, n, stored)),
          `${kind} ${n}`,
        );
        await query.cleanup();
      }
      const byId = new Map(stored.map((each) => [each.id, each]));
      for (const row of [...eager.values(), ...lazy.values()]) {
        const { group, rank } = byId.get(row.id)!;
        assert.deepEqual({ group: row.group, rank: row.rank }, { group, rank }, 'a row is as it is stored');
      }
      await Promise.all([eager.cleanup(), lazy.cleanup()]);
    }),
    { numRuns: 60 },
  );
  await db.close();
});
