// Iterators: the helpers, which state they see, what they leave behind, and reading in chunks.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { Database } from 'mangrove-kv';
import { rejects, withMemory } from './support/kit.ts';

const COUNT = 10_000;

/** The numbers 0 to 9999, each with its double; more than fit in any chunk. */
async function withNumbers(use: (db: Database<number, number>) => Promise<void>): Promise<void> {
  await withMemory<number, number>({ durability: 'none' }, async (db) => {
    await db.setMany(Array.from({ length: COUNT }, (_, index) => [index, index * 2]));
    await use(db);
    assert.equal((await db.stats()).openSnapshots, 0, 'every iterator released its snapshot');
  });
}

test('for await yields every entry in order', () =>
  withNumbers(async (db) => {
    let next = 0;
    for await (const [key, value] of db) {
      assert.equal(key, next);
      assert.equal(value, next * 2);
      next++;
    }
    assert.equal(next, COUNT);
    let last = COUNT;
    for await (const key of db.keys({ reverse: true })) assert.equal(key, --last);
    assert.equal(last, 0);
  }));

test('an iterator sees the state at the call, not at the first step', () =>
  withNumbers(async (db) => {
    const before = db.keys({ lt: 5 });
    const all = db.keys();
    void db.delete(3);
    void db.set(4.5, 0);
    const after = db.keys({ lt: 5 });
    await db.clear();
    assert.deepEqual(await before.toArray(), [0, 1, 2, 3, 4]);
    assert.deepEqual(await after.toArray(), [0, 1, 2, 4, 4.5]);
    assert.equal((await all.toArray()).length, COUNT);
    assert.equal(await db.size, 0);
  }));

test('leaving a loop releases the snapshot', () =>
  withNumbers(async (db) => {
    for await (const [key] of db) if (key === 3) break;
    await assert.rejects(async () => {
      for await (const [key] of db) if (key === 3) throw new Error('out');
    }, /out/);
    {
      await using iterator = db.entries();
      await iterator.next();
    }
    const iterator = db.entries();
    assert.equal((await db.stats()).openSnapshots, 1);
    assert.deepEqual(await iterator.return(), { done: true, value: undefined });
    assert.deepEqual(await iterator.next(), { done: true, value: undefined });
    assert.deepEqual(await iterator.nextMany(5), []);
  }));

test('many steps requested at once arrive in order', () =>
  withNumbers(async (db) => {
    const iterator = db.keys({ limit: 1000 });
    const steps = await Promise.all(Array.from({ length: 1002 }, () => iterator.next()));
    assert.deepEqual(
      steps.slice(0, 1000).map((step) => step.value),
      Array.from({ length: 1000 }, (_, index) => index),
    );
    assert.deepEqual(steps.slice(1000), [
      { done: true, value: undefined },
      { done: true, value: undefined },
    ]);
  }));

test('nextMany returns up to that many items', () =>
  withNumbers(async (db) => {
    const iterator = db.keys();
    assert.deepEqual(await iterator.nextMany(0), []);
    assert.deepEqual(await iterator.nextMany(3), [0, 1, 2]);
    assert.deepEqual(await iterator.next(), { done: false, value: 3 });
    const [many, one] = await Promise.all([iterator.nextMany(5000), iterator.next()]);
    assert.equal(many.length, 5000);
    assert.equal(many[0], 4);
    assert.equal(one.value, 5004);
    assert.equal((await iterator.nextMany(Infinity)).length, COUNT - 5005);
    assert.deepEqual(await iterator.nextMany(1), []);
  }));

