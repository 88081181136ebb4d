// The steps of the tests, in the order in which they start.
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { ON_TOP, PACKAGES } from '../bindings-js/build/packages.mjs';
import { I686_TARGET, ROOT, hasI686, output } from './tools.mjs';

const KV = join(PACKAGES, 'kv');
const REPLICATION = join(PACKAGES, 'replication');
const CLI = join(PACKAGES, 'cli');
const EXAMPLES = join(ROOT, 'tests-e2e', 'examples');
const CREATE = join(ROOT, 'tests-e2e', 'create');
const RUNNERS = join(KV, 'test-runners');
const NODES = join(KV, 'test-nodes');
const MATRIX = join(ROOT, 'tests-e2e', 'matrix');

/** Tests that take half of Bun's time and need nothing of the runtime; Node and Deno run them. */
const NOT_IN_BUN = ['level', 'yjs-model', 'rxdb-queries', 'converge'];

/** Tests of the cases of other libraries, without IndexedDB: in Bun, whose tests share a process, in one of their own. */
const TWINS = ['idb-keyval', 'localforage'];
/** Their tests that share IndexedDB with the libraries themselves need a process each; Node and Deno run them. */
const TWINS_NOT_IN_BUN = TWINS.flatMap((name) =>
  ['suite', 'original', 'model', 'move'].map((kind) => `${name}-${kind}`),
);

/** Specifications in Chromium that `npm test` has: reading and writing, tabs, indexes, an encrypted database, the demo. */
const SMOKE = ['blobs', 'encryption', 'kill', 'path-files', 'tabs', 'demo'];

