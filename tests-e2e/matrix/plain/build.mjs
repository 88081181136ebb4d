// No bundler: the package's files are served unchanged.
import { cpSync, readFileSync, writeFileSync } from 'node:fs';

cpSync('../node_modules/mangrove-kv/dist', 'out/kv', { recursive: true });
for (const name of ['index.html', 'main.js']) cpSync(name, `out/${name}`);
const app = readFileSync('app.js', 'utf8');
writeFileSync(
  'out/app.js',
  app.replace("'mangrove-kv/inline'", "'./kv/inline.js'").replace("'mangrove-kv'", "'./kv/index.js'"),
);