test('seek goes both ways, within the range and the limit', () =>
  withNumbers(async (db) => {
    const forward = db.keys({ gte: 10, lt: 9000 });
    assert.equal((await forward.next()).value, 10);
    forward.seek(500.5);
    assert.deepEqual(await forward.nextMany(2), [501, 502]);
    forward.seek(3);
    assert.equal((await forward.next()).value, 10, 'not before the range');
    forward.seek(8999);
    assert.deepEqual(await forward.toArray(), [8999]);
    forward.seek(20);
    assert.deepEqual(await forward.toArray(), [], 'a reached end is final');

    const reverse = db.keys({ reverse: true });
    await reverse.nextMany(4000);
    reverse.seek(99.5);
    assert.deepEqual(await reverse.nextMany(2), [99, 98]);
    reverse.seek(9000);
    assert.equal((await reverse.next()).value, 9000);
    await reverse.return();
    reverse.seek(1);
    assert.deepEqual(await reverse.next(), { done: true, value: undefined });

    const limited = db.keys({ limit: 4 });
    assert.deepEqual(await limited.nextMany(2), [0, 1]);
    limited.seek(100);
    assert.deepEqual(await limited.toArray(), [100, 101]);

    const exhausted = db.keys({ limit: 2 });
    assert.deepEqual(await exhausted.nextMany(2), [0, 1]);
    exhausted.seek(100);
    assert.deepEqual(await exhausted.toArray(), [], 'the limit counts what was given before a seek');

    const small = db.keys({ limit: 3 });
    assert.equal((await small.next()).value, 0);
    small.seek(0);
    assert.deepEqual(await small.toArray(), [0, 1], 'even though everything had been read ahead');

    const waiting = db.keys();
    const first = waiting.next();
    waiting.seek(7000);
    await first;
    assert.ok([7000, 7001].includes((await waiting.next()).value as number));
    await waiting.return();
    const snapshotted = db.keys({ lt: 3 });
    await db.delete(1);
    await snapshotted.next();
    snapshotted.seek(0);
    assert.deepEqual(await snapshotted.toArray(), [0, 1, 2], 'a seek stays in its snapshot');
  }));

test('every iterator helper works', () =>
  withNumbers(async (db) => {
    const keys = (): ReturnType<typeof db.keys> => db.keys({ lt: 10 });
    assert.deepEqual(
      await keys()
        .map((key, index) => key * 10 + index)
        .toArray(),
      [0, 11, 22, 33, 44, 55, 66, 77, 88, 99],
    );
    assert.deepEqual(
      await keys()
        .map(async (key) => `${key}`)
        .take(2)
        .toArray(),
      ['0', '1'],
    );
    assert.deepEqual(
      await keys()
        .filter((key) => key % 2 === 0)
        .toArray(),
      [0, 2, 4, 6, 8],
    );
    assert.deepEqual(
      await keys()
        .filter(async (key) => key > 7)
        .toArray(),
      [8, 9],
    );
    assert.deepEqual(await keys().drop(7).toArray(), [7, 8, 9]);
    assert.deepEqual(await keys().drop(70).toArray(), []);
    assert.deepEqual(await keys().take(0).toArray(), []);
    assert.deepEqual(await keys().take(Infinity).drop(8).toArray(), [8, 9]);
    assert.deepEqual(
      await keys()
        .take(2)
        .flatMap((key) => [key, -key])
        .toArray(),
      [0, -0, 1, -1],
    );
    assert.deepEqual(
      await db
        .keys()
        .flatMap((key) => [key])
        .take(3)
        .toArray(),
      [0, 1, 2],
    );
    assert.equal(await keys().reduce((sum, key) => sum + key, 0), 45);
    assert.equal(await keys().some((key) => key === 5), true);
    assert.equal(await keys().some(async () => false), false);
    assert.equal(await keys().every((key) => key < 10), true);
    assert.equal(await keys().every((key) => key < 5), false);
    assert.equal(await keys().find((key) => key > 4), 5);
    assert.equal(await keys().find((key) => key > 40), undefined);
    const seen: number[] = [];
    await keys().forEach((key) => seen.push(key));
    assert.equal(seen.length, 10);
    const thousands = db
      .entries()
      .filter(([key]) => key % 1000 === 0)
      .map(([, value]) => value);
    assert.deepEqual(await thousands.nextMany(3), [0, 2000, 4000]);
    await thousands.return();
  }));

test('helpers close the iterator that they were made from', () =>
  withNumbers(async (db) => {
    for await (const key of db.keys().map((value) => value + 1)) if (key > 3) break;
    for await (const key of db.keys().flatMap((value) => [value, value])) if (key > 3) break;
    assert.deepEqual(await db.keys().take(1).toArray(), [0]);
    await assert.rejects(
      db
        .keys()
        .map(() => {
          throw new Error('mine');
        })
        .toArray(),
      /mine/,
    );
    await assert.rejects(
      db.keys().forEach(() => Promise.reject(new Error('mine'))),
      /mine/,
    );
    const mapped = db.keys().map((key) => key);
    mapped.seek(5000);
    assert.equal((await mapped.next()).value, 5000);
    await mapped.return();
  }));

