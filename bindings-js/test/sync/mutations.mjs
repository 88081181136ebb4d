// Checks that the tests of sync find mistakes: makes each of `mistakes.mjs` in a copy, and one of the tests
// that it names must fail, or hang. Arguments select mistakes by words of their names, and by files.
//
//   --check     only looks whether the original of each is in its file, once
//   --explore   with a mistake that those tests do not find, runs the others, too
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { bundleWith, firstFailure, replaceOnce } from '../support/mutations.mjs';
import { MISTAKES } from './mistakes.mjs';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const SOURCES = fileURLToPath(new URL('../../src/sync/', import.meta.url));
const ENV = { SYNC_RUNS: process.env.SYNC_RUNS ?? '40', SYNC_SEED: process.env.SYNC_SEED ?? '1' };
/** How much longer than without a mistake a run has to take to be one that hangs. */
const [TIMES, AT_LEAST_MS] = [5, 20_000];
/** Random ones, which `--explore` runs last. */
const LAST = ['compact', 'converge', 'histories'];

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
/** The engine as it is built, sync from its sources. */
const PACKAGE = {
  'mangrove-kv': at('../../dist/node.js'), 'mangrove-kv/sync': at('../../src/entries/sync.ts'),
  'mangrove-kv/sync/archive': at('../../src/sync/archive/index.ts'), 'mangrove-kv/sync/s3': at('../../src/sync/s3/index.ts'),
};
const plugins = [{
  name: 'package',
  setup: ({ onResolve }) => onResolve({ filter: /^mangrove-kv/ }, ({ path }) => ({ path: PACKAGE[path], external: path === 'mangrove-kv' })),
}];

const contentsOf = ({ name, file, from, to }) => replaceOnce(readFileSync(join(SOURCES, file), 'utf8'), from, to, name);

/** Runs the tests in turn up to the first failure; returns what it was. */
async function find(tests, mistake, limitOf) {
  const directory = mkdtempSync(join(tmpdir(), 'mangrove-sync-'));
  const changed = mistake && { path: join(SOURCES, mistake.file), contents: contentsOf(mistake) };
  try {
    await bundleWith({ files: tests.map((test) => join(HERE, `${test}.test.ts`)), directory, plugins, ...changed });
    for (const test of tests) {
      const failure = await firstFailure(['--test-reporter', 'tap', join(directory, `${test}.test.mjs`)], { env: ENV, limit: limitOf(test) });
      if (failure !== undefined) return `${test}: ${failure}`;
    }
    return undefined;
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

for (const mistake of MISTAKES) contentsOf(mistake);
if (new Set(MISTAKES.map(({ name }) => name)).size < MISTAKES.length) throw new Error('two mistakes have one name');
if (process.argv.includes('--check')) process.exit();

const given = process.argv.slice(2);
const words = given.filter((each) => !each.startsWith('--'));
const chosen = MISTAKES.filter(({ name, file }) => words.length === 0 || words.some((word) => name.includes(word) || file === word));
const isExploring = given.includes('--explore');
const all = readdirSync(HERE).filter((name) => name.endsWith('.test.ts')).map((name) => name.replace('.test.ts', ''));
const rest = [...all.filter((name) => !LAST.includes(name)), ...LAST];

const SKIP = (process.env.SKIP ?? '').split(',');
/** Milliseconds that tests take without a mistake. */
const times = new Map();
for (const test of [...isExploring ? rest : new Set(chosen.flatMap(({ tests }) => tests))].filter((test) => !SKIP.includes(test))) {
  const begun = performance.now();
  const failure = await find([test], undefined, () => 600_000);
  if (failure === undefined) times.set(test, performance.now() - begun);
  else console.log(`fails without a mistake, and tells nothing: ${failure}`);
}
const failing = [...new Set(chosen.flatMap(({ tests }) => tests))].filter((test) => !times.has(test));

const missed = [];
async function look(mistake) {
  const { name, tests } = mistake;
  const begun = performance.now();
  const run = [...new Set(isExploring ? [...tests, ...rest] : tests)].filter((test) => times.has(test) && !SKIP.includes(test));
  const found = await find(run, mistake, (test) => Math.max(AT_LEAST_MS, TIMES * times.get(test)));
  if (found === undefined) missed.push(name);
  console.log(`${found === undefined ? 'MISSED' : 'found'}: ${name}${found === undefined ? '' : ` - ${found}`} (${Math.round((performance.now() - begun) / 1000)} s)`);
}
const left = [...chosen];
await Promise.all(Array.from({ length: Number(process.env.JOBS ?? 1) }, async () => {
  for (let next = left.shift(); next !== undefined; next = left.shift()) await look(next);
}));
console.log(`${chosen.length - missed.length} of ${chosen.length} mistakes were found`);
process.exitCode = missed.length + failing.length === 0 ? 0 : 1;
