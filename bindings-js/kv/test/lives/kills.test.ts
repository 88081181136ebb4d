// A process that makes strict commits while merges are under way is killed at any moment, several
// times for each database: what it acknowledged is there, and nothing else. MANGROVE_KILLS is the
// number of kills, MANGROVE_KILLS_SEED the first seed.
import assert from 'node:assert/strict';
import { existsSync, rmSync } from 'node:fs';
import process from 'node:process';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { open } from 'mangrove-kv';
import { runChild } from '../support/child.ts';
import { copyDirectory, withPath } from '../support/kit.ts';
import { Random } from '../tabs/random.ts';
import { OPTIONS, apply, commitOf, differenceAt, read } from './workload.mjs';
import type { State } from './workload.mjs';

const MAIN = fileURLToPath(new URL('./kill-main.mjs', import.meta.url));
const kills = Number(process.env['MANGROVE_KILLS'] ?? 24);
const firstSeed = Number(process.env['MANGROVE_KILLS_SEED'] ?? 1);
/** Longer than any entry of the child that expires has left. */
const EXPIRED_MS = 60;

interface Counts {
  kills: number;
  commits: number;
  checkpoints: number;
  /** Kills while changes waited to be merged, behind a checkpoint of the same life. */
  withinMerges: number;
}

/** Opens the database in a child until it is killed; returns the last commit it acknowledged. */
async function live(path: string, seed: number, from: number, random: Random, counts: Counts): Promise<number> {
  const child = runChild([path, String(seed), String(from)], { main: MAIN });
  let [acknowledged, checkpoints, dirtySize] = [from - 1, 0, 0];
  const take = (line: string): void => {
    if (line !== 'open')
      [acknowledged, checkpoints, dirtySize] = line.split(' ').map(Number) as [number, number, number];
  };
  // One of ten dies while it opens what the last one left.
  const target = random.chance(0.1) ? -1 : from + random.below(250);
  while (acknowledged < target) {
    const line = await child.line();
    assert.ok(line !== undefined, `seed ${seed}: the child goes on from commit ${acknowledged} until it is killed`);
    take(line);
  }
  await sleep(target === -1 ? 20 + random.below(200) : random.next() * 6);
  child.kill();
  for (let line = await child.line(); line !== undefined; line = await child.line()) take(line);
  await child.ended;
  counts.kills++;
  counts.commits += acknowledged + 1 - from;
  counts.checkpoints += checkpoints;
  if (checkpoints > 0 && dirtySize > 0) counts.withinMerges++;
  return acknowledged;
}

async function killAgain(path: string, seed: number, counts: Counts): Promise<void> {
  const random = new Random(seed);
  const state: State = new Map();
  let next = 0;
  for (let lives = 3 + random.below(4); lives > 0 && counts.kills < kills; lives--) {
    const acknowledged = await live(path, seed, next, random, counts);
    for (; next <= acknowledged; next++) apply(state, commitOf(seed, next), next);
    await sleep(EXPIRED_MS);
    // Closing makes a checkpoint: mostly of a copy, so that the next life begins with what the
    // killed process left.
    const checked = existsSync(path) && random.chance(0.8) ? `${path}-copy` : path;
    if (checked !== path) copyDirectory(path, checked);
    const db = await open<number, Uint8Array>(checked, { ...OPTIONS, lockTimeout: 0 });
    const found = await read(db);
    const lacking = differenceAt(found, state, Number.MAX_VALUE);
    if (lacking !== undefined) {
      // The commit that was under way may be there, too.
      apply(state, commitOf(seed, next), next);
      next++;
      const difference = differenceAt(found, state, Number.MAX_VALUE);
      assert.equal(
        difference,
        undefined,
        `seed ${seed}, commit ${next - 1} or the one before it, which lacks: ${lacking}`,
      );
    }
    assert.deepEqual((await db.verify()).problems, [], `seed ${seed}, commit ${next - 1}`);
    await db.close();
    if (checked !== path) rmSync(checked, { recursive: true });
  }
}

test(`kill -9 within merges loses nothing that was acknowledged, ${kills} times`, async (context) => {
  const counts: Counts = { kills: 0, commits: 0, checkpoints: 0, withinMerges: 0 };
  for (let seed = firstSeed; counts.kills < kills; seed++) await withPath((path) => killAgain(path, seed, counts));
  context.diagnostic(JSON.stringify(counts));
  assert.ok(
    counts.checkpoints > counts.kills && counts.withinMerges * 2 > counts.kills,
    `merges were under way: ${JSON.stringify(counts)}`,
  );
});
