// Makes the commits of a seed from a number on, until it is killed. Prints the number of each that
// is acknowledged, how many checkpoints there were, and what is not merged yet.
import { writeSync } from 'node:fs';
import process from 'node:process';
import { open } from 'mangrove-kv';
import { OPTIONS, commitOf, make } from './workload.mjs';

const [path, seed, from] = process.argv.slice(2);
/** What expires does so before the parent looks. */
const TICK_MS = 0.3;

/** At once, so that nothing acknowledged waits here when the process is killed. */
function say(line) {
  for (;;) {
    try {
      writeSync(1, `${line}\n`);
      return;
    } catch (error) {
      // The pipe is full.
      if (error.code !== 'EAGAIN') throw error;
    }
  }
}

const db = await open(path, { ...OPTIONS, lockTimeout: 0 });
say('open');
for (let number = Number(from); ; number++) {
  await make(db, { ...commitOf(Number(seed), number), isRelaxed: false }, TICK_MS);
  const { checkpoints, dirtySize } = await db.stats();
  say(`${number} ${checkpoints} ${dirtySize}`);
}
