// Collections of local data: what TanStack DB shows is what the database has, in every handle.
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { createCollection, createLiveQueryCollection, createTransaction, eq, gt } from '@tanstack/db';
import { open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { mangroveCollectionOptions, persistTransaction } from '@mangrove-kv/tanstack-db';
import type { MangroveCollectionConfig } from '@mangrove-kv/tanstack-db';
import { until } from './support/until.ts';

interface Todo {
  id: number;
  text: string;
  done?: boolean;
  list?: string;
}

const places: string[] = [];
after(() => Promise.all(places.map((place) => rm(place, { recursive: true, force: true }))));

/** A directory for a database that several handles open. */
async function place(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'tanstack-db-'));
  places.push(path);
  return join(path, 'db');
}

const memory = (): Promise<Database> => open('todos', { storage: 'memory' });

function todos(database: Database | Promise<Database>, options: Partial<MangroveCollectionConfig<Todo, number>> = {}) {
  return createCollection(
    mangroveCollectionOptions<Todo, number>({
      database,
      name: 'todos',
      getKey: ({ id }) => id,
      defaultStringCollation: { stringSort: 'lexical' },
      indexes: ['done', 'text', ['list', 'id']],
      ...options,
    } as MangroveCollectionConfig<Todo, number> & { schema?: never }),
  );
}

type Todos = ReturnType<typeof todos>;

const onDemand = (database: Database | Promise<Database>, options = {}): Todos =>
  todos(database, { syncMode: 'on-demand', ...options });

const plain = (rows: readonly object[]): Todo[] =>
  rows.map((row) =>
    Object.fromEntries(Object.entries(row).filter(([name]) => !name.startsWith('$'))),
  ) as unknown as Todo[];

const some = (count: number): Todo[] =>
  Array.from({ length: count }, (_, id) => ({ id, text: `todo ${id}`, done: id % 2 === 0, list: `list ${id % 3}` }));

test('rows are stored in one commit for each transaction, and are there for the next collection', async () => {
  const db = await memory();
  const collection = todos(db);
  await collection.preload();
  const versions: number[] = [];
  const watched = (async () => {
    for await (const { version } of db.changes()) versions.push(version);
  })();
  await collection.insert(some(3)).isPersisted.promise;
  await collection.update(1, (draft) => {
    draft.text = 'changed';
  }).isPersisted.promise;
  await collection.delete([0, 2]).isPersisted.promise;
  assert.deepEqual(await db.collection('todos').entries().toArray(), [
    [1, { id: 1, text: 'changed', done: false, list: 'list 1' }],
  ]);
  assert.deepEqual(plain(collection.toArray), [{ id: 1, text: 'changed', done: false, list: 'list 1' }]);

  const again = todos(db);
  await again.preload();
  assert.deepEqual(plain(again.toArray), plain(collection.toArray));
  await Promise.all([collection.cleanup(), again.cleanup()]);
  await db.close();
  await watched;
  assert.equal(new Set(versions).size, 3);
  assert.equal(versions.length, 3);
});

test('a promise of a database is enough, and what it rejects with is the error of the collection', async () => {
  const collection = todos(memory());
  await collection.preload();
  await collection.insert({ id: 1, text: 'one' }).isPersisted.promise;
  await collection.cleanup();

  const failure = new Error('no database');
  const failed = todos(Promise.reject<Database>(failure));
  await assert.rejects(failed.preload(), failure);
  const lazy = onDemand(Promise.reject<Database>(failure));
  const query = createLiveQueryCollection((q) => q.from({ todo: lazy }).where(({ todo }) => eq(todo.done, true)));
  await assert.rejects(query.preload());
});

test('an error takes the optimistic state back, and stores nothing', async () => {
  const db = await memory();
  const collection = todos(db);
  await collection.preload();
  const rows = db.collection<number, Todo>('todos');
  await collection.insert({ id: 1, text: 'one' }).isPersisted.promise;

  const unstorable = collection.insert([
    { id: 2, text: 'two' },
    { id: 3, text: (() => 3) as unknown as string },
  ]);
  assert.ok(collection.has(2));
  await assert.rejects(unstorable.isPersisted.promise, { code: 'KV_INVALID_VALUE' });
  await until(() => !collection.has(2));
  assert.deepEqual(await rows.keys().toArray(), [1]);

  await db.close();
  const late = collection.insert({ id: 4, text: 'four' });
  await assert.rejects(late.isPersisted.promise, { code: 'KV_CLOSED' });
  await until(() => !collection.has(4));
  assert.deepEqual(plain(collection.toArray), [{ id: 1, text: 'one' }]);
});