test('an item that cannot be decoded ends the iteration', () =>
  withMemory({}, async (db) => {
    const texts = db.collection<number, string>('texts', {
      value: {
        id: 'text',
        encode: (value) => new TextEncoder().encode(value),
        decode: (bytes) => {
          if (bytes.length === 3) throw new Error('three');
          return new TextDecoder().decode(bytes);
        },
      },
    });
    await texts.setMany([
      [1, 'a'],
      [2, 'bad'],
      [3, 'c'],
    ]);
    const iterator = texts.values();
    assert.equal((await iterator.next()).value, 'a');
    await rejects(iterator.next(), 'KV_CORRUPT');
    assert.deepEqual(await iterator.next(), { done: true, value: undefined });
    assert.equal((await db.stats()).openSnapshots, 0);
  }));

test('large values arrive in chunks too', () =>
  withMemory({ durability: 'none' }, async (db) => {
    const value = 'x'.repeat(300_000);
    for (let key = 0; key < 40; key++) await db.set(key, value);
    let count = 0;
    for await (const [key, found] of db) {
      assert.equal(key, count++);
      assert.equal(found, value);
    }
    assert.equal(count, 40);
  }));

test('entries with version and expiry equal those of getEntry', () =>
  withMemory<string, number>({}, async (db) => {
    const at = Date.now() + 1e8;
    for (const key of 'abcdefgh') await db.set(key, key.charCodeAt(0), key > 'e' ? { expireAt: at } : undefined);
    const other = db.collection<string, number>('other');
    await other.set('x', 1, { expireAt: at });
    const expected = await Promise.all([...'abcdefgh'].map((key) => db.getEntry(key)));
    const meta = true;
    assert.deepEqual(await db.entries({ meta }).toArray(), expected);
    assert.equal('expiresAt' in (expected[0] ?? {}), false);
    assert.equal(expected[7]?.expiresAt, at);
    assert.deepEqual([...db.sync.entries({ meta })], expected);
    assert.deepEqual(
      await db.entries({ meta, gte: 'c', limit: 2, reverse: true }).toArray(),
      expected.slice(6).reverse(),
    );
    assert.deepEqual(await db.prefix('b', { meta }).toArray(), [expected[1]]);
    assert.deepEqual([...db.sync.prefix('b', { meta })], [expected[1]]);
    assert.deepEqual([...db.sync.entries({ meta, lt: 'c' })], expected.slice(0, 2));
    const iterator = db.entries({ meta });
    iterator.seek('g');
    assert.deepEqual(await iterator.nextMany(5), expected.slice(6));
    const snapshot = db.snapshot();
    await db.set('a', 0);
    await db.transaction(async (tx) => {
      await tx.set('b', 1, { expireAt: at });
      await tx.set('bb', 2);
      await tx.delete('c');
      const found = await tx.entries({ meta, lt: 'e' }).toArray();
      assert.deepEqual(found, [
        await tx.getEntry('a'),
        { key: 'b', value: 1, version: 0, expiresAt: at },
        { key: 'bb', value: 2, version: 0 },
        expected[3],
      ]);
      assert.deepEqual((await tx.collection(other).entries({ meta }).toArray())[0]?.expiresAt, at);
    });
    db.sync.transaction((tx) => {
      tx.set('b', 1);
      assert.deepEqual([...tx.entries({ meta, gte: 'b', lt: 'bb' })], [{ key: 'b', value: 1, version: 0 }]);
    });
    assert.deepEqual(await snapshot.entries({ meta }).toArray(), expected);
    assert.deepEqual([...snapshot.sync.entries({ meta })], expected);
    await assert.rejects(db.entries({ meta: 1 as unknown as true }).toArray(), { code: 'KV_INVALID_ARGUMENT' });
    const plain: boolean = false;
    assert.deepEqual(await db.entries({ meta: plain as never, limit: 1 }).toArray(), [['a', 0]]);
    await snapshot.close();
  }));

/** The garbage collector, if the runtime lets it be called. */
function collector(): (() => void) | undefined {
  const bun = (globalThis as { Bun?: { gc(now: boolean): void } }).Bun;
  if (bun !== undefined) return () => bun.gc(true);
  if ('Deno' in globalThis) return undefined;
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc') as () => void;
}

test('forgotten iterators and snapshots are closed when they are collected', async () => {
  const gc = collector();
  if (gc === undefined) return;
  await withNumbers(async (db) => {
    await (async () => {
      await db.entries().next();
      await db.snapshot().get(1);
    })();
    for (let tries = 0; tries < 200 && (await db.stats()).openSnapshots > 0; tries++) {
      gc();
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  });
});
