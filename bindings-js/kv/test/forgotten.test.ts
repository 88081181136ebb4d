// Whatever is opened and forgotten is released when it is collected, and the number of open ones is
// limited.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { runChild } from './support/child.ts';
import { rejects, withMemory } from './support/kit.ts';

const MAIN = fileURLToPath(new URL('./support/forgotten-main.mjs', import.meta.url));

async function isGivenBack(kind: string): Promise<void> {
  const child = runChild([kind], { main: MAIN });
  assert.equal(await child.line(), 'given back');
  await child.ended;
}

for (const kind of ['transactions', 'snapshots', 'iterators', 'watches', 'backups', 'checks']) {
  test(`forgotten ${kind} are released`, () => isGivenBack(kind));
}

test('forgotten transactions leave nothing in the heap', { skip: 'Deno' in globalThis || 'Bun' in globalThis }, () =>
  isGivenBack('memory'),
);

test('transactions beyond the limit are refused, with the reason', () =>
  withMemory<string, number>({}, async (db) => {
    const held = Array.from({ length: 65_536 }, () => db.begin());
    await Promise.all(held.map((tx) => tx.baseVersion));
    const late = db.begin();
    await rejects(late.baseVersion as Promise<number>, 'KV_TOO_MANY_OPEN');
    await rejects(late.get('a'), 'KV_TOO_MANY_OPEN');
    await assert.rejects(
      db.transaction((tx) => tx.get('a')),
      { code: 'KV_TOO_MANY_OPEN', message: /65536 open transactions.*roll back/, retryable: true },
    );
    assert.equal(await db.get('a'), undefined);
    held.pop()?.rollback();
    assert.equal(await db.transaction((tx) => tx.get('a')), undefined);
  }));

test('a callback that waits for ever ends with the timeout', () =>
  withMemory<string, number>({}, async (db) => {
    // The transaction's timer does not keep the process alive.
    const alive = setTimeout(() => {}, 60_000);
    await rejects(
      db.transaction(() => new Promise<void>(() => {}), { timeout: 20 }),
      'KV_TIMEOUT',
    );
    clearTimeout(alive);
  }));

const IDLE = { code: 'KV_TIMEOUT', message: /closed after 40 ms without use.*idleTimeout/, retryable: true };

/**
 * Lets the timer of `idleTimeout: 40` fire more often than needed, however late timers are: it has
 * its turn between any two of these sleeps.
 */
async function goRound(meanwhile: () => Promise<unknown> = async () => {}): Promise<void> {
  for (let left = 20; left > 0; left--) {
    await sleep(20);
    await meanwhile();
  }
}

test('idle handles are closed although reachable, and say so at their next use', () =>
  withMemory<string, number>({ idleTimeout: 40 }, async (db) => {
    await db.setMany(Array.from({ length: 1000 }, (_, i) => [`${i}`, i]));
    const snapshot = db.snapshot();
    const sync = db.sync.snapshot();
    const iterator = db.entries();
    const scan = db.sync.entries();
    const commits = db.watch();
    const backup = db.backup().getReader();
    await Promise.all([snapshot.get('1'), iterator.next(), backup.read()]);
    sync.get('1');
    scan.next();
    await db.set('later', 1);
    await commits.next();
    await goRound();
    assert.equal((await db.stats()).openSnapshots, 0);
    await assert.rejects(snapshot.get('1'), IDLE);
    await assert.rejects(snapshot.size, IDLE);
    await assert.rejects(snapshot.entries().toArray(), IDLE);
    assert.throws(() => sync.get('1'), IDLE);
    await assert.rejects(iterator.toArray(), IDLE);
    assert.throws(() => [...scan], IDLE);
    await assert.rejects(commits.next(), IDLE);
    await assert.rejects(backup.read(), IDLE);
    // Closing an expired handle is no error, and the database stays usable.
    await snapshot.close();
    sync.close();
    await iterator.return();
    assert.equal(await db.get('later'), 1);
  }));

test('handles in use and waiting watches stay open', () =>
  withMemory<string, number>({ idleTimeout: 40 }, async (db) => {
    await db.set('a', 1);
    const snapshot = db.snapshot();
    const abandoned = db.snapshot();
    await abandoned.get('a');
    const next = db.watch()[Symbol.asyncIterator]().next();
    const heard: number[] = [];
    db.subscribe({}, () => heard.push(1));
    await goRound(async () => assert.equal(await snapshot.get('a'), 1));
    await assert.rejects(abandoned.get('a'), IDLE, 'the time has passed');
    await db.set('b', 2);
    assert.equal((await next).value?.changes.length, 1);
    while (heard.length === 0) await sleep(1);
  }));

test('without an idle timeout nothing is closed', () =>
  withMemory<string, number>({ idleTimeout: Infinity }, async (db) => {
    const snapshot = db.snapshot();
    await sleep(50);
    assert.equal(await snapshot.get('a'), undefined);
  }));
