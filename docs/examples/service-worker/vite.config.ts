import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { defineConfig } from 'vite';
import type { Plugin } from 'vite';

/** Service workers cannot import anything later, so theirs is a single file. */
const serviceWorker: Plugin = {
  name: 'service-worker',
  async generateBundle() {
    const { outputFiles } = await build({
      entryPoints: [fileURLToPath(new URL('./service-worker.ts', import.meta.url))],
      bundle: true,
      write: false,
      format: 'esm',
      target: 'es2022',
      conditions: ['browser'],
      minify: true,
    });
    this.emitFile({ type: 'asset', fileName: 'service-worker.js', source: outputFiles[0]?.text ?? '' });
  },
};

export default defineConfig({
  plugins: [serviceWorker],
  build: { outDir: '../build/service-worker', emptyOutDir: true, target: 'es2022' },
});
