import { createHash } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { defineConfig } from 'vite';
import type { Plugin } from 'vite';

const pathOf = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

/** Adds the service worker, which gets the names of all files: the WebAssembly modules and workers, too. */
const serviceWorker: Plugin = {
  name: 'service-worker',
  enforce: 'post',
  async generateBundle(_options, bundle) {
    const files = [
      './',
      ...readdirSync(pathOf('./public')),
      ...Object.keys(bundle).filter((name) => name !== 'index.html'),
    ].sort();
    // The names of files in `assets` contain a hash of what is in them.
    const page = bundle['index.html'];
    const version = createHash('sha256')
      .update(JSON.stringify([files, page?.type === 'asset' ? String(page.source) : '']))
      .digest('hex')
      .slice(0, 16);
    const { outputFiles } = await build({
      entryPoints: [pathOf('./service-worker.ts')],
      bundle: true,
      write: false,
      format: 'iife',
      target: 'es2022',
      minify: true,
      define: { FILES: JSON.stringify(files), VERSION: JSON.stringify(version) },
    });
    this.emitFile({ type: 'asset', fileName: 'service-worker.js', source: outputFiles[0]?.text ?? '' });
  },
};

export default defineConfig({
  base: './',
  plugins: [serviceWorker],
  build: { outDir: '../build/inspections', emptyOutDir: true, target: 'es2022' },
});
