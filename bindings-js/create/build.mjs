// Bundles the tool into dist/, and puts the templates beside it, each of them whole.
import { chmodSync, copyFileSync, cpSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { LAYERS } from './templates/layers.mjs';

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
/** Made from the guide by `npm run docs`. */
const SKILL = at('../../skills/mangrove-kv');

rmSync(at('dist'), { recursive: true, force: true });
await build({
  entryPoints: { 'create-mangrove-kv': at('src/main.ts') },
  outdir: at('dist'),
  bundle: true,
  format: 'esm',
  platform: 'node',
  target: 'es2022',
  legalComments: 'none',
  logLevel: 'warning',
});
chmodSync(at('dist/create-mangrove-kv.js'), 0o755);
for (const [name, layers] of Object.entries(LAYERS)) {
  const target = at(`dist/templates/${name}`);
  for (const layer of layers) cpSync(at(`templates/${layer}`), target, { recursive: true });
  mkdirSync(`${target}/_agents/skills`, { recursive: true });
  cpSync(SKILL, `${target}/_agents/skills/mangrove-kv`, { recursive: true });
}
for (const name of ['LICENSE-MIT', 'LICENSE-APACHE']) {
  if (existsSync(at(`../../${name}`))) copyFileSync(at(`../../${name}`), at(name));
}
