// The example of @mangrove-kv/tanstack-db on Mangrove and on TanStack DB's own persistence over wa-sqlite, in turns.
import { mkdtemp, rm } from 'node:fs/promises';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { build, preview } from 'vite';
import { toPath } from './driver/page.ts';
import { median, short } from './src/report/numbers.ts';
import { expectedOf } from './tanstack/expected.ts';
import { fill, visit } from './tanstack/visit.ts';
import type { Place, VisitFigures } from './tanstack/visit.ts';

const { values: options } = parseArgs({
  options: {
    rows: { type: 'string', default: '1000000' },
    rounds: { type: 'string', default: '5' },
    storages: { type: 'string', default: 'mangrove,wa-sqlite' },
    // A profile that is kept, with the rows of the address that the page has.
    profile: { type: 'string' },
    port: { type: 'string', default: '5194' },
  },
});

const ROOT = join(import.meta.dirname, '../../bindings-js/adapters/tanstack-db/example');
const OUTPUT = join(import.meta.dirname, '../../target/bench/tanstack');
const FIGURES: readonly (readonly [keyof VisitFigures, string])[] = [
  ['newestMs', 'load: newest orders complete, ms'],
  ['countriesMs', 'load: day by country complete, ms'],
  ['secondTabMs', 'load of a second tab, both views, ms'],
  ['nextPageMs', 'next page of the order, ms'],
  ['editMs', 'edit to screen, same tab, ms'],
  ['firstEditElsewhereMs', 'first edit to screen, other tab, ms'],
  ['editElsewhereMs', 'later edits to screen, other tab, ms'],
  ['emptyMib', 'memory of the browser, empty page, MiB'],
  ['tabMib', 'memory of the browser, one tab, MiB'],
  ['twoTabsMib', 'memory of the browser, two tabs, MiB'],
  ['editedMib', 'memory of the browser, after edits, MiB'],
  ['peakMib', 'most memory of one process, MiB'],
  ['heapMib', "JavaScript heap of the page's thread, MiB"],
];

const say = (line: string): void => void process.stdout.write(`${line}\n`);

const configFile = join(ROOT, 'vite.config.ts');
const output = { outDir: OUTPUT, emptyOutDir: true };
await build({ root: ROOT, configFile, logLevel: 'warn', build: output });
const server = await preview({
  root: ROOT,
  configFile,
  logLevel: 'error',
  build: output,
  preview: { port: Number(options.port), strictPort: true },
});
const url = server.resolvedUrls!.local[0]!;
const profile =
  options.profile === undefined ? await mkdtemp(join(tmpdir(), 'mangrove-tanstack-')) : toPath(options.profile);
const rows = Number(options.rows);
const storages = options.storages.split(',');
const placeOf = (storage: string): Place => ({ profile: join(profile, storage), url, storage, rows });
const shown = (value: number): string => (Number.isNaN(value) ? '—' : short(value));
const row = (text: string, values: readonly number[]): void => {
  const [own, ...others] = values;
  const ratios = others.map((value) => shown(value / own!).padStart(10));
  say(`  ${text.padEnd(44)}${values.map((value) => shown(value).padStart(12)).join('')}${ratios.join('')}`);
};
try {
  const expected = expectedOf(rows);
  const fills: number[] = [];
  for (const storage of storages) {
    const milliseconds = await fill(placeOf(storage));
    fills.push(milliseconds / 1000);
    say(
      `${storage}: ${rows} rows stored in ${(milliseconds / 1000).toFixed(1)} s, load average ${loadavg()[0]!.toFixed(1)}`,
    );
  }
  const rounds = new Map<string, VisitFigures[]>(storages.map((storage) => [storage, []]));
  for (let round = 0; round < Number(options.rounds); round++) {
    for (const [at] of storages.entries()) {
      const storage = storages[(at + round) % storages.length]!;
      const figures = await visit(placeOf(storage), expected);
      rounds.get(storage)!.push(figures);
      say(`round ${round + 1}, ${storage}: ${JSON.stringify(figures)}`);
    }
  }
  say(`${rows} rows, medians of ${options.rounds} rounds, load average ${loadavg()[0]!.toFixed(1)}`);
  say(
    `  ${''.padEnd(44)}${storages.map((storage) => storage.padStart(12)).join('')}${storages.length > 1 ? '     times' : ''}`,
  );
  row('fill, s (once)', fills);
  // Without rounds, the rows are stored for later ones.
  for (const [name, text] of options.rounds === '0' ? [] : FIGURES)
    row(
      text,
      storages.map(
        (storage) =>
          median(
            rounds
              .get(storage)!
              .map((each) => each[name])
              .filter((value) => !Number.isNaN(value)),
          ) ?? Number.NaN,
      ),
    );
} finally {
  await server.close();
  if (options.profile === undefined)
    await rm(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
}
