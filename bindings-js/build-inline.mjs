// The entries with the WebAssembly modules inside: those of `index.ts` and `node.ts`, with the files that say where a module is replaced.
import { gzipSync } from 'node:zlib';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** By the file that is replaced, the directory with the packed module. */
const PACKED = { module: 'wasm', 'module-core': 'wasm', 'module-upkeep': 'wasm-upkeep' };
/** Those that few programs need: the file that is replaced, and the file of the package that is then imported. */
const APART = {
  'module-encrypted': 'packed-encrypted.js', 'module-encrypted-core': 'packed-encrypted.js', 'module-upkeep-encrypted': 'packed-upkeep-encrypted.js',
};
/** Files of the package, and the directories with the packed modules. */
export const PACKED_APART = [['packed-encrypted.js', 'wasm-encrypted'], ['packed-upkeep-encrypted.js', 'wasm-upkeep-encrypted']];

/** The module as text, packed: so it takes no more after the server's compression than the file does. */
export function writePacked(directory, name) {
  const packed = gzipSync(readFileSync(join(directory, `${name}_bg.wasm`)), { level: 9 }).toString('base64');
  writeFileSync(join(directory, 'packed.js'), `export default '${packed}';\n`);
}

/** A plugin for esbuild. */
export function inlineModules(source, build, platform) {
  const unpack = join(source, 'engine', platform === 'node' ? 'unpack-node.ts' : 'unpack-browser.ts');
  return {
    name: 'inline-modules',
    setup({ onResolve, onLoad }) {
      onResolve({ filter: /^\.\/module(?:-\w+)*\.ts$/ }, ({ path }) => ({ path: path.slice(2, -3), namespace: 'packed' }));
      onResolve({ filter: /^\.\/packed-.*\.js$/ }, ({ path }) => ({ path, external: true }));
      onLoad({ filter: /.*/, namespace: 'packed' }, ({ path }) => ({
        resolveDir: source,
        contents: path in APART ? `import { unpackModule } from ${JSON.stringify(unpack)};
export const ownModule = async () => unpackModule((await import('./${APART[path]}')).default);
export const ownRest = undefined;
` : `import packed from ${JSON.stringify(join(build, PACKED[path], 'packed.js'))};
import { unpackModule } from ${JSON.stringify(unpack)};
export const ownModule = () => unpackModule(packed);
// The packed module is whole.
export const ownRest = undefined;
`,
      }));
    },
  };
}
