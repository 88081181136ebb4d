// Bundles the entries of mangrove-kv into its dist/.
import { basename, dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build, context } from 'esbuild';
import { inlineModules, packedStaysApart } from './inline.mjs';
import { minifyBundle } from './minify.mjs';

/** Directory of the package. */
export const KV = fileURLToPath(new URL('../kv', import.meta.url));
const SOURCE = join(KV, 'src');
export const DIST = join(KV, 'dist');

/** Entries for pages, each a script of its own; `source` is another name in src/entries, or a path below src. */
const ENTRIES = [
  { name: 'index', platform: 'browser' },
  { name: 'inline', source: 'index', platform: 'browser', isInlined: true },
  { name: 'worker', platform: 'browser' },
  { name: 'worker-indexeddb', platform: 'browser' },
  { name: 'worker-maintenance', platform: 'browser' },
  { name: 'local', source: 'platform/browser-local', platform: 'browser' },
  { name: 'indexeddb', source: 'platform/browser-indexeddb', platform: 'browser' },
  { name: 'destroy', source: 'platform/browser-destroy', platform: 'browser' },
  { name: 'versions', source: 'platform/browser-versions', platform: 'browser' },
  { name: 'bucket', source: 'platform/browser-bucket', platform: 'browser' },
  { name: 'migrations', source: 'migrations/migrations', platform: 'neutral' },
  { name: 'database-maintenance', source: 'api/maintenance/compact', platform: 'neutral' },
  { name: 'encryption', source: 'platform/browser-encryption', platform: 'browser' },
  { name: 'encryption-inline', source: 'platform/browser-encryption', platform: 'browser', isInlined: true },
  { name: 'maintenance', platform: 'browser' },
  { name: 'maintenance-inline', source: 'maintenance', platform: 'browser', isInlined: true },
  { name: 'value-stream', source: 'api/value-stream', platform: 'neutral' },
  { name: 'passkey', source: 'passkey/passkey', platform: 'neutral' },
  { name: 'blob', platform: 'neutral' },
  { name: 'live', source: 'live/live', platform: 'neutral' },
  { name: 'mirror', source: 'mirror/mirror', platform: 'neutral' },
  // What it needs of the other entries is there already.
  { name: 'internal', platform: 'neutral', external: ['mangrove-kv', 'mangrove-kv/*'] },
];

/**
 * Entries for Node, Deno and Bun, and for Workers, which share files. They keep their lines, as Node prints the one that an uncaught error comes from,
 * and need no maps.
 */
const SERVER_ENTRIES = {
  'node': 'entries/node',
  'node-inline': 'entries/node-inline',
  'node-worker': 'entries/node-worker',
  'node-maintenance': 'entries/node-maintenance',
  'node-maintenance-inline': 'entries/node-maintenance-inline',
  'node-blob': 'entries/blob',
  'node-live': 'live/live',
  'node-migrations': 'migrations/migrations',
  'node-passkey': 'passkey/passkey',
  'node-internal': 'entries/internal',
  'durable-object': 'entries/durable-object',
  'node-tool': 'platform/tool',
};

/**
 * What few load is a file of its own: the engine in the page's own thread, IndexedDB, encryption, maintenance, values in parts, destroying,
 * restoring and recovering. By its source, the file's name.
 */
const LAZY = {
  'platform/browser-local': 'local',
  'platform/browser-indexeddb': 'indexeddb',
  'platform/browser-destroy': 'destroy',
  'platform/browser-versions': 'versions',
  'platform/browser-bucket': 'bucket',
  'platform/browser-encryption': 'encryption',
  'entries/maintenance': 'maintenance',
  'api/maintenance/compact': 'database-maintenance',
  'api/value-stream': 'value-stream',
};
/** They have a module inside where the entry that loads them has. */
const WITH_MODULE = ['encryption', 'maintenance'];

const lazyStaysApart = (isInlined) => ({
  name: 'lazy-stays-apart',
  setup({ onResolve }) {
    onResolve({ filter: /^\..*\.ts$/ }, ({ path, kind, resolveDir }) => {
      if (kind !== 'dynamic-import') return undefined;
      const name = LAZY[relative(SOURCE, join(resolveDir, path)).replaceAll('\\', '/').replace(/\.ts$/, '')];
      if (name === undefined) return undefined;
      const suffix = isInlined && WITH_MODULE.includes(name) ? '-inline' : '';
      return { path: `./${name}${suffix}.js`, external: true };
    });
  },
});

