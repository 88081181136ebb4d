// Checks that the engine's tests find mistakes: makes each one of `mutants.mjs` in a copy of the
// engine, and the test that it names must fail. All are compiled together (see `schemata.mjs`).
//
//     node engine/tests/mutations/run.mjs                   each mutant with its test
//     node engine/tests/mutations/run.mjs --only merge 17   those with a word in name or file, or a number
//     node engine/tests/mutations/run.mjs --explore         all tests, for those that name none
//     node engine/tests/mutations/run.mjs --part 1/4        every fourth mutant
//     node engine/tests/mutations/run.mjs --check           only whether the sources have every place
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { MUTANTS } from './mutants.mjs';
import { check, copy } from './schemata.mjs';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const DIRECTORY = join(ROOT, 'target', 'mutations');
const ENGINE = join(DIRECTORY, 'copy', 'engine');
const SLOTS = 2;
/** A mistake may make a test hang or allocate without end. */
const HANG_MS = 30_000;
const TEST_MS = 120_000;
/** Exploration runs tests that take less than this, then those that take less than the next. */
const STEPS_MS = [20, 100, 300, 1000, 3000, Infinity];
const MEMORY_KB = 6 << 20;
/** Programs in the order in which exploration runs them. */
const PROGRAMS = ['lib', 'engine', 'crash', 'processes', 'memory', 'chains'];
/** Exploration runs the chains of lives with the seeds from 1 to this one. */
const CHAINS = 20;
/** The first reads the sources and objects to the switch in them; the others test files of the system. */
const SKIPPED = ['--skip', 'layers::imports_go_one_way', '--skip', 'storage::fs::'];

const mutants = Object.entries(MUTANTS)
  .flatMap(([file, list]) => list.map((mutant) => [file, ...mutant]))
  .map(([file, name, original, replacement, finder], index) => ({
    number: index + 1,
    file,
    name,
    original,
    replacement,
    finder: typeof finder === 'string' ? finder.split(' ') : undefined,
    survives: finder?.survives,
  }));

function parse(args) {
  const options = { words: [], tests: [], least: 0, most: Infinity, chains: CHAINS };
  const rest = [...args];
  while (rest.length > 0) {
    const name = rest.shift();
    if (name === '--only') while (rest.length > 0 && !rest[0].startsWith('--')) options.words.push(rest.shift());
    else if (name === '--explore') options.explores = true;
    else if (name === '--check') options.checks = true;
    else if (name === '--tests') while (rest.length > 0 && !rest[0].startsWith('--')) options.tests.push(rest.shift());
    else if (name === '--least') options.least = Number(rest.shift());
    else if (name === '--most') options.most = Number(rest.shift());
    else if (name === '--from') options.from = Number(rest.shift());
    else if (name === '--chains') options.chains = Number(rest.shift());
    else if (name === '--part') options.part = rest.shift().split('/').map(Number);
    else if (name !== '--all') throw new Error(`there is no option ${name}`);
  }
  return options;
}

function isChosen({ number, name, file }, { words, part, from = 1 }) {
  if (number < from) return false;
  if (part !== undefined && number % part[1] !== part[0] % part[1]) return false;
  return (
    words.length === 0 ||
    words.some((word) => (/^\d+$/.test(word) ? number === Number(word) : name.includes(word) || file.includes(word)))
  );
}

function isExplored({ name, test, ms }, { tests, least, most }) {
  return ms >= least && ms < most && (tests.length === 0 || tests.some((word) => `${name} ${test}`.includes(word)));
}

/** Compiles the tests of the copy; returns the path of each program. */
async function build() {
  const targets = PROGRAMS.flatMap((name) => (name === 'lib' ? ['--lib'] : ['--test', name]));
  const args = [
    'test',
    '--no-run',
    '--message-format',
    'json-render-diagnostics',
    '--package',
    'mangrove-engine',
    ...targets,
  ];
  const env = { ...process.env, CARGO_TARGET_DIR: join(DIRECTORY, 'target'), RUSTFLAGS: '--cap-lints allow' };
  const child = spawn('cargo', args, { cwd: ENGINE, env, stdio: ['ignore', 'pipe', 'inherit'] });
  const programs = new Map();
  for await (const line of createInterface({ input: child.stdout })) {
    const { reason, target, executable } = JSON.parse(line);
    if (reason === 'compiler-artifact' && executable)
      programs.set(target.kind.includes('test') ? target.name : 'lib', executable);
  }
  if (programs.size !== PROGRAMS.length) throw new Error('the copy does not compile');
  return programs;
}

