// Single entries: versions, conditional writes, insertion if absent, updates by a callback, time to
// live.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DELETE, KEEP, open } from 'mangrove-kv';
import { code, rejects, withMemory } from './support/kit.ts';

const sleep = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

test('an entry has the version of the commit that wrote it', () =>
  withMemory<string, unknown>({}, async (db) => {
    assert.equal(await db.getEntry('a'), undefined);
    const { version } = await db.batch([
      { type: 'set', key: 'a', value: [1] },
      { type: 'set', key: 'b', value: 2 },
    ]);
    assert.deepEqual(await db.getEntry('a'), { key: 'a', value: [1], version });
    await db.set('b', 3);
    assert.deepEqual(await db.getEntry('b'), { key: 'b', value: 3, version: version + 1 });
    const snapshot = db.snapshot();
    await db.set('b', 4);
    assert.deepEqual(await snapshot.getEntry('b'), { key: 'b', value: 3, version: version + 1 });
    assert.equal(await snapshot.version, version + 1);
  }));

test('a batch with checks is all or nothing', () =>
  withMemory<string, number>({}, async (db) => {
    const { version } = await db.batch().check('a', null).set('a', 1).commit();
    await rejects(db.batch().set('b', 1).check('a', null).commit(), 'KV_CONFLICT');
    const lost = await db
      .batch()
      .check('a', version + 5)
      .set('b', 1)
      .tryCommit();
    assert.ok(!lost.ok && lost.reason === 'conflict' && /version/.test(lost.error.message));
    assert.equal(await db.has('b'), false);
    const won = await db.batch().check('a', version).check('z', null).delete('a').set('b', 2).tryCommit();
    assert.deepEqual(won, { ok: true, value: undefined, version: version + 1 });
    assert.deepEqual(await db.entries().toArray(), [['b', 2]]);
    assert.throws(() => db.batch().check('a', -1), code('KV_INVALID_ARGUMENT'));
    await rejects(db.batch([{ type: 'check', key: 'b', version: null }]), 'KV_CONFLICT');
  }));

test('getOrInsert and getOrInsertComputed insert if absent', () =>
  withMemory<string, number>({}, async (db) => {
    assert.equal(await db.getOrInsert('a', 1), 1);
    assert.equal(await db.getOrInsert('a', 2), 1);
    assert.deepEqual(await Promise.all([db.getOrInsert('b', 1), db.getOrInsert('b', 2)]), [1, 1]);
    let calls = 0;
    const compute = async (key: string): Promise<number> => {
      calls++;
      await sleep(1);
      return key.length;
    };
    assert.equal(await db.getOrInsertComputed('ccc', compute), 3);
    assert.equal(await db.getOrInsertComputed('ccc', compute), 3);
    assert.equal(calls, 1);
    await rejects(db.getOrInsert('d', undefined as never), 'KV_INVALID_VALUE');
    await db.transaction(async (tx) => {
      assert.equal(await tx.getOrInsert('a', 5), 1);
      assert.equal(await tx.getOrInsert('e', 5), 5);
      assert.equal(await tx.getOrInsertComputed('f', () => 6), 6);
    });
    assert.deepEqual(await db.getMany(['e', 'f']), [5, 6]);
  }));

test('returned values are copies', () =>
  withMemory<string, number[]>({}, async (db) => {
    const own = [1];
    const given = await db.getOrInsert('a', own);
    assert.notEqual(given, own);
    given.push(2);
    assert.deepEqual(await db.get('a'), [1]);
  }));

test('update writes, keeps or deletes as its callback says', () =>
  withMemory<string, number>({}, async (db) => {
    assert.equal(
      await db.update('a', (old) => {
        assert.equal(old, undefined);
        return 0;
      }),
      0,
    );
    assert.equal(
      await db.update('a', async (old) => {
        await sleep(1);
        return (old as number) + 1;
      }),
      1,
    );
    const { version } = await db.stats();
    assert.equal(await db.update('a', () => KEEP), 1);
    assert.equal((await db.stats()).version, version, 'keeping makes no commit');
    assert.equal(await db.update('a', () => DELETE), undefined);
    assert.equal(await db.has('a'), false);
    assert.equal(await db.update('none', () => KEEP), undefined);
    assert.equal(await db.update('none', () => DELETE), undefined);
    await db.set('b', 1);
    await rejects(
      db.update('b', () => undefined as never),
      'KV_INVALID_VALUE',
    );
    const reason = new Error('mine');
    await assert.rejects(
      db.update('b', () => {
        throw reason;
      }),
      (error) => error === reason,
    );
    assert.equal(await db.get('b'), 1);
    await db.transaction(async (tx) => {
      assert.equal(await tx.update('b', (old = 0) => old + 1), 2);
      assert.equal(await tx.update('b', (old = 0) => old + 1), 3);
    });
    assert.equal(await db.get('b'), 3);
  }));