test('a row that another handle has inserted is not overwritten', async () => {
  const db = await memory();
  const lazy = onDemand(db);
  await lazy.preload();
  const other = todos(db);
  await other.preload();
  await other.insert({ id: 1, text: 'theirs' }).isPersisted.promise;
  await assert.rejects(lazy.insert({ id: 1, text: 'mine' }).isPersisted.promise, { code: 'KV_EXISTS' });
  assert.equal(other.get(1)?.text, 'theirs');
  assert.deepEqual(await db.collection('todos').get(1), { id: 1, text: 'theirs' });
  await db.close();
});

test('handles change different properties of a row at once, and both changes stay', async () => {
  const path = await place();
  const [one, other] = [await open(path), await open(path)];
  const [first, second] = [todos(one), todos(other)];
  await Promise.all([first.preload(), second.preload()]);
  await first.insert({ id: 1, text: 'text', done: false, list: 'a' }).isPersisted.promise;
  await until(() => second.has(1));
  await Promise.all([
    first.update(1, (draft) => {
      draft.text = 'first';
    }).isPersisted.promise,
    second.update(1, (draft) => {
      draft.done = true;
      delete draft.list;
    }).isPersisted.promise,
  ]);
  // TanStack DB keeps a property that was deleted, as undefined.
  const merged = { id: 1, text: 'first', done: true, list: undefined };
  for (const collection of [first, second])
    await until(() => collection.get(1)?.text === 'first' && collection.get(1)?.done === true);
  assert.deepEqual(await one.collection('todos').get(1), merged);
  assert.deepEqual(plain(first.toArray), [merged]);
  assert.deepEqual(plain(second.toArray), [merged]);
  await other.close();
  await one.close();
});

test('a change of a row that was deleted meanwhile brings it back whole', async () => {
  const db = await memory();
  const collection = todos(db);
  await collection.preload();
  await collection.insert({ id: 1, text: 'one', done: false }).isPersisted.promise;
  const deleting = db.collection('todos').delete(1);
  const updating = collection.update(1, (draft) => {
    draft.done = true;
  });
  await Promise.all([deleting, updating.isPersisted.promise]);
  assert.deepEqual(await db.collection('todos').get(1), { id: 1, text: 'one', done: true });
  await until(() => collection.get(1)?.done === true);
  await db.close();
});

test('commits of other handles arrive, also of those that know nothing of TanStack DB', async () => {
  const path = await place();
  const [one, other] = [await open(path), await open(path)];
  const collection = todos(one, { indexes: [] });
  await collection.preload();
  const query = createLiveQueryCollection((q) =>
    q
      .from({ todo: collection })
      .where(({ todo }) => eq(todo.done, true))
      .orderBy(({ todo }) => todo.id, 'desc'),
  );
  await query.preload();
  const rows = other.collection<number, Todo>('todos');
  await rows.setMany(some(6).map((todo) => [todo.id, todo]));
  await until(() => query.size === 3);
  assert.deepEqual(
    query.toArray.map(({ id }) => id),
    [4, 2, 0],
  );
  await rows.clear({ gte: 2, lt: 5 });
  await until(() => query.size === 1 && collection.size === 3);
  await rows.clear();
  await until(() => collection.size === 0);
  await rows.set(9, { id: 9, text: 'nine', done: true });
  await until(() => query.size === 1);
  await other.dropCollection('todos');
  await until(() => collection.size === 0);
  await other.close();
  await one.close();
});

