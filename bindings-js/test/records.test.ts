// Single entries: versions, conditional writes, insertion if absent, updates by a function, time to live.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DELETE, KEEP } from 'mangrove-kv';
import { code, rejects, withMemory } from './support/kit.ts';

const sleep = (ms: number): Promise<void> => new Promise((resolve) => { setTimeout(resolve, ms); });

test('an entry has the version of the commit that wrote it', () => withMemory<string, unknown>({}, async (db) => {
  assert.equal(await db.getEntry('a'), undefined);
  const { version } = await db.batch([{ type: 'set', key: 'a', value: [1] }, { type: 'set', key: 'b', value: 2 }]);
  assert.deepEqual(await db.getEntry('a'), { key: 'a', value: [1], version });
  await db.set('b', 3);
  assert.deepEqual(await db.getEntry('b'), { key: 'b', value: 3, version: version + 1 });
  const snapshot = db.snapshot();
  await db.set('b', 4);
  assert.deepEqual(await snapshot.getEntry('b'), { key: 'b', value: 3, version: version + 1 });
  assert.equal(await snapshot.version, version + 1);
}));

test('a batch with checks is all or nothing', () => withMemory<string, number>({}, async (db) => {
  const { version } = await db.batch().check('a', null).set('a', 1).commit();
  await rejects(db.batch().set('b', 1).check('a', null).commit(), 'KV_CONFLICT');
  const lost = await db.batch().check('a', version + 5).set('b', 1).tryCommit();
  assert.ok(!lost.ok && lost.reason === 'conflict' && /version/.test(lost.error.message));
  assert.equal(await db.has('b'), false);
  const won = await db.batch().check('a', version).check('z', null).delete('a').set('b', 2).tryCommit();
  assert.deepEqual(won, { ok: true, value: undefined, version: version + 1 });
  assert.deepEqual(await db.entries().toArray(), [['b', 2]]);
  assert.throws(() => db.batch().check('a', -1), code('KV_INVALID_ARGUMENT'));
  await rejects(db.batch([{ type: 'check', key: 'b', version: null }]), 'KV_CONFLICT');
}));

test('insertion if absent', () => withMemory<string, number>({}, async (db) => {
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

test('values that are given back are copies', () => withMemory<string, number[]>({}, async (db) => {
  const own = [1];
  const given = await db.getOrInsert('a', own);
  assert.notEqual(given, own);
  given.push(2);
  assert.deepEqual(await db.get('a'), [1]);
}));

test('updates by a function', () => withMemory<string, number>({}, async (db) => {
  assert.equal(await db.update('a', (old) => { assert.equal(old, undefined); return 0; }), 0);
  assert.equal(await db.update('a', async (old) => { await sleep(1); return (old as number) + 1; }), 1);
  const { version } = await db.stats();
  assert.equal(await db.update('a', () => KEEP), 1);
  assert.equal((await db.stats()).version, version, 'keeping is no commit');
  assert.equal(await db.update('a', () => DELETE), undefined);
  assert.equal(await db.has('a'), false);
  assert.equal(await db.update('none', () => KEEP), undefined);
  assert.equal(await db.update('none', () => DELETE), undefined);
  await db.set('b', 1);
  await rejects(db.update('b', () => undefined as never), 'KV_INVALID_VALUE');
  const reason = new Error('mine');
  await assert.rejects(db.update('b', () => { throw reason; }), (error) => error === reason);
  assert.equal(await db.get('b'), 1);
  await db.transaction(async (tx) => {
    assert.equal(await tx.update('b', (old = 0) => old + 1), 2);
    assert.equal(await tx.update('b', (old = 0) => old + 1), 3);
  });
  assert.equal(await db.get('b'), 3);
}));

test('expired entries are invisible at once and purged later', () => withMemory<string, number>({}, async (db) => {
  const now = Date.now();
  await db.set('past', 1, { expireAt: now - 1000 });
  await db.set('soon', 2, { expireIn: 80 });
  await db.set('later', 3, { expireAt: new Date(now + 3_600_000) });
  await db.set('never', 4);
  assert.deepEqual(await db.keys().toArray(), ['later', 'never', 'soon']);
  assert.equal(await db.has('past'), false);
  assert.equal(await db.size, 3);
  assert.equal((await db.getEntry('later'))?.expiresAt, now + 3_600_000);
  assert.equal('expiresAt' in (await db.getEntry('never') ?? {}), false);
  await sleep(100);
  assert.equal(await db.get('soon'), undefined);
  assert.equal(await db.count({ gte: 's' }), 0);
  assert.deepEqual(await db.last(), ['never', 4]);
  assert.equal(await db.delete('soon'), false);
  assert.ok(await db.purgeExpired() >= 1);
  assert.equal(await db.purgeExpired(), 0);
  await db.set('later', 5);
  assert.equal('expiresAt' in (await db.getEntry('later') ?? {}), false, 'a write without a time clears it');
  await db.batch().set('x', 1, { expireIn: 0 }).set('y', 1, { expireIn: 1e6 }).commit();
  assert.deepEqual(await db.hasMany(['x', 'y']), [false, true]);
  const sessions = db.collection<string, number>('sessions', { expireIn: 50 });
  await sessions.setMany([['a', 1], ['b', 2]]);
  await sessions.set('c', 3, { expireIn: Infinity });
  await sleep(70);
  assert.deepEqual(await sessions.keys().toArray(), ['c']);
  await db.transaction((tx) => tx.set('t', 1, { expireIn: 1e6 }));
  assert.ok(((await db.getEntry('t'))?.expiresAt ?? 0) > now);
  for (const bad of [{ expireIn: -1 }, { expireIn: NaN }, { expireAt: new Date(NaN) }, { expireIn: 1, expireAt: 2 }]) {
    await rejects(db.set('bad', 1, bad), 'KV_INVALID_ARGUMENT');
  }
}));
