// TanStack DB's persistence contract, written anew from its description and source: no suite of it is
// published. Collections are TanStack DB's own, made by its persistence core.
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { IR } from '@tanstack/db';
import { persistedCollectionOptions } from '@tanstack/db-sqlite-persistence-core';
import type {
  PersistedCollectionPersistence,
  PersistedTx,
  PersistenceAdapter,
} from '@tanstack/db-sqlite-persistence-core';
import fc from 'fast-check';
import { open } from 'mangrove-kv';
import type { Database, Key } from 'mangrove-kv';
import { mangrovePersistence } from '@mangrove-kv/tanstack-db/persistence';
import { expected, key, query, row } from './support/queries.ts';
import type { Row } from './support/queries.ts';
import { until } from './support/until.ts';
import { tanStackOf } from './support/versions.ts';

const { BTreeIndex, createCollection, createLiveQueryCollection, eq, gt } = await tanStackOf(
  '@tanstack/db-sqlite-persistence-core',
);

interface Todo {
  id: string;
  title: string;
  score: number;
}

const places: string[] = [];
after(() => Promise.all(places.map((place) => rm(place, { recursive: true, force: true }))));

async function place(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'tanstack-db-'));
  places.push(path);
  return join(path, 'db');
}

const memory = (): Promise<Database> => open('persisted', { storage: 'memory' });

const todo = (id: string, title = id, score = 0): Todo => ({ id, title, score });

type Mutation = PersistedTx['mutations'][number];

function transaction(seq: number, mutations: readonly Mutation[], rest: Partial<PersistedTx> = {}): PersistedTx {
  return { txId: `tx-${seq}`, term: 1, seq, rowVersion: seq, mutations: [...mutations], ...rest };
}

const insert = (value: Todo): Mutation => ({ type: 'insert', key: value.id, value: { ...value } });
const update = (id: string, value: Partial<Todo>): Mutation => ({ type: 'update', key: id, value });
const remove = (id: string): Mutation => ({ type: 'delete', key: id, value: {} });

const eqId = (id: string): IR.BasicExpression<boolean> => new IR.Func('eq', [new IR.PropRef(['id']), new IR.Value(id)]);

/** Rows that an adapter loads, with the types of the version of TanStack DB that is used here. */
const load = (
  adapter: PersistenceAdapter,
  options: object = {},
  id = 'todos',
): ReturnType<PersistenceAdapter['loadSubset']> => adapter.loadSubset(id, options as never);

test('a persisted transaction is one commit, and a repeated one changes nothing', async () => {
  const db = await memory();
  const { adapter } = mangrovePersistence(db);
  await load(adapter);
  const commits: number[] = [];
  const watched = (async () => {
    for await (const { version } of db.changes()) commits.push(version);
  })();
  const first = transaction(1, [insert(todo('1', 'one')), insert(todo('2', 'two'))]);
  await adapter.applyCommittedTx('todos', first);
  await adapter.applyCommittedTx('todos', transaction(2, [update('1', { title: 'changed' }), remove('2')]));
  await adapter.applyCommittedTx('todos', first);
  assert.deepEqual(await load(adapter), [{ key: '1', value: todo('1', 'changed') }]);
  assert.deepEqual(await load(adapter, { where: eqId('2') }), []);
  assert.deepEqual(await adapter.getStreamPosition?.('todos'), { latestTerm: 1, latestSeq: 2, latestRowVersion: 2 });
  await db.close();
  await watched;
  assert.equal(commits.length, 2);
});

test('a transaction that cannot be stored as a whole is not stored at all', async () => {
  const db = await memory();
  const { adapter } = mangrovePersistence(db);
  const broken = { ...todo('2'), title: () => 'function' } as unknown as Todo;
  await assert.rejects(
    adapter.applyCommittedTx(
      'todos',
      transaction(1, [insert(todo('1')), insert(broken)], {
        collectionMetadataMutations: [{ type: 'set', key: 'a', value: 1 }],
      }),
    ),
    { code: 'KV_INVALID_VALUE' },
  );
  assert.deepEqual(await load(adapter), []);
  assert.deepEqual(await adapter.loadCollectionMetadata?.('todos'), []);
  assert.deepEqual(await adapter.getStreamPosition?.('todos'), { latestTerm: 0, latestSeq: 0, latestRowVersion: 0 });
  await db.close();
});

