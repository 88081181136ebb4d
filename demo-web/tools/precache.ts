// Builds the service worker, which has to know every file of the page.
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'esbuild';
import type { Plugin } from 'vite';

function filesUnder(directory: string): string[] {
  const entries = readdirSync(directory, { withFileTypes: true, recursive: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name).slice(directory.length + 1));
}

export function precache(entry: string, publicDirectory: string): Plugin {
  return {
    name: 'precache',
    apply: 'build',
    enforce: 'post',
    async generateBundle(_options, bundle) {
      const version = createHash('sha256');
      const files = ['./'];
      for (const [name, file] of Object.entries(bundle).sort(([a], [b]) => (a < b ? -1 : 1))) {
        if (name.endsWith('.map')) continue;
        // The page is asked for by the address of its directory.
        if (name !== 'index.html') files.push(name);
        version.update(name).update(file.type === 'chunk' ? file.code : file.source);
      }
      for (const name of filesUnder(publicDirectory).sort()) {
        files.push(name);
        version.update(name).update(readFileSync(join(publicDirectory, name)));
      }
      const { outputFiles } = await build({
        entryPoints: [entry],
        bundle: true,
        write: false,
        minify: true,
        format: 'iife',
        target: 'es2022',
        define: { VERSION: JSON.stringify(version.digest('hex').slice(0, 16)), FILES: JSON.stringify(files) },
      });
      this.emitFile({ type: 'asset', fileName: 'service-worker.js', source: outputFiles[0]?.text ?? '' });
    },
  };
}
