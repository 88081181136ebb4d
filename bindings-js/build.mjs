// Builds the npm package into dist/: the engine as WebAssembly, the bundles, and the types. With `--if-changed`, as before packing, only if
// dist/ is not what the last build made of the sources as they are.
import { chmodSync, copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ROOT, hashOfFiles, run } from '../.ci/tools.mjs';
import { bundleAdapters } from './build-adapters.mjs';
import { DIST, bundle } from './build-bundle.mjs';
import { WASM_OPT, wasmEnv } from './build-flags.mjs';
import { shareGlue, writeGlue } from './build-glue.mjs';
import { PACKED_APART, writePacked } from './build-inline.mjs';
import { writeNotices } from './build-licenses.mjs';
import { compileModule } from './build-module.mjs';
import { checkSizes } from './build-sizes.mjs';
import { writeSplit } from './build-split.mjs';

const HERE = fileURLToPath(new URL('.', import.meta.url));
/**
 * The modules: the crate of each, and where its files are written; the TypeScript imports `glue.js` from there. Of the two with and without encryption
 * both have the glue of the former, which has what the other one imports too: so a worker has one, whichever it is given.
 */
const directoryOf = (name) => join(HERE, 'build', name);
const MODULES = [
  { crate: 'crate', directory: directoryOf('wasm-encrypted'), name: 'mangrove_encrypted', builtAs: 'mangrove', features: ['encryption'], isInlined: true, isSplit: true },
  { crate: 'crate', directory: directoryOf('wasm'), name: 'mangrove', isInlined: true, isSplit: true, glueOf: directoryOf('wasm-encrypted') },
  { crate: 'upkeep', directory: directoryOf('wasm-upkeep-encrypted'), name: 'mangrove_upkeep_encrypted', builtAs: 'mangrove_upkeep', features: ['encryption'], isInlined: true },
  { crate: 'upkeep', directory: directoryOf('wasm-upkeep'), name: 'mangrove_upkeep', isInlined: true, glueOf: directoryOf('wasm-upkeep-encrypted') },
  { crate: 'cli', directory: directoryOf('wasm-cli'), name: 'mangrove_cli', isInlined: false, inputs: ['bindings-js/cli/build.rs', 'engine/cli/Cargo.toml', 'engine/cli/src'] },
];
const DIST_STAMP = join(HERE, 'build', 'dist.sha256');

/** What all modules are made of. */
const SHARED_INPUTS = [
  'Cargo.lock',
  'Cargo.toml',
  'rust-toolchain.toml',
  'engine/Cargo.toml',
  'engine/src',
  'bindings-js/host/Cargo.toml',
  'bindings-js/host/src',
  'bindings-js/build.mjs',
  'bindings-js/build-flags.mjs',
  'bindings-js/build-glue.mjs',
  'bindings-js/build-inline.mjs',
  'bindings-js/build-module.mjs',
  'bindings-js/build-split.mjs',
  'bindings-js/tools/wasm-bindgen/src',
  'node_modules/binaryen/package.json',
];
const inputsOf = ({ crate, inputs = [] }) => [...SHARED_INPUTS, `bindings-js/${crate}/Cargo.toml`, `bindings-js/${crate}/src`, ...inputs];

const DIST_INPUTS = [
  ...new Set(MODULES.flatMap(inputsOf)),
  'bindings-js/src',
  'bindings-js/build-adapters.mjs',
  'bindings-js/build-bundle.mjs',
  'bindings-js/build-licenses.mjs',
  'bindings-js/build-minify.mjs',
  'bindings-js/build-sizes.mjs',
  'bindings-js/tsconfig.build.json',
  'bindings-js/tsconfig.json',
  'tsconfig.base.json',
  'node_modules/esbuild/package.json',
  'node_modules/terser/package.json',
  'node_modules/typescript/package.json',
  'bindings-js/dist',
];

function filesUnder(path) {
  const absolute = join(ROOT, path);
  if (!existsSync(absolute)) return [];
  const entries = readdirSync(absolute, { withFileTypes: true, recursive: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name)).sort();
}

function hashOf(inputs) {
  return hashOfFiles(inputs.flatMap((input) => (/\.\w+$/.test(input) ? [join(ROOT, input)] : filesUnder(input))));
}

function hasHash(stamp, hash) {
  return existsSync(stamp) && readFileSync(stamp, 'utf8') === hash;
}

