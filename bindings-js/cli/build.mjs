// Bundles the tool into dist/. mangrove-kv stays a package of its own, as does what a verb loads of other packages.
import { chmodSync, copyFileSync, existsSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const at = (path) => fileURLToPath(new URL(path, import.meta.url));

rmSync(at('dist'), { recursive: true, force: true });
await build({
  entryPoints: { 'mangrove-kv': at('src/main.ts'), archive: at('src/archive/run.ts') },
  outdir: at('dist'),
  bundle: true,
  splitting: true,
  format: 'esm',
  platform: 'node',
  target: 'es2022',
  external: ['mangrove-kv', 'mangrove-kv/*', '@mangrove-kv/*'],
  // commander is CommonJS.
  banner: { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" },
  legalComments: 'none',
  logLevel: 'warning',
});
chmodSync(at('dist/mangrove-kv.js'), 0o755);
copyFileSync(
  join(dirname(createRequire(import.meta.url).resolve('commander')), 'LICENSE'),
  at('dist/commander-license.txt'),
);
for (const name of ['LICENSE-MIT', 'LICENSE-APACHE']) {
  if (existsSync(at(`../../${name}`))) copyFileSync(at(`../../${name}`), at(name));
}
