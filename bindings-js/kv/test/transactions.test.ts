// Transactions in their three styles: what they see, what conflicts, how they end, and that they
// survive any await.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keyCodecs, open } from 'mangrove-kv';
import type { Database, Reader, Transaction, Writer } from 'mangrove-kv';
import { chance, code, rejects, withMemory, withPath } from './support/kit.ts';

const sleep = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

/** Accepts a database or a transaction. */
async function addTo(store: Reader<string, number> & Writer<string, number>, key: string, by: number): Promise<void> {
  await store.set(key, ((await store.get(key)) ?? 0) + by);
}

test('a callback commits once and returns its value', () =>
  withMemory<string, number>({}, async (db) => {
    await db.set('a', 10);
    const given = await db.transaction(async (tx) => {
      assert.equal(tx.mode, 'readwrite');
      await addTo(tx, 'a', -3);
      await fetch('data:text/plain,anything').then((response) => response.text());
      await sleep(5);
      await addTo(tx, 'b', 3);
      assert.equal(await db.get('a'), 10, 'nobody else sees it');
      return tx;
    });
    assert.equal(given.status, 'committed');
    assert.deepEqual(await db.entries().toArray(), [
      ['a', 7],
      ['b', 3],
    ]);
    const { version } = await db.stats();
    assert.equal((await db.getEntry('a'))?.version, version);
    assert.equal((await db.getEntry('b'))?.version, version);
    await rejects(given.get('a'), 'KV_CLOSED');
    assert.throws(() => given.savepoint(), code('KV_CLOSED'));
  }));

test('an error thrown by a callback rolls back and is passed on unchanged', () =>
  withMemory({}, async (db) => {
    const reason = new Error('mine');
    const failing = db.transaction(async (tx) => {
      await tx.set('a', 1);
      throw reason;
    });
    await assert.rejects(failing, (error) => error === reason);
    await rejects(
      db.transaction((tx) => tx.rollback('changed my mind')),
      'KV_ROLLBACK',
    );
    await rejects(
      db.transaction((tx) => tx.set('a', undefined as never)),
      'KV_INVALID_VALUE',
    );
    assert.equal(await db.size, 0);
    assert.equal((await db.stats()).openSnapshots, 0);
  }));

test('concurrent increments lose nothing', () =>
  withMemory<string, number>({}, async (db) => {
    let runs = 0;
    await Promise.all(
      Array.from({ length: 20 }, () =>
        db.transaction(
          async (tx) => {
            runs++;
            await sleep(Math.random() * 3);
            await addTo(tx, 'n', 1);
          },
          { maxRetries: Infinity },
        ),
      ),
    );
    assert.equal(await db.get('n'), 20);
    assert.ok(runs > 20, 'some had to run again');
    await Promise.all(Array.from({ length: 20 }, () => db.update('m', (old = 0) => old + 1)));
    assert.equal(await db.get('m'), 20);
  }));

test('workers that take from one queue do not run out of retries', () =>
  withMemory<number, number>({}, async (db) => {
    const ITEMS = 1000;
    await db.setMany(Array.from({ length: ITEMS }, (_, item) => [item, item]));
    const done = db.collection<number, number>('done');
    let runs = 0;
    await Promise.all(
      Array.from({ length: 16 }, async (_, worker) => {
        for (let isMore = true; isMore; ) {
          isMore = await db.transaction(async (tx) => {
            runs++;
            const [item] = (await tx.first()) ?? [];
            if (item === undefined) return false;
            await tx.delete(item);
            await tx.collection(done).set(item, worker);
            return true;
          });
        }
      }),
    );
    assert.equal(await done.size, ITEMS);
    assert.ok(runs > ITEMS + 16, 'some had to run again');
  }));

test('a transaction in its turn may begin another one, which does not wait for it', () =>
  withMemory<string, number>({}, async (db) => {
    let runs = 0;
    await db.transaction(async (tx) => {
      runs++;
      await tx.get('a');
      if (runs <= 4) await db.set('a', runs);
      else await db.transaction((inner) => inner.set('b', runs));
      await tx.set('c', runs);
    });
    assert.deepEqual([runs, await db.get('b'), await db.get('c')], [5, 5, 5]);
  }));

