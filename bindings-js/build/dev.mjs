// Builds all packages as pages and programs need them while they are developed, in seconds: modules that are
// neither optimised for size nor divided, and scripts that are not minified, without their types. `--watch`
// goes on after each change. `--encryption` has the modules encrypt, which takes longer to compile.
import { copyFileSync, mkdirSync, rmSync, watch } from 'node:fs';
import { join } from 'node:path';
import { ROOT, toolEnv } from '../../.ci/tools.mjs';
import { DIST, KV, bundleForDevelopment } from './bundle.mjs';
import { writeGlue } from './glue.mjs';
import { compileModule } from './module.mjs';
import { ON_TOP, PACKAGES, bundlePackage } from './packages.mjs';

const FEATURES = process.argv.includes('--encryption') ? ['encryption'] : [];
const MODULES = [
  {
    crate: 'core',
    directory: 'wasm',
    name: 'mangrove',
    // The core that pages fetch is the whole module: so it never asks for the lazy part.
    files: [
      'mangrove_bg.wasm',
      'mangrove_core_bg.wasm',
      ...(FEATURES.length > 0 ? ['mangrove_encrypted_core_bg.wasm'] : []),
    ],
  },
  {
    crate: 'maintenance',
    directory: 'wasm-maintenance',
    name: 'mangrove_maintenance',
    files: ['mangrove_maintenance_bg.wasm'],
  },
];
const RUST = [
  'engine/src',
  'bindings-js/wasm/host/src',
  ...MODULES.map(({ crate }) => `bindings-js/wasm/${crate}/src`),
];
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
    const place = join(KV, 'build', 'dev', directory);
    compileModule({ crate, features: FEATURES, profile: 'wasm-dev', directory: place, name, env: toolEnv() });
    writeGlue(place, name);
    for (const file of files) copyFileSync(join(place, `${name}_bg.wasm`), join(DIST, file));
  }
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

/** esbuild watches the entries of mangrove-kv, but not these. */
function watchPackages() {
  for (const directory of ON_TOP) {
    const rebuild = settled(() => {
      bundlePackage(directory).then(
        () => say(`dev: ${directory}`),
        () => undefined,
      );
    });
    watch(join(PACKAGES, directory, 'src'), { recursive: true }, rebuild);
  }
}

const start = performance.now();
mkdirSync(DIST, { recursive: true });
// What is there is no release any more.
rmSync(join(KV, 'build', 'dist.sha256'), { force: true });
buildModules();
// Each entry that a change concerns is built by itself.
await bundleForDevelopment(isWatching ? settled(() => say('dev: scripts')) : undefined);
await Promise.all(ON_TOP.map(bundlePackage));
say(`dev: built in ${seconds(start)}`);
if (isWatching) {
  watchRust();
  watchPackages();
}
