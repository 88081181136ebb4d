import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';
import { peers } from './tools/peers.ts';
import { precache } from './tools/precache.ts';

const file = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  // So that it can be served from any directory.
  base: './',
  plugins: [peers(), precache(file('./src/service-worker.ts'), file('./public'))],
  // The package brings a worker and a module beside its entry; pre-bundling would part them.
  optimizeDeps: { exclude: ['mangrove-kv', 'mangrove-kv/inspector'] },
  worker: { format: 'es' },
  server: { port: 5173 },
  preview: { port: 4173 },
  build: { target: 'es2022', assetsInlineLimit: 0, reportCompressedSize: false },
});