test('what begins while others take turns waits for them, and a signal ends that', () =>
  withMemory<string, number>({}, async (db) => {
    let [runs, release] = [0, (): void => undefined];
    const turn = new Promise<void>((resolve) => {
      release = resolve;
    });
    const slow = db.transaction(async (tx) => {
      runs++;
      await tx.get('a');
      if (runs <= 3) await db.set('a', runs);
      else await turn;
      await tx.set('b', runs);
    });
    while (runs < 4) await sleep(1);
    const since = performance.now();
    const controller = new AbortController();
    const aborted = assert.rejects(
      db.transaction((tx) => tx.set('d', 1), { signal: controller.signal }),
      /enough/,
    );
    let hasBegun = false;
    const late = db.transaction((tx) => {
      hasBegun = true;
      return tx.set('c', 1);
    });
    await db.transaction((tx) => tx.get('c'), { mode: 'readonly' });
    // A second is as long as anybody waits.
    assert.ok(!hasBegun || performance.now() - since >= 1000);
    controller.abort(new Error('enough'));
    await aborted;
    release();
    await Promise.all([slow, late]);
    assert.deepEqual([await db.get('b'), await db.get('c'), await db.has('d')], [4, 1, false]);
  }));

test('too many conflicts are an error, or a result of tryTransaction', () =>
  withMemory<string, number>({}, async (db) => {
    const meddled = async (tx: Transaction<string, number>): Promise<void> => {
      await tx.get('a');
      await db.set('a', Math.random());
      await tx.set('b', 1);
    };
    await rejects(db.transaction(meddled, { maxRetries: 2 }), 'KV_CONFLICT');
    const result = await db.tryTransaction(meddled, { maxRetries: 0 });
    assert.ok(!result.ok && result.reason === 'conflict' && result.error.retryable);
    assert.equal(await db.has('b'), false);
    const fine = await db.tryTransaction(async (tx) => {
      await tx.set('b', 2);
      return 'given';
    });
    assert.deepEqual(fine, { ok: true, value: 'given', version: (await db.stats()).version });
    const back = await db.tryTransaction((tx) => tx.rollback());
    assert.ok(!back.ok && back.reason === 'rollback');
    await rejects(
      db.tryTransaction((tx) => tx.get(NaN as never)),
      'KV_INVALID_KEY',
    );
  }));

test('reads are repeatable, absent keys and ranges count, isolation can be lowered', () =>
  withMemory<string, number>({}, async (db) => {
    await db.setMany([
      ['a', 1],
      ['c', 3],
    ]);
    const changes: [string, (tx: Transaction<string, number>) => Promise<unknown>, boolean][] = [
      ['a key', (tx) => tx.get('b'), true],
      ['a range', (tx) => tx.entries({ gte: 'a', lt: 'c' }).toArray(), true],
      ['a count', (tx) => tx.count({ prefix: 'b' }), true],
      ['an edge', (tx) => tx.last({ lt: 'c' }), true],
      ['another key', (tx) => tx.get('c'), false],
      ['another range', (tx) => tx.keys({ gt: 'b' }).toArray(), false],
    ];
    for (const [what, read, conflicts] of changes) {
      for (const isolation of ['serializable', 'snapshot'] as const) {
        await db.delete('b');
        const tx = db.begin({ isolation });
        await read(tx);
        await db.set('b', 2);
        assert.equal(await tx.get('b'), undefined, 'it reads the state of its begin');
        await tx.set('own', 1);
        const result = await tx.tryCommit();
        // The check above reads b too.
        assert.equal(result.ok, isolation === 'snapshot', `${what} ${isolation}`);
      }
      await db.delete('b');
      const tx = db.begin();
      await read(tx);
      await db.set('b', 2);
      await tx.set('own', 1);
      assert.equal((await tx.tryCommit()).ok, !conflicts, what);
    }
    const [first, second] = [db.begin({ isolation: 'snapshot' }), db.begin({ isolation: 'snapshot' })];
    await Promise.all([first.set('x', 1), second.set('x', 2)]);
    await first.commit();
    await rejects(second.commit(), 'KV_CONFLICT');
    assert.equal(second.status, 'rolled-back');
  }));

