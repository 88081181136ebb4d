// Runs a program in a process of its own, in whichever runtime runs the tests.
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';

/** Runs it in a directory; returns what it prints. */
export function runIn(directory: string, program: string): string {
  const file = join(directory, 'program.mjs');
  writeFileSync(file, program);
  const deno = ['run', '--allow-all', '--no-lock', '--no-check', '--node-modules-dir=manual'];
  const { status, stdout, stderr } = spawnSync(process.execPath, ['Deno' in globalThis ? deno : [], file].flat(), {
    cwd: directory,
    encoding: 'utf8',
    env: { ...process.env, NO_COLOR: '1' },
  });
  return status === 0 && stderr === '' ? stdout : `${String(status)} ${stdout} ${stderr}`;
}
