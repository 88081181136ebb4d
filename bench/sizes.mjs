// Measures what a page downloads for Mangrove and for its peers in browsers: a bundle of the
// minimum that a program needs, minified by esbuild, and the files that ship with it, each after
// gzip. Run `node bench/sizes.mjs` after `npm run build`; it installs the peers under
// target/bench/sizes.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { ROOT, run } from '../.ci/tools.mjs';

const HOME = join(ROOT, 'target', 'bench', 'sizes');
const OWN = join(ROOT, 'bindings-js', 'kv', 'dist');

const PEERS = {
  'idb': '8.0.4',
  'idb-keyval': '6.3.0',
  'dexie': '4.4.7',
  'localforage': '1.10.0',
  'level': '10.0.0',
  'events': '3.3.0',
  'buffer': '6.0.3',
  'keyv': '5.6.0',
  '@sqlite.org/sqlite-wasm': '3.51.2-build9',
  'wa-sqlite': '1.0.0',
  'sqlocal': '0.18.0',
  '@electric-sql/pglite': '0.5.16',
};

/** `code` is bundled, `workers` are bundled separately, `files` are loaded beside them. */
const PROGRAMS = [
  { name: 'mangrove-kv', own: ['index.js', 'worker.js', 'mangrove_core_bg.wasm'] },
  { name: 'idb-keyval', code: "export { get, set } from 'idb-keyval';" },
  { name: 'idb', code: "export { openDB } from 'idb';" },
  { name: 'keyv', code: "export { Keyv } from 'keyv';" },
  { name: 'localforage', code: "export { default } from 'localforage';" },
  { name: 'level', code: "export { Level } from 'level';" },
  { name: 'dexie', code: "export { Dexie } from 'dexie';" },
  {
    name: 'wa-sqlite',
    code: `export { default } from 'wa-sqlite/dist/wa-sqlite.mjs'; export { Factory } from 'wa-sqlite';
      export { AccessHandlePoolVFS } from 'wa-sqlite/src/examples/AccessHandlePoolVFS.js';`,
    files: ['wa-sqlite/dist/wa-sqlite.wasm'],
  },
  {
    name: '@sqlite.org/sqlite-wasm',
    code: "export { default } from '@sqlite.org/sqlite-wasm';",
    files: ['@sqlite.org/sqlite-wasm/dist/sqlite3.wasm'],
  },
  {
    name: 'sqlocal',
    code: "export { SQLocal } from 'sqlocal';",
    workers: ['sqlocal/dist/worker.js'],
    files: ['@sqlite.org/sqlite-wasm/dist/sqlite3.wasm'],
  },
  {
    name: '@electric-sql/pglite',
    code: "export { PGlite } from '@electric-sql/pglite';",
    files: ['pglite.wasm', 'pglite.data', 'initdb.wasm'].map((file) => `@electric-sql/pglite/dist/${file}`),
  },
];

const gzipBytes = (bytes) => gzipSync(bytes, { level: 9 }).length;
const kib = (bytes) => (bytes / 1024).toFixed(1);

async function bundleBytes(entry) {
  const { outputFiles } = await build({
    ...entry,
    bundle: true,
    write: false,
    minify: true,
    format: 'esm',
    platform: 'browser',
    target: 'es2022',
    splitting: true,
    outdir: HOME,
    external: ['node:*', 'module', 'fs', 'path', 'url', 'crypto', 'fs/promises'],
    legalComments: 'none',
    logLevel: 'error',
    loader: { '.wasm': 'empty', '.data': 'empty' },
  });
  return outputFiles.reduce((sum, { contents }) => sum + gzipBytes(contents), 0);
}

async function measure({ code, own = [], workers = [], files = [] }) {
  let script = own
    .filter((file) => file.endsWith('.js'))
    .reduce((sum, file) => sum + gzipBytes(readFileSync(join(OWN, file))), 0);
  if (code !== undefined) script += await bundleBytes({ stdin: { contents: code, resolveDir: HOME } });
  for (const worker of workers) script += await bundleBytes({ entryPoints: [join(HOME, 'node_modules', worker)] });
  const paths = [
    ...own.filter((file) => !file.endsWith('.js')).map((file) => join(OWN, file)),
    ...files.map((file) => join(HOME, 'node_modules', file)),
  ];
  return { script, rest: paths.reduce((sum, path) => sum + gzipBytes(readFileSync(path)), 0) };
}

mkdirSync(HOME, { recursive: true });
writeFileSync(join(HOME, 'package.json'), JSON.stringify({ private: true, dependencies: PEERS }));
run('npm', ['install', '--ignore-scripts', '--no-audit', '--no-fund', '--no-package-lock', '--silent'], { cwd: HOME });
process.stdout.write('| KiB after gzip | version | scripts | WebAssembly and data | all |\n|---|---|--:|--:|--:|\n');
for (const program of PROGRAMS) {
  const { script, rest } = await measure(program);
  const version = PEERS[program.name] ?? JSON.parse(readFileSync(join(OWN, '..', 'package.json'), 'utf8')).version;
  process.stdout.write(
    `| ${program.name} | ${version} | ${kib(script)} | ${rest === 0 ? '' : kib(rest)} | ${kib(script + rest)} |\n`,
  );
}
