// AbortSignal wherever something waits: an aborted signal does nothing at all, a later abort ends
// the wait and undoes no write.
import assert from 'node:assert/strict';
import process from 'node:process';
import { test } from 'node:test';
import { open, openSync } from 'mangrove-kv';
import type { Database, SetOptions } from 'mangrove-kv';
import { runChild } from './support/child.ts';
import { code, rejects, withMemory, withPath } from './support/kit.ts';

type Numbers = Database<string, number>;

const REASON = new Error('not wanted any more');
const is =
  (reason: unknown) =>
  (error: unknown): boolean =>
    error === reason;
const aborted = (): AbortSignal => AbortSignal.abort(REASON);

/** A promise that never settles. */
const never = <T>(): Promise<T> => new Promise<T>(() => undefined);

const WRITES: Record<string, (db: Numbers, options: SetOptions) => Promise<unknown>> = {
  set: (db, options) => db.set('a', 2, options),
  'set that expires': (db, options) => db.set('a', 2, { expireIn: 60_000, ...options }),
  setMany: (db, options) =>
    db.setMany(
      [
        ['a', 2],
        ['b', 2],
      ],
      options,
    ),
  delete: (db, options) => db.delete('a', options),
  deleteMany: (db, options) => db.deleteMany(['a'], options),
  clear: (db, options) => db.clear(undefined, options),
  'clear with the signal in its range': (db, { signal }) => db.clear({ signal }),
  getOrInsert: (db, options) => db.getOrInsert('b', 2, options),
  getOrInsertComputed: (db, options) => db.getOrInsertComputed('b', () => 2, options),
  update: (db, options) => db.update('a', () => 2, options),
  'batch of operations': (db, options) => db.batch([{ type: 'set', key: 'a', value: 2 }], options),
  transaction: (db, options) => db.transaction((tx) => tx.set('a', 2), options),
  tryTransaction: (db, options) => db.tryTransaction((tx) => tx.set('a', 2), options),
};

for (const [name, write] of Object.entries(WRITES)) {
  test(`${name} with an aborted signal does nothing`, () =>
    withMemory<string, number>({}, async (db) => {
      await db.set('a', 1);
      await assert.rejects(write(db, { signal: aborted() }), is(REASON));
      assert.deepEqual(await db.entries().toArray(), [['a', 1]]);
      assert.equal((await db.stats()).version, 1);
    }));

  test(`${name} that is aborted after the call rejects at once`, () =>
    withMemory<string, number>({}, async (db) => {
      const controller = new AbortController();
      const writing = write(db, { signal: controller.signal });
      controller.abort(REASON);
      await assert.rejects(writing, is(REASON));
    }));
}

test('a write called before the abort takes effect', () =>
  withMemory<string, number>({}, async (db) => {
    const controller = new AbortController();
    const writing = db.set('a', 1, { signal: controller.signal });
    controller.abort(REASON);
    await assert.rejects(writing, is(REASON));
    assert.equal(await db.get('a'), 1);
  }));

const READS: Record<string, (db: Numbers, signal: AbortSignal) => Promise<unknown>> = {
  first: (db, signal) => db.first({ signal }),
  last: (db, signal) => db.last({ signal }),
  at: (db, signal) => db.at(0, { signal }),
  'at within a window': (db, signal) => db.at(-1, { limit: 1, signal }),
  count: (db, signal) => db.count({ signal }),
  rank: (db, signal) => db.rank('a', { signal }),
  nextExpiry: (db, signal) => db.nextExpiry({ signal }),
  forEach: (db, signal) => db.forEach(() => undefined, { signal }),
  'toArray of entries': (db, signal) => db.entries({ signal }).toArray(),
  'next of keys': (db, signal) => db.keys({ signal }).next(),
  'nextMany of values': (db, signal) => db.values({ signal }).nextMany(1),
  'a helper of prefix': (db, signal) =>
    db
      .prefix('a', { signal })
      .map((entry) => entry)
      .toArray(),
  'next of watch': (db, signal) => db.watch({ initial: true, signal }).next(),
  'next of changes': (db, signal) => db.changes({ signal }).next(),
  flush: (db, signal) => db.flush({ signal }),
  purgeExpired: (db, signal) => db.purgeExpired({ signal }),
  verify: (db, signal) => db.verify({ signal }),
  compact: (db, signal) => db.compact({ signal }),
  backup: (db, signal) => db.backup({ signal }).getReader().read(),
};

