// The synchronous API: it gives the same answers as the asynchronous one, in order with it.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DELETE, KEEP, keyCodecs, open, openSync } from 'mangrove-kv';
import type { Key } from 'mangrove-kv';
import { chance, code, withMemory, withPath } from './support/kit.ts';

test('reads return what the asynchronous ones return', () =>
  withMemory<Key, unknown>({}, async (db) => {
    const random = chance(3);
    await db.setMany(
      Array.from({ length: 700 }, (_, index) => [index * 3, { index, text: 'x'.repeat(random() * 40) }] as const),
    );
    const { sync } = db;
    assert.equal(sync.size, 700);
    for (let round = 0; round < 60; round++) {
      const [a, b] = [Math.floor(random() * 2200), Math.floor(random() * 2200)];
      const range = {
        gte: Math.min(a, b),
        lt: Math.max(a, b),
        reverse: random() < 0.5,
        ...(random() < 0.3 ? { limit: Math.floor(random() * 300) } : {}),
        ...(random() < 0.3 ? { offset: Math.floor(random() * 50) } : {}),
      };
      assert.deepEqual([...sync.entries(range)], await db.entries(range).toArray());
      assert.deepEqual([...sync.keys(range)], await db.keys(range).toArray());
      assert.deepEqual([...sync.values(range)], await db.values(range).toArray());
      assert.equal(sync.count(range), await db.count(range));
      assert.deepEqual(sync.first(range), await db.first(range));
      assert.deepEqual(sync.last(range), await db.last(range));
      const index = Math.floor(random() * 40) - 20;
      assert.deepEqual(sync.at(index, range), await db.at(index, range));
      assert.equal(sync.rank(a), await db.rank(a));
      assert.deepEqual(sync.get(a), await db.get(a));
      assert.equal(sync.has(a), await db.has(a));
      assert.deepEqual(sync.getEntry(a), await db.getEntry(a));
      assert.deepEqual(sync.getMany([a, b]), await db.getMany([a, b]));
      assert.deepEqual(sync.hasMany([a, b]), await db.hasMany([a, b]));
    }
    assert.deepEqual([...sync.prefix([1])], []);
    assert.deepEqual(
      [...sync.entries({ lt: 4 })].map(([key]) => key),
      [0, 3],
    );
    assert.equal([...sync].length, 700);
  }));

test('calls of both kinds take effect in the order in which they were made', () =>
  withMemory<string, number>({}, async (db) => {
    const first = db.set('a', 1);
    assert.equal(db.sync.get('a'), 1, 'the earlier call is seen');
    const read = db.get('a');
    assert.equal(db.sync.set('a', 2).set('b', 3), db.sync);
    assert.equal(await read, 1);
    await first;
    assert.deepEqual(await db.getMany(['a', 'b']), [2, 3]);
  }));

test('every kind of write takes effect', () =>
  withMemory<string, number>({}, async ({ sync }) => {
    sync.setMany([
      ['a', 1],
      ['b', 2],
      ['c', 3],
    ]);
    assert.equal(sync.delete('a'), true);
    assert.equal(sync.delete('a'), false);
    assert.equal(sync.deleteMany(['b', 'x']), 1);
    assert.equal(sync.getOrInsert('d', 4), 4);
    assert.equal(sync.getOrInsert('d', 5), 4);
    assert.equal(
      sync.getOrInsertComputed('eee', (key) => key.length),
      3,
    );
    assert.equal(
      sync.update('d', (old = 0) => old + 1),
      5,
    );
    assert.equal(
      sync.update('d', () => KEEP),
      5,
    );
    assert.equal(
      sync.update('eee', () => DELETE),
      undefined,
    );
    assert.throws(() => sync.update('d', () => undefined as never), code('KV_INVALID_VALUE'));
    assert.throws(() => sync.set('x', undefined as never), code('KV_INVALID_VALUE'));
    assert.throws(() => sync.get(NaN as never), code('KV_INVALID_KEY'));
    sync.set('gone', 1, { expireAt: 1 });
    assert.deepEqual([...sync.keys()], ['c', 'd']);
    sync.clear({ gte: 'd' });
    assert.deepEqual([...sync.keys()], ['c']);
    sync.clear();
    assert.equal(sync.size, 0);
  }));

