// Checks that the tests of replication find mistakes: makes each of `mistakes.mjs` in a copy, and one of the tests
// that it names must fail, or hang. Arguments select mistakes by words of their names, and by files.
//
// A test is a file, or `file: what the test's name has`.
//
//   --check     only looks whether the original of each is in its file, once
//   --explore   with a mistake that those tests do not find, runs the others, too
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { bundleWith, runTests, replaceOnce } from '../../kv/test/support/mutations.mjs';
import { MISTAKES } from './mistakes.mjs';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const SOURCES = fileURLToPath(new URL('../src/', import.meta.url));
const ENV = {
  REPLICATION_RUNS: process.env.REPLICATION_RUNS ?? '40',
  REPLICATION_SEED: process.env.REPLICATION_SEED ?? '1',
};
/** How much longer than without a mistake a run has to take to be one that hangs. */
const [TIMES, AT_LEAST_MS] = [5, 20_000];
/** Random ones, which `--explore` runs last. */
const LAST = ['compact', 'converge', 'histories'];

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
/** The engine as it is built, replication from its sources. */
const PACKAGE = {
  'mangrove-kv': at('../../kv/dist/node.js'),
  'mangrove-kv/internal': at('../../kv/dist/node-internal.js'),
  '@mangrove-kv/replication': at('../src/index.ts'),
  '@mangrove-kv/replication/archive': at('../src/archive/index.ts'),
  '@mangrove-kv/replication/internal': at('../src/internal.ts'),
  '@mangrove-kv/replication-s3': at('../../replication-s3/src/index.ts'),
};
const plugins = [
  {
    name: 'package',
    setup: ({ onResolve }) =>
      onResolve({ filter: /^@?mangrove-kv/ }, ({ path }) => ({
        path: PACKAGE[path],
        external: path.startsWith('mangrove-kv'),
      })),
  },
];

const contentsOf = ({ name, file, from, to }) => replaceOnce(readFileSync(join(SOURCES, file), 'utf8'), from, to, name);

const fileOf = (test) => test.split(': ', 1)[0];
const patternOf = (test) => test.slice(fileOf(test).length + 2);

/** Runs the tests in turn up to the first failure; resolves to what it was. */
async function find(tests, mistake, limitOf) {
  const directory = mkdtempSync(join(tmpdir(), 'mangrove-replication-'));
  const changed = mistake && { path: join(SOURCES, mistake.file), contents: contentsOf(mistake) };
  const bundleOf = (test) => join(directory, `${fileOf(test)}.test.mjs`);
  try {
    await bundleWith({
      files: [...new Set(tests.map((test) => join(HERE, `${fileOf(test)}.test.ts`)))],
      directory,
      plugins,
      ...changed,
    });
    for (const test of tests) {
      const pattern = patternOf(test).replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
      const { failure, passed } = await runTests(
        [...(pattern === '' ? [] : ['--test-name-pattern', pattern]), bundleOf(test)],
        { env: ENV, limit: limitOf(test) },
      );
      if (mistake === undefined) return { failure, passed };
      if (failure !== undefined) return { failure, test };
    }
    return {};
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

for (const mistake of MISTAKES) contentsOf(mistake);
if (new Set(MISTAKES.map(({ name }) => name)).size < MISTAKES.length) throw new Error('two mistakes have one name');
if (process.argv.includes('--check')) process.exit();

const given = process.argv.slice(2);
const words = given.filter((each) => !each.startsWith('--'));
const chosen = MISTAKES.filter(
  ({ name, file }) => words.length === 0 || words.some((word) => name.includes(word) || file === word),
);
const isExploring = given.includes('--explore');
const all = readdirSync(HERE)
  .filter((name) => name.endsWith('.test.ts'))
  .map((name) => name.replace('.test.ts', ''));
const rest = [...all.filter((name) => !LAST.includes(name)), ...LAST];

/** What test files take and have without a mistake. */
const quiet = new Map();
const named = new Set(chosen.flatMap(({ tests }) => tests));
let isUseless = false;
for (const file of isExploring ? rest : new Set([...named].map(fileOf))) {
  const begun = performance.now();
  const { failure, passed } = await find([file], undefined, () => 600_000);
  if (failure === undefined) quiet.set(file, { passed, time: performance.now() - begun });
  else console.log(`fails without a mistake, and tells nothing: ${file}: ${failure}`);
}
for (const test of named) {
  if (quiet.get(fileOf(test))?.passed.some((name) => name.includes(patternOf(test))) === true) continue;
  isUseless = true;
  console.log(`no such test passes without a mistake: ${test}`);
}

/** A run that takes too long has found the mistake only if one without it is much faster at that time, too. */
async function findSurely(tests, mistake) {
  for (let times = TIMES; ; times *= 2) {
    const limitOf = (test) => Math.max(AT_LEAST_MS, times * quiet.get(fileOf(test)).time);
    const { failure, test } = await find(tests, mistake, limitOf);
    if (failure !== 'hangs') return failure && `${fileOf(test)}: ${failure}`;
    const begun = performance.now();
    await find([test], undefined, () => 600_000);
    if (performance.now() - begun < limitOf(test) / 3) return `${test}: hangs`;
  }
}

const missed = [];
async function look(mistake) {
  const { name, tests } = mistake;
  const found = await findSurely(
    [...new Set(isExploring ? [...tests, ...rest] : tests)].filter((test) => quiet.has(fileOf(test))),
    mistake,
  );
  if (found === undefined) missed.push(name);
  console.log(`${found === undefined ? 'MISSED' : 'found'}: ${name}${found === undefined ? '' : ` - ${found}`}`);
}
const left = [...chosen];
await Promise.all(
  Array.from({ length: Number(process.env.MANGROVE_JOBS ?? 1) }, async () => {
    for (let next = left.shift(); next !== undefined; next = left.shift()) await look(next);
  }),
);
console.log(`${chosen.length - missed.length} of ${chosen.length} mistakes were found`);
process.exitCode = missed.length === 0 && !isUseless ? 0 : 1;