test('an update keeps the expiry of its entry and passes it to the callback', () =>
  withMemory<string, number>({}, async (db) => {
    const at = Date.now() + 3_600_000;
    const expiry = async (key = 'lease'): Promise<number | undefined> => (await db.getEntry(key))?.expiresAt;
    await db.set('lease', 1, { expireAt: at });
    const { version } = (await db.getEntry('lease')) ?? {};
    await db.update('lease', (old, key, entry) => {
      assert.deepEqual(entry, { key, value: old, version, expiresAt: at });
      return 2;
    });
    assert.deepEqual([await db.get('lease'), await expiry()], [2, at]);
    db.sync.update('lease', (old, key, entry) => {
      assert.deepEqual([entry?.key, entry?.value, entry?.expiresAt], [key, old, at]);
      return 3;
    });
    assert.deepEqual([await db.get('lease'), await expiry()], [3, at]);
    await db.transaction(async (tx) => {
      for (const value of [4, 5])
        await tx.update('lease', (_old, _key, entry) => (assert.equal(entry?.expiresAt, at), value));
    });
    db.sync.transaction((tx) => tx.update('lease', (old = 0) => old + 1));
    assert.deepEqual([await db.get('lease'), await expiry()], [6, at]);
    await db.update('lease', () => 7, { expireAt: at + 1 });
    assert.equal(await expiry(), at + 1);
    db.sync.update('lease', () => 7, { expireAt: at });
    assert.equal(await expiry(), at);
    await db.update('lease', () => 8, { expireIn: Infinity });
    assert.equal(await expiry(), undefined);
    await db.update('lease', (_old, _key, entry) => (assert.equal(entry && 'expiresAt' in entry, false), 9));
    assert.equal(await expiry(), undefined);
    await db.update('new', (_old, _key, entry) => (assert.equal(entry, undefined), 1));
    assert.equal(await expiry('new'), undefined);
    // A handle with its own time to live gives it to everything that it writes.
    const sessions = db.collection<string, number>('sessions', { expireIn: 1e9 });
    await sessions.set('s', 1, { expireAt: at });
    await sessions.update('s', () => 2);
    assert.ok(((await sessions.getEntry('s'))?.expiresAt ?? 0) > at);
    // An entry that expires while the callback runs no longer exists.
    await db.set('short', 1, { expireIn: 30 });
    const seen: (number | undefined)[] = [];
    await db.update('short', async (old) => {
      seen.push(old);
      await sleep(60);
      return 2;
    });
    assert.deepEqual(seen, [1, undefined]);
    assert.deepEqual([await db.get('short'), await expiry('short')], [2, undefined]);
  }));

test('updates of one entry take turns, so that each callback runs once', () =>
  withMemory<string, number>({}, async (db) => {
    let runs = 0;
    const add = (of: Pick<typeof db, 'update'>, key = 'n') =>
      of.update(key, async (old = 0) => {
        runs++;
        await sleep(0);
        return old + 1;
      });
    const all = await Promise.all(Array.from({ length: 50 }, () => add(db)));
    assert.deepEqual(
      all,
      Array.from({ length: 50 }, (_, index) => index + 1),
      'in the order of calls',
    );
    assert.equal(runs, 50);
    await Promise.all(
      Array.from({ length: 50 }, (_, index) =>
        add(index % 2 ? db.collection<string, number>('c') : db, `k${index % 3}`),
      ),
    );
    assert.equal(runs, 100);
    await db.transaction(async (tx) => {
      await Promise.all(Array.from({ length: 50 }, () => add(tx)));
    });
    assert.equal(runs, 150);
    assert.equal(await db.get('n'), 100);
    // An update that fails lets the next one proceed, as does one that is aborted in the queue.
    const controller = new AbortController();
    const results = Promise.allSettled([
      db.update('n', async () => {
        await sleep(1);
        throw new Error('mine');
      }),
      db.update('n', () => {
        throw new Error('mine');
      }),
      db.update('n', () => assert.fail('aborted before its turn'), { signal: controller.signal }),
      add(db),
    ]);
    controller.abort(new Error('enough'));
    assert.deepEqual(
      (await results).map((result) => (result.status === 'fulfilled' ? result.value : String(result.reason))),
      ['Error: mine', 'Error: mine', 'Error: enough', 101],
    );
    assert.equal(await db.update('n', (old = 0) => old + 1), 102);
    // A callback is called again because of somebody else's change.
    let tries = 0;
    await db.update('n', async (old = 0) => {
      if (tries++ === 0) await db.set('n', 1000);
      return old + 1;
    });
    assert.deepEqual([tries, await db.get('n')], [2, 1001]);
  }));

