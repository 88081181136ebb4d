// The inlined entries, whose modules are scripts: `packed.js` and `packed-maintenance.js`, which the entries import.
import { gzipSync } from 'node:zlib';
import { readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

/** Scripts of the package, and the directories with the modules in them. */
export const PACKED = { 'packed.js': 'wasm', 'packed-maintenance.js': 'wasm-maintenance' };

/** In the sources of the entry for pages, by the file that is replaced, the script. The whole module knows encryption. */
const REPLACED = {
  'module-core': 'packed.js',
  'module-encrypted-core': 'packed.js',
  'module-maintenance': 'packed-maintenance.js',
};

/** The module as text, packed: so it takes no more after the server's compression than the file does. */
export function writePacked(directory, name) {
  const packed = gzipSync(readFileSync(join(directory, `${name}_bg.wasm`)), { level: 9 }).toString('base64');
  writeFileSync(join(directory, 'packed.js'), `export default '${packed}';\n`);
  writeFileSync(join(directory, 'packed.d.ts'), 'declare const packed: string;\nexport default packed;\n');
}

/** A plugin for esbuild: packed modules stay scripts of their own. */
export const packedStaysApart = {
  name: 'packed-stays-apart',
  setup({ onResolve }) {
    onResolve({ filter: /\/packed\.js$/ }, ({ path }) => {
      const [name] = Object.entries(PACKED).find(([, directory]) => directory === basename(dirname(path)));
      return { path: `./${name}`, external: true };
    });
  },
};

/** A plugin for esbuild: a page's module is packed. */
export function inlineModules(source) {
  const unpack = join(source, 'engine', 'unpack-browser.ts');
  return {
    name: 'inline-modules',
    setup({ onResolve, onLoad }) {
      onResolve({ filter: /\/module(?:-\w+)*\.ts$/ }, ({ path }) => ({
        path: basename(path, '.ts'),
        namespace: 'packed',
      }));
      onResolve({ filter: /^\.\/packed/ }, ({ path }) => ({ path, external: true }));
      onLoad({ filter: /.*/, namespace: 'packed' }, ({ path }) => ({
        resolveDir: source,
        contents: `import packed from './${REPLACED[path]}';
import { unpackModule } from ${JSON.stringify(unpack)};
export const ownModule = () => unpackModule(packed);
// The packed module is whole.
export const ownLazy = undefined;
`,
      }));
    },
  };
}
