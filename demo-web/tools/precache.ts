// Builds the service worker, which has to know every file of the page.
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { build } from 'esbuild';
import type { Plugin } from 'vite';

type Bundle = Parameters<Extract<NonNullable<Plugin['generateBundle']>, (...args: never[]) => unknown>>[1];

function filesUnder(directory: string): string[] {
  const entries = readdirSync(directory, { withFileTypes: true, recursive: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(directory.length + 1));
}

/**
 * Files that the page refers to, directly or indirectly; except chunks with modules of the
 * benchmark, which would pull in the other stores.
 */
function filesOfPage(bundle: Bundle): string[] {
  const found = new Set<string>(['index.html']);
  const others = Object.entries(bundle).filter(
    ([, file]) => !(file.type === 'chunk' && file.moduleIds.some((id) => id.includes('/bench/browser/'))),
  );
  for (const name of found) {
    const file = bundle[name];
    const text =
      file === undefined ? '' : file.type === 'chunk' ? file.code : typeof file.source === 'string' ? file.source : '';
    for (const [other] of others) if (!other.endsWith('.map') && text.includes(basename(other))) found.add(other);
  }
  return [...found].sort();
}

export function precache(entry: string, publicDirectory: string): Plugin {
  return {
    name: 'precache',
    apply: 'build',
    enforce: 'post',
    async generateBundle(_options, bundle) {
      const version = createHash('sha256');
      const files = ['./'];
      for (const name of filesOfPage(bundle)) {
        const file = bundle[name];
        if (file === undefined) throw new Error(`the build has no ${name}`);
        // Browsers request the page by its directory's URL.
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