test('two transactions with one number are both applied: two tabs have counted alike', async () => {
  const path = await place();
  const [one, other] = [await open(path), await open(path)];
  const [first, second] = [one, other].map((db) => mangrovePersistence(db).adapter);
  await Promise.all([
    first!.applyCommittedTx('todos', transaction(1, [insert(todo('1'))], { txId: 'of one tab' })),
    second!.applyCommittedTx('todos', transaction(1, [insert(todo('2'))], { txId: 'of another' })),
  ]);
  for (const adapter of [first!, second!])
    assert.deepEqual(
      (await load(adapter)).map(({ key: id }) => id),
      ['1', '2'],
    );
  await other.close();
  await one.close();
});

test('metadata of rows and of the collection belong to their transaction', async () => {
  const db = await memory();
  const { adapter } = mangrovePersistence(db);
  await adapter.applyCommittedTx(
    'todos',
    transaction(
      1,
      [{ ...insert(todo('1')), metadata: { etag: 1 }, metadataChanged: true } as Mutation, insert(todo('2'))],
      {
        rowMetadataMutations: [
          { type: 'set', key: '2', value: { etag: 2 } },
          { type: 'set', key: 'missing', value: 1 },
        ],
        collectionMetadataMutations: [
          { type: 'set', key: 'offset', value: 5 },
          { type: 'set', key: 'gone', value: 1 },
        ],
      },
    ),
  );
  assert.deepEqual(await load(adapter), [
    { key: '1', value: todo('1'), metadata: { etag: 1 } },
    { key: '2', value: todo('2'), metadata: { etag: 2 } },
  ]);
  // An update keeps metadata, a delete takes it with it.
  await adapter.applyCommittedTx(
    'todos',
    transaction(2, [update('1', { score: 1 }), remove('2'), insert(todo('2')), insert(todo('3'))], {
      collectionMetadataMutations: [{ type: 'delete', key: 'gone' }],
    }),
  );
  assert.deepEqual(await adapter.scanRows?.('todos', { metadataOnly: true }), [
    { key: '1', value: todo('1', '1', 1), metadata: { etag: 1 } },
  ]);
  assert.equal((await adapter.scanRows?.('todos'))?.length, 3);
  assert.deepEqual(await adapter.loadCollectionMetadata?.('todos'), [{ key: 'offset', value: 5 }]);
  // Truncation removes rows with their metadata, and keeps what the transaction says of the collection.
  await adapter.applyCommittedTx(
    'todos',
    transaction(3, [insert(todo('4'))], {
      truncate: true,
      collectionMetadataMutations: [{ type: 'set', key: 'offset', value: 0 }],
    }),
  );
  assert.deepEqual(await load(adapter), [{ key: '4', value: todo('4') }]);
  assert.deepEqual(await adapter.loadCollectionMetadata?.('todos'), [{ key: 'offset', value: 0 }]);
  await db.close();
});

test('keys, values and ids of collections keep their types', async () => {
  const db = await memory();
  const { adapter } = mangrovePersistence(db);
  const value = { id: 1, at: new Date(5), big: 2n ** 70n, nan: NaN, none: null, nested: { list: [1, 'a'] } };
  const id = 'a/b"; DROP TABLE todos; --';
  await adapter.applyCommittedTx(
    id,
    transaction(1, [
      { type: 'insert', key: 1, value },
      { type: 'insert', key: '1', value: { id: '1' } },
    ]),
  );
  assert.deepEqual(await load(adapter, {}, id), [
    { key: 1, value },
    { key: '1', value: { id: '1' } },
  ]);
  assert.deepEqual(await load(adapter, {}, 'a'), []);
  await db.close();
});