test('a transaction ends by commit, rollback or dispose', () =>
  withMemory<string, number>({}, async (db) => {
    const tx = db.begin();
    const base = await tx.baseVersion;
    assert.equal(base, (await db.stats()).version);
    await tx.setMany([
      ['a', 1],
      ['b', 2],
    ]);
    assert.equal(await tx.delete('a'), true);
    assert.equal(await tx.deleteMany(['a', 'b']), 1);
    await tx.set('c', 3);
    assert.equal(await tx.size, 1);
    const { version } = await tx.commit({ durability: 'relaxed' });
    assert.equal(version, base + 1);
    assert.equal(tx.status, 'committed');
    await rejects(tx.commit(), 'KV_CLOSED');
    const undone = db.begin();
    await undone.clear();
    undone.rollback();
    assert.equal(undone.status, 'rolled-back');
    await rejects(undone.set('x', 1), 'KV_CLOSED');
    {
      using dropped = db.begin();
      await dropped.set('y', 1);
    }
    const reading = db.begin({ mode: 'readonly' });
    await rejects(reading.set('z', 1), 'KV_READ_ONLY');
    await db.set('later', 1);
    assert.deepEqual(await reading.keys().toArray(), ['c']);
    assert.deepEqual(await reading.commit(), { version });
    assert.deepEqual(await db.keys().toArray(), ['c', 'later']);
    assert.equal((await db.stats()).openSnapshots, 0);
  }));

test('ranges in a transaction see its earlier writes, in both directions', () =>
  withMemory<number, string>({}, async (db) => {
    await db.setMany([1, 3, 5, 7].map((key) => [key, 'base']));
    await db.transaction(async (tx) => {
      await tx.set(4, 'own');
      await tx.delete(5);
      await tx.clear({ gte: 7 });
      await tx.set(9, 'own');
      assert.deepEqual(await tx.keys().toArray(), [1, 3, 4, 9]);
      assert.deepEqual(await tx.keys({ reverse: true, limit: 3 }).toArray(), [9, 4, 3]);
      assert.deepEqual(await tx.keys({ offset: 1, gt: 1 }).toArray(), [4, 9]);
      assert.deepEqual(await tx.at(1), [3, 'base']);
      assert.deepEqual(await tx.at(-1), [9, 'own']);
      assert.equal(await tx.rank(5), 3);
      const iterator = tx.keys();
      assert.equal((await iterator.next()).value, 1);
      await tx.set(2, 'later');
      iterator.seek(4);
      assert.deepEqual(await iterator.nextMany(1), [4]);
      iterator.seek(0);
      assert.deepEqual(await iterator.toArray(), [1, 3, 4, 9]);
      assert.deepEqual(await tx.getMany([2, 5, 9]), ['later', undefined, 'own']);
      assert.deepEqual(await tx.hasMany([2, 5]), [true, false]);
    });
    assert.deepEqual(await db.keys().toArray(), [1, 2, 3, 4, 9]);
  }));

test('savepoints undo what follows them', () =>
  withMemory<string, number>({}, async (db) => {
    await db.transaction(async (tx) => {
      await tx.set('a', 1);
      const first = tx.savepoint();
      await tx.set('b', 2);
      const second = tx.savepoint();
      await tx.clear();
      await second.rollback();
      assert.deepEqual(await tx.keys().toArray(), ['a', 'b']);
      await tx.set('c', 3);
      await first.rollback();
      await first.rollback();
      await rejects(second.rollback(), 'KV_INVALID_ARGUMENT');
      await tx.set('d', 4);
    });
    assert.deepEqual(await db.keys().toArray(), ['a', 'd']);
  }));