for (const [name, read] of Object.entries(READS)) {
  test(`${name} rejects with the reason of its signal`, () =>
    withMemory<string, number>({}, async (db) => {
      await db.set('a', 1);
      await assert.rejects(read(db, aborted()), is(REASON));
      const controller = new AbortController();
      const reading = read(db, controller.signal);
      controller.abort(REASON);
      await assert.rejects(reading, is(REASON));
      // Whatever was begun is released, and the database continues without anybody waiting.
      assert.equal(await db.get('a'), 1);
      // Closing it is a fire-and-forget request.
      while ((await db.stats()).openSnapshots > 0) await new Promise(setImmediate);
    }));
}

test('an abort ends the wait for the next commit', () =>
  withMemory<string, number>({}, async (db) => {
    const controller = new AbortController();
    const commits = db.watch({ signal: controller.signal });
    const next = commits.next();
    await db.count();
    controller.abort(REASON);
    await assert.rejects(next, is(REASON));
    assert.equal((await commits.next()).done, true);
  }));

test('a signal unsubscribes a listener', () =>
  withMemory<string, number>({}, async (db) => {
    const controller = new AbortController();
    const seen: number[] = [];
    const other: number[] = [];
    db.subscribe({ signal: controller.signal }, ({ version }) => seen.push(version));
    db.subscribe({ signal: aborted() }, ({ version }) => seen.push(-version));
    db.subscribe({}, ({ version }) => other.push(version));
    await db.set('a', 1);
    while (seen.length === 0) await db.count();
    controller.abort();
    await db.set('a', 2);
    while (other.length < 2) await db.count();
    assert.deepEqual([seen, other], [[1], [1, 2]]);
  }));

test('a callback that waits does not delay an abort', () =>
  withMemory<string, number>({}, async (db) => {
    await db.set('a', 1);
    for (const run of [
      (signal: AbortSignal, begun: () => void) => db.update('a', () => (begun(), never<number>()), { signal }),
      (signal: AbortSignal, begun: () => void) =>
        db.getOrInsertComputed('b', () => (begun(), never<number>()), { signal }),
      (signal: AbortSignal, begun: () => void) => db.forEach(() => (begun(), never()), { signal }),
      (signal: AbortSignal, begun: () => void) => db.entries({ signal }).forEach(() => (begun(), never())),
      (signal: AbortSignal, begun: () => void) => db.keys({ signal }).reduce(() => (begun(), never<number>()), 0),
      (signal: AbortSignal, begun: () => void) =>
        db
          .keys({ signal })
          .filter(() => (begun(), never()))
          .next(),
      (signal: AbortSignal, begun: () => void) =>
        db
          .keys({ signal })
          .map(() => (begun(), never()))
          .take(1)
          .toArray(),
      (signal: AbortSignal, begun: () => void) => db.transaction(() => (begun(), never()), { signal }),
    ]) {
      const controller = new AbortController();
      let begun = (): void => undefined;
      const hasBegun = new Promise<void>((resolve) => {
        begun = resolve;
      });
      const running = run(controller.signal, begun);
      await hasBegun;
      controller.abort(REASON);
      await assert.rejects(running, is(REASON));
    }
    assert.deepEqual(await db.entries().toArray(), [['a', 1]]);
  }));

test('a value that a callback returns after the abort is not written', () =>
  withMemory<string, number>({}, async (db) => {
    const controller = new AbortController();
    let go = (_: number): void => undefined;
    const value = new Promise<number>((resolve) => {
      go = resolve;
    });
    const updating = db.update('a', () => value, { signal: controller.signal });
    const computing = db.getOrInsertComputed('b', () => value, { signal: controller.signal });
    await db.count();
    controller.abort(REASON);
    await assert.rejects(updating, is(REASON));
    await assert.rejects(computing, is(REASON));
    go(7);
    await value;
    await db.count();
    assert.equal(await db.size, 0);
  }));

test('an aborted transaction is rolled back, and its callback receives the reason', () =>
  withMemory<string, number>({}, async (db) => {
    const controller = new AbortController();
    let caught: unknown;
    let ended = (): void => undefined;
    const hasEnded = new Promise<void>((resolve) => {
      ended = resolve;
    });
    const running = db.transaction(
      async (tx) => {
        await tx.set('a', 1);
        controller.abort(REASON);
        assert.equal(tx.status, 'rolled-back');
        caught = await tx.get('a').catch((error: unknown) => error);
        ended();
      },
      { signal: controller.signal },
    );
    await assert.rejects(running, is(REASON));
    await hasEnded;
    assert.equal(caught, REASON);
    assert.equal(await db.has('a'), false);
  }));

