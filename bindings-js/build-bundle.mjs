// Bundles the entries of the package into dist/.
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build, context } from 'esbuild';
import { inlineModules } from './build-inline.mjs';
import { minifyBundle } from './build-minify.mjs';

const HERE = fileURLToPath(new URL('.', import.meta.url));
export const DIST = join(HERE, 'dist');

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

/** The glue of the development build's modules in place of that of the release's. */
const glueOfDevelopment = {
  name: 'glue-of-development',
  setup({ onResolve }) {
    onResolve({ filter: /\/build\/[\w-]+\/glue\.js$/ }, ({ path }) => ({ path: join(HERE, 'build', 'dev', basename(dirname(path)), 'glue.js') }));
  },
};

/** Options of esbuild for an entry. */
function optionsOf({ name, source = name, platform, external = [], isInlined = false }, isDevelopment) {
  return {
    entryPoints: [join(HERE, 'src', source.includes('/') ? `${source}.ts` : `entries/${source}.ts`)],
    outfile: join(DIST, `${name}.js`),
    absWorkingDir: HERE,
    bundle: true,
    format: 'esm',
    platform,
    external,
    target: 'es2022',
    minify: !isDevelopment && isMinified({ platform, name }),
    sourcemap: true,
    metafile: true,
    legalComments: 'none',
    // The glue of wasm-bindgen warns on the console; a library has no business there.
    drop: ['console'],
    plugins: [
      ...(platform === 'browser' ? [platformOfPages] : []),
      ...(isDevelopment ? [glueOfDevelopment] : []),
      ...(['index', 'node', 'cli'].includes(source) ? [rareStaysApart(isInlined)] : []),
      ...(isInlined ? [inlineModules(join(HERE, 'src'), join(HERE, 'build'), platform)] : []),
    ],
    logLevel: 'warning',
  };
}

/** Bundles everything, as it is published. */
export async function bundle() {
  const results = await Promise.all(ENTRIES.map((entry) => build(optionsOf(entry, false))));
  await Promise.all(ENTRIES.filter(isMinified).map(({ name }) => minifyBundle(join(DIST, `${name}.js`))));
  for (const [at, name] of ['index', 'inline'].entries()) {
    if ('build/wasm/glue.js' in results[at].metafile.inputs) {
      throw new Error(`dist/${name}.js contains the WebAssembly glue: something in src/entries/${name}.ts imports it`);
    }
  }
}

/** The entries that need no module but those of a development build. */
const DEVELOPED = ENTRIES.filter(({ name, isInlined }) => isInlined !== true && !name.startsWith('cli'));

/** Builds an entry, and again after each change, of which it tells. */
async function watchEntry(options, onRebuilt) {
  let settle;
  const first = new Promise((resolve) => {
    settle = resolve;
  });
  const told = {
    name: 'told',
    setup: ({ onEnd }) => onEnd(({ errors }) => {
      if (settle === undefined && errors.length === 0) onRebuilt();
      settle?.();
      settle = undefined;
    }),
  };
  const watched = await context({ ...options, plugins: [...options.plugins, told] });
  await watched.watch();
  await first;
}

/** Bundles for development. With `onRebuilt`, it goes on watching and calls that after each further build. */
export async function bundleForDevelopment(onRebuilt) {
  const all = DEVELOPED.map((entry) => optionsOf(entry, true));
  await Promise.all(all.map((options) => (onRebuilt === undefined ? build(options) : watchEntry(options, onRebuilt))));
}