test('one commit for the mutations of several collections', async () => {
  const db = await memory();
  const [first, second] = [todos(db), todos(db, { name: 'others', id: 'others' })];
  await Promise.all([first.preload(), second.preload()]);
  const commits: string[][] = [];
  const watched = (async () => {
    for await (const { changes } of db.changes()) commits.push(changes.map(({ collection }) => collection).sort());
  })();
  const transaction = createTransaction({ mutationFn: persistTransaction as never, autoCommit: false });
  transaction.mutate(() => {
    first.insert({ id: 1, text: 'one' });
    second.insert({ id: 2, text: 'two' });
  });
  await transaction.commit();
  assert.ok(first.has(1) && second.has(2));

  // Nothing of it is stored if a part of it cannot be.
  const failing = createTransaction({ mutationFn: persistTransaction as never, autoCommit: false });
  failing.isPersisted.promise.catch(() => undefined);
  failing.mutate(() => {
    first.insert({ id: 3, text: 'three' });
    second.insert({ id: 4, text: (() => 4) as unknown as string });
  });
  await assert.rejects(failing.commit(), { code: 'KV_INVALID_VALUE' });

  const accepting = createTransaction({
    mutationFn: ({ transaction: done }) => first.utils.acceptMutations(done),
    autoCommit: false,
  });
  accepting.mutate(() => first.insert({ id: 5, text: 'five' }));
  await accepting.commit();
  assert.deepEqual([...first.keys()], [1, 5]);
  await Promise.all([first.cleanup(), second.cleanup()]);
  await db.close();
  await watched;
  assert.deepEqual(commits, [['others', 'todos'], ['todos']]);
});

test('on demand, only the rows are loaded that queries ask for, and they stay current', async () => {
  const path = await place();
  const [one, other] = [await open(path), await open(path)];
  const seed = todos(one);
  await seed.preload();
  await seed.insert(some(200)).isPersisted.promise;

  const lazy = onDemand(other);
  assert.equal(lazy.status, 'idle');
  const query = createLiveQueryCollection((q) => q.from({ todo: lazy }).where(({ todo }) => eq(todo.list, 'list 1')));
  await query.preload();
  assert.equal(query.size, 67);
  assert.equal(lazy.size, 67, 'no other row was loaded');

  await seed.update(1, (draft) => {
    draft.list = 'list 2';
  }).isPersisted.promise;
  await until(() => query.size === 66);
  assert.ok(!lazy.has(1));
  await seed.update(2, (draft) => {
    draft.list = 'list 1';
  }).isPersisted.promise;
  await until(() => query.size === 67);
  await seed.delete(2).isPersisted.promise;
  await until(() => query.size === 66);
  await seed.insert({ id: 1000, text: 'new', list: 'list 1' }).isPersisted.promise;
  await until(() => query.size === 67);
  await seed.insert({ id: 1001, text: 'new', list: 'list 0' }).isPersisted.promise;
  await lazy.insert({ id: 1002, text: 'own', list: 'list 0' }).isPersisted.promise;
  assert.ok(lazy.has(1002), 'its own row stays');
  assert.ok(!lazy.has(1001));
  await other.close();
  await one.close();
});

test('on demand, windows of an order are loaded as they are needed', async () => {
  const db = await memory();
  const seed = todos(db);
  await seed.preload();
  await seed.insert(some(500)).isPersisted.promise;
  const lazy = onDemand(db, { indexes: ['id'] });
  const query = createLiveQueryCollection((q) =>
    q
      .from({ todo: lazy })
      .orderBy(({ todo }) => todo.id, 'desc')
      .limit(10),
  );
  await query.preload();
  assert.deepEqual(
    query.toArray.map(({ id }) => id),
    Array.from({ length: 10 }, (_, at) => 499 - at),
  );
  assert.ok(lazy.size < 100, `${lazy.size} rows were loaded`);
  await seed.delete([499, 498, 495]).isPersisted.promise;
  await until(() => query.toArray[0]?.id === 497 && query.size === 10);
  assert.deepEqual(
    query.toArray.map(({ id }) => id),
    [497, 496, 494, 493, 492, 491, 490, 489, 488, 487],
  );
  await seed.insert({ id: 600, text: 'first' }).isPersisted.promise;
  await until(() => query.toArray[0]?.id === 600);
  assert.equal(query.size, 10);
  await db.close();
});

test('on demand, a subset that is loaded is there at once for the next query', async () => {
  const db = await memory();
  const seed = todos(db);
  await seed.preload();
  await seed.insert(some(50)).isPersisted.promise;
  const lazy = onDemand(db);
  const query = (): ReturnType<typeof createLiveQueryCollection> =>
    createLiveQueryCollection((q) => q.from({ todo: lazy }).where(({ todo }) => gt(todo.id, 40))) as never;
  const first = query();
  await first.preload();
  assert.equal(lazy.status, 'ready');
  const second = query();
  void second.preload();
  assert.equal(second.status, 'ready', 'without waiting');
  assert.equal(second.size, 9);
  await Promise.all([first.cleanup(), second.cleanup()]);
  // Also after all queries are gone, as when a component suspends before it is mounted.
  const third = query();
  void third.preload();
  assert.equal(third.status, 'ready');
  assert.equal(third.size, 9);
  await db.close();
});

