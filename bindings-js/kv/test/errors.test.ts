// Which errors say that the same call may succeed later.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KvError, open } from 'mangrove-kv';
import { fromPlain } from 'mangrove-kv/internal';
import { FaultyStorage } from './support/faulty-storage.ts';
import { withMemory, withPath } from './support/kit.ts';

async function errorOf(promise: Promise<unknown>): Promise<[code: string, retryable: boolean]> {
  const error = await promise.then(
    () => assert.fail('it succeeded'),
    (reason: KvError) => reason,
  );
  return [error.code, error.retryable];
}

test('a lock, a conflict, a timeout and a full disk are retryable', () =>
  withPath(async (path) => {
    // The timer of a transaction does not keep the process alive.
    const alive = setInterval(() => undefined, 1000);
    const db = await open(path);
    assert.deepEqual(await errorOf(open(path, { lockTimeout: 0, share: false })), ['KV_LOCKED', true]);
    const [first, second] = [db.begin(), db.begin()];
    for (const tx of [first, second]) await tx.set('a', (await tx.get('a')) ?? 0);
    await first.commit();
    assert.deepEqual(await errorOf(second.commit()), ['KV_CONFLICT', true]);
    assert.deepEqual(await errorOf(db.batch().check('a', null).commit()), ['KV_CONFLICT', true]);
    assert.deepEqual(await errorOf(db.transaction(() => new Promise(() => undefined), { timeout: 0 })), [
      'KV_TIMEOUT',
      true,
    ]);
    await db.close();
    const storage = new FaultyStorage();
    const full = await open('x', { storage });
    storage.roomBytes = 0;
    assert.deepEqual(await errorOf(full.set('a', 'x'.repeat(1 << 20))), ['KV_QUOTA_EXCEEDED', true]);
    await full.close().catch(() => undefined);
    clearInterval(alive);
  }));

test('errors that the program must fix are not retryable', () =>
  withMemory({}, async (db) => {
    assert.deepEqual(await errorOf(db.set('a', undefined)), ['KV_INVALID_VALUE', false]);
    assert.deepEqual(await errorOf(db.get(NaN)), ['KV_INVALID_KEY', false]);
    assert.deepEqual(await errorOf(db.set('x'.repeat(70_000), 1)), ['KV_KEY_TOO_LARGE', false]);
    assert.deepEqual(await errorOf(db.count({ limit: -1 })), ['KV_INVALID_ARGUMENT', false]);
    assert.deepEqual(await errorOf(db.transaction((tx) => tx.rollback('no'))), ['KV_ROLLBACK', false]);
    await withPath(async (path) => {
      assert.deepEqual(await errorOf(open(path, { create: false })), ['KV_NOT_FOUND', false]);
    });
    await db.close();
    assert.deepEqual(await errorOf(db.get('a')), ['KV_CLOSED', false]);
  }));

test('an error is an instance of the class of each entry', async () => {
  // Those for pages have classes of their own.
  const { KvError: PageKvError } = (await import('../dist/index.js' as string)) as typeof import('mangrove-kv');
  const errors = [KvError, PageKvError].map((each) => new each('KV_IO', 'x'));
  for (const error of [...errors, fromPlain({ code: 'KV_IO', message: 'x', retryable: false })]) {
    assert.ok(error instanceof KvError && error instanceof PageKvError && error instanceof Error);
  }
  assert.notEqual(KvError, PageKvError);
  for (const other of [new Error('x'), { code: 'KV_IO' }, 'KV_IO', null, undefined])
    assert.ok(!(other instanceof KvError));
  class Narrower extends KvError {}
  assert.ok(new Narrower('KV_IO', 'x') instanceof KvError);
  assert.ok(!(errors[0] instanceof Narrower));
});
