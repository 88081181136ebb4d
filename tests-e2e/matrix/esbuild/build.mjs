// esbuild does not rewrite the URLs of workers and modules, so their files go beside the bundle.
import { copyFileSync, cpSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

await build({
  entryPoints: ['main.js'],
  outdir: 'out',
  bundle: true,
  splitting: true,
  format: 'esm',
  minify: true,
  logLevel: 'warning',
});
for (const name of [
  'worker.js',
  'worker-maintenance.js',
  'mangrove_core_bg.wasm',
  'mangrove_lazy_bg.wasm',
  'mangrove_maintenance_bg.wasm',
]) {
  copyFileSync(fileURLToPath(import.meta.resolve(`mangrove-kv/assets/${name}`)), `out/${name}`);
}
cpSync('index.html', 'out/index.html');
