// Builds mangrove-kv into its dist/: the engine as WebAssembly, the bundles, and the types. With `--if-changed`, as before packing, only if
// dist/ is not what the last build made of the sources as they are.
import { copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { ROOT, hashOfFiles, run } from '../../.ci/tools.mjs';
import { DIST, KV, bundle } from './bundle.mjs';
import { WASM_OPT, wasmEnv } from './flags.mjs';
import { shareGlue, writeGlue } from './glue.mjs';
import { PACKED, writePacked } from './inline.mjs';
import { writeNotices } from './licenses.mjs';
import { compileModule } from './module.mjs';
import { copyLicences } from './packages.mjs';
import { checkSizes } from './sizes.mjs';
import { writeSplit } from './split.mjs';

/**
 * The modules: the crate of each, and where its files are written; the TypeScript imports `glue.js` from there. `parts` names the two parts of a module
 * that is split. The module without encryption is there for its parts, which most pages load; it has the glue of the one with encryption, which has what
 * the other one imports too: so a worker has one, whichever it is given.
 */
const directoryOf = (name) => join(KV, 'build', name);
const MODULES = [
  {
    crate: 'core',
    directory: directoryOf('wasm'),
    name: 'mangrove',
    features: ['encryption'],
    isWhole: true,
    parts: 'mangrove_encrypted',
  },
  {
    crate: 'core',
    directory: directoryOf('wasm-plain'),
    name: 'mangrove',
    parts: 'mangrove',
    glueOf: directoryOf('wasm'),
  },
  {
    crate: 'maintenance',
    directory: directoryOf('wasm-maintenance'),
    name: 'mangrove_maintenance',
    features: ['encryption'],
    isWhole: true,
  },
];
const DIST_STAMP = join(KV, 'build', 'dist.sha256');

/** What all modules are made of. */
const SHARED_INPUTS = [
  'Cargo.lock',
  'Cargo.toml',
  'rust-toolchain.toml',
  'engine/Cargo.toml',
  'engine/src',
  'bindings-js/wasm/host/Cargo.toml',
  'bindings-js/wasm/host/src',
  'bindings-js/build/build.mjs',
  'bindings-js/build/flags.mjs',
  'bindings-js/build/glue.mjs',
  'bindings-js/build/inline.mjs',
  'bindings-js/build/module.mjs',
  'bindings-js/build/split.mjs',
  'bindings-js/build/wasm-bindgen/src',
  'node_modules/binaryen/package.json',
];
const inputsOf = ({ crate }) => [
  ...SHARED_INPUTS,
  `bindings-js/wasm/${crate}/Cargo.toml`,
  `bindings-js/wasm/${crate}/src`,
];

const DIST_INPUTS = [
  ...new Set(MODULES.flatMap(inputsOf)),
  'bindings-js/kv/src',
  'bindings-js/build/bundle.mjs',
  'bindings-js/build/licenses.mjs',
  'bindings-js/build/minify.mjs',
  'bindings-js/build/sizes.mjs',
  'bindings-js/kv/tsconfig.build.json',
  'bindings-js/kv/tsconfig.json',
  'tsconfig.base.json',
  'node_modules/esbuild/package.json',
  'node_modules/terser/package.json',
  'node_modules/typescript/package.json',
  'bindings-js/kv/dist',
];

function filesUnder(path) {
  const absolute = join(ROOT, path);
  if (!existsSync(absolute)) return [];
  const entries = readdirSync(absolute, { withFileTypes: true, recursive: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
}

function hashOf(inputs) {
  return hashOfFiles(inputs.flatMap((input) => (/\.\w+$/.test(input) ? [join(ROOT, input)] : filesUnder(input))));
}

function hasHash(stamp, hash) {
  return existsSync(stamp) && readFileSync(stamp, 'utf8') === hash;
}

/** The WebAssembly files of a module that are published. */
function filesOf({ directory, name, isWhole = false, parts }) {
  const names = [...(isWhole ? [name] : []), ...(parts === undefined ? [] : [`${parts}_core`, `${parts}_lazy`])];
  return names.map((each) => join(directory, `${each}_bg.wasm`));
}

/** Builds the modules whose sources have changed. */
function buildModules() {
  const env = wasmEnv();
  for (const module of MODULES) {
    const stamp = join(module.directory, 'inputs.sha256');
    const hash = hashOf(inputsOf(module));
    if (hasHash(stamp, hash) && filesOf(module).every((file) => existsSync(file))) continue;
    buildModule(module, env);
    writeFileSync(stamp, hash);
  }
}

function buildModule({ crate, directory, name, isWhole = false, parts, glueOf, features = [] }, env) {
  const flags = WASM_OPT[crate];
  // The names of functions stay, as the module is split by them.
  compileModule({
    crate,
    features,
    profile: 'wasm-release',
    directory,
    name,
    env,
    optimize: parts === undefined ? flags : ['-g', ...flags],
  });
  if (glueOf === undefined) writeGlue(directory, name);
  else shareGlue(directory, name, glueOf);
  if (parts !== undefined) writeSplit(directory, name, parts, { flags, env });
  if (isWhole) writePacked(directory, name);
}

/** Bundlers find the worker and the module by exactly these expressions. */
const WORKER_REFERENCE = /new Worker\(new URL\("\.\/worker\.js",import\.meta\.url\),\{type:"module"/;
const INDEXEDDB_WORKER_REFERENCE =
  /new Worker\(new URL\("\.\/worker-indexeddb\.js",import\.meta\.url\),\{type:"module"/;
const MAINTENANCE_WORKER_REFERENCE =
  /new Worker\(new URL\("\.\/worker-maintenance\.js",import\.meta\.url\),\{type:"module"/;
const MAINTENANCE_MODULE_REFERENCE = /new URL\("\.\/mangrove_maintenance_bg\.wasm", ?import\.meta\.url\)/;
const CORE_REFERENCE = /new URL\("\.\/mangrove_core_bg\.wasm",import\.meta\.url\)/;
const ENCRYPTED_CORE_REFERENCE = /new URL\("\.\/mangrove_encrypted_core_bg\.wasm",import\.meta\.url\)/;
const ENCRYPTED_LAZY_REFERENCE = /new URL\("\.\/mangrove_encrypted_lazy_bg\.wasm",import\.meta\.url\)/;
const LAZY_REFERENCE = /new URL\("\.\/mangrove_lazy_bg\.wasm",import\.meta\.url\)/;

function checkAssetReferences() {
  const expect = (file, pattern, isWanted) => {
    if (pattern.test(readFileSync(join(DIST, file), 'utf8')) === isWanted) return;
    throw new Error(`dist/${file} has ${isWanted ? 'no' : 'a'} reference that bundlers understand: ${pattern}`);
  };
  expect('index.js', WORKER_REFERENCE, true);
  expect('index.js', CORE_REFERENCE, true);
  expect('index.js', LAZY_REFERENCE, true);
  expect('encryption.js', ENCRYPTED_CORE_REFERENCE, true);
  expect('encryption.js', ENCRYPTED_LAZY_REFERENCE, true);
  expect('inline.js', WORKER_REFERENCE, true);
  for (const file of ['index.js', 'inline.js']) expect(file, INDEXEDDB_WORKER_REFERENCE, true);
  for (const file of ['inline.js', 'node-inline.js', 'encryption-inline.js'])
    expect(file, /new URL\("\.\/mangrove_/, false);
  for (const file of ['maintenance.js', 'maintenance-inline.js']) expect(file, MAINTENANCE_WORKER_REFERENCE, true);
  expect('maintenance.js', MAINTENANCE_MODULE_REFERENCE, true);
  for (const file of ['maintenance-inline.js', 'node-maintenance-inline.js'])
    expect(file, /mangrove_maintenance_bg\.wasm/, false);
}

const TYPES_IMPORT = /(?:from|import)\s*\(?\s*['"](\.[^'"]+)\.[jt]s['"]/g;

/** Emits the types, and removes those that no entry leads to. */
function emitTypes() {
  run('tsc', ['--project', join(KV, 'tsconfig.build.json')]);
  const { exports } = JSON.parse(readFileSync(join(KV, 'package.json'), 'utf8'));
  const left = Object.values(exports).flatMap(({ types }) => (types === undefined ? [] : [join(KV, types)]));
  const reached = new Set();
  for (let file = left.pop(); file !== undefined; file = left.pop()) {
    if (reached.has(file)) continue;
    reached.add(file);
    for (const [, path] of readFileSync(file, 'utf8').matchAll(TYPES_IMPORT))
      left.push(join(file, '..', `${path}.d.ts`));
  }
  for (const file of filesUnder('bindings-js/kv/dist/types')) if (!reached.has(file)) rmSync(file);
}

function copyAssets() {
  for (const [name, directory] of Object.entries(PACKED))
    copyFileSync(join(KV, 'build', directory, 'packed.js'), join(DIST, name));
  for (const file of MODULES.flatMap(filesOf)) copyFileSync(file, join(DIST, basename(file)));
  copyLicences(KV);
}

async function buildAll() {
  buildModules();
  rmSync(DIST, { recursive: true, force: true });
  mkdirSync(DIST, { recursive: true });
  await bundle();
  checkAssetReferences();
  emitTypes();
  copyAssets();
  writeNotices(join(DIST, 'THIRD-PARTY.txt'));
  checkSizes(DIST);
  writeFileSync(DIST_STAMP, hashOf(DIST_INPUTS));
}

try {
  const isCurrent = process.argv.includes('--if-changed') && hasHash(DIST_STAMP, hashOf(DIST_INPUTS));
  if (!isCurrent) await buildAll();
} catch (error) {
  // What failed has already said why; the trace would only bury it.
  process.stderr.write(`build: ${error.message}\n`);
  process.exitCode = 1;
}
