// Batches across collections, and snapshots.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keyCodecs, open } from 'mangrove-kv';
import { code, rejects, withMemory } from './support/kit.ts';

test('a batch is one commit across any collections', () =>
  withMemory({}, async (db) => {
    const users = db.collection<string, { age: number }>('users', { key: keyCodecs.string });
    const byAge = db.collection<readonly [number, string], null>('by-age', { key: keyCodecs.tuple() });
    await users.set('eve', { age: 1 });
    const batch = db.batch();
    batch
      .set('own', 1)
      .collection(users)
      .set('ada', { age: 36 })
      .delete('eve')
      .collection(byAge)
      .set([36, 'ada'], null);
    assert.equal(batch.length, 4);
    assert.equal(await users.has('ada'), false);
    const before = await db.stats();
    const { version } = await batch.commit();
    assert.equal(version, before.version + 1);
    assert.deepEqual(await users.entries().toArray(), [['ada', { age: 36 }]]);
    assert.deepEqual(await byAge.keys().toArray(), [[36, 'ada']]);
    assert.equal(await db.get('own'), 1);
  }));

test('a batch is spent by its commit', () =>
  withMemory({}, async (db) => {
    const batch = db.batch().set('a', 1);
    await batch.commit();
    assert.equal(batch.length, 0);
    assert.throws(() => batch.set('b', 1), code('KV_CLOSED'));
    assert.throws(() => batch.delete('b'), code('KV_CLOSED'));
    await rejects(batch.commit(), 'KV_CLOSED');
    {
      using dropped = db.batch();
      dropped.set('c', 1);
    }
    assert.deepEqual(await db.keys().toArray(), ['a']);
  }));

test('a change that cannot be encoded is refused and leaves the batch unchanged', () =>
  withMemory({}, async (db) => {
    const batch = db.batch().set('a', 1);
    assert.throws(() => batch.set(NaN, 1), code('KV_INVALID_KEY'));
    assert.throws(() => batch.set('b', undefined), code('KV_INVALID_VALUE'));
    assert.throws(() => batch.delete({} as never), code('KV_INVALID_KEY'));
    assert.equal(batch.length, 1);
    await batch.commit();
    assert.deepEqual(await db.keys().toArray(), ['a']);
  }));

test('a list of operations is one commit, in order', () =>
  withMemory({}, async (db) => {
    const numbers = db.collection<number, number>('numbers', { key: keyCodecs.uint32 });
    await db.set('old', 1);
    await db.batch(
      [
        { type: 'set', key: 'a', value: 1 },
        { type: 'set', key: 'a', value: 2 },
        { type: 'delete', key: 'old' },
        { type: 'set', key: 5, value: 50, collection: numbers },
        { type: 'set', key: 'n', value: 'named', collection: 'named' },
        { type: 'set', key: 'gone', value: 1 },
        { type: 'delete', key: 'gone' },
      ],
      { durability: 'relaxed' },
    );
    assert.deepEqual(await db.entries().toArray(), [['a', 2]]);
    assert.deepEqual(await numbers.entries().toArray(), [[5, 50]]);
    assert.equal(await db.collection('named').get('n'), 'named');
  }));

test('a refused operation leaves nothing of its batch', () =>
  withMemory({}, async (db) => {
    await db.collection('c').set(1, 1);
    await rejects(
      db.batch([
        { type: 'set', key: 'a', value: 1 },
        { type: 'set', key: 'x'.repeat(99_999), value: 1 },
      ]),
      'KV_KEY_TOO_LARGE',
    );
    const other = db.collection<string, unknown>('c', { key: keyCodecs.string });
    await rejects(db.batch().set('a', 1).collection(other).set('b', 1).commit(), 'KV_CODEC_MISMATCH');
    await rejects(
      db.batch([
        { type: 'set', key: 'a', value: 1 },
        { type: 'set', key: 1, value: 1, collection: other },
      ]),
      'KV_INVALID_KEY',
    );
    assert.equal(await db.size, 0);
    await withMemory({}, async (stranger) => {
      await rejects(db.batch([{ type: 'set', key: 1, value: 1, collection: stranger }]), 'KV_INVALID_ARGUMENT');
    });
  }));

test('a snapshot stays unchanged in every collection', () =>
  withMemory({}, async (db) => {
    const c = db.collection<string, number>('c', { key: keyCodecs.string });
    await db.setMany([
      ['a', 1],
      ['b', 2],
    ]);
    await c.set('x', 1);
    void db.set('before', 1);
    const snapshot = db.snapshot();
    void db.set('after', 1);
    await Promise.all([db.set('a', 9), db.delete('b'), c.clear(), db.dropCollection('c')]);
    assert.deepEqual(await snapshot.keys().toArray(), ['a', 'b', 'before']);
    assert.deepEqual(await snapshot.getMany(['a', 'b', 'after']), [1, 2, undefined]);
    assert.equal(await snapshot.size, 3);
    assert.deepEqual(await snapshot.last({ limit: 2 }), ['b', 2]);
    assert.equal(await snapshot.rank('b'), 1);
    const inSnapshot = snapshot.collection(c);
    assert.equal(await inSnapshot.get('x'), 1);
    await rejects(snapshot.collection('c').get('x'), 'KV_CODEC_MISMATCH');
    assert.equal(await snapshot.collection('never').size, 0);
    const iterator = inSnapshot.entries();
    await snapshot.close();
    await snapshot.close();
    assert.equal((await db.stats()).openSnapshots, 1);
    assert.deepEqual(await iterator.toArray(), [['x', 1]], 'an iterator keeps what it needs');
    const calls = [
      snapshot.get('a'),
      inSnapshot.get('x'),
      snapshot.keys().next(),
      snapshot.size,
      snapshot.at(-1, { limit: 1 }),
    ];
    await Promise.all(calls.map((call) => rejects(Promise.resolve(call), 'KV_CLOSED')));
    assert.equal((await db.stats()).openSnapshots, 0);
  }));

test('using closes a snapshot', () =>
  withMemory({}, async (db) => {
    {
      using snapshot = db.snapshot();
      assert.equal(await snapshot.size, 0);
      assert.equal((await db.stats()).openSnapshots, 1);
    }
    assert.equal((await db.stats()).openSnapshots, 0);
  }));

test('in-memory databases share nothing', async () => {
  const [a, b] = await Promise.all([open('same', { storage: 'memory' }), open('same', { storage: 'memory' })]);
  await a.set('k', 1);
  assert.equal(await b.get('k'), undefined);
  await a.close();
  await b.set('k', 2);
  assert.equal(await b.get('k'), 2);
  await b.close();
});