test('on demand, rows that nobody needs leave after a while, and come back', async () => {
  const db = await memory();
  const seed = todos(db);
  await seed.preload();
  await seed.insert(some(30)).isPersisted.promise;
  const lazy = onDemand(db, { subsetGcTime: 0 });
  const lists = ['list 1', 'list 2'].map((list) =>
    createLiveQueryCollection((q) => q.from({ todo: lazy }).where(({ todo }) => eq(todo.list, list))),
  );
  await Promise.all(lists.map((query) => query.preload()));
  assert.equal(lazy.size, 20);
  await lists[0]!.cleanup();
  await until(() => lazy.size === 10);
  assert.equal(lists[1]!.size, 10);
  await seed.update(1, (draft) => {
    draft.text = 'changed';
  }).isPersisted.promise;
  await lists[0]!.preload();
  assert.equal(lazy.get(1)?.text, 'changed');
  assert.equal(lazy.size, 20);
  await db.close();
});

test('a collection that was cleaned up starts again with what is stored', async () => {
  const db = await memory();
  for (const collection of [todos(db), onDemand(db, { id: 'lazy', name: 'lazy' })]) {
    const query = (): ReturnType<typeof createLiveQueryCollection> =>
      createLiveQueryCollection((q) => q.from({ todo: collection }).where(({ todo }) => gt(todo.id, 0))) as never;
    const first = query();
    await first.preload();
    await collection.insert({ id: 1, text: 'one' }).isPersisted.promise;
    await first.cleanup();
    await collection.cleanup();
    assert.equal(collection.status, 'cleaned-up');
    await db.collection(collection.id === 'lazy' ? 'lazy' : 'todos', { indexes: {} }).delete(1);
    const again = query();
    await again.preload();
    assert.equal(again.size, 0);
    await collection.insert({ id: 2, text: 'two' }).isPersisted.promise;
    await until(() => again.size === 1);
    await again.cleanup();
    await collection.cleanup();
  }
  await db.close();
});

test('a collection that lost commits reads its rows again', async () => {
  const db = await memory();
  const eager = todos(db, { indexes: [] });
  const lazy = onDemand(db, { id: 'lazy', indexes: [] });
  const query = createLiveQueryCollection((q) => q.from({ todo: lazy }).where(({ todo }) => gt(todo.id, 5)));
  await Promise.all([eager.preload(), query.preload()]);
  await eager.insert(some(20)).isPersisted.promise;
  await until(() => query.size === 14);
  // More than is kept for those who do not keep up, in one turn of the event loop.
  const rows = db.sync.collection<number, Todo>('todos');
  rows.delete(11);
  rows.set(12, { id: 12, text: 'changed' });
  for (let at = 0; at < 50; at++) rows.set(50, { id: 50, text: `${at}`.repeat(1 << 20) });
  rows.set(50, { id: 50, text: 'last' });
  rows.delete(10);
  for (const collection of [eager, lazy]) {
    await until(() => !collection.has(11) && !collection.has(10) && collection.get(50)?.text === 'last');
    assert.equal(collection.get(12)?.text, 'changed');
  }
  assert.equal(eager.size, 19);
  assert.equal(query.size, 13);
  rows.set(51, { id: 51, text: 'after' });
  await until(() => eager.has(51) && lazy.has(51));
  await db.close();
});

/** A database whose snapshots close when they are let, so that what they have read is late. */
function withLateReads(db: Database, until: () => Promise<void>): Database {
  const late = <T extends object>(target: T, replace: Record<string, unknown>): T =>
    new Proxy(target, {
      get: (_, name) => {
        if (Object.hasOwn(replace, name)) return replace[name as string];
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === 'function' ? (value.bind(target) as unknown) : value;
      },
    });
  const snapshot = () => {
    const real = db.snapshot();
    return late(real, { close: () => until().then(() => real.close()) });
  };
  return late(db, { snapshot });
}

