import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';
import type { Plugin } from 'vite';
import { cities } from './tools/cities.ts';
import { precache } from './tools/precache.ts';

const file = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/** The first frame has rows, so nothing is drawn before the script has run. Vite leaves the attribute out of what it builds. */
const blocksRendering: Plugin = {
  name: 'blocks-rendering',
  transformIndexHtml: {
    order: 'post',
    handler: (html) => html.replace('<script type="module"', '$& blocking="render"'),
  },
};

export default defineConfig({
  // So that it can be served from any directory.
  base: './',
  plugins: [blocksRendering, cities(), precache(file('./src/service-worker.ts'), file('./public'))],
  // They bring workers and modules beside their entries; pre-bundling would part them.
  optimizeDeps: {
    exclude: [
      'mangrove-kv',
      '@mangrove-kv/inspector',
      '@sqlite.org/sqlite-wasm',
      '@journeyapps/wa-sqlite',
      '@electric-sql/pglite',
    ],
  },
  worker: { format: 'es' },
  server: { port: 5173 },
  preview: { port: 4173 },
  build: { target: 'es2022', assetsInlineLimit: 0, reportCompressedSize: false, chunkSizeWarningLimit: 100_000 },
});