/**
 * Runs tests up to the first that fails. Resolves to its name, to `hang` or `crash` with the name of
 * a test that was running, or to undefined.
 */
function run(program, args, number, { timeoutMs = TEST_MS, passed = () => {}, settings = {} } = {}) {
  return new Promise((resolve) => {
    const env = {
      MANGROVE_CRASH_STRIDE: '10',
      ...process.env,
      ...settings,
      MANGROVE_MUTANT: String(number),
      RUST_TEST_THREADS: '1',
      RUST_BACKTRACE: '0',
    };
    const shell = ['-c', `ulimit -v ${MEMORY_KB} 2> /dev/null; exec nice -n 10 "$0" "$@"`, program, ...args];
    const child = spawn('sh', shell, { cwd: ENGINE, env, stdio: ['ignore', 'pipe', 'ignore'] });
    let failed;
    let running = '';
    let text = '';
    const end = (reason) => {
      failed ??= reason;
      child.kill('SIGKILL');
    };
    const hangs = () => end(`hang ${running}`);
    let timer = setTimeout(hangs, timeoutMs);
    child.stdout.on('data', (chunk) => {
      const lines = (text + chunk).split('\n');
      text = lines.pop();
      for (const line of [...lines, text]) {
        const found = /^test (\S+) .*\.\.\. (.*)$/.exec(line) ?? /^test (\S+) \.\.\. ?(.*)$/.exec(line);
        if (found === null) continue;
        running = found[1];
        if (found[2].endsWith('FAILED')) end(running);
        if (found[2] !== 'ok' || line === text) continue;
        passed(running);
        clearTimeout(timer);
        timer = setTimeout(hangs, timeoutMs);
      }
      // What a test prints stands between its name and the outcome.
      if (lines.some((line) => /(^|\.\.\. )FAILED$/.test(line))) end(running);
    });
    child.on('close', (status) => {
      clearTimeout(timer);
      resolve(failed ?? (status === 0 ? undefined : `crash ${running}`));
    });
  });
}

/** Runs the chains of lives with these seeds up to the first that fails. Resolves to its seed, or to undefined. */
async function runChains(program, seeds, number) {
  for (const seed of seeds) {
    const settings = { MANGROVE_CHAINS_SEED: String(seed), MANGROVE_CHAINS_IMAGES: '1' };
    if ((await run(program, ['--ignored', '--exact', 'soak'], number, { timeoutMs: HANG_MS, settings })) !== undefined)
      return String(seed);
  }
  return undefined;
}

/** Runs what a mutant names: `program test test`, or `chains seed seed`. */
function runNamed(programs, [name, ...tests], number) {
  const program = programs.get(name);
  if (program === undefined) throw new Error(`there is no test program ${name}`);
  if (name === 'chains') return runChains(program, tests, number);
  return run(program, ['--exact', ...tests], number, { timeoutMs: HANG_MS });
}

/** All tests with the time that each takes without a mistake, by program; measured once per build. */
async function measure(programs) {
  const path = join(DIRECTORY, 'times.json');
  const builds = [...programs.values()].sort().join();
  try {
    const known = JSON.parse(readFileSync(path, 'utf8'));
    if (known.builds === builds) return known.tests;
  } catch {
    // Not measured yet.
  }
  const tests = [];
  for (const name of PROGRAMS.filter((one) => one !== 'chains')) {
    let since = performance.now();
    const passed = (test) => {
      tests.push({ name, test, ms: performance.now() - since });
      since = performance.now();
    };
    const failed = await run(programs.get(name), SKIPPED, 0, { passed });
    if (failed !== undefined) throw new Error(`without a mistake, ${name} ${failed} fails`);
  }
  writeFileSync(path, JSON.stringify({ builds, tests }));
  return tests;
}

