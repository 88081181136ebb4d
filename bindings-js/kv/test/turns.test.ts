// However much is read in the engine's own thread, timers and signals get their turn. No test
// asserts a duration.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Database } from 'mangrove-kv';
import { withMemory } from './support/kit.ts';

const COUNT = 60_000;

/** Calls `use` with a database of many entries. */
async function withMany(use: (db: Database<number, number>) => Promise<void>): Promise<void> {
  await withMemory<number, number>({ durability: 'none' }, async (db) => {
    await db.setMany(Array.from({ length: COUNT }, (_, key) => [key, key]));
    await use(db);
  });
}

/**
 * Checks that a timer set beforehand fires while the work is repeated. Work done only once may end
 * before the timer's first turn is due.
 */
async function hasTurns(work: () => Promise<unknown>): Promise<void> {
  let fired = 0;
  const timer = setInterval(() => {
    fired++;
  }, 1);
  try {
    const end = performance.now() + 2000;
    do await work();
    while (fired === 0 && performance.now() < end);
    assert.ok(fired > 0, 'no timer fired');
  } finally {
    clearInterval(timer);
  }
}

const scans: Record<string, (db: Database<number, number>) => Promise<unknown>> = {
  'for await': async (db) => {
    for await (const _ of db.entries());
  },
  next: async (db) => {
    const entries = db.entries();
    while (!(await entries.next()).done);
  },
  nextMany: async (db) => {
    const keys = db.keys();
    while ((await keys.nextMany(100)).length > 0);
  },
  toArray: (db) => db.entries().toArray(),
  'forEach of the collection': (db) => db.forEach(() => {}),
  'forEach of an iterator': (db) => db.values().forEach(() => {}),
  'iterator helpers': (db) =>
    db
      .entries()
      .filter(([key]) => key % 2 === 0)
      .map(([, value]) => value)
      .reduce((sum, value) => sum + value, 0),
  get: async (db) => {
    for (let key = 0; key < COUNT; key++) assert.equal(await db.get(key), key);
  },
  getMany: async (db) => {
    for (let key = 0; key < COUNT; key += 10) await db.getMany([key, key + 1, -1]);
  },
  has: async (db) => {
    for (let key = 0; key < COUNT; key++) await db.has(key);
  },
  getEntry: async (db) => {
    for (let key = 0; key < 10_000; key++) await db.getEntry(key);
  },
  count: async (db) => {
    for (let key = 0; key < 10_000; key++) await db.count({ gte: key });
  },
  set: async (db) => {
    for (let key = 0; key < 10_000; key++) await db.set(key, key);
  },
  transaction: (db) =>
    db.transaction(async (tx) => {
      for (let key = 0; key < 20_000; key++) await tx.get(key);
    }),
  snapshot: async (db) => {
    const snapshot = db.snapshot();
    await snapshot.entries().toArray();
    await snapshot.close();
  },
  verify: (db) => db.verify(),
};

for (const [name, scan] of Object.entries(scans)) {
  test(`a timer fires during ${name}`, () => withMany((db) => hasTurns(() => scan(db))));
}

test('a timer fires during slow work on each entry', () =>
  withMany(async (db) => {
    let fired = 0;
    const timer = setInterval(() => {
      fired++;
    }, 0);
    let entries = 0;
    for await (const _ of db.entries({ limit: 200 })) {
      for (const end = performance.now() + 1; performance.now() < end; );
      entries++;
    }
    clearInterval(timer);
    assert.equal(entries, 200);
    assert.ok(fired > 3, `${fired} turns in 200 entries of 1 ms`);
  }));

test('a timeout signal ends loops that would run for ever', () =>
  withMany(async (db) => {
    const signal = AbortSignal.timeout(10);
    let gets = 0;
    while (!signal.aborted) await db.get(gets++ % COUNT);
    assert.ok(gets > 1);
    const timeout = { name: 'TimeoutError' };
    await assert.rejects(async () => {
      for (;;) for await (const _ of db.entries({ signal: AbortSignal.timeout(10) }));
    }, timeout);
    const stop = AbortSignal.timeout(10);
    for (;;) {
      try {
        await db.values({ signal: stop }).toArray();
      } catch (error) {
        assert.equal((error as Error).name, 'TimeoutError');
        break;
      }
    }
  }));

test('calls keep their order across turns', () =>
  withMemory<string, number>({}, async (db) => {
    const order: number[] = [];
    await db.set('n', 0);
    for (let round = 0; round < 3000; round++) {
      const got = db.get('n');
      const written = db.set('n', round + 1);
      const after = db.get('n');
      void got.then((value) => order.push(value as number));
      assert.deepEqual([await got, await after], [round, round + 1]);
      if (round % 50 === 0) assert.equal(db.sync.get('n'), round + 1);
      await written;
    }
    assert.deepEqual(
      order,
      Array.from({ length: 3000 }, (_, index) => index),
    );
  }));

test('items arrive in order, however many are requested at once', () =>
  withMany(async (db) => {
    const entries = db.keys();
    for (let at = 0; at < COUNT; at += 1000) {
      const steps = await Promise.all(Array.from({ length: 1000 }, () => entries.next()));
      assert.deepEqual(
        steps.map(({ value }) => value),
        Array.from({ length: 1000 }, (_, index) => at + index),
      );
    }
    assert.equal((await entries.next()).done, true);
  }));
