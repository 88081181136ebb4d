// Mirrors of 10,000 and of 100,000 entries in Chromium, round after round, each in a new tab.
import { mkdtemp, rm } from 'node:fs/promises';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { chromium } from '@playwright/test';
import { build, preview } from 'vite';
import { ARGS, CHROMIUM } from './driver/browser.ts';
import type { MirrorFigures } from './mirrors/page.ts';
import { median } from './src/report/numbers.ts';

const { values: options } = parseArgs({ options: { rounds: { type: 'string', default: '9' } } });

const ROOT = join(import.meta.dirname, 'mirrors');
const OUTPUT = join(import.meta.dirname, '../../target/bench/mirrors');
const FIGURES: readonly (readonly [keyof MirrorFigures, string, number])[] = [
  ['loadMs', 'loaded, ms', 1],
  ['iterateMs', 'read by an iterator, ms', 1],
  ['getUs', 'get, µs', 2],
  ['mapGetUs', 'get of a Map, µs', 2],
  ['bytes', 'bytes an entry beyond its value', 0],
];

await build({
  root: ROOT,
  configFile: false,
  logLevel: 'warn',
  worker: { format: 'es' },
  build: { target: 'es2022', outDir: OUTPUT, emptyOutDir: true, assetsInlineLimit: 0 },
});
const server = await preview({ root: ROOT, configFile: false, logLevel: 'error', build: { outDir: OUTPUT } });
const profile = await mkdtemp(join(tmpdir(), 'mangrove-mirrors-'));
const context = await chromium.launchPersistentContext(profile, {
  executablePath: CHROMIUM,
  args: [...ARGS, '--js-flags=--expose-gc', '--enable-precise-memory-info'],
});
try {
  for (const entries of [10_000, 100_000]) {
    const rounds: MirrorFigures[] = [];
    for (let round = 0; round <= Number(options.rounds); round++) {
      const page = await context.newPage();
      await page.goto(server.resolvedUrls!.local[0]!);
      await page.waitForFunction('typeof measureMirror === "function"');
      const figures = await page.evaluate((count) => globalThis.measureMirror(count), entries);
      // The first one writes the entries.
      if (round > 0) rounds.push(figures);
      await page.close();
    }
    process.stdout.write(`${entries} entries, load average ${loadavg()[0]!.toFixed(1)}\n`);
    for (const [name, text, digits] of FIGURES)
      process.stdout.write(
        `  ${text.padEnd(34)}${median(rounds.map((each) => each[name]))!
          .toFixed(digits)
          .padStart(8)}\n`,
      );
  }
} finally {
  await context.close();
  await server.close();
  await rm(profile, { recursive: true, force: true });
}