test('what changes while a subset is being read is not lost, and does not come back', async () => {
  const db = await memory();
  const seed = todos(db, { indexes: [] });
  await seed.preload();
  await seed.insert(some(20)).isPersisted.promise;
  for (const isCleared of [false, true]) {
    let read: () => void = () => undefined;
    let release: () => void = () => undefined;
    const reading = new Promise<void>((resolve) => (read = resolve));
    const released = new Promise<void>((resolve) => (release = resolve));
    const slow = withLateReads(db, () => {
      read();
      return released;
    });
    const lazy = onDemand(slow, { id: `lazy ${String(isCleared)}`, indexes: [] });
    const query = createLiveQueryCollection((q) => q.from({ todo: lazy }).where(({ todo }) => eq(todo.list, 'list 1')));
    const loading = query.preload();
    await reading;
    const rows = db.collection<number, Todo>('todos');
    await rows.delete(1);
    await rows.set(4, { id: 4, text: 'left', list: 'list 2' });
    await rows.set(7, { id: 7, text: 'changed', list: 'list 1' });
    await rows.set(8, { id: 8, text: 'came', list: 'list 1' });
    await rows.set(10, { id: 10, text: 'first', list: 'list 1' });
    await rows.set(10, { id: 10, text: 'second', list: 'list 1' });
    if (isCleared) await rows.clear({ gte: 13 });
    // These commits have arrived.
    await lazy.insert({ id: 100 + Number(isCleared), text: 'own', list: 'list 1' }).isPersisted.promise;
    release();
    await loading;
    const expected = (await rows.entries().toArray())
      .filter(([, { list }]) => list === 'list 1')
      .map(([, todo]) => todo);
    assert.deepEqual(
      plain(query.toArray).sort((one, other) => one.id - other.id),
      expected,
    );
    assert.equal(lazy.size, expected.length);
    await query.cleanup();
    await lazy.cleanup();
    await seed.insert({ id: 1, text: 'again', list: 'list 1' }).isPersisted.promise;
    await rows.set(4, { id: 4, text: 'again', list: 'list 1' });
  }
  await db.close();
});

/** A database whose commits arrive some turns of the event loop late. */
function withLateCommits(db: Database): Database {
  const bound = (target: object, name: string | symbol): unknown => {
    const value: unknown = Reflect.get(target, name, target);
    return typeof value === 'function' ? (value.bind(target) as unknown) : value;
  };
  const collection = (...given: Parameters<Database['collection']>) => {
    const real = db.collection(...given);
    async function* watch(options: object) {
      for await (const commit of real.watch(options)) {
        for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setTimeout(resolve));
        yield commit;
      }
    }
    return new Proxy(real, { get: (_, name) => (name === 'watch' ? watch : bound(real, name)) });
  };
  return new Proxy(db, { get: (_, name) => (name === 'collection' ? collection : bound(db, name)) });
}

test('a row that was written does not vanish until its commit arrives', async () => {
  const db = await memory();
  const slow = withLateCommits(db);
  for (const collection of [todos(slow, { indexes: [] }), onDemand(slow, { id: 'lazy', name: 'lazy', indexes: [] })]) {
    collection.startSyncImmediate();
    const seen: string[] = [];
    collection.subscribeChanges((changes) => {
      for (const { type, key } of changes) seen.push(`${type} ${key}`);
    });
    await collection.insert({ id: 1, text: 'one' }).isPersisted.promise;
    assert.ok(collection.has(1));
    await collection.update(1, (draft) => {
      draft.text = 'changed';
    }).isPersisted.promise;
    assert.equal(collection.get(1)?.text, 'changed');
    await collection.delete(1).isPersisted.promise;
    assert.ok(!collection.has(1));
    assert.deepEqual(
      seen.filter((change) => !change.startsWith('update')),
      ['insert 1', 'delete 1'],
    );
    await collection.cleanup();
  }
  await db.close();
});

test('a write that is persisted is there, with all that was committed before it', async () => {
  const path = await place();
  const [one, other] = [await open(path), await open(path)];
  const [first, second] = [todos(one), onDemand(other)];
  await first.preload();
  second.startSyncImmediate();
  for (let id = 0; id < 30; id++) {
    const writer = id % 2 === 0 ? second : first;
    await writer.insert({ id, text: 'text' }).isPersisted.promise;
    assert.ok(writer.has(id));
    if (writer === first) assert.equal(first.size, id + 1);
  }
  await other.close();
  await one.close();
});

