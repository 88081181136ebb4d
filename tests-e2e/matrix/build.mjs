// Builds the small app with one bundler, as a project would that has installed the package from the registry:
// `node build.mjs vite`. Without a name it installs the package.
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { pack } from '../../.ci/pack.mjs';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const WORK = join(HERE, 'build');
/** Not a link, as bundlers treat what lies outside `node_modules` in another way. */
const INSTALLED = join(WORK, 'node_modules', 'mangrove-kv');

export function install() {
  rmSync(WORK, { recursive: true, force: true });
  mkdirSync(INSTALLED, { recursive: true });
  execFileSync('tar', ['-xzf', pack(WORK), '-C', INSTALLED, '--strip-components', '1']);
  // A page that gives tests the package as it is.
  cpSync(join(HERE, 'bare'), join(WORK, 'served'), { recursive: true });
  cpSync(join(INSTALLED, 'dist'), join(WORK, 'served', 'kv'), { recursive: true });
}

/** Copies the app beside what its bundler needs; gives the directory. */
export function stage(bundler, name = bundler) {
  const directory = join(WORK, name);
  rmSync(directory, { recursive: true, force: true });
  for (const source of ['shared', bundler]) cpSync(join(HERE, source), directory, { recursive: true });
  return directory;
}

/** Gives the directory with what is to be served. */
export function build(bundler) {
  const directory = stage(bundler);
  execFileSync(process.execPath, ['build.mjs'], { cwd: directory, stdio: 'inherit' });
  return join(directory, 'out');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv[2] === undefined) install();
  else build(process.argv[2]);
}