/** The WebAssembly files of a module. */
function filesOf({ directory, name, isSplit }) {
  return ['', ...(isSplit ? ['_core', '_rest'] : [])].map((part) => join(directory, `${name}${part}_bg.wasm`));
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

function buildModule(module, env) {
  const { crate, directory, name, isInlined, isSplit, glueOf, builtAs = name, features = [] } = module;
  const flags = WASM_OPT[crate];
  // The names of functions stay, as the module is split by them.
  compileModule({ crate, features, profile: 'wasm-release', directory, name: builtAs, env, optimize: isSplit ? ['-g', ...flags] : flags });
  if (glueOf === undefined) writeGlue(directory, builtAs);
  else shareGlue(directory, builtAs, glueOf);
  // The name that it was built under is that of the module that the glue provides.
  if (builtAs !== name) renameSync(join(directory, `${builtAs}_bg.wasm`), join(directory, `${name}_bg.wasm`));
  if (isSplit) writeSplit(directory, name, { flags, env });
  if (isInlined) writePacked(directory, name);
}

/** Bundlers find the worker and the module by exactly these expressions. */
const WORKER_REFERENCE = /new Worker\(new URL\("\.\/worker\.js",import\.meta\.url\),\{type:"module"/;
const INDEXEDDB_WORKER_REFERENCE = /new Worker\(new URL\("\.\/worker-indexeddb\.js",import\.meta\.url\),\{type:"module"/;
const UPKEEP_WORKER_REFERENCE = /new Worker\(new URL\("\.\/worker-upkeep\.js",import\.meta\.url\),\{type:"module"/;
const UPKEEP_MODULE_REFERENCE = /new URL\("\.\/mangrove_upkeep_bg\.wasm", ?import\.meta\.url\)/;
const CORE_REFERENCE = /new URL\("\.\/mangrove_core_bg\.wasm",import\.meta\.url\)/;
const ENCRYPTED_CORE_REFERENCE = /new URL\("\.\/mangrove_encrypted_core_bg\.wasm",import\.meta\.url\)/;
const ENCRYPTED_REST_REFERENCE = /new URL\("\.\/mangrove_encrypted_rest_bg\.wasm",import\.meta\.url\)/;
const REST_REFERENCE = /new URL\("\.\/mangrove_rest_bg\.wasm",import\.meta\.url\)/;

function checkAssetReferences() {
  const expect = (file, pattern, isWanted) => {
    if (pattern.test(readFileSync(join(DIST, file), 'utf8')) === isWanted) return;
    throw new Error(`dist/${file} has ${isWanted ? 'no' : 'a'} reference that bundlers understand: ${pattern}`);
  };
  expect('index.js', WORKER_REFERENCE, true);
  expect('index.js', CORE_REFERENCE, true);
  expect('index.js', REST_REFERENCE, true);
  expect('encryption.js', ENCRYPTED_CORE_REFERENCE, true);
  expect('encryption.js', ENCRYPTED_REST_REFERENCE, true);
  expect('inline.js', WORKER_REFERENCE, true);
  for (const file of ['index.js', 'inline.js']) expect(file, INDEXEDDB_WORKER_REFERENCE, true);
  for (const file of ['inline.js', 'node-inline.js']) expect(file, /mangrove_(?:core_|rest_)?bg\.wasm/, false);
  for (const file of ['upkeep.js', 'upkeep-inline.js']) expect(file, UPKEEP_WORKER_REFERENCE, true);
  for (const file of ['upkeep.js', 'node-upkeep.js']) expect(file, UPKEEP_MODULE_REFERENCE, true);
  for (const file of ['upkeep-inline.js', 'node-upkeep-inline.js']) expect(file, /mangrove_upkeep_bg\.wasm/, false);
}

function emitTypes() {
  run('tsc', ['--project', join(HERE, 'tsconfig.build.json')]);
}

function copyAssets() {
  chmodSync(join(DIST, 'cli.js'), 0o755);
  for (const [name, directory] of PACKED_APART) copyFileSync(join(HERE, 'build', directory, 'packed.js'), join(DIST, name));
  for (const file of MODULES.flatMap(filesOf)) copyFileSync(file, join(DIST, basename(file)));
  // npm packs what lies beside package.json only.
  for (const name of ['LICENSE-MIT', 'LICENSE-APACHE']) {
    if (existsSync(join(ROOT, name))) copyFileSync(join(ROOT, name), join(HERE, name));
  }
}

async function buildAll() {
  buildModules();
  rmSync(DIST, { recursive: true, force: true });
  mkdirSync(DIST, { recursive: true });
  await bundle();
  await bundleAdapters(join(HERE, 'src', 'adapters'), join(DIST, 'adapters'));
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