/** Resolves to what a promise does, or rejects if that takes too long. */
async function soon<T>(promise: Promise<T>): Promise<T> {
  const late = new AbortController();
  const timeout = new Promise<never>((_, reject) => {
    const timer = setTimeout(() => reject(new Error('it does not settle')), 5000);
    late.signal.addEventListener('abort', () => clearTimeout(timer));
  });
  return Promise.race([promise, timeout]).finally(() => late.abort());
}

test('a write that changes nothing in a collection is persisted all the same', async () => {
  for (const make of [todos, onDemand]) {
    const db = await memory();
    const [rows, others] = [make(db), make(db, { name: 'others', id: 'others' })];
    await rows.insert(some(3)).isPersisted.promise;
    // Others remove the row between the optimistic change and its commit, and write elsewhere.
    const raw = db.collection('todos');
    const elsewhere = db.collection('elsewhere');
    const onDelete = async (): Promise<void> => {
      await raw.delete(0);
      await elsewhere.set(1, 1);
    };
    const removing = make(db, { onDelete, id: 'removing' });
    const all = createLiveQueryCollection((q) => q.from({ todo: removing }));
    await all.preload();
    await soon(removing.delete(0).isPersisted.promise);
    assert.equal(removing.has(0), false);
    await until(() => rows.size === 2);
    const both = createTransaction({
      mutationFn: async ({ transaction }) => {
        await raw.delete(1);
        await persistTransaction({ transaction });
      },
    });
    both.mutate(() => {
      removing.delete(1);
      others.insert({ id: 1, text: 'another' });
    });
    await soon(both.isPersisted.promise);
    await Promise.all([rows, others, all, removing].map((each) => each.cleanup()));
    await db.close();
  }
});

test('writes of one row that nobody has awaited are stored one after the other', async () => {
  for (const make of [todos, onDemand]) {
    const db = await memory();
    const rows = make(db);
    const transactions = [
      rows.insert({ id: 1, text: 'first' }),
      rows.update(1, (row) => {
        row.text = 'changed';
      }),
      rows.delete(1),
      rows.insert({ id: 1, text: 'second' }),
      rows.insert({ id: 2, text: 'another' }),
    ];
    await Promise.all(transactions.map(({ isPersisted }) => isPersisted.promise));
    const stored = await db.collection<number, Todo>('todos').values().toArray();
    assert.deepEqual(stored, [
      { id: 1, text: 'second' },
      { id: 2, text: 'another' },
    ]);
    assert.deepEqual(plain([...rows.values()]), stored);
    await rows.cleanup();
    await db.close();
  }
});

test('a write is stored after one of the same row that has failed', async () => {
  const db = await memory();
  const [rows, other] = [onDemand(db), todos(db, { id: 'other' })];
  await other.insert({ id: 1, text: 'theirs' }).isPersisted.promise;
  const failing = rows.insert({ id: 1, text: 'ours' });
  const update = rows.update(1, (row) => {
    row.done = true;
  });
  await assert.rejects(failing.isPersisted.promise, { code: 'KV_EXISTS' });
  await soon(update.isPersisted.promise);
  await until(() => other.get(1)?.done);
  assert.deepEqual(plain([...other.values()]), [{ id: 1, text: 'theirs', done: true }]);
  await Promise.all([rows.cleanup(), other.cleanup()]);
  await db.close();
});

test('changes of a row that another handle keeps writing are stored', async () => {
  const path = await place();
  const [one, other] = [await open(path), await open(path)];
  const rows = todos(one, { indexes: [] });
  await rows.preload();
  await rows.insert({ id: 1, text: '' }).isPersisted.promise;
  const raw = other.collection<number, Todo>('todos');
  const late = Date.now() + 6000;
  const rival = (async (): Promise<void> => {
    while (Date.now() < late) await raw.set(1, { ...(await raw.get(1))!, list: 'theirs' });
  })();
  const changes = Array.from({ length: 30 }, (_, n) =>
    rows.update(1, (row) => {
      row.text = `${n}`;
    }),
  );
  await Promise.all(changes.map(({ isPersisted }) => isPersisted.promise));
  await rival;
  assert.equal(rows.get(1)?.list, 'theirs');
  await rows.cleanup();
  await other.close();
  await one.close();
});