/** Folders with tests of packages, below bindings-js. */
const TESTS = ['kv', ...ON_TOP].map((name) => `${name}/test`).filter((path) => existsSync(join(PACKAGES, path)));
/** The same without those packages whose tests are a step of their own. */
const SMALL_TESTS = TESTS.filter((path) => !/^(?:kv|replication)\//.test(path));

function testFiles(directories) {
  return directories.flatMap((path) =>
    readdirSync(join(PACKAGES, path), { recursive: true })
      .filter((name) => name.endsWith('.test.ts'))
      .map((name) => join(path, name)),
  );
}

/** Packages with Rust tests. The others have none and take long to compile; clippy checks them. */
const RUST = ['engine', 'memory', 'cli', 'bindings', 'host', 'maintenance'].flatMap((name) => [
  '--package',
  `mangrove-${name}`,
]);

function typeScriptProjects() {
  const workspaces = JSON.parse(output('npm', ['query', '.workspace']) ?? '[]').map((workspace) => workspace.location);
  if (workspaces.length === 0) throw new Error('npm finds no workspaces; node .ci/setup.mjs installs them');
  return workspaces.filter((location) => existsSync(join(ROOT, location, 'tsconfig.json')));
}

/** The native tool, which a step builds. */
function nativeTool() {
  return join(process.env.CARGO_TARGET_DIR ?? join(ROOT, 'target'), 'debug', 'mangrove');
}

/**
 * Tests of the code that runs in WebAssembly, on a processor with addresses as short as there. Power
 * cuts and failures at every operation take minutes, and hit the same places with any addresses.
 */
const I686 = {
  name: 'i686',
  suite: 'engine',
  native: true,
  command: [
    'cargo',
    'test',
    '--no-fail-fast',
    '--target',
    I686_TARGET,
    '--package',
    'mangrove-engine',
    '--package',
    'mangrove-memory',
    '--package',
    'mangrove-bindings',
    '--lib',
    '--test',
    'engine',
    '--test',
    'crash',
    '--test',
    'processes',
    '--test',
    'database',
    '--test',
    'transactions',
    '--test',
    'session',
    '--test',
    'clients',
    '--test',
    'session_waiting',
    '--',
    '--skip',
    'faults::',
    '--skip',
    'crashes::',
    '--skip',
    'failures::a_power_cut',
  ],
  // The linker and the C library of Rust: nothing has to be installed beside its target.
  env: {
    CARGO_TARGET_I686_UNKNOWN_LINUX_MUSL_LINKER: 'rust-lld',
    CARGO_TARGET_I686_UNKNOWN_LINUX_MUSL_RUSTFLAGS: '-Clinker-flavor=ld.lld -Clink-self-contained=yes',
    MANGROVE_CRASH_STRIDE: '50',
  },
};

/**
 * Each step is a command, run in the root or in `cwd`. `suite` is `quick` for what a change usually
 * breaks, and `full` for the others that pass before it lands; the rest are in one of four groups. Steps wait for the build, unless they are `native`. A
 * step that is `alone` runs with no other; `after` names a step whose files it needs.
 */
export const STEPS = [
  { name: 'build', suite: 'all', native: true, command: ['npm', 'run', '--silent', 'build:package'] },

  // Cuts the power at each fiftieth operation, and checks a few of the chains of deaths.
  {
    name: 'rust',
    suite: 'quick',
    native: true,
    command: ['cargo', 'test', '--no-fail-fast', ...RUST],
    env: { MANGROVE_CRASH_STRIDE: '50', MANGROVE_CHAINS_IMAGES: '40000' },
  },
  // At each tenth, and a fifth of the chains; the steps `crash` and `chains` do the rest.
  {
    name: 'rust cuts',
    suite: 'full',
    native: true,
    command: ['cargo', 'test', '--no-fail-fast', '--package', 'mangrove-engine'],
    env: { MANGROVE_CRASH_STRIDE: '10', MANGROVE_CHAINS_IMAGES: '200000' },
  },
  { name: 'fmt', suite: 'quick', native: true, command: ['cargo', 'fmt', '--all', '--check'] },
  { name: 'node', suite: 'quick', cwd: KV, command: ['npm', 'run', '--silent', 'test'] },
  {
    name: 'node replication',
    suite: 'full',
    cwd: REPLICATION,
    command: ['npm', 'run', '--silent', 'test'],
    env: { REPLICATION_RUNS: '2' },
  },
  {
    name: 'node packages',
    suite: 'quick',
    cwd: PACKAGES,
    command: ['node', '--import', 'tsx', '--test', '--test-reporter', 'spec', ...testFiles(SMALL_TESTS)],
  },
  {
    name: 'create',
    suite: 'quick',
    cwd: join(PACKAGES, 'create'),
    command: ['npm', 'run', '--silent', 'test'],
  },
  { name: 'cli', suite: 'quick', cwd: CLI, command: ['npm', 'run', '--silent', 'test'] },
  // Random histories of replication, 2,000 in all; the step `node` has a few of them.
  {
    name: 'histories',
    suite: 'full',
    cwd: REPLICATION,
    command: [
      'node',
      '--import',
      'tsx',
      '--test',
      '--test-reporter',
      'spec',
      'test/histories.test.ts',
      'test/converge.test.ts',
    ],
    env: { REPLICATION_RUNS: '64', REPLICATION_SEED: '2' },
  },
  { name: 'lint', suite: 'quick', native: true, command: ['biome', 'ci', '.'] },
  // Waits for the lock of `rust` while that compiles.
  {
    name: 'clippy',
    suite: 'quick',
    native: true,
    command: ['cargo', 'clippy', '--workspace', '--all-targets', '--', '--deny', 'warnings'],
  },
  // Links that lead nowhere are errors.
  {
    name: 'rustdoc',
    suite: 'full',
    native: true,
    command: ['cargo', 'doc', '--no-deps', '--package', 'mangrove-engine', '--package', 'mangrove-memory'],
    env: { RUSTDOCFLAGS: '--deny warnings' },
  },
  ...typeScriptProjects().map((project) => ({
    name: `types ${project}`,
    suite: 'quick',
    command: ['tsc', '--noEmit', '--project', project],
  })),
  // Whether each deliberate mistake is still at one place of the sources; `npm run mutations:replication` makes them.
  {
    name: 'tabs mutations places',
    suite: 'quick',
    cwd: KV,
    command: ['npm', 'run', '--silent', 'test:tabs:mutations', '--', '--check'],
  },
  {
    name: 'mirrors mutations places',
    suite: 'quick',
    cwd: KV,
    command: ['npm', 'run', '--silent', 'test:mirrors:mutations', '--', '--check'],
  },
  {
    name: 'processes mutations places',
    suite: 'quick',
    cwd: KV,
    command: ['npm', 'run', '--silent', 'test:processes:mutations', '--', '--check'],
  },
  {
    name: 'replication mutations places',
    suite: 'quick',
    cwd: REPLICATION,
    command: ['npm', 'run', '--silent', 'test:mutations', '--', '--check'],
  },
  // Warnings, such as an export without documentation, are errors.
  {
    name: 'docs reference',
    suite: 'full',
    command: ['npm', 'run', '--silent', 'build', '--workspace', 'mangrove-reference'],
  },
  {
    name: 'docs links',
    suite: 'quick',
    command: ['npm', 'run', '--silent', 'check', '--workspace', 'mangrove-reference'],
  },
  { name: 'examples', suite: 'full', command: ['npm', 'run', '--silent', 'test', '--workspace', 'mangrove-examples'] },
  { name: 'workerd', suite: 'quick', cwd: KV, command: ['npm', 'run', '--silent', 'test:workerd'] },
  // Test suites of the packages whose interfaces the adapters implement; they need vitest.
  {
    name: 'suites',
    suite: 'quick',
    command: [
      'npm',
      'run',
      '--silent',
      'test',
      '--workspace',
      '@mangrove-kv/keyv',
      '--workspace',
      '@mangrove-kv/automerge',
    ],
  },
  // The package in Jest and Vitest, with jsdom and fake timers, which setup installs.
  { name: 'test runners', suite: 'runtimes', cwd: RUNNERS, command: ['npm', 'run', '--silent', 'test'] },
  // Node's permission model, in the supported versions, which setup installs.
  { name: 'node permissions', suite: 'runtimes', cwd: NODES, command: ['npm', 'run', '--silent', 'test'] },
  // The suites of the adapters and frameworks on their tarballs.
  { name: 'pack suites', suite: 'runtimes', command: ['node', '.ci/test-pack-suites.mjs'] },
  { name: 'pack', suite: 'full', command: ['node', '.ci/test-pack.mjs'] },
  // A few of what the next step has.
  {
    name: 'e2e smoke',
    suite: 'quick',
    alone: true,
    cwd: join(ROOT, 'tests-e2e'),
    command: ['playwright', 'test', '--project=chromium', ...SMOKE.map((name) => `specs/${name}.spec.ts`)],
  },
  // Steps with browsers start two at a time; a third program would slow them down by minutes.
  {
    name: 'e2e chromium',
    suite: 'full',
    alone: true,
    cwd: join(ROOT, 'tests-e2e'),
    command: ['playwright', 'test', '--project', 'chromium'],
  },

  // Uses shuttle's locks, hence a separate build.
  {
    name: 'clippy plain',
    suite: 'engine',
    native: true,
    command: ['cargo', 'clippy', '--package', 'mangrove-engine', '--no-default-features', '--', '--deny', 'warnings'],
  },
  {
    name: 'clippy shuttle',
    suite: 'engine',
    native: true,
    command: [
      'cargo',
      'clippy',
      '--package',
      'mangrove-engine',
      '--test',
      'shuttle',
      '--features',
      'shuttle',
      '--',
      '--deny',
      'warnings',
    ],
  },
  {
    name: 'shuttle',
    suite: 'engine',
    native: true,
    command: ['cargo', 'test', '--package', 'mangrove-engine', '--features', 'shuttle', '--test', 'shuttle'],
  },
  // Events are compiled in with the feature alone.
  {
    name: 'clippy tracing',
    suite: 'engine',
    native: true,
    command: [
      'cargo',
      'clippy',
      '--package',
      'mangrove-engine',
      '--all-targets',
      '--features',
      'tracing',
      '--',
      '--deny',
      'warnings',
    ],
  },
  {
    name: 'tracing',
    suite: 'engine',
    native: true,
    command: ['cargo', 'test', '--package', 'mangrove-engine', '--features', 'tracing', '--test', 'tracing'],
  },
  ...(hasI686 ? [I686] : []),
  {
    name: 'crash',
    suite: 'engine',
    native: true,
    command: ['cargo', 'test', '--package', 'mangrove-engine', '--test', 'crash'],
  },
  {
    name: 'crash indexes',
    suite: 'engine',
    native: true,
    command: ['cargo', 'test', '--package', 'mangrove-engine', '--test', 'engine', 'indexes::crashes'],
  },
  {
    name: 'chains',
    suite: 'engine',
    native: true,
    command: ['cargo', 'test', '--package', 'mangrove-engine', '--test', 'chains'],
  },
  // Whether the engine's tests find deliberate mistakes; the same as `npm run mutations`.
  { name: 'mutants', suite: 'engine', native: true, command: ['node', 'engine/tests/mutations/run.mjs'] },

  // Those tests of the package that open nothing without the key that each database then has.
  { name: 'node encrypted', suite: 'runtimes', cwd: KV, command: ['npm', 'run', '--silent', 'test:encrypted'] },
  // The whole package on failing disks and through power cuts.
  { name: 'faults', suite: 'runtimes', cwd: KV, command: ['npm', 'run', '--silent', 'test:faults'] },
  // Few of replication's random histories, which do not depend on the runtime: Node plays many.
  {
    name: 'deno',
    suite: 'runtimes',
    cwd: PACKAGES,
    env: { REPLICATION_RUNS: '5' },
    command: [
      'deno',
      'test',
      '--allow-all',
      '--no-check',
      '--no-lock',
      '--node-modules-dir=manual',
      ...TESTS.map((path) => `${path}/`),
    ],
  },
  {
    name: 'bun',
    suite: 'runtimes',
    cwd: PACKAGES,
    env: { REPLICATION_RUNS: '5' },
    command: [
      'bun',
      'test',
      '--timeout',
      '600000',
      ...TESTS.map((path) => `./${path}/`),
      ...[...NOT_IN_BUN, ...TWINS_NOT_IN_BUN].map((name) => `--path-ignore-patterns=**/${name}.test.ts`),
    ],
  },
  {
    name: 'bun twins',
    suite: 'runtimes',
    cwd: PACKAGES,
    command: ['bun', 'test', ...TWINS.map((name) => `./adapters/${name}/test/${name}-suite.test.ts`)],
  },
  // The examples that say that they run there.
  ...['deno', 'bun'].map((runtime) => ({
    name: `examples ${runtime}`,
    suite: 'runtimes',
    command: ['npm', 'run', '--silent', 'test:runtime', '--workspace', 'mangrove-examples'],
    env: { EXAMPLES_IN: runtime },
  })),
  ...['deno', 'bun'].map((runtime) => ({
    name: `cli ${runtime}`,
    suite: 'runtimes',
    cwd: CLI,
    command: ['npm', 'run', '--silent', `test:${runtime}`],
  })),
  { name: 'native cli', suite: 'runtimes', native: true, command: ['cargo', 'build', '--package', 'mangrove-cli'] },
  // The locks between the native tool and the package.
  {
    name: 'cli locks',
    suite: 'runtimes',
    after: 'native cli',
    cwd: CLI,
    command: ['npm', 'run', '--silent', 'test:locks'],
    env: { MANGROVE_NATIVE: nativeTool() },
  },

  // Processes of all runtimes that are killed, stopped and starved, and whose power is cut; the same as `npm run chaos:processes`.
  {
    name: 'chaos processes',
    suite: 'runtimes',
    alone: true,
    command: ['npm', 'run', '--silent', 'chaos:processes', '--workspace', 'tests-e2e', '--', '--minutes', '1'],
  },

  // The protocol between tabs: random schedules, and whether they find deliberate mistakes.
  { name: 'tabs', suite: 'browsers', cwd: KV, command: ['npm', 'run', '--silent', 'test:tabs'] },
  { name: 'tabs mutations', suite: 'browsers', cwd: KV, command: ['npm', 'run', '--silent', 'test:tabs:mutations'] },
  // Mirrors beside commits of others, writes that fail and take-overs.
  { name: 'mirrors', suite: 'browsers', cwd: KV, command: ['npm', 'run', '--silent', 'test:mirrors'] },
  {
    name: 'mirrors mutations',
    suite: 'browsers',
    cwd: KV,
    command: ['npm', 'run', '--silent', 'test:mirrors:mutations'],
  },
  // The protocol between processes.
  { name: 'schedules', suite: 'browsers', cwd: KV, command: ['npm', 'run', '--silent', 'test:processes'] },
  {
    name: 'schedules mutations',
    suite: 'browsers',
    cwd: KV,
    command: ['npm', 'run', '--silent', 'test:processes:mutations'],
  },
  {
    name: 'e2e engines',
    suite: 'browsers',
    alone: true,
    cwd: join(ROOT, 'tests-e2e'),
    command: ['playwright', 'test', '--project', 'firefox', '--project', 'webkitgtk'],
  },
  { name: 'e2e examples', suite: 'browsers', alone: true, cwd: EXAMPLES, command: ['playwright', 'test'] },
  // What `npm create mangrove-kv` makes, from the packed packages and the registry, built and in Chromium.
  { name: 'e2e create', suite: 'browsers', alone: true, cwd: CREATE, command: ['playwright', 'test'] },
  { name: 'matrix', suite: 'browsers', alone: true, cwd: MATRIX, command: ['playwright', 'test'] },
  {
    name: 'chaos',
    suite: 'browsers',
    alone: true,
    command: ['npm', 'run', '--silent', 'chaos', '--workspace', 'tests-e2e', '--', '--minutes', '1'],
  },

  // The drivers of replication with real servers, which setup builds first.
  { name: 'replication', suite: 'replication', cwd: REPLICATION, command: ['npm', 'run', '--silent', 'test:servers'] },
  {
    name: 'e2e replication',
    suite: 'replication',
    alone: true,
    cwd: join(ROOT, 'tests-e2e'),
    command: ['playwright', 'test', '--project', 'chromium-replication'],
  },
  // Three servers that fail, and devices that are killed; the same as `npm run replication:faults`.
  {
    name: 'replication cluster',
    suite: 'replication',
    alone: true,
    command: [
      'npm',
      'run',
      '--silent',
      'replication:faults',
      '--workspace',
      'tests-e2e',
      '--',
      '--seconds',
      '60',
      '--seed',
      '1',
    ],
  },
  // The demo's page with the server of `npm run start:replication`.
  {
    name: 'e2e demo replication',
    suite: 'replication',
    alone: true,
    cwd: join(ROOT, 'tests-e2e'),
    command: ['playwright', 'test', '--config', 'replication.config.ts'],
  },
];
