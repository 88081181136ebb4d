// Runs every check in order, and lists those that failed at the end; without a build there is nothing to check. Names as arguments select steps:
// `node .ci/test.mjs node deno`.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, browserEnv, output, toolEnv } from './tools.mjs';

const BINDINGS = join(ROOT, 'bindings-js');
const EXAMPLES = join(ROOT, 'tests-e2e', 'examples');
const MATRIX = join(ROOT, 'tests-e2e', 'matrix');

const STEPS = [
  { name: 'build', command: ['npm', 'run', '--silent', 'build:package'] },
  { name: 'fmt', command: ['cargo', 'fmt', '--all', '--check'] },
  { name: 'clippy', command: ['cargo', 'clippy', '--workspace', '--all-targets', '--', '--deny', 'warnings'] },
  // Its locks are shuttle's, so it is a build of its own.
  { name: 'clippy shuttle', command: ['cargo', 'clippy', '--package', 'mangrove-engine', '--test', 'shuttle', '--features', 'shuttle', '--', '--deny', 'warnings'] },
  // The other crates have no tests and much to compile; clippy has checked them.
  { name: 'rust', command: ['cargo', 'test', '--package', 'mangrove-engine', '--package', 'mangrove-memory', '--package', 'mangrove-cli', '--package', 'mangrove-bindings', '--package', 'mangrove-host', '--package', 'mangrove-upkeep'] },
  { name: 'shuttle', command: ['cargo', 'test', '--package', 'mangrove-engine', '--features', 'shuttle', '--test', 'shuttle'] },
  ...typeScriptProjects().map((project) => ({ name: `types ${project}`, command: ['tsc', '--noEmit', '--project', project] })),
  // Warnings, as of an export without documentation, are errors.
  { name: 'docs reference', command: ['npm', 'run', '--silent', 'build', '--workspace', 'mangrove-reference'] },
  { name: 'docs links', command: ['npm', 'run', '--silent', 'check', '--workspace', 'mangrove-reference'] },
  { name: 'examples', command: ['npm', 'run', '--silent', 'test', '--workspace', 'mangrove-examples'] },
  { name: 'node', cwd: BINDINGS, command: ['npm', 'run', '--silent', 'test'] },
  // The package as a whole on disks that fail and are cut.
  { name: 'faults', cwd: BINDINGS, command: ['npm', 'run', '--silent', 'test:faults'] },
  // The protocol of many tabs: random schedules, and whether mistakes in it would be found.
  { name: 'tabs', cwd: BINDINGS, command: ['npm', 'run', '--silent', 'test:tabs'] },
  { name: 'tabs mutations', cwd: BINDINGS, command: ['npm', 'run', '--silent', 'test:tabs:mutations'] },
  { name: 'workerd', cwd: BINDINGS, command: ['npm', 'run', '--silent', 'test:workerd'] },
  // Of the packages whose interfaces the adapters have; written for vitest.
  { name: 'suites', cwd: BINDINGS, command: ['npm', 'run', '--silent', 'test:suites'] },
  { name: 'deno', cwd: BINDINGS, command: ['npm', 'run', '--silent', 'test:deno'] },
  { name: 'bun', cwd: BINDINGS, command: ['npm', 'run', '--silent', 'test:bun'] },
  // The tests of the native tool, on the one of the package; then both on the same command lines. The test that is left out runs it a thousand times.
  {
    name: 'cli', command: ['cargo', 'test', '--package', 'mangrove-cli', '--tests', '--', '--skip', 'failures::damage', '--exact'], env: { MANGROVE_PROGRAM: join(BINDINGS, 'dist', 'cli.js') },
  },
  { name: 'cli both', cwd: BINDINGS, command: ['npm', 'run', '--silent', 'test:cli'], env: { MANGROVE_NATIVE: nativeTool() } },
  { name: 'pack', command: ['node', '.ci/test-pack.mjs'] },
  { name: 'e2e', command: ['npm', 'run', '--silent', 'test', '--workspace', 'tests-e2e'] },
  { name: 'chaos', command: ['npm', 'run', '--silent', 'chaos', '--workspace', 'tests-e2e', '--', '--minutes', '2'] },
  { name: 'e2e examples', cwd: EXAMPLES, command: ['playwright', 'test'] },
  { name: 'matrix', cwd: MATRIX, command: ['playwright', 'test'] },
];

/** Built by its tests. */
function nativeTool() {
  return join(process.env.CARGO_TARGET_DIR ?? join(ROOT, 'target'), 'debug', 'mangrove');
}

function typeScriptProjects() {
  const workspaces = JSON.parse(output('npm', ['query', '.workspace']) ?? '[]').map((workspace) => workspace.location);
  return workspaces.filter((location) => existsSync(join(ROOT, location, 'tsconfig.json')));
}

function select(names) {
  const unknown = names.filter((name) => !STEPS.some((step) => step.name.split(' ').includes(name)));
  if (unknown.length > 0) throw new Error(`no such step: ${unknown.join(', ')}; there are ${STEPS.map((step) => step.name).join(', ')}`);
  return names.length === 0 ? STEPS : STEPS.filter((step) => step.name.split(' ').some((word) => names.includes(word)));
}

function runStep({ name, command: [program, ...args], cwd = ROOT, env: own }, env) {
  process.stdout.write(`\n==> ${name}: ${program} ${args.join(' ')}\n`);
  const start = performance.now();
  const result = spawnSync(program, args, { cwd, env: { ...env, ...own }, stdio: 'inherit' });
  const seconds = ((performance.now() - start) / 1000).toFixed(1);
  const passed = result.status === 0;
  const reason = result.error?.message ?? result.signal ?? `exit ${result.status}`;
  process.stdout.write(`<== ${name}: ${passed ? 'passed' : `failed (${reason})`} in ${seconds} s\n`);
  return passed;
}

const env = { ...toolEnv(), ...browserEnv(), DENO_NO_UPDATE_CHECK: '1' };

const steps = select(process.argv.slice(2));
const failed = [];
let run = 0;
for (const step of steps) {
  run += 1;
  if (runStep(step, env)) continue;
  failed.push(step.name);
  if (step.name === 'build') break;
}
const skipped = steps.length - run;
const list = failed.length > 0 ? ` (${failed.join(', ')})` : '';
process.stdout.write(`\n${run - failed.length} passed, ${failed.length} failed${list}${skipped > 0 ? `, ${skipped} not run` : ''}\n`);
process.exitCode = failed.length > 0 ? 1 : 0;
