import { defineConfig } from 'vite';

export default defineConfig({
  root: import.meta.dirname,
  // They bring workers and modules beside their entries; pre-bundling would part them.
  optimizeDeps: { exclude: ['mangrove-kv', '@mangrove-kv/tanstack-db', '@tanstack/browser-db-sqlite-persistence'] },
  worker: { format: 'es' },
  server: { port: 5193 },
  build: { target: 'es2022', assetsInlineLimit: 0, reportCompressedSize: false, chunkSizeWarningLimit: 100_000 },
});
