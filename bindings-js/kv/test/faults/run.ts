// Runs random calls on a failing disk, cut anywhere, until MANGROVE_FAULTS_IMAGES images have been
// checked. MANGROVE_FAULTS_SEED is the first seed. Each fourth seed has an encrypted database.
import { readFileSync } from 'node:fs';
import process from 'node:process';
import { Random } from '../tabs/random.ts';
import { Life, plainly, withKey } from './life.ts';
import type { Counts } from './life.ts';

const moduleOf = (name: string): WebAssembly.Module =>
  new WebAssembly.Module(readFileSync(new URL(`../../dist/${name}_bg.wasm`, import.meta.url)));
const engines = [plainly(moduleOf('mangrove')), withKey(moduleOf('mangrove'))] as const;
const images = Number(process.env['MANGROVE_FAULTS_IMAGES'] ?? 20_000);
const firstSeed = Number(process.env['MANGROVE_FAULTS_SEED'] ?? 1);
const start = performance.now();
const counts: Counts = { images: 0, calls: 0, refused: 0 };
let seed = firstSeed;

for (; counts.images < images; seed++) {
  const random = new Random(seed);
  const trace: string[] = [];
  let left = { image: new Map() as ReadonlyMap<string, Uint8Array>, state: new Map() as ReadonlyMap<string, unknown> };
  try {
    for (let lives = 1 + random.below(4); lives > 0; lives--) {
      left = await new Life(engines[seed % 4 === 3 ? 1 : 0], random, left.image, left.state, counts, trace).run(
        2 + random.below(8),
      );
    }
  } catch (error) {
    console.log(trace.slice(-60).join('\n'));
    console.log(`\nseed ${seed} fails: ${error instanceof Error ? error.stack : String(error)}`);
    console.log(`to repeat: MANGROVE_FAULTS_SEED=${seed} MANGROVE_FAULTS_IMAGES=1 npm run test:faults`);
    process.exitCode = 1;
    break;
  }
}
console.log(
  `seeds ${firstSeed} to ${seed - 1} in ${((performance.now() - start) / 1000).toFixed(1)} s: ${counts.images} images, ${counts.calls} calls, ${counts.refused} of them refused`,
);
if (process.exitCode !== 1 && counts.refused * 100 < counts.calls) {
  console.log('too few calls were refused for a conclusion');
  process.exitCode = 1;
}
