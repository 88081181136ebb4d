// Packs the package as npm would publish it. It must be built.
import { execFileSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, toolEnv } from './tools.mjs';

/** Writes the tarball into the directory; returns its path. */
export function pack(directory) {
  mkdirSync(directory, { recursive: true });
  // The build has run; another test checks that packing notices that.
  const args = ['pack', '--ignore-scripts', '--json', '--pack-destination', directory, '--workspace', 'mangrove-kv'];
  const [{ filename }] = JSON.parse(execFileSync('npm', args, { cwd: ROOT, env: toolEnv(), encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }));
  return join(directory, filename);
}
