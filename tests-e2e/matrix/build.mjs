// `node build.mjs vite` builds the small app with one bundler, as in a project that has installed
// the package from the registry. Without a name it installs the package.
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { pack } from '../../.ci/pack.mjs';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const WORK = join(HERE, 'build');
/** A copy, not a link: bundlers treat files outside `node_modules` differently. */
const INSTALLED = join(WORK, 'node_modules', 'mangrove-kv');

export function install() {
  rmSync(WORK, { recursive: true, force: true });
  mkdirSync(INSTALLED, { recursive: true });
  execFileSync('tar', ['-xzf', pack(WORK).get('mangrove-kv').tarball, '-C', INSTALLED, '--strip-components', '1']);
  // A page that exposes the unbundled package to tests.
  cpSync(join(HERE, 'bare'), join(WORK, 'served'), { recursive: true });
  cpSync(join(INSTALLED, 'dist'), join(WORK, 'served', 'kv'), { recursive: true });
}

/** Copies the app and the files of its bundler into one directory; returns that directory. */
export function stage(bundler, name = bundler) {
  const directory = join(WORK, name);
  rmSync(directory, { recursive: true, force: true });
  for (const source of ['shared', bundler]) cpSync(join(HERE, source), directory, { recursive: true });
  return directory;
}

/** Builds with one bundler; returns the directory to serve. */
export function build(bundler) {
  const directory = stage(bundler);
  execFileSync(process.execPath, ['build.mjs'], { cwd: directory, stdio: 'inherit' });
  return join(directory, 'out');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv[2] === undefined) install();
  else build(process.argv[2]);
}
