// What is opened and forgotten is given back when it is collected, and there is no room for any number of it.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { runChild } from './support/child.ts';
import { rejects, withMemory } from './support/kit.ts';

const MAIN = fileURLToPath(new URL('./support/forgotten-main.mjs', import.meta.url));

for (const kind of ['transactions', 'snapshots', 'iterators', 'watches', 'backups', 'checks']) {
  test(`forgotten ${kind} are given back`, async () => {
    const child = runChild([kind], { main: MAIN });
    assert.equal(await child.line(), 'given back');
    await child.ended;
  });
}

test('more transactions than there may be are refused, and say so', () => withMemory<string, number>({}, async (db) => {
  const held = Array.from({ length: 65_536 }, () => db.begin());
  await Promise.all(held.map((tx) => tx.baseVersion));
  const late = db.begin();
  await rejects(late.baseVersion as Promise<number>, 'KV_TOO_MANY_OPEN');
  await rejects(late.get('a'), 'KV_TOO_MANY_OPEN');
  await assert.rejects(db.transaction((tx) => tx.get('a')), { code: 'KV_TOO_MANY_OPEN', message: /65536 open transactions.*roll back/, retryable: true });
  assert.equal(await db.get('a'), undefined);
  held.pop()?.rollback();
  assert.equal(await db.transaction((tx) => tx.get('a')), undefined);
}));

test('a callback that waits for what nobody has ends with its time', () => withMemory<string, number>({}, async (db) => {
  // Its timer keeps no process alive.
  const alive = setTimeout(() => {}, 60_000);
  await rejects(db.transaction(() => new Promise<void>(() => {}), { timeout: 20 }), 'KV_TIMEOUT');
  clearTimeout(alive);
}));