test('one transaction covers many collections', () =>
  withMemory({}, async (db) => {
    const users = db.collection<string, { age: number }>('users', { key: keyCodecs.string });
    await users.set('old', { age: 90 });
    await db.transaction(async (tx) => {
      await tx.collection(users).set('ada', { age: 36 });
      await tx.collection<number, string>('by-age').set(36, 'ada');
      assert.deepEqual(await tx.collection(users).get('old'), { age: 90 });
      assert.equal(await tx.dropCollection('none'), false);
    });
    assert.deepEqual(await db.collections(), ['by-age', 'users']);
    await db.transaction(async (tx) => {
      assert.equal(await tx.dropCollection('by-age'), true);
      await tx.collection(users).clear();
    });
    assert.deepEqual(await db.collections(), ['users']);
    await rejects(
      db.transaction((tx) => tx.collection('users').set(1, 1)),
      'KV_CODEC_MISMATCH',
    );
    const tx = db.begin();
    await tx.collection('new').set('a', 1);
    await db.collection('new', { key: keyCodecs.string }).set('b', 2);
    await rejects(tx.commit(), 'KV_CONFLICT');
  }));

test('timeouts and signals end a transaction', () =>
  withMemory({}, async (db) => {
    const slow = await db.tryTransaction(
      async (tx) => {
        await sleep(40);
        await tx.set('a', 1);
      },
      { timeout: 10 },
    );
    assert.ok(!slow.ok && slow.reason === 'timeout' && slow.error.code === 'KV_TIMEOUT');
    const controller = new AbortController();
    const tx = db.begin({ signal: controller.signal });
    await tx.set('a', 1);
    const reason = new Error('stop');
    controller.abort(reason);
    assert.equal(tx.status, 'rolled-back');
    await assert.rejects(tx.get('a'), (error) => error === reason);
    await assert.rejects(
      db.transaction(() => 1, { signal: controller.signal }),
      (error) => error === reason,
    );
    assert.equal(await db.size, 0);
    assert.equal((await db.stats()).openSnapshots, 0);
    assert.throws(() => db.begin({ mode: 'write' as never }), code('KV_INVALID_ARGUMENT'));
    assert.throws(() => db.begin({ isolation: 'none' as never }), code('KV_INVALID_ARGUMENT'));
    await rejects(db.transaction('no function' as never), 'KV_INVALID_ARGUMENT');
  }));

test('concurrent transfers keep the sum', () =>
  withMemory<number, number>({}, async (db) => {
    const accounts = 8;
    await db.setMany(Array.from({ length: accounts }, (_, index) => [index, 100]));
    const random = chance(7);
    const pick = (): number => Math.floor(random() * accounts);
    await Promise.all(
      Array.from({ length: 60 }, async () => {
        const [from, to, amount] = [pick(), pick(), Math.floor(random() * 50)];
        await db.transaction(
          async (tx) => {
            const left = (await tx.get(from)) as number;
            if (left < amount) return;
            await tx.set(from, left - amount);
            await sleep(random() * 2);
            await tx.set(to, ((await tx.get(to)) as number) + amount);
          },
          { maxRetries: Infinity },
        );
        const sum = (await db.values().toArray()).reduce((all, one) => all + one, 0);
        assert.equal(sum, accounts * 100);
      }),
    );
  }));

test('committed transactions survive reopening, and others leave nothing', () =>
  withPath(async (path) => {
    let db: Database<string, number> = await open(path);
    await db.transaction((tx) => tx.set('a', 1));
    const open1 = db.begin();
    await open1.set('b', 2);
    await db.close();
    await rejects(open1.get('b'), 'KV_CLOSED');
    db = await open(path);
    assert.deepEqual(await db.entries().toArray(), [['a', 1]]);
    await db.close();
  }));

test('removing an expired entry does not conflict with transactions that read it as absent', () =>
  withMemory<string, number>({}, async (db) => {
    for (const isolation of ['serializable', 'snapshot'] as const) {
      await db.set('gone', 1, { expireAt: 1 });
      await db.set('b', 1);
      const tx = db.begin({ isolation });
      assert.equal(await tx.get('gone'), undefined);
      assert.equal(await tx.count(), await db.count());
      assert.equal(await db.purgeExpired(), 1);
      await tx.set('gone', 2);
      await tx.commit();
      assert.equal(await db.get('gone'), 2);
    }
  }));
