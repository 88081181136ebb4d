// Writes that do not belong to the transaction whose callback makes them, and writes of a
// transaction that fail unnoticed.
import assert from 'node:assert/strict';
import process from 'node:process';
import { test } from 'node:test';
import type { Collection, Database, SyncTransaction, Transaction } from 'mangrove-kv';
import { code, rejects, withMemory } from './support/kit.ts';

const turn = (): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve);
  });

/** Every call that writes, except those of a transaction. */
const OUTSIDE: Record<string, (db: Database, other: Collection<unknown, unknown>) => unknown> = {
  set: (db) => db.set('a', 1),
  'set that expires': (db) => db.set('a', 1, { expireIn: 5 }),
  setMany: (db) => db.setMany([['a', 1]]),
  delete: (db) => db.delete('a'),
  deleteMany: (db) => db.deleteMany(['a']),
  clear: (db) => db.clear(),
  'clear with a limit': (db) => db.clear({ limit: 1 }),
  getOrInsert: (db) => db.getOrInsert('b', 1),
  getOrInsertComputed: (db) => db.getOrInsertComputed('b', () => 1),
  update: (db) => db.update('a', () => 1),
  'set of a collection': (_, other) => other.set('a', 1),
  'batch(ops)': (db) => db.batch([{ type: 'set', key: 'a', value: 1 }]),
  'batch().commit()': (db) => db.batch().set('a', 1).commit(),
  'batch().tryCommit()': (db) => db.batch().set('a', 1).tryCommit(),
  dropCollection: (db) => db.dropCollection('other'),
  renameCollection: (db) => db.renameCollection('other', 'another'),
  dropIndex: (db) => db.dropIndex('byAuthor'),
  transaction: (db) => db.transaction((tx) => tx.set('a', 1)),
  tryTransaction: (db) => db.tryTransaction((tx) => tx.set('a', 1)),
  'sync.set': (db) => db.sync.set('a', 1),
  'sync.setMany': (db) => db.sync.setMany([['a', 1]]),
  'sync.delete': (db) => db.sync.delete('a'),
  'sync.deleteMany': (db) => db.sync.deleteMany(['a']),
  'sync.clear': (db) => db.sync.clear(),
  'sync.getOrInsert': (db) => db.sync.getOrInsert('b', 1),
  'sync.getOrInsertComputed': (db) => db.sync.getOrInsertComputed('b', () => 1),
  'sync.update': (db) => db.sync.update('a', () => 1),
  'sync.set of a collection': (db) => db.sync.collection('other').set('a', 1),
  'sync.transaction': (db) => db.sync.transaction((tx) => tx.set('a', 1)),
};

/** Calls that run a callback, and throw or reject with its error. */
const CALLBACKS: Record<string, (db: Database, fn: () => unknown) => Promise<unknown>> = {
  transaction: (db, fn) => db.transaction(fn),
  'a transaction with an asynchronous callback': (db, fn) =>
    db.transaction(async () => {
      await fn();
    }),
  tryTransaction: (db, fn) => db.tryTransaction(fn),
  'a synchronous transaction': async (db, fn) => {
    let outcome: unknown;
    db.sync.transaction(() => {
      outcome = fn();
    });
    await outcome;
  },
};

for (const [place, run] of Object.entries(CALLBACKS)) {
  test(`in the callback of ${place} writes outside of it are refused`, () =>
    withMemory({}, async (db) => {
      const other = db.collection<unknown, unknown>('other', {} as object);
      await db.set('a', 0);
      await other.set('z', 0);
      for (const [name, call] of Object.entries(OUTSIDE)) {
        const error: unknown = await run(db, () => call(db, other)).then(
          () => assert.fail(`${name} was done`),
          (reason: unknown) => reason,
        );
        code('KV_INVALID_ARGUMENT')(error);
        assert.match((error as Error).message, /\btx\b/, name);
      }
      assert.deepEqual(await db.entries().toArray(), [['a', 0]]);
      assert.deepEqual(await other.entries().toArray(), [['z', 0]]);
      await other.set('y', 1);
      db.sync.set('b', 1);
    }));
}

test('reads, other active transactions and calls after the callback are not affected', () =>
  withMemory({}, async (db) => {
    await db.set('a', 1);
    const begun = db.begin();
    await db.transaction(async (tx) => {
      const outside = [
        db.get('a'),
        db.has('a'),
        db.entries().toArray(),
        db.transaction((inner) => inner.get('a'), { mode: 'readonly' }),
      ];
      assert.equal(db.sync.get('a'), 1);
      const set = begun.set('b', 2);
      const commit = begun.commit();
      await Promise.all([...outside, set, commit]);
      // By now it is unknown which callback this call belongs to.
      await db.set('c', 3);
      await tx.set('d', 4);
    });
    await db.transaction(() => undefined);
    await db.set('e', 5);
    assert.throws(
      () =>
        db.sync.transaction(() => {
          throw new Error('mine');
        }),
      /mine/,
    );
    db.sync.set('f', 6);
    assert.equal(await db.size, 6);
  }));

/** Runs `work` and returns the unhandled rejections. */
async function unhandled(work: () => Promise<void>): Promise<unknown[]> {
  const found: unknown[] = [];
  const note = (error: unknown): void => void found.push(error);
  process.on('unhandledRejection', note);
  try {
    await work();
    await turn();
    await turn();
  } finally {
    process.off('unhandledRejection', note);
  }
  return found;
}

type Write = (tx: Transaction) => Promise<unknown>;
const TOO_LONG = 'x'.repeat(100_000);

