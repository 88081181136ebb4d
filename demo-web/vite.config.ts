import { defineConfig } from 'vite';

export default defineConfig({
  // The package brings a worker and a module beside its entry; pre-bundling would part them.
  optimizeDeps: { exclude: ['mangrove-kv'] },
  worker: { format: 'es' },
  server: { port: 5173 },
  preview: { port: 4173 },
  build: { target: 'es2022', assetsInlineLimit: 0, reportCompressedSize: false },
});
