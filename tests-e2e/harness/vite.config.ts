import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { compile } from 'svelte/compiler';
import { defineConfig } from 'vite';
import type { Plugin } from 'vite';
import { compileSolid } from './frameworks/compile-solid.ts';

const file = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/** Service workers have no dynamic imports, so theirs is one file, with the engine beside it. */
const serviceWorker: Plugin = {
  name: 'service-worker',
  async generateBundle() {
    const { outputFiles } = await build({
      entryPoints: [file('./service-worker.ts')],
      bundle: true,
      write: false,
      format: 'esm',
      target: 'es2022',
      conditions: ['browser'],
    });
    this.emitFile({ type: 'asset', fileName: 'service-worker.js', source: outputFiles[0]?.text ?? '' });
    for (const fileName of ['mangrove_core_bg.wasm', 'mangrove_lazy_bg.wasm']) {
      this.emitFile({ type: 'asset', fileName, source: readFileSync(file(`../../bindings-js/kv/dist/${fileName}`)) });
    }
  },
};

const svelte: Plugin = {
  name: 'svelte',
  transform: (code, id) =>
    id.endsWith('.svelte') ? compile(code, { filename: id, generate: 'client', dev: true }).js : undefined,
};

const solid: Plugin = {
  name: 'solid',
  enforce: 'pre',
  transform: (code, id) => (id.endsWith('.solid.jsx') ? compileSolid(code, 'dom') : undefined),
};

export default defineConfig({
  worker: { format: 'es' },
  plugins: [serviceWorker, solid, svelte],
  // Stand-ins for the Node modules of tape. `events` is the npm package, which abstract-level needs
  // in a browser.
  resolve: {
    alias: [
      { find: /^(path|stream|fs|util)$/, replacement: file('./level/node.ts') },
      { find: /^events$/, replacement: 'events/' },
    ],
  },
  // Only React's development build runs effects twice in strict mode. Vue asks bundlers for its flags.
  define: {
    __dirname: '"/"',
    'process.env.NODE_ENV': '"development"',
    __VUE_OPTIONS_API__: 'true',
    __VUE_PROD_DEVTOOLS__: 'false',
    __VUE_PROD_HYDRATION_MISMATCH_DETAILS__: 'false',
  },
  // The caching that real servers allow for hashed file names: otherwise each of a thousand starts
  // would request the worker's script again.
  preview: { allowedHosts: ['not-secure.test'], headers: { 'cache-control': 'max-age=600' } },
  build: { target: 'es2022', assetsInlineLimit: 0, reportCompressedSize: false },
});