test('random predicates, orders and cursors with the indexes that were ensured', async () => {
  const db = await memory();
  const { adapter } = mangrovePersistence(db);
  let at = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.uniqueArray(fc.constantFrom('number', 'text', 'date', 'any', 'two'), { maxLength: 3 }),
      fc.uniqueArray(fc.tuple(key, row), { selector: ([id]) => id, maxLength: 25 }),
      fc.array(fc.tuple(query, fc.option(fc.integer({ min: -3, max: 3 }))), { minLength: 1, maxLength: 6 }),
      async (paths, entries, queries) => {
        const id = `rows ${at++}`;
        const mutations = entries.map(([k, value]): Mutation => ({ type: 'insert', key: k, value }));
        await adapter.applyCommittedTx(id, transaction(1, mutations));
        // Late: there are rows.
        for (const path of paths) {
          const expression = JSON.stringify({ path: [path], type: 'ref' });
          await adapter.ensureIndex(id, path, { expressionSql: [expression] });
        }
        const stored = (await load(adapter, {}, id)).map(({ key: k, value }): [Key, Row] => [k, value]);
        assert.equal(stored.length, entries.length);
        for (const [asked, from] of queries) {
          const keys = (await load(adapter, asked, id)).map(({ key: k }) => k);
          assert.deepEqual(
            keys,
            expected(stored, asked).map(([k]) => k),
          );
          if (from === null) continue;
          const [ref, value] = [new IR.PropRef(['number']), new IR.Value(from)];
          const [whereCurrent, whereFrom] = ['eq', 'gt'].map((name) => new IR.Func<boolean>(name, [ref, value]));
          const cursor = { whereCurrent, whereFrom };
          const paged = (await load(adapter, { ...asked, cursor }, id)).map(({ key: k }) => k);
          const both = (more: IR.BasicExpression<boolean>): IR.BasicExpression<boolean> =>
            asked.where === undefined ? more : new IR.Func('and', [asked.where, more]);
          const { orderBy, limit } = asked;
          const ofPage = [
            ...expected(stored, { ...(orderBy && { orderBy }), where: both(whereCurrent!) }),
            ...expected(stored, {
              ...(orderBy && { orderBy }),
              ...(limit !== undefined && { limit }),
              where: both(whereFrom!),
            }),
          ];
          assert.deepEqual(new Set(paged), new Set(ofPage.map(([k]) => k)));
        }
      },
    ),
    { numRuns: 100 },
  );
  await db.close();
});

test('an index that TanStack DB has is a declared index, until it is removed', async () => {
  const db = await memory();
  const { adapter } = mangrovePersistence(db);
  await adapter.applyCommittedTx('todos', transaction(1, [insert(todo('1', 'one', 1))]));
  const declared = async (): Promise<[string, number, boolean][]> =>
    (await db.stats()).indexes.map(({ name, count, complete }) => [name, count, complete]);
  await adapter.ensureIndex('todos', 'a', { expressionSql: ['{"path":["title"],"type":"ref"}'] });
  await adapter.ensureIndex('todos', 'b', { expressionSql: ["json_extract(value, '$.title')"] });
  await adapter.ensureIndex('todos', 'c', {
    expressionSql: ['{"path":["title"],"type":"ref"}', '{"path":["score"],"type":"ref"}'],
  });
  const [both, title] = ['tanstack:[["title"],["score"]]', 'tanstack:[["title"]]'];
  assert.deepEqual((await declared()).sort(), [
    [both, 1, true],
    [title, 1, true],
  ]);
  await adapter.applyCommittedTx('todos', transaction(2, [insert(todo('2', 'two', 2))]));
  await adapter.markIndexRemoved?.('todos', 'c');
  await adapter.markIndexRemoved?.('todos', 'a');
  assert.deepEqual(await declared(), [[title, 2, true]], 'another signature still has it');
  await adapter.markIndexRemoved?.('todos', 'b');
  await adapter.markIndexRemoved?.('todos', 'unknown');
  assert.deepEqual(await declared(), []);
  await adapter.applyCommittedTx('todos', transaction(3, [insert(todo('3', 'three', 3))]));
  assert.equal((await load(adapter)).length, 3);
  for (const expression of ['1); DROP TABLE todos; --', '{"type":"func","name":"lower","args":[]}', '{}'])
    await assert.rejects(adapter.ensureIndex('todos', 'd', { expressionSql: [expression] }), {
      code: 'KV_INVALID_ARGUMENT',
    });
  await db.close();
});

