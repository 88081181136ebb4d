// Builds into dist/ what pages and programs need while they are developed, in seconds: modules that are
// neither optimised for size nor divided, and scripts that are not minified, without their types. `--watch`
// goes on after each change. `--encryption` has the modules encrypt, which takes longer to compile.
import { copyFileSync, mkdirSync, rmSync, watch } from 'node:fs';
import { join } from 'node:path';
import { ROOT, toolEnv } from '../.ci/tools.mjs';
import { bundleAdapters } from './build-adapters.mjs';
import { DIST, bundleForDevelopment } from './build-bundle.mjs';
import { writeGlue } from './build-glue.mjs';
import { compileModule } from './build-module.mjs';

const HERE = join(ROOT, 'bindings-js');
const FEATURES = process.argv.includes('--encryption') ? ['encryption'] : [];
/** Modules that encrypt open databases without a key, too. */
const filesOf = (plain, encrypted) => [...plain, ...(FEATURES.length > 0 ? encrypted : [])];
const MODULES = [
  {
    crate: 'crate', directory: 'wasm', name: 'mangrove',
    // The core that pages fetch is the whole module: so it never asks for the rest.
    files: filesOf(['mangrove_bg.wasm', 'mangrove_core_bg.wasm'], ['mangrove_encrypted_bg.wasm', 'mangrove_encrypted_core_bg.wasm']),
  },
  { crate: 'upkeep', directory: 'wasm-upkeep', name: 'mangrove_upkeep', files: filesOf(['mangrove_upkeep_bg.wasm'], ['mangrove_upkeep_encrypted_bg.wasm']) },
];
const RUST = ['engine/src', 'bindings-js/host/src', ...MODULES.map(({ crate }) => `bindings-js/${crate}/src`)];
const isWatching = process.argv.includes('--watch');
/** Editors write a file in several steps. */
const SETTLED_MS = 50;

function say(line) {
  process.stdout.write(`${line}\n`);
}

function seconds(since) {
  return `${((performance.now() - since) / 1000).toFixed(1)} s`;
}

function buildModules() {
  for (const { crate, directory, name, files } of MODULES) {
    const place = join(HERE, 'build', 'dev', directory);
    compileModule({ crate, features: FEATURES, profile: 'wasm-dev', directory: place, name, env: toolEnv() });
    writeGlue(place, name);
    for (const file of files) copyFileSync(join(place, `${name}_bg.wasm`), join(DIST, file));
  }
}

function buildAdapters() {
  return bundleAdapters(join(HERE, 'src', 'adapters'), join(DIST, 'adapters'), { isMeasured: false });
}

async function buildScripts(onRebuilt) {
  await Promise.all([bundleForDevelopment(onRebuilt), buildAdapters()]);
}

/** Calls `run` once after a few calls in a row. */
function settled(run) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(run, SETTLED_MS);
  };
}

function watchRust() {
  const rebuild = settled(() => {
    const start = performance.now();
    try {
      buildModules();
      say(`dev: modules, ${seconds(start)}`);
    } catch {
      // The compiler has said why.
    }
  });
  for (const directory of RUST) watch(join(ROOT, directory), { recursive: true }, rebuild);
}

/** esbuild watches the entries, but not these. */
function watchAdapters() {
  const rebuild = settled(() => {
    buildAdapters().then(() => say('dev: adapters'), () => undefined);
  });
  for (const directory of ['adapters', 'sync']) watch(join(HERE, 'src', directory), { recursive: true }, rebuild);
}

const start = performance.now();
mkdirSync(DIST, { recursive: true });
// What is there is no release any more.
rmSync(join(HERE, 'build', 'dist.sha256'), { force: true });
buildModules();
// Each entry that a change concerns is built by itself.
await buildScripts(isWatching ? settled(() => say('dev: scripts')) : undefined);
say(`dev: built in ${seconds(start)}`);
if (isWatching) {
  watchRust();
  watchAdapters();
}
