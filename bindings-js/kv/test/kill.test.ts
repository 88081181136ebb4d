// A process is killed while it writes: every commit acknowledged to it is there, each commit is
// whole, and the database opens without repair.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open } from 'mangrove-kv';
import type { OpenOptions } from 'mangrove-kv';
import { runChild } from './support/child.ts';
import { chance, withPath } from './support/kit.ts';

const ROUNDS = 5;

const ENCRYPTED: OpenOptions = { encryption: { key: new Uint8Array(32).fill(7) } };

for (const [mode, what, options] of [
  ['write', 'writing', {}],
  ['writeEncrypted', 'writing and encrypting everything anew', ENCRYPTED],
] as const) {
  test(`kill -9 while ${what} loses nothing that was acknowledged`, () =>
    withPath((path) => killAgain(path, mode, options)));
}

async function killAgain(path: string, mode: string, options: OpenOptions): Promise<void> {
  const random = chance(4);
  let acknowledged = -1;
  for (let round = 0; round < ROUNDS; round++) {
    const child = runChild([mode, path]);
    const target = acknowledged + 20 + Math.floor(random() * 100);
    while (acknowledged < target) {
      const line = await child.line();
      assert.notEqual(line, undefined, 'the writer continues until it is killed');
      acknowledged = Number(line);
    }
    child.kill();
    for (let line = await child.line(); line !== undefined; line = await child.line()) acknowledged = Number(line);
    await child.ended;
    await check(path, acknowledged, options);
  }
}

async function check(path: string, acknowledged: number, options: OpenOptions): Promise<void> {
  const db = await open(path, { ...options, lockTimeout: 0 });
  const { length } = await db.keys({ prefix: ['a'] }).toArray();
  assert.ok(length > acknowledged, `${length} commits, ${acknowledged + 1} acknowledged`);
  for (let next = 0; next < length; next++) {
    const [a, b] = await db.getMany([
      ['a', next],
      ['b', next],
    ]);
    assert.deepEqual(a, { next, text: 'x'.repeat((next * 7919) % 20_000) });
    assert.equal(b, next);
  }
  assert.equal(await db.size, length * 2);
  assert.deepEqual((await db.verify()).problems, []);
  await db.close();
}
