// Builds in a child process, since the test's server has to answer in the meantime.
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';

const HERE = new URL('.', import.meta.url).pathname;

/** Runs `node build.mjs` with the bundler's name; returns the directory to serve. */
export async function build(bundler: string): Promise<string> {
  await promisify(execFile)(process.execPath, ['build.mjs', bundler], { cwd: HERE });
  return join(HERE, 'build', bundler, 'out');
}

export interface Report {
  readonly persistence: string;
  readonly runs: number;
  readonly keys: readonly string[];
  readonly restored: readonly string[];
  readonly inPage?: string;
}