test('a callback may update its own entry, and an aborted one lets the next proceed', () =>
  withMemory<string, number>({}, async (db) => {
    let tries = 0;
    const nested = await db.update('a', async (old = 0) => {
      if (tries++ === 0) await db.update('a', () => 10);
      return old + 1;
    });
    assert.deepEqual([nested, tries], [11, 2]);
    const late = await db.update('b', async (old = 0) => {
      await sleep(1);
      if (tries++ === 2) await db.update('b', () => 20);
      return old + 1;
    });
    assert.equal(late, 21);
    const controller = new AbortController();
    const stuck = db.update('c', () => new Promise<number>(() => {}), { signal: controller.signal });
    const next = db.update('c', (old = 0) => old + 1);
    controller.abort();
    await assert.rejects(stuck, { name: 'AbortError' });
    assert.equal(await next, 1);
  }));

test('queued updates end with the database', async () => {
  const db = await open<string, number>('test', { storage: 'memory' });
  const calls = Promise.allSettled(
    Array.from({ length: 5 }, () => db.update('n', async (old = 0) => (await sleep(1), old + 1))),
  );
  await db.close();
  for (const result of await calls)
    assert.equal(result.status === 'rejected' && (result.reason as { code?: string }).code, 'KV_CLOSED');
});

test('the next expiry of a range is that of entries which have not expired', () =>
  withMemory<string, number>({}, async (db) => {
    assert.equal(await db.nextExpiry(), undefined);
    const now = Date.now();
    const [hour, day] = [now + 3_600_000, now + 86_400_000];
    await db.set('past', 1, { expireAt: now - 1000 });
    await db.set('never', 1);
    assert.equal(await db.nextExpiry(), undefined);
    await db.set('a', 1, { expireAt: day });
    await db.set('b', 1, { expireAt: hour });
    assert.equal(await db.nextExpiry(), hour);
    assert.equal(await db.nextExpiry({ lt: 'b' }), day);
    assert.equal(await db.nextExpiry({ gt: 'b' }), undefined);
    assert.equal(await db.nextExpiry({ gt: 'c', lt: 'b' }), undefined);
    await db.set('b', 2);
    assert.equal(await db.nextExpiry(), day);
    await db.delete('a');
    assert.equal(await db.nextExpiry(), undefined);
    assert.equal(await db.collection('none').nextExpiry(), undefined);
  }));

test('expired entries are invisible at once and purged later', () =>
  withMemory<string, number>({}, async (db) => {
    const now = Date.now();
    await db.set('past', 1, { expireAt: now - 1000 });
    await db.set('later', 3, { expireAt: new Date(now + 3_600_000) });
    await db.set('never', 4);
    await db.set('until tomorrow', 2, { expireIn: 86_400_000 });
    assert.deepEqual(await db.keys().toArray(), ['later', 'never', 'until tomorrow']);
    assert.equal(await db.has('past'), false);
    assert.equal(await db.size, 3);
    assert.equal((await db.getEntry('later'))?.expiresAt, now + 3_600_000);
    assert.equal('expiresAt' in ((await db.getEntry('never')) ?? {}), false);
    await db.delete('until tomorrow');
    await db.set('soon', 2, { expireIn: 80 });
    await sleep(100);
    assert.equal(await db.get('soon'), undefined);
    assert.equal(await db.count({ gte: 's' }), 0);
    assert.deepEqual(await db.last(), ['never', 4]);
    assert.equal(await db.delete('soon'), false);
    assert.ok((await db.purgeExpired()) >= 1);
    assert.equal(await db.purgeExpired(), 0);
    await db.set('later', 5);
    assert.equal('expiresAt' in ((await db.getEntry('later')) ?? {}), false, 'a write without an expiry clears it');
    await db.batch().set('x', 1, { expireIn: 0 }).set('y', 1, { expireIn: 1e6 }).commit();
    assert.deepEqual(await db.hasMany(['x', 'y']), [false, true]);
    const sessions = db.collection<string, number>('sessions', { expireIn: 50 });
    await sessions.setMany([
      ['a', 1],
      ['b', 2],
    ]);
    await sessions.set('c', 3, { expireIn: Infinity });
    await sleep(70);
    assert.deepEqual(await sessions.keys().toArray(), ['c']);
    await db.transaction((tx) => tx.set('t', 1, { expireIn: 1e6 }));
    assert.ok(((await db.getEntry('t'))?.expiresAt ?? 0) > now);
    for (const bad of [
      { expireIn: -1 },
      { expireIn: NaN },
      { expireAt: new Date(NaN) },
      { expireIn: 1, expireAt: 2 },
    ]) {
      await rejects(db.set('bad', 1, bad), 'KV_INVALID_ARGUMENT');
    }
  }));
