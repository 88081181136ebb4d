// Runs the command line tool in another process of the same runtime, or another program with the
// same arguments.
import { spawnSync } from 'node:child_process';
import process from 'node:process';
import { fileURLToPath } from 'node:url';

const MAIN = fileURLToPath(new URL('../../dist/cli.js', import.meta.url));
const RUNTIME_ARGS = 'Deno' in globalThis ? ['run', '--allow-all', '--no-lock', '--node-modules-dir=manual'] : [];

export interface Run {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

export function runProgram(program: readonly string[], args: readonly string[], input: string | Uint8Array = ''): Run {
  const [command, ...first] = program as [string, ...string[]];
  const { status, stdout, stderr, error } = spawnSync(command, [...first, ...args], { input, maxBuffer: 64 << 20 });
  if (error !== undefined) throw error;
  return { code: status, out: stdout.toString('latin1'), err: stderr.toString('utf8') };
}

export const CLI: readonly string[] = [process.execPath, ...RUNTIME_ARGS, MAIN];

export function cli(args: readonly string[], input?: string | Uint8Array): Run {
  return runProgram(CLI, args, input);
}
