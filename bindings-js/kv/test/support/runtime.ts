// The runtime that runs the tests, and scripts that it runs in separate processes.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

export const isDeno = 'Deno' in globalThis;
export const isBun = 'Bun' in globalThis;

/** Arguments between the runtime's executable and a script. */
export function runtimeArgs(): string[] {
  return isDeno ? ['run', '--allow-all', '--no-lock', '--node-modules-dir=manual'] : [];
}

/** Runs a script from this directory until it exits. */
export async function runScript(
  script: string,
  args: readonly string[],
): Promise<{ out: string; err: string; code: number }> {
  const path = fileURLToPath(new URL(script, import.meta.url));
  const child = spawn(process.execPath, [...runtimeArgs(), path, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  const printed = { out: '', err: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    printed.out += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    printed.err += text;
  });
  const [code] = (await once(child, 'close')) as [number];
  return { ...printed, code };
}