/** Their maps, as those of the inlined entries, would be nearly the same as others': these are other bundles of the same sources. */
const WITHOUT_MAPS = ['worker-indexeddb', 'indexeddb', 'worker-maintenance', 'local'];

/** Bundlers leave mirrors out where they are not used: they are a file that live queries only export from. */
const mirrorsStayApart = {
  name: 'mirrors-stay-apart',
  setup({ onResolve }) {
    onResolve({ filter: /\/mirror\/mirror\.ts$/ }, () => ({ path: './mirror.js', external: true }));
  },
};

/** Pages have all of `base/platform.ts`, and none of the modules that it asks for what is missing. */
const platformOfPages = {
  name: 'platform-of-pages',
  setup({ onResolve }) {
    onResolve({ filter: /\/platform\.ts$/ }, ({ path, resolveDir }) => ({
      path: join(resolveDir, path.replace(/\.ts$/, '-browser.ts')),
    }));
  },
};

/** The glue of the development build's modules in place of that of the release's. */
const glueOfDevelopment = {
  name: 'glue-of-development',
  setup({ onResolve }) {
    onResolve({ filter: /\/build\/[\w-]+\/glue\.js$/ }, ({ path }) => ({
      path: join(KV, 'build', 'dev', basename(dirname(path)), 'glue.js'),
    }));
  },
};

const COMMON = {
  absWorkingDir: KV,
  bundle: true,
  format: 'esm',
  target: 'es2022',
  metafile: true,
  legalComments: 'none',
  // The glue of wasm-bindgen warns on the console; a library has no business there.
  drop: ['console'],
  logLevel: 'warning',
};

/** Options of esbuild for an entry for pages. */
function optionsOf({ name, source = name, platform, external = [], isInlined = false }, isDevelopment) {
  return {
    ...COMMON,
    entryPoints: [join(SOURCE, source.includes('/') ? `${source}.ts` : `entries/${source}.ts`)],
    outfile: join(DIST, `${name}.js`),
    platform,
    external,
    minify: !isDevelopment,
    sourcemap: !isInlined && !WITHOUT_MAPS.includes(name),
    plugins: [
      ...(platform === 'browser' ? [platformOfPages] : []),
      ...(isDevelopment ? [glueOfDevelopment] : []),
      ...(source === 'index' ? [lazyStaysApart(isInlined)] : []),
      ...(name === 'live' ? [mirrorsStayApart] : []),
      ...(isInlined ? [inlineModules(SOURCE)] : []),
    ],
  };
}

/** Options of esbuild for entries of servers, by their names. */
function serverOptionsOf(names, isDevelopment) {
  return {
    ...COMMON,
    entryPoints: names.map((name) => ({ in: join(SOURCE, `${SERVER_ENTRIES[name]}.ts`), out: name })),
    outdir: DIST,
    splitting: true,
    chunkNames: 'shared-[name]-[hash]',
    platform: 'node',
    external: ['mangrove-kv', 'mangrove-kv/*', '@mangrove-kv/*'],
    plugins: [packedStaysApart, ...(isDevelopment ? [glueOfDevelopment] : [])],
  };
}

/** Bundles everything, as it is published. */
export async function bundle() {
  const results = await Promise.all(ENTRIES.map((entry) => build(optionsOf(entry, false))));
  await Promise.all(ENTRIES.map(({ name }) => minifyBundle(join(DIST, `${name}.js`))));
  for (const [at, name] of ['index', 'inline'].entries()) {
    if ('build/wasm/glue.js' in results[at].metafile.inputs) {
      throw new Error(`dist/${name}.js contains the WebAssembly glue: something in src/entries/${name}.ts imports it`);
    }
  }
  await build(serverOptionsOf(Object.keys(SERVER_ENTRIES), false));
}

/** The entries that need no module but those of a development build. */
const DEVELOPED = ENTRIES.filter(({ isInlined }) => isInlined !== true);
const SERVER_DEVELOPED = Object.keys(SERVER_ENTRIES).filter((name) => !/inline/.test(name));

/** Builds an entry, and again after each change, of which it tells. */
async function watchEntry(options, onRebuilt) {
  let settle;
  const first = new Promise((resolve) => {
    settle = resolve;
  });
  const told = {
    name: 'told',
    setup: ({ onEnd }) =>
      onEnd(({ errors }) => {
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
  const all = [...DEVELOPED.map((entry) => optionsOf(entry, true)), serverOptionsOf(SERVER_DEVELOPED, true)];
  await Promise.all(all.map((options) => (onRebuilt === undefined ? build(options) : watchEntry(options, onRebuilt))));
}