/** Runs all tests, quick ones first, and then chains. */
async function runAll(programs, tests, number, chains) {
  for (let from = 0; from < STEPS_MS.length; from += 1) {
    const [least, most] = [from === 0 ? 0 : STEPS_MS[from - 1], STEPS_MS[from]];
    for (const name of PROGRAMS) {
      const part = tests.filter((one) => one.name === name && one.ms >= least && one.ms < most).map(({ test }) => test);
      if (part.length === 0) continue;
      const failed = await run(programs.get(name), ['--exact', ...part], number, {
        timeoutMs: Math.min(TEST_MS, Math.max(15_000, 20 * most)),
      });
      if (failed !== undefined) return `${name} ${failed}`;
    }
  }
  const seed = await runChains(
    programs.get('chains'),
    Array.from({ length: chains }, (_, index) => index + 1),
    number,
  );
  return seed === undefined ? undefined : `chains ${seed}`;
}

/** Without a mutant, all that is run has to pass, and every named test has to exist. */
async function checkUnchanged(programs, chosen) {
  for (const [name, program] of programs) {
    const tests = new Set(chosen.filter(({ finder }) => finder?.[0] === name).flatMap(({ finder }) => finder.slice(1)));
    if (tests.size === 0) continue;
    if (name === 'chains') {
      const seed = await runChains(program, tests, 0);
      if (seed !== undefined) throw new Error(`without a mistake, chain ${seed} fails`);
      continue;
    }
    const listed = await output(program, ['--list', '--exact', ...tests]);
    const missing = [...tests].filter((test) => !listed.includes(`${test}: test`));
    if (missing.length > 0) throw new Error(`there is no test ${missing.join(', ')} in ${name}`);
    const failed = await run(program, ['--exact', ...tests], 0);
    if (failed !== undefined) throw new Error(`without a mistake, ${name} ${failed} fails`);
  }
}

function output(program, args) {
  return new Promise((resolve) => {
    const child = spawn(program, args, { cwd: ENGINE, stdio: ['ignore', 'pipe', 'ignore'] });
    let text = '';
    child.stdout.on('data', (chunk) => {
      text += chunk;
    });
    child.on('close', () => resolve(text.split('\n')));
  });
}

/** Calls `work` with each item, for two at a time. */
async function eachOf(items, work) {
  const left = [...items];
  const worker = async () => {
    for (let item = left.shift(); item !== undefined; item = left.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: SLOTS }, worker));
}

const options = parse(process.argv.slice(2));
const isWanted = (mutant) => isChosen(mutant, options) && !(options.explores && mutant.finder !== undefined);
const chosen = mutants.filter(isWanted);
check(ROOT, mutants);
if (!options.checks) {
  const begin = performance.now();
  const seconds = () => `${((performance.now() - begin) / 1000).toFixed(0)} s`;
  copy(ROOT, join(DIRECTORY, 'copy'), mutants);
  const programs = await build();
  console.log(`compiled in ${seconds()}`);
  const tests = options.explores
    ? (await measure(programs)).filter((test) => isExplored(test, options))
    : await checkUnchanged(programs, chosen);
  console.log(`all passes without a mistake; ${seconds()}`);
  const counts = { found: 0, missed: 0, survived: 0 };
  await eachOf(chosen, async ({ number, name, finder, survives }) => {
    const runs = finder !== undefined && !options.explores;
    if (!runs && !options.explores) {
      counts[survives === undefined ? 'missed' : 'survived'] += 1;
      console.log(
        `${survives === undefined ? 'MISSED: ' : 'survives:'} ${number} ${name}: ${survives ?? 'no test is named'}`,
      );
      return;
    }
    const since = performance.now();
    const failed = runs
      ? await runNamed(programs, finder, number)
      : await runAll(programs, tests, number, options.chains);
    counts[failed === undefined ? 'missed' : 'found'] += 1;
    const ms = (performance.now() - since).toFixed(0);
    console.log(
      `${failed === undefined ? 'MISSED:' : 'found: '} ${number} ${name}: ${failed ?? 'everything passes'} (${ms} ms)`,
    );
  });
  console.log(
    `${counts.found} of ${chosen.length} mistakes were found, ${counts.survived} are known to survive; ${seconds()}`,
  );
  process.exitCode = counts.missed === 0 ? 0 : 1;
}