test('handles that ensure different indexes, late and at once, can all write', async () => {
  const path = await place();
  const databases = await Promise.all([open(path), open(path), open(path)]);
  const adapters = databases.map((db) => mangrovePersistence(db).adapter);
  let seq = 0;
  const write = (adapter: PersistenceAdapter): Promise<void> => {
    const n = ++seq;
    return adapter.applyCommittedTx(
      'todos',
      transaction(n, [insert(todo(`${n}`, `title ${n % 3}`, n))], { txId: `${n}` }),
    );
  };
  for (const adapter of adapters) await write(adapter);
  const ensure = (adapter: PersistenceAdapter, property: string): Promise<void> =>
    adapter.ensureIndex('todos', property, { expressionSql: [JSON.stringify({ path: [property], type: 'ref' })] });
  await Promise.all(
    adapters.flatMap((adapter, at) => [ensure(adapter, ['title', 'score', 'id'][at]!), write(adapter), write(adapter)]),
  );
  for (const adapter of adapters) await write(adapter);
  await adapters[0]!.markIndexRemoved?.('todos', 'title');
  await Promise.all(adapters.flatMap((adapter) => [write(adapter), write(adapter)]));
  // One that was opened before and knows of no index.
  const late = mangrovePersistence(databases[2]!).adapter;
  await ensure(late, 'done');
  await Promise.all([...adapters, late].map(write));
  const where = new IR.Func('eq', [new IR.PropRef(['title']), new IR.Value('title 1')]);
  for (const adapter of [...adapters, late]) {
    assert.equal((await load(adapter)).length, seq);
    const found = await load(adapter, { where });
    assert.deepEqual(
      found.map(({ value }) => (value as unknown as Todo).title),
      Array.from(found, () => 'title 1'),
    );
    assert.equal(found.length, Math.floor((seq + 2) / 3));
  }
  const { indexes } = await databases[0]!.stats();
  assert.ok(
    ['score', 'id', 'done'].every((property) =>
      indexes.some(({ name, complete }) => complete && name.includes(`"${property}"`)),
    ),
  );
  assert.deepEqual((await databases[0]!.verify()).problems, []);
  for (const db of databases.reverse()) await db.close();
});

test('another schema version removes rows of a source, and refuses rows that nobody could send again', async () => {
  const db = await memory();
  const resolve = (
    persistence: PersistedCollectionPersistence,
    mode: 'sync-present' | 'sync-absent',
    schemaVersion: number,
  ): PersistenceAdapter =>
    persistence.resolvePersistenceForCollection!({ collectionId: 'todos', mode, schemaVersion }).adapter;
  const persistence = mangrovePersistence(db);
  const [old, newer] = [resolve(persistence, 'sync-present', 1), resolve(persistence, 'sync-present', 2)];
  await old.applyCommittedTx(
    'todos',
    transaction(1, [insert(todo('1'))], { collectionMetadataMutations: [{ type: 'set', key: 'offset', value: 5 }] }),
  );
  await assert.rejects(load(resolve(persistence, 'sync-absent', 2)), { code: 'KV_INVALID_ARGUMENT' });
  assert.equal((await load(old)).length, 1);
  assert.deepEqual(await load(newer), []);
  assert.deepEqual(
    await newer.loadCollectionMetadata?.('todos'),
    [],
    'or a source would go on after rows that are gone',
  );
  // A page with the older version is still open.
  await assert.rejects(old.applyCommittedTx('todos', transaction(2, [insert(todo('2'))])), {
    code: 'KV_VERSION_CHANGED',
  });
  await newer.applyCommittedTx('todos', transaction(1, [insert(todo('3'))], { txId: 'new' }));
  assert.deepEqual(
    (await load(newer)).map(({ key: id }) => id),
    ['3'],
  );
  await db.close();
});

