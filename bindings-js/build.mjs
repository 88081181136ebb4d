// Builds the npm package into dist/: the engine as WebAssembly, the bundles, and the types. With `--if-changed`, as before packing, only if
// dist/ is not what the last build made of the sources as they are.
import { createHash } from 'node:crypto';
import { chmodSync, copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { ROOT, run } from '../.ci/tools.mjs';
import { bundleAdapters } from './build-adapters.mjs';
import { wasmEnv, wasmOptFlags } from './build-flags.mjs';
import { shareGlue, writeGlue } from './build-glue.mjs';
import { PACKED_APART, inlineModules, writePacked } from './build-inline.mjs';
import { writeNotices } from './build-licenses.mjs';
import { minifyBundle } from './build-minify.mjs';
import { writeShortNames } from './build-names.mjs';
import { orderFunctions } from './build-order.mjs';
import { checkSizes } from './build-sizes.mjs';
import { writeSplit } from './build-split.mjs';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const DIST = join(HERE, 'dist');
/**
 * The modules: the crate of each, and where wasm-pack writes it; the TypeScript imports `glue.js` from there. Of the two with and without encryption
 * both have the glue of the former, which has what the other one imports too: so a worker has one, whichever it is given.
 */
const directoryOf = (name) => join(HERE, 'build', name);
const MODULES = [
  { crate: 'crate', directory: directoryOf('wasm-encrypted'), name: 'mangrove_encrypted', builtAs: 'mangrove', features: ['encryption'], isInlined: true, isSplit: true },
  { crate: 'crate', directory: directoryOf('wasm'), name: 'mangrove', isInlined: true, isSplit: true, glueOf: directoryOf('wasm-encrypted') },
  { crate: 'upkeep', directory: directoryOf('wasm-upkeep-encrypted'), name: 'mangrove_upkeep_encrypted', builtAs: 'mangrove_upkeep', features: ['encryption'], isInlined: true },
  { crate: 'upkeep', directory: directoryOf('wasm-upkeep'), name: 'mangrove_upkeep', isInlined: true, glueOf: directoryOf('wasm-upkeep-encrypted') },
  { crate: 'cli', directory: join(HERE, 'build', 'wasm-cli'), name: 'mangrove_cli', isInlined: false },
];
const WASM_STAMP = join(HERE, 'build', 'wasm.sha256');
const DIST_STAMP = join(HERE, 'build', 'dist.sha256');

const WASM_INPUTS = [
  'Cargo.lock',
  'Cargo.toml',
  'rust-toolchain.toml',
  'engine/Cargo.toml',
  'engine/src',
  'engine/cli/Cargo.toml',
  'engine/cli/src',
  'bindings-js/cli/Cargo.toml',
  'bindings-js/cli/build.rs',
  'bindings-js/cli/src',
  'bindings-js/host/Cargo.toml',
  'bindings-js/host/src',
  'bindings-js/crate/Cargo.toml',
  'bindings-js/crate/src',
  'bindings-js/upkeep/Cargo.toml',
  'bindings-js/upkeep/src',
  'bindings-js/build.mjs',
  'bindings-js/build-binary.mjs',
  'bindings-js/build-flags.mjs',
  'bindings-js/build-glue.mjs',
  'bindings-js/build-inline.mjs',
  'bindings-js/build-names.mjs',
  'bindings-js/build-order.mjs',
  'bindings-js/build-split.mjs',
  'bindings-js/build-traps.mjs',
  'bindings-js/tools/wasm-bindgen/src',
  'node_modules/binaryen/package.json',
];

const DIST_INPUTS = [
  ...WASM_INPUTS,
  'bindings-js/src',
  'bindings-js/build-adapters.mjs',
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

/** Node prints the line that an uncaught error comes from, so those for Node, Deno and Bun have lines; `source` is another name in src/entries, or a path in src. */
const ENTRIES = [
  { name: 'index', platform: 'browser' },
  { name: 'inline', source: 'index', platform: 'browser', isInlined: true },
  { name: 'worker', platform: 'browser' },
  { name: 'worker-indexeddb', platform: 'browser' },
  { name: 'worker-upkeep', platform: 'browser' },
  { name: 'local', platform: 'browser' },
  { name: 'indexeddb', platform: 'browser' },
  { name: 'destroy', platform: 'browser' },
  { name: 'versions', platform: 'browser' },
  { name: 'migrations', platform: 'neutral' },
  { name: 'maintenance', source: 'api/maintenance', platform: 'neutral' },
  { name: 'encryption', platform: 'browser' },
  { name: 'encryption-inline', source: 'encryption', platform: 'browser', isInlined: true },
  { name: 'upkeep', platform: 'browser' },
  { name: 'upkeep-inline', source: 'upkeep', platform: 'browser', isInlined: true },
  { name: 'parts', source: 'api/parts', platform: 'neutral' },
  { name: 'blob', platform: 'neutral' },
  { name: 'live', platform: 'neutral' },
  { name: 'sync', platform: 'neutral' },
  { name: 'node', platform: 'node' },
  { name: 'node-inline', source: 'node', platform: 'node', isInlined: true },
  { name: 'node-worker', platform: 'node' },
  { name: 'node-upkeep', platform: 'node' },
  { name: 'node-upkeep-inline', source: 'node-upkeep', platform: 'node', isInlined: true },
  { name: 'node-maintenance', source: 'api/maintenance', platform: 'node' },
  { name: 'node-parts', source: 'api/parts', platform: 'node' },
  { name: 'node-blob', source: 'blob', platform: 'node' },
  { name: 'node-live', source: 'live', platform: 'node' },
  { name: 'node-migrations', source: 'migrations', platform: 'node' },
  { name: 'node-sync', source: 'sync', platform: 'node' },
  { name: 'cli', platform: 'node' },
  // What it needs of the package is in the package already.
  { name: 'cli-archive', platform: 'node', external: ['mangrove-kv', 'mangrove-kv/*'] },
  { name: 'durable-object', platform: 'neutral' },
  // Another copy of the engine's client would have errors and symbols of its own.
  { name: 'testing', platform: 'neutral', external: ['mangrove-kv'] },
  { name: 'inspector', platform: 'neutral', external: ['mangrove-kv'] },
];

function filesUnder(path) {
  const absolute = join(ROOT, path);
  if (!existsSync(absolute)) return [];
  const entries = readdirSync(absolute, { withFileTypes: true, recursive: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name)).sort();
}

function hashOf(inputs) {
  const hash = createHash('sha256');
  for (const input of inputs) {
    const files = /\.\w+$/.test(input) ? [join(ROOT, input)] : filesUnder(input);
    for (const file of files) hash.update(`${relative(ROOT, file)}\0`).update(readFileSync(file)).update('\0');
  }
  return hash.digest('hex');
}

function hasHash(stamp, hash) {
  return existsSync(stamp) && readFileSync(stamp, 'utf8') === hash;
}

/** The WebAssembly files of a module. */
function filesOf({ directory, name, isSplit }) {
  return ['', ...(isSplit ? ['_core', '_rest'] : [])].map((part) => join(directory, `${name}${part}_bg.wasm`));
}

/** Whether panics of a module say nothing but the number of a function, whose name is in a file beside it. */
const hasTraps = (file) => /_(?:core|rest)_bg\.wasm$/.test(file);
const symbolsOf = (file) => file.replace(/\.wasm$/, '.symbols.txt');

function buildWasm() {
  const hash = hashOf(WASM_INPUTS);
  const isCurrent = hasHash(WASM_STAMP, hash)
    && MODULES.flatMap(filesOf).every((file) => existsSync(file));
  if (isCurrent) return;
  rmSync(WASM_STAMP, { force: true });
  const env = wasmEnv();
  const flags = wasmOptFlags();
  const features = flags.filter((flag) => flag.startsWith('--enable-'));
  for (const module of MODULES) {
    const { crate, directory, name, isInlined, isSplit, glueOf, builtAs = name, features: crateFeatures = [] } = module;
    rmSync(directory, { recursive: true, force: true });
    // `no-install`: wasm-bindgen and wasm-opt are on PATH, pinned; nothing is to be downloaded behind our back.
    run('wasm-pack', [
      '--quiet', 'build', join(HERE, crate), '--target', 'web', '--profile', 'wasm-release', '--mode', 'no-install',
      '--no-pack', '--out-dir', directory, '--out-name', builtAs, '--', '--features', crateFeatures.join(','),
    ], { env });
    if (glueOf === undefined) writeGlue(directory, builtAs);
    else shareGlue(directory, builtAs, glueOf);
    // The name that it was built under is that of the module that the glue provides.
    if (builtAs !== name) renameSync(join(directory, `${builtAs}_bg.wasm`), join(directory, `${name}_bg.wasm`));
    if (isSplit) {
      writeShortNames(directory, name, { features, env, glueOf });
      writeSplit(directory, name, { flags, env });
    }
    for (const file of filesOf(module)) {
      const names = orderFunctions(file);
      if (hasTraps(file)) writeFileSync(symbolsOf(file), `${names.join('\n')}\n`);
    }
    if (isInlined) writePacked(directory, name);
  }
  writeFileSync(WASM_STAMP, hash);
}

/** The engine in the page's own thread, IndexedDB, maintenance, values in parts, destroying, restoring and recovering, and the tool's verbs for archives are files of their own, as few load them. */
const rareStaysApart = (isInlined) => ({
  name: 'rare-stays-apart',
  setup({ onResolve, initialOptions }) {
    const prefix = initialOptions.platform === 'node' ? './node-' : './';
    onResolve({ filter: /^\.\/(?:maintenance|parts)\.ts$/ }, ({ path, kind }) =>
      kind === 'dynamic-import' ? { path: path.replace('./', prefix).replace(/\.ts$/, '.js'), external: true } : undefined);
    onResolve({ filter: /^\.\/(?:local|indexeddb|destroy|versions|encryption|cli-archive|(?:node-)?upkeep)\.ts$/ }, ({ path, kind }) => {
      if (kind !== 'dynamic-import') return undefined;
      const suffix = isInlined && /(?:upkeep|encryption)\.ts$/.test(path) ? '-inline.js' : '.js';
      return { path: path.replace(/\.ts$/, suffix), external: true };
    });
  },
});

/** Pages have all of `base/platform.ts`, and none of the modules that it asks for what is missing. */
const platformOfPages = {
  name: 'platform-of-pages',
  setup({ onResolve }) {
    onResolve({ filter: /\/platform\.ts$/ }, ({ path, resolveDir }) => ({ path: join(resolveDir, path.replace(/\.ts$/, '-browser.ts')) }));
  },
};

const isMinified = ({ platform, name }) => platform !== 'node' && name !== 'testing';

async function bundle() {
  const results = await Promise.all(ENTRIES.map(({ name, source = name, platform, external = [], isInlined = false }) => build({
    entryPoints: [join(HERE, 'src', source.includes('/') ? `${source}.ts` : `entries/${source}.ts`)],
    outfile: join(DIST, `${name}.js`),
    absWorkingDir: HERE,
    bundle: true,
    format: 'esm',
    platform,
    external,
    target: 'es2022',
    minify: isMinified({ platform, name }),
    sourcemap: true,
    metafile: true,
    legalComments: 'none',
    // The glue of wasm-bindgen warns on the console; a library has no business there.
    drop: ['console'],
    plugins: [
      ...(platform === 'browser' ? [platformOfPages] : []),
      ...(['index', 'node', 'cli'].includes(source) ? [rareStaysApart(isInlined)] : []),
      ...(isInlined ? [inlineModules(join(HERE, 'src'), join(HERE, 'build'), platform)] : []),
    ],
    logLevel: 'warning',
  })));
  await Promise.all(ENTRIES.filter(isMinified).map(({ name }) => minifyBundle(join(DIST, `${name}.js`))));
  for (const [at, name] of ['index', 'inline'].entries()) {
    if ('build/wasm/glue.js' in results[at].metafile.inputs) {
      throw new Error(`dist/${name}.js contains the WebAssembly glue: something in src/entries/${name}.ts imports it`);
    }
  }
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
  const modules = MODULES.flatMap(filesOf);
  for (const file of [...modules, ...modules.filter(hasTraps).map(symbolsOf)]) copyFileSync(file, join(DIST, basename(file)));
  // npm packs what lies beside package.json only.
  for (const name of ['LICENSE-MIT', 'LICENSE-APACHE']) {
    if (existsSync(join(ROOT, name))) copyFileSync(join(ROOT, name), join(HERE, name));
  }
}

async function buildAll() {
  buildWasm();
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
