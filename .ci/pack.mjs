// Packs the packages as npm would publish them. They must be built.
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ON_TOP, PACKAGES } from '../bindings-js/build/packages.mjs';
import { ROOT, toolEnv } from './tools.mjs';

/** Manifests of all packages, by name. */
export const MANIFESTS = new Map(
  ['kv', ...ON_TOP, 'cli', 'create'].map((directory) => {
    const manifest = JSON.parse(readFileSync(join(PACKAGES, directory, 'package.json'), 'utf8'));
    return [manifest.name, manifest];
  }),
);

/** Writes the tarballs into the directory; returns by name the path of each and its bytes unpacked. */
export function pack(directory, names = ['mangrove-kv']) {
  mkdirSync(directory, { recursive: true });
  // The build has run; another test checks that packing notices that.
  const args = [
    'pack',
    '--ignore-scripts',
    '--json',
    '--pack-destination',
    directory,
    ...names.flatMap((name) => ['--workspace', name]),
  ];
  const packed = Object.values(
    JSON.parse(
      execFileSync('npm', args, { cwd: ROOT, env: toolEnv(), encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }),
    ),
  );
  return new Map(
    packed.map(({ name, filename, unpackedSize }) => [name, { tarball: join(directory, filename), unpackedSize }]),
  );
}

/** Installs tarballs into a directory, without what they are used with. */
export function install(directory, tarballs) {
  writeFileSync(join(directory, 'package.json'), '{ "private": true }');
  const args = ['install', '--offline', '--legacy-peer-deps', '--no-audit', '--no-fund', ...tarballs];
  execFileSync('npm', args, { cwd: directory, env: toolEnv(), stdio: 'pipe' });
}