test('a transaction that conflicts does not run again after the abort', () =>
  withMemory<string, number>({}, async (db) => {
    const controller = new AbortController();
    let runs = 0;
    const running = db.transaction(
      async (tx) => {
        runs++;
        await tx.get('a');
        await db.set('a', runs);
        await tx.set('a', -1);
        // The commit follows at once and fails; the abort comes in the pause after it.
        queueMicrotask(() => void db.count().then(() => controller.abort(REASON)));
      },
      { signal: controller.signal, maxRetries: Infinity },
    );
    await assert.rejects(running, is(REASON));
    const before = runs;
    await db.count();
    assert.equal(runs, before);
    assert.ok(((await db.get('a')) as number) > 0);
  }));

test('begin and commit take signals', () =>
  withMemory<string, number>({}, async (db) => {
    assert.throws(() => db.begin({ signal: aborted() }), is(REASON));
    const tx = db.begin();
    await tx.set('a', 1);
    await assert.rejects(tx.set('b', 1, { signal: aborted() }), is(REASON));
    await assert.rejects(tx.commit({ signal: aborted() }), is(REASON));
    assert.equal(tx.status, 'active');
    await tx.commit();
    assert.deepEqual(await db.entries().toArray(), [['a', 1]]);
    const batch = db.batch().set('c', 1);
    await assert.rejects(batch.commit({ signal: aborted() }), is(REASON));
    await assert.rejects(batch.tryCommit({ signal: aborted() }), is(REASON));
    assert.equal(batch.length, 1);
    await batch.commit();
    assert.equal(await db.get('c'), 1);
  }));

test('an aborted open opens nothing', () =>
  withPath(async (path) => {
    await assert.rejects(open(path, { signal: aborted() }), is(REASON));
    assert.throws(() => openSync(path, { signal: aborted() }), is(REASON));
    await rejects(open(path, { create: false }), 'KV_NOT_FOUND');
  }));

test('an abort ends the wait for a lock', () =>
  withPath(async (path) => {
    const holder = runChild(['hold', path]);
    try {
      assert.equal(await holder.line(), 'open');
      const controller = new AbortController();
      const opening = open(path, { signal: controller.signal, lockTimeout: Infinity });
      setTimeout(() => controller.abort(REASON), 20);
      await assert.rejects(opening, is(REASON));
    } finally {
      holder.kill();
      await holder.ended;
    }
    const db = await open(path);
    await db.close();
  }));

test('the synchronous API throws the reason', () =>
  withMemory<string, number>({}, async (db) => {
    const options = { signal: aborted() };
    assert.throws(() => db.sync.set('a', 1, options), is(REASON));
    assert.throws(() => db.sync.setMany([['a', 1]], options), is(REASON));
    assert.throws(() => db.sync.getOrInsert('a', 1, options), is(REASON));
    assert.throws(() => db.sync.delete('a', options), is(REASON));
    assert.throws(() => db.sync.transaction((tx) => tx.set('a', 1), options), is(REASON));
    assert.equal(db.sync.size, 0);
  }));

test('one signal for many calls causes no warning', () =>
  withMemory<string, number>({}, async (db) => {
    const warnings: unknown[] = [];
    const warn = (warning: unknown): void => void warnings.push(warning);
    process.on('warning', warn);
    const { signal } = new AbortController();
    const iterators = Array.from({ length: 20 }, () => db.entries({ signal }));
    await Promise.all(Array.from({ length: 50 }, (_, index) => db.set(`${index}`, index, { signal })));
    await Promise.all(iterators.map((iterator) => iterator.return()));
    await new Promise((resolve) => setTimeout(resolve));
    process.off('warning', warn);
    assert.deepEqual(warnings, []);
  }));

test('a value that is not a signal is refused', () =>
  withMemory<string, number>({}, async (db) => {
    const options = { signal: {} as AbortSignal };
    await rejects(db.set('a', 1, options), 'KV_INVALID_ARGUMENT');
    await rejects(db.count(options), 'KV_INVALID_ARGUMENT');
    await rejects(db.entries(options).next(), 'KV_INVALID_ARGUMENT');
    await rejects(open('x', { storage: 'memory', ...options }), 'KV_INVALID_ARGUMENT');
    assert.throws(() => db.begin(options), code('KV_INVALID_ARGUMENT'));
  }));