function persisted(persistence: PersistedCollectionPersistence, options: object = {}) {
  return createCollection(
    persistedCollectionOptions<Todo, string>({
      id: 'todos',
      getKey: ({ id }: Todo) => id,
      persistence,
      autoIndex: 'eager',
      defaultIndexType: BTreeIndex,
      ...options,
    } as never) as never,
  ) as unknown as ReturnType<typeof createCollection<Todo, string>>;
}

test('a second handle hydrates at once, and both follow each other', async () => {
  const path = await place();
  const [one, other] = [await open(path), await open(path)];
  const first = persisted(mangrovePersistence(one));
  await first.stateWhenReady();
  await first.insert([todo('1'), todo('2')]).isPersisted.promise;

  const second = persisted(mangrovePersistence(other));
  await second.stateWhenReady();
  assert.deepEqual([...second.keys()].sort(), ['1', '2']);
  await second.update('1', (draft) => {
    draft.title = 'of the second';
  }).isPersisted.promise;
  await until(() => first.get('1')?.title === 'of the second');
  await first.delete('2').isPersisted.promise;
  await until(() => !second.has('2'));
  // Both write at once: nothing is lost, and both end with what is stored.
  const count = 20;
  await Promise.all(
    Array.from({ length: count }, (_, n) => (n % 2 === 0 ? first : second).insert(todo(`n${n}`)).isPersisted.promise),
  );
  for (let n = 0; n < count; n++) {
    const collection = n % 2 === 0 ? first : second;
    collection.update('1', (draft) => {
      draft.score = n;
    });
  }
  const settled = async (): Promise<boolean> => {
    const { adapter } = mangrovePersistence(one);
    const stored = new Map((await load(adapter)).map(({ key: id, value }) => [id, value['score']]));
    return [first, second].every(
      (each) =>
        each.size === stored.size && [...stored].every(([id, score]) => each.get(id as string)?.score === score),
    );
  };
  await until(settled);
  assert.equal(first.size, count + 1);
  await Promise.all([first.cleanup(), second.cleanup()]);
  await other.close();
  await one.close();
});

test('a repeated transaction hides no commit of somebody else', async () => {
  const db = await memory();
  const persistence = mangrovePersistence(db);
  const followed = persisted(persistence);
  await followed.stateWhenReady();
  await persistence.adapter.applyCommittedTx('todos', transaction(1, [insert(todo('0'))]));
  const others = mangrovePersistence(db).adapter;
  await others.applyCommittedTx('todos', transaction(2, []));
  const count = 100;
  for (let n = 1; n <= count; n++) {
    // The repetition sees the commit before it, and makes none.
    await Promise.all([
      others.applyCommittedTx('todos', transaction(n + 2, [insert(todo(`${n}`))])),
      persistence.adapter.applyCommittedTx('todos', transaction(1, [insert(todo('0'))])),
    ]);
  }
  const late = Date.now() + 5000;
  await until(() => followed.has(`${count}`) || Date.now() > late);
  const missing = Array.from({ length: count }, (_, n) => `${n + 1}`).filter((id) => !followed.has(id));
  assert.deepEqual(missing, []);
  await followed.cleanup();
  await db.close();
});

test('many transactions at once, of two handles, are all stored', async () => {
  const path = await place();
  const handles = [await open(path), await open(path)];
  const both = handles.map((db) => persisted(mangrovePersistence(db)));
  await Promise.all(both.map((each) => each.stateWhenReady()));
  const count = 300;
  const stored = both.flatMap((each, at) =>
    Array.from({ length: count }, (_, n) => each.insert(todo(`${at} ${n}`)).isPersisted.promise),
  );
  const outcomes = await Promise.allSettled(stored);
  assert.deepEqual(
    outcomes.flatMap((each) => (each.status === 'rejected' ? [(each.reason as Error).message] : [])),
    [],
  );
  await until(() => both.every((each) => each.size === 2 * count));
  await Promise.all(both.map((each) => each.cleanup()));
  for (const db of handles.reverse()) await db.close();
});

