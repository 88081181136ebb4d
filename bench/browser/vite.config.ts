import { defineConfig } from 'vite';

export default defineConfig({
  // They bring workers and modules beside their entries; pre-bundling would part them.
  optimizeDeps: {
    exclude: ['mangrove-kv', '@sqlite.org/sqlite-wasm', '@journeyapps/wa-sqlite', '@electric-sql/pglite'],
  },
  worker: { format: 'es' },
  server: { port: 5183 },
  preview: { port: 5184, headers: { 'cache-control': 'max-age=600' } },
  build: { target: 'es2022', assetsInlineLimit: 0, reportCompressedSize: false, chunkSizeWarningLimit: 100_000 },
});
