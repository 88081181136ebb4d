// Builds packages into their dist/: `node packages.mjs` all of them, `node packages.mjs <directories>` those. mangrove-kv has a build of its own
// (`build.mjs`) and comes first, because the others are compiled against its types.
import { copyFileSync, readFileSync, rmSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { ROOT, run } from '../../.ci/tools.mjs';

export const PACKAGES = join(ROOT, 'bindings-js');

/** Directories of the packages on top of mangrove-kv, in the order in which they depend on each other. */
export const ON_TOP = [
  'replication',
  'replication-nats',
  'replication-s3',
  'migrate',
  'adapters/automerge',
  'adapters/idb-keyval',
  'adapters/keyv',
  'adapters/level',
  'adapters/localforage',
  'adapters/opentelemetry',
  'adapters/rxdb',
  'adapters/tanstack-db',
  'adapters/unstorage',
  'adapters/yjs',
  'frameworks/angular',
  'frameworks/preact',
  'frameworks/react',
  'frameworks/solid',
  'frameworks/svelte',
  'frameworks/vue',
  'inspector',
  'storage-tests',
];

/** npm packs nothing from further up. */
export function copyLicences(place) {
  for (const name of ['LICENSE-MIT', 'LICENSE-APACHE']) copyFileSync(join(ROOT, name), join(place, name));
}

/** Names of the files in dist/ and src/ of a package's entries. */
function entriesOf(directory) {
  const { exports } = JSON.parse(readFileSync(join(PACKAGES, directory, 'package.json'), 'utf8'));
  return Object.values(exports).flatMap((entry) =>
    entry.default === undefined ? [] : [/^\.\/dist\/(.*)\.js$/.exec(entry.default)[1]],
  );
}

/** Bundles a package's own sources; other packages stay imports. What its entries share is a file of its own, so that each class exists once. */
export async function bundlePackage(directory) {
  const place = join(PACKAGES, directory);
  await build({
    entryPoints: entriesOf(directory).map((name) => ({ in: join(place, 'src', `${name}.ts`), out: name })),
    outdir: join(place, 'dist'),
    absWorkingDir: place,
    bundle: true,
    splitting: true,
    packages: 'external',
    format: 'esm',
    platform: 'neutral',
    target: 'es2022',
    sourcemap: true,
    legalComments: 'none',
    logLevel: 'warning',
  });
}

/** Bytes after gzip that a page loads for a driver, with the packages that it needs but without ours. */
const DRIVER_BUDGETS = { 'replication-nats': 60 * 1024, 'replication-s3': 12 * 1024 };

/** Bundles a driver as an application does, and fails if it has grown past the budget. */
async function checkDriverSize(directory) {
  const budget = DRIVER_BUDGETS[directory];
  if (budget === undefined) return;
  const {
    outputFiles: [file],
  } = await build({
    entryPoints: [join(PACKAGES, directory, 'dist', 'index.js')],
    external: ['mangrove-kv', 'mangrove-kv/*', '@mangrove-kv/*'],
    bundle: true,
    minify: true,
    write: false,
    format: 'esm',
    platform: 'browser',
    target: 'es2022',
    legalComments: 'none',
    logLevel: 'warning',
  });
  const bytes = gzipSync(file.contents, { level: 9 }).length;
  process.stdout.write(`${directory} with its packages: ${(bytes / 1024).toFixed(1)} KiB after gzip\n`);
  if (bytes > budget)
    throw new Error(`${directory}: ${bytes} bytes after gzip with its packages, the budget is ${budget}`);
}

async function buildPackage(directory) {
  rmSync(join(PACKAGES, directory, 'dist'), { recursive: true, force: true });
  await bundlePackage(directory);
  run('tsc', ['--project', join(PACKAGES, directory, 'tsconfig.build.json')]);
  copyLicences(join(PACKAGES, directory));
  await checkDriverSize(directory);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const named = process.argv.slice(2).map((name) => relative(PACKAGES, resolve(name)));
  try {
    if (named.length === 0) run('npm', ['run', '--silent', 'build', '--workspace', 'mangrove-kv']);
    for (const directory of named.length > 0 ? named : ON_TOP) await buildPackage(directory);
    for (const tool of named.length === 0 ? ['@mangrove-kv/cli', 'create-mangrove-kv'] : [])
      run('npm', ['run', '--silent', 'build', '--workspace', tool]);
  } catch (error) {
    // What failed has already said why.
    process.stderr.write(`build: ${error.message}\n`);
    process.exitCode = 1;
  }
}