test('rows of a source are persisted, and are there when the source is not', async () => {
  const path = await place();
  const db = await open(path);
  const source = (isOnline: boolean): object => ({
    sync: {
      sync: ({
        begin,
        write,
        commit,
        markReady,
      }: {
        begin(): void;
        write(message: object): void;
        commit(): void;
        markReady(): void;
      }) => {
        if (!isOnline) return;
        begin();
        write({ type: 'insert', value: todo('1', 'from the source') });
        commit();
        markReady();
      },
    },
  });
  const online = persisted(mangrovePersistence(db), source(true));
  await online.stateWhenReady();
  const { adapter } = mangrovePersistence(db);
  await until(async () => (await load(adapter)).length > 0);
  await online.cleanup();
  await db.close();

  const again = await open(path);
  const offline = persisted(mangrovePersistence(again), source(false));
  offline.startSyncImmediate();
  await until(() => offline.has('1'));
  assert.equal(offline.get('1')?.title, 'from the source');
  await offline.cleanup();
  await again.close();
});

test('two handles with a source each count alike, and lose nothing', async () => {
  const path = await place();
  const [one, other] = [await open(path), await open(path)];
  const controls: { send(value: Todo): void }[] = [];
  const source = {
    sync: {
      sync: ({
        begin,
        write,
        commit,
        markReady,
      }: {
        begin(): void;
        write(message: object): void;
        commit(): void;
        markReady(): void;
      }) => {
        markReady();
        controls.push({
          send: (value) => {
            begin();
            write({ type: 'update', value });
            commit();
          },
        });
      },
    },
  };
  const collections = [one, other].map((db) => persisted(mangrovePersistence(db), source));
  await Promise.all(collections.map((collection) => collection.stateWhenReady()));
  await until(() => controls.length === 2);
  const count = 30;
  for (let n = 0; n < count; n++) {
    controls[n % 2]!.send(todo(`n${n}`, 'title', n));
    controls[n % 2]!.send(todo('contested', 'title', n));
  }
  const { adapter } = mangrovePersistence(one);
  await until(async () => (await load(adapter)).length === count + 1);
  await until(() => collections.every((collection) => collection.size === count + 1));
  const settled = async (): Promise<boolean> => {
    const [stored] = await load(adapter, { where: eqId('contested') });
    return collections.every((collection) => collection.get('contested')?.score === stored?.value['score']);
  };
  await until(settled);
  await Promise.all(collections.map((collection) => collection.cleanup()));
  await other.close();
  await one.close();
});

test('on demand, live queries load and follow their rows', async () => {
  const path = await place();
  const [one, other] = [await open(path), await open(path)];
  const seed = persisted(mangrovePersistence(one));
  await seed.stateWhenReady();
  await seed.insert(Array.from({ length: 50 }, (_, n) => todo(`${n}`, `title ${n % 5}`, n))).isPersisted.promise;
  const lazy = persisted(mangrovePersistence(other), { syncMode: 'on-demand' });
  const titled = createLiveQueryCollection((q) => q.from({ t: lazy }).where(({ t }) => eq(t.title, 'title 3')));
  await titled.preload();
  assert.equal(titled.size, 10);
  assert.equal(lazy.size, 10);
  const top = createLiveQueryCollection((q) =>
    q
      .from({ t: lazy })
      .where(({ t }) => gt(t.score, 10))
      .orderBy(({ t }) => t.score, 'desc')
      .limit(3),
  );
  await top.preload();
  assert.deepEqual(
    top.toArray.map(({ score }) => score),
    [49, 48, 47],
  );
  await seed.insert(todo('new', 'title 3', 100)).isPersisted.promise;
  await until(() => titled.size === 11 && top.toArray[0]?.score === 100);
  await seed.delete('new').isPersisted.promise;
  await until(() => titled.size === 10 && top.toArray[0]?.score === 49);
  await Promise.all([titled.cleanup(), top.cleanup()]);
  await Promise.all([seed.cleanup(), lazy.cleanup()]);
  await other.close();
  await one.close();
});

test('options that are wrong are refused', async () => {
  const db = await memory();
  for (const options of [{ prefixx: 'a' }, { prefix: 5 }, { prefix: 'a/rows' }, { schemaMismatchPolicy: 'drop' }])
    assert.throws(() => mangrovePersistence(db, options as never), { code: 'KV_INVALID_ARGUMENT' });
  await db.close();
});
