import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { defineConfig } from 'vite';
import type { Plugin } from 'vite';

const NAME = 'service-worker';

/** Tells the service worker all files of the page, the database's workers and WebAssembly modules included. */
function listFiles(): Plugin {
  let publicDir = '';
  return {
    name: 'list-files',
    apply: 'build',
    // Vite adds the page itself late.
    enforce: 'post',
    configResolved(config) {
      ({ publicDir } = config);
    },
    generateBundle(_options, bundle) {
      const worker = bundle[`${NAME}.js`];
      if (worker?.type !== 'chunk') throw new Error(`the build has no ${NAME}.js`);
      const version = createHash('sha256').update(worker.code);
      const files = ['./'];
      for (const [file, output] of Object.entries(bundle).sort(([a], [b]) => (a < b ? -1 : 1))) {
        if (output === worker) continue;
        version.update(file).update(output.type === 'chunk' ? output.code : output.source);
        // Browsers ask for the page by its directory.
        if (file !== 'index.html') files.push(file);
      }
      for (const file of readdirSync(publicDir).sort()) {
        version.update(file).update(readFileSync(join(publicDir, file)));
        files.push(file);
      }
      worker.code =
        `const FILES = ${JSON.stringify(files)}, VERSION = '${version.digest('hex').slice(0, 16)}';\n` + worker.code;
    },
  };
}

export default defineConfig({
  plugins: [listFiles()],
  build: {
    rolldownOptions: {
      input: { index: 'index.html', [NAME]: `src/${NAME}.ts` },
      // Its address must not change from version to version.
      output: { entryFileNames: ({ name }) => (name === NAME ? '[name].js' : 'assets/[name]-[hash].js') },
    },
  },
});