/** Writes that fail at once, in the engine, or later. */
const FAILING: Record<string, [write: Write, code: Parameters<typeof code>[0]]> = {
  'an invalid key': [(tx) => tx.set(NaN, 1), 'KV_INVALID_KEY'],
  'an invalid value': [(tx) => tx.set('a', () => 1), 'KV_INVALID_VALUE'],
  'an unknown option': [(tx) => tx.set('a', 1, { ttl: 1 } as object), 'KV_INVALID_ARGUMENT'],
  'a key that the engine refuses': [(tx) => tx.set(TOO_LONG, 1), 'KV_KEY_TOO_LARGE'],
  'a collection with other codecs': [(tx) => tx.collection('typed').set('a', 1), 'KV_CODEC_MISMATCH'],
  'one of many': [
    (tx) =>
      tx.setMany([
        ['b', 1],
        [NaN, 2],
      ]),
    'KV_INVALID_KEY',
  ],
  'a delete': [(tx) => tx.delete(NaN), 'KV_INVALID_KEY'],
  'a callback that throws': [(tx) => tx.update('a', () => undefined as never), 'KV_INVALID_VALUE'],
  'a clear': [(tx) => tx.clear({ prefix: 5 as never }), 'KV_INVALID_ARGUMENT'],
  'a drop': [(tx) => tx.dropCollection(''), 'KV_INVALID_ARGUMENT'],
};

for (const [name, [write, expected]] of Object.entries(FAILING)) {
  test(`a failed write that is never awaited fails the commit: ${name}`, () =>
    withMemory({}, async (db) => {
      await db
        .collection('typed', { value: { id: 'own', encode: () => new Uint8Array(), decode: () => 0 } })
        .set('z', 0);
      const rejections = await unhandled(async () => {
        await rejects(
          db.transaction(async (tx) => {
            await tx.set('before', 1);
            void write(tx);
          }),
          expected,
        );
        await rejects(
          db.transaction((tx) => {
            void write(tx);
            void tx.set('after', 1);
          }),
          expected,
        );
        await rejects(
          db.tryTransaction((tx) => {
            void write(tx);
          }),
          expected,
        );
        const tx = db.begin();
        void tx.set('before', 1);
        void write(tx);
        await rejects(tx.commit(), expected);
        assert.equal(tx.status, 'rolled-back');
        const late = db.begin();
        void write(late);
        await turn();
        await rejects(late.commit(), expected);
      });
      assert.deepEqual(rejections, []);
      assert.equal(await db.size, 0);
    }));

  test(`a failed write whose error is handled does not fail the commit: ${name}`, () =>
    withMemory({}, async (db) => {
      await db
        .collection('typed', { value: { id: 'own', encode: () => new Uint8Array(), decode: () => 0 } })
        .set('z', 0);
      const rejections = await unhandled(async () => {
        await db.transaction(async (tx) => {
          await assert.rejects(write(tx), code(expected));
          await tx.set('a', 1);
        });
        await db.transaction(async (tx) => {
          const outcomes = await Promise.allSettled([write(tx), tx.set('b', 1)]);
          assert.deepEqual(
            outcomes.map(({ status }) => status),
            ['rejected', 'fulfilled'],
          );
        });
        const tx = db.begin();
        write(tx).catch(() => undefined);
        await tx.set('c', 1);
        await tx.commit();
      });
      assert.deepEqual(rejections, []);
      assert.deepEqual(await db.keys().toArray(), ['a', 'b', 'c']);
    }));
}

test('a failure undone by a savepoint does not count', () =>
  withMemory({}, async (db) => {
    await db.transaction(async (tx) => {
      await tx.set('a', 1);
      const savepoint = tx.savepoint();
      void tx.set(TOO_LONG, 1);
      void tx.set('b', 1);
      await savepoint.rollback();
    });
    assert.deepEqual(await db.keys().toArray(), ['a']);
  }));

test('a commit waits for earlier calls', () =>
  withMemory<string, number>({}, async (db) => {
    // The timer of a transaction does not keep the process alive.
    const alive = setInterval(() => undefined, 1000);
    await db.set('n', 1);
    await db.transaction((tx) => {
      void tx.update('n', async (n) => {
        await turn();
        return (n ?? 0) + 1;
      });
      void tx.getOrInsertComputed('m', async () => {
        await turn();
        return 5;
      });
    });
    assert.deepEqual(await db.entries().toArray(), [
      ['m', 5],
      ['n', 2],
    ]);
    const tx = db.begin();
    void tx.update('n', async (n) => {
      await turn();
      return (n ?? 0) + 1;
    });
    await Promise.all([tx.commit(), rejects(tx.commit(), 'KV_CLOSED')]);
    assert.equal(await db.get('n'), 3);
    await rejects(
      db.transaction((stuck) => void stuck.update('n', () => new Promise(() => undefined)), { timeout: 20 }),
      'KV_TIMEOUT',
    );
    clearInterval(alive);
  }));

test('the error of a late write is not swallowed', () =>
  withMemory({}, async (db) => {
    const tx = db.begin();
    await tx.commit();
    const late = tx.set('a', 1);
    // The commit can no longer fail, so an unhandled rejection must report the error.
    assert.equal(late.constructor, Promise);
    await rejects(late, 'KV_CLOSED');
  }));

test('in a synchronous transaction a caught error does not count, and an uncaught one rolls back', () =>
  withMemory({}, async (db) => {
    const fail = (tx: SyncTransaction): void => assert.throws(() => tx.set(NaN, 1), code('KV_INVALID_KEY'));
    db.sync.transaction((tx) => {
      fail(tx);
      tx.set('a', 1);
    });
    assert.throws(
      () =>
        db.sync.transaction((tx) => {
          tx.set('b', 1);
          tx.set(NaN, 1);
        }),
      code('KV_INVALID_KEY'),
    );
    assert.deepEqual(await db.keys().toArray(), ['a']);
  }));
