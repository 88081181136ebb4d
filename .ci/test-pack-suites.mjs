// Runs the suites of the packages on what a project installs: the tarballs, not the workspaces. They must be built.
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { ON_TOP, PACKAGES } from '../bindings-js/build/packages.mjs';
import { MANIFESTS, install, pack } from './pack.mjs';
import { ROOT, toolEnv } from './tools.mjs';

/** Their tests read the sources, or start programs of the workspace; they are steps of their own. */
const OF_SOURCES = ['replication', 'replication-nats', 'replication-s3', 'inspector', 'storage-tests'];
/** Tests of what no entry exports. */
const OF_PARTS = ['migrate-move.test.ts', 'tanstack-queries.test.ts'];
const SUITES = ON_TOP.filter((path) => !OF_SOURCES.includes(path) && existsSync(join(PACKAGES, path, 'test')));
/** Words in the names of those that are run; all by default. */
const words = process.argv.slice(2);

/** Links what the root has installed, but for what is there: the packages of the tarballs. */
function linkOthers(directory) {
  const [from, to] = [join(ROOT, 'node_modules'), join(directory, 'node_modules')];
  const names = readdirSync(from).flatMap((name) =>
    name.startsWith('@') || name === '.bin' ? readdirSync(join(from, name)).map((part) => `${name}/${part}`) : [name],
  );
  for (const name of names) {
    if (MANIFESTS.has(name) || existsSync(join(to, name)) || name.startsWith('.package')) continue;
    mkdirSync(join(to, name, '..'), { recursive: true });
    symlinkSync(join(from, name), join(to, name));
  }
}

function suiteOf(directory, path) {
  const files = readdirSync(join(directory, 'bindings-js', path, 'test'), { recursive: true })
    .filter((name) => /\.(?:test|suite)\.ts$/.test(name) && !OF_PARTS.includes(name))
    .map((name) => join('test', name));
  const isVitest = files.some((name) => name.endsWith('.suite.ts'));
  return isVitest ? ['vitest', 'run', ...files] : ['node', '--import', 'tsx', '--test', ...files];
}

const directory = mkdtempSync(join(tmpdir(), 'mangrove-suites-'));
try {
  install(
    directory,
    [...pack(directory, [...MANIFESTS.keys()]).values()].map(({ tarball }) => tarball),
  );
  linkOthers(directory);
  cpSync(join(ROOT, 'docs'), join(directory, 'docs'), { recursive: true });
  cpSync(join(ROOT, 'tsconfig.base.json'), join(directory, 'tsconfig.base.json'));
  cpSync(join(PACKAGES, 'kv', 'test', 'support'), join(directory, 'bindings-js', 'kv', 'test', 'support'), {
    recursive: true,
  });
  // Not their own manifests, by which a package is found under its name before what is installed.
  writeFileSync(join(directory, 'bindings-js', 'package.json'), '{ "private": true, "type": "module" }');
  // All of them first: some use what others have for their tests.
  for (const path of SUITES) {
    for (const part of ['test', 'tsconfig.json', 'vitest.config.mjs']) {
      const from = join(PACKAGES, path, part);
      if (existsSync(from)) cpSync(from, join(directory, 'bindings-js', path, part), { recursive: true });
    }
  }
  for (const path of SUITES) {
    if (words.length > 0 && !words.some((word) => path.includes(word))) continue;
    const [program, ...args] = suiteOf(directory, path);
    process.stdout.write(`${path}: ${program} ${args.join(' ')}\n`);
    const { status } = spawnSync(program, args, {
      cwd: join(directory, 'bindings-js', path),
      env: toolEnv(),
      stdio: 'inherit',
    });
    if (status !== 0) {
      process.stderr.write(`pack suites: ${path} failed\n`);
      process.exitCode = 1;
    }
  }
} finally {
  rmSync(directory, { recursive: true, force: true });
}