test('iterators see the state at their call and release their snapshots', () =>
  withMemory<number, number>({}, async (db) => {
    db.sync.setMany(Array.from({ length: 500 }, (_, index) => [index, index]));
    const iterator = db.sync.keys();
    db.sync.clear();
    assert.equal([...iterator].length, 500);
    assert.deepEqual(iterator.next(), { done: true, value: undefined });
    db.sync.setMany(Array.from({ length: 500 }, (_, index) => [index, index]));
    for (const key of db.sync.keys()) if (key === 70) break;
    const left = db.sync.values({ reverse: true });
    assert.equal(left.next().value, 499);
    left.return?.();
    assert.equal((await db.stats()).openSnapshots, 0);
  }));

test('snapshots and collections have a synchronous view', () =>
  withMemory<string, number>({}, async (db) => {
    db.sync.set('a', 1);
    const snapshot = db.snapshot();
    const view = snapshot.sync;
    db.sync.set('a', 2);
    assert.equal(view.get('a'), 1);
    assert.deepEqual([...view], [['a', 1]]);
    await snapshot.close();
    assert.throws(() => view.get('a'), code('KV_CLOSED'));
    const users = db.collection<string, { age: number }>('users', { key: keyCodecs.string });
    db.sync.collection(users).set('ada', { age: 36 });
    assert.deepEqual(await users.get('ada'), { age: 36 });
    const numbers = db.sync.collection<number, string>('numbers', { key: keyCodecs.uint32 });
    numbers.set(7, 'seven');
    assert.equal(numbers.name, 'numbers');
    assert.throws(() => db.sync.collection('numbers').get(7), code('KV_CODEC_MISMATCH'));
  }));

test('transactions commit their writes or roll them back', () =>
  withMemory<string, number>({}, async (db) => {
    db.sync.set('a', 10);
    const given = db.sync.transaction((tx) => {
      tx.set('a', (tx.get('a') ?? 0) - 3);
      tx.collection<string, number>('other').set('b', 3);
      assert.equal(db.sync.get('a'), 10);
      assert.deepEqual([...tx.keys()], ['a']);
      return 'given';
    });
    assert.equal(given, 'given');
    assert.equal(db.sync.get('a'), 7);
    const reason = new Error('mine');
    let late: (() => unknown) | undefined;
    assert.throws(
      () =>
        db.sync.transaction((tx) => {
          tx.clear();
          late = () => tx.set('late', 1);
          throw reason;
        }),
      (error) => error === reason,
    );
    assert.throws(() => late?.(), code('KV_CLOSED'));
    assert.throws(
      () =>
        db.sync.transaction(async (tx) => {
          tx.set('b', 1);
        }),
      code('KV_INVALID_ARGUMENT'),
    );
    assert.deepEqual([...db.sync], [['a', 7]]);
    assert.equal((await db.stats()).openSnapshots, 0);
  }));

test('a database can be opened and closed synchronously', () =>
  withPath(async (path) => {
    {
      using db = openSync<string, number>(path, { lockTimeout: 0 });
      db.set('a', 1);
      assert.throws(() => openSync(path, { lockTimeout: 20 }), code('KV_LOCKED'));
    }
    assert.throws(() => openSync(path, { exclusive: true }), code('KV_EXISTS'));
    assert.throws(() => openSync(`${path}-none`, { create: false }), code('KV_NOT_FOUND'));
    const db = await open<string, number>(path);
    assert.equal(db.sync.get('a'), 1);
    const pending = db.set('b', 2);
    db.sync.close();
    db.sync.close();
    await pending;
    assert.equal(db.status, 'closed');
    assert.throws(() => db.sync.get('a'), code('KV_CLOSED'));
    const again = openSync<string, number>(path);
    assert.deepEqual(
      [...again],
      [
        ['a', 1],
        ['b', 2],
      ],
    );
    again.close();
  }));

test('a snapshot and its collections can be read synchronously', () =>
  withMemory<string, number>({}, async (db) => {
    const other = db.collection<string, number>('other');
    await db.set('a', 1);
    await other.set('b', 2);
    const snapshot = db.snapshot();
    await db.set('a', 10);
    await other.delete('b');
    assert.equal(snapshot.sync.get('a'), 1);
    assert.equal(snapshot.sync.collection(other).get('b'), 2);
    assert.deepEqual([...snapshot.sync.collection<string, number>('other')], [['b', 2]]);
    assert.equal(snapshot.sync.collection('none').size, 0);
    const entries = snapshot.sync.collection(other).entries();
    await snapshot.close();
    assert.throws(() => snapshot.sync.collection(other).get('b'), code('KV_CLOSED'));
    assert.deepEqual([...entries], [['b', 2]]);
  }));

