// Random schedules; MANGROVE_MIRRORS_SCHEDULES says how many, MANGROVE_MIRRORS_SEED where they begin.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open } from 'mangrove-kv';
import { newCounts, runSchedule } from './schedule.ts';

const schedules = Number(process.env['MANGROVE_MIRRORS_SCHEDULES'] ?? 300);
const firstSeed = Number(process.env['MANGROVE_MIRRORS_SEED'] ?? 1);

test('mirrors show a commit as the feed has it, whatever happens', async (t) => {
  const counts = newCounts();
  const db = await open('mirrors', { storage: 'memory' });
  // The pauses of mirrors keep no process alive.
  const timer = setInterval(() => undefined, 60_000);
  for (let seed = firstSeed; seed < firstSeed + schedules; seed++) await runSchedule(db, seed, counts);
  clearInterval(timer);
  await db.close();
  t.diagnostic(`${schedules} schedules from seed ${firstSeed}: ${JSON.stringify(counts)}`);
  assert.ok(counts.looksUnderWay > 0 && counts.rollbacks > 0 && counts.takeOvers > 0 && counts.shrunk > 0);
});
