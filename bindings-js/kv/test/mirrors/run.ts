// Runs random schedules of mirrors: MANGROVE_MIRRORS_SCHEDULES of them, with consecutive seeds from MANGROVE_MIRRORS_SEED on.
import process from 'node:process';
import { open } from 'mangrove-kv';
import { newCounts, runSchedule } from './schedule.ts';

const schedules = Number(process.env['MANGROVE_MIRRORS_SCHEDULES'] ?? 10_000);
const firstSeed = Number(process.env['MANGROVE_MIRRORS_SEED'] ?? 1);
/** Longer than any schedule takes, by far. */
const HANGS_MS = 60_000;

const start = performance.now();
const counts = newCounts();
const db = await open('mirrors', { storage: 'memory' });
for (let seed = firstSeed; seed < firstSeed + schedules; seed++) {
  const timer = setTimeout(() => {
    console.error(`seed ${seed}: hangs`);
    process.exit(1);
  }, HANGS_MS);
  await runSchedule(db, seed, counts);
  clearTimeout(timer);
}
await db.close();
console.log(`${schedules} schedules from seed ${firstSeed} in ${((performance.now() - start) / 1000).toFixed(1)} s`);
console.log(
  Object.entries(counts)
    .map(([name, count]) => `${name} ${count}`)
    .join(', '),
);