test('a database from openSync has snapshots', () =>
  withPath(async (path) => {
    const db = openSync<string, number>(path);
    const other = db.collection<string, number>('other');
    db.set('a', 1);
    other.set('b', 2);
    const snapshot = db.snapshot();
    db.transaction((tx) => tx.clear());
    other.set('b', 3);
    assert.equal(db.get('a'), undefined);
    assert.equal(snapshot.get('a'), 1);
    assert.deepEqual([...snapshot.entries()], [['a', 1]]);
    assert.equal(snapshot.collection<string, number>('other').get('b'), 2);
    assert.equal(snapshot.getEntry('a')?.version, snapshot.version - 1);
    assert.ok(db.snapshot().version > snapshot.version);
    snapshot.close();
    snapshot.close();
    assert.throws(() => snapshot.get('a'), code('KV_CLOSED'));
    assert.throws(() => snapshot.collection('other').size, code('KV_CLOSED'));
    const late = db.snapshot();
    db.close();
    late.close();
    assert.throws(() => db.snapshot(), code('KV_CLOSED'));
  }));

test('transactions and snapshots use collections with codecs and indexes, by handle and by name with options', () =>
  withPath(async (path) => {
    interface Item {
      readonly x: number;
    }
    const coded = { key: keyCodecs.utf8 };
    const indexed = { indexes: { byX: { key: ({ x }: Item) => x } } };
    const db = openSync(path);
    // Their first write is that of a transaction.
    db.transaction((tx) => {
      tx.collection<string, number>('coded', coded).set('a', 1);
      const items = tx.collection<number, Item>('items', indexed);
      items.set(1, { x: 7 });
      assert.deepEqual([...items.index('byX').keys({ eq: 7 })], [1]);
    });
    const [handle, items] = [
      db.collection<string, number>('coded', coded),
      db.collection<number, Item>('items', indexed),
    ];
    db.transaction((tx) => {
      tx.collection(handle).set('b', 2);
      tx.collection(items).set(2, { x: 7 });
      assert.equal(tx.collection(items).index('byX').count({ eq: 7 }), 2);
    });
    assert.throws(
      () =>
        db.transaction((tx) => {
          tx.collection(items).set(3, { x: 8 });
          tx.collection('items').set(4, { x: 8 });
        }),
      code('KV_INDEX_MISMATCH'),
    );
    assert.equal(items.size, 2);
    const snapshot = db.snapshot();
    handle.set('c', 3);
    for (const reader of [snapshot.collection(handle), snapshot.collection<string, number>('coded', coded)])
      assert.deepEqual(
        [...reader],
        [
          ['a', 1],
          ['b', 2],
        ],
      );
    for (const reader of [snapshot.collection(items), snapshot.collection<number, Item>('items', indexed)])
      assert.equal(reader.index('byX').count({ eq: 7 }), 2);
    snapshot.close();
    for (const wrong of [{ keys: 1 }, 5])
      assert.throws(() => db.transaction((tx) => tx.collection('coded', wrong as never)), code('KV_INVALID_ARGUMENT'));
    assert.throws(() => db.transaction((tx) => tx.collection(handle as never, coded)), code('KV_INVALID_ARGUMENT'));
    const other = openSync('other', { storage: 'memory' });
    assert.throws(() => other.transaction((tx) => tx.collection(handle)), code('KV_INVALID_ARGUMENT'));
    other.close();
    db.close();

    const again = await open(path);
    await again.transaction(async (tx) => {
      assert.equal(await tx.collection<string, number>('coded', coded).get('c'), 3);
      await tx.collection<number, Item>('items', indexed).set(5, { x: 9 });
    });
    const view = again.snapshot();
    assert.equal(await view.collection<number, Item>('items', indexed).index('byX').count({ eq: 9 }), 1);
    assert.equal(view.sync.collection<string, number>('coded', coded).get('a'), 1);
    await view.close();
    await again
      .batch()
      .collection<string, number>('coded', coded)
      .set('d', 4)
      .collection<number, Item>('items', indexed)
      .set(6, { x: 9 })
      .commit();
    assert.equal(await again.collection<number, Item>('items', indexed).index('byX').count({ eq: 9 }), 2);
    assert.deepEqual((await again.verify()).problems, []);
    await again.close();
  }));

test('a synchronous close overtakes an asynchronous one, and both end', () =>
  withPath(async (path) => {
    for (const relaxed of [false, true]) {
      const db = await open<string, number>(path);
      const stored = db.set('key', 1, { durability: relaxed ? 'relaxed' : 'strict' });
      const closed = db.close();
      db.sync.close();
      await Promise.all([stored, closed]);
      assert.equal(db.status, 'closed');
      const again = openSync<string, number>(path);
      assert.equal(again.get('key'), 1);
      again.close();
    }
  }));
