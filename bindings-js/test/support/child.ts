// Runs support/child-main.mjs in another process of the same runtime.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { runtimeArgs } from './runtime.ts';

const MAIN = fileURLToPath(new URL('./child-main.mjs', import.meta.url));

export interface Child {
  /** The next line it prints; undefined at its end. */
  line(): Promise<string | undefined>;
  /** Ends it at once, as the system does when memory is short. */
  kill(): void;
  readonly ended: Promise<unknown>;
}

export function runChild(args: string[], main = MAIN): Child {
  const collecting = 'Deno' in globalThis ? ['--v8-flags=--expose-gc'] : 'Bun' in globalThis ? [] : ['--expose-gc'];
  const child = spawn(process.execPath, [...runtimeArgs(), ...collecting, main, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(child, 'exit');
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    line: async () => (await lines.next()).value as string | undefined,
    kill: () => child.kill('SIGKILL'),
    ended,
  };
}
