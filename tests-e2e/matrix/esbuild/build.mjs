// esbuild does not rewrite the URLs of workers and modules, so their files go beside the bundle.
import { copyFileSync, cpSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

await build({
  entryPoints: ['main.js'], outdir: 'out', bundle: true, splitting: true, format: 'esm', minify: true, logLevel: 'warning',
});
for (const name of ['worker', 'worker-upkeep', 'mangrove_core_bg.wasm', 'mangrove_rest_bg.wasm', 'mangrove_upkeep_bg.wasm']) {
  const path = fileURLToPath(import.meta.resolve(`mangrove-kv/${name}`));
  copyFileSync(path, `out/${path.slice(path.lastIndexOf('/') + 1)}`);
}
cpSync('index.html', 'out/index.html');
