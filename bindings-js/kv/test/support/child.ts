// Runs support/child-main.mjs in another process of the same runtime.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const MAIN = fileURLToPath(new URL('./child-main.mjs', import.meta.url));

export interface Child {
  /** The next line it prints; undefined at the end of its output. */
  line(): Promise<string | undefined>;
  /** Kills it at once, as the system does when memory is short. */
  kill(): void;
  readonly ended: Promise<unknown>;
}

const DENO_ARGS = ['run', '--allow-all', '--no-lock', '--node-modules-dir=manual', '--v8-flags=--expose-gc'];

/** How a process is started. */
export interface Surroundings {
  readonly env?: Record<string, string>;
  /** A wrapper program with its arguments, to which the command is appended. */
  readonly within?: readonly string[];
  /** The script; by default child-main.mjs. */
  readonly main?: string;
}

export function runChild(args: readonly string[], surroundings: Surroundings = {}): Child {
  const runtime = 'Deno' in globalThis ? 'deno' : 'Bun' in globalThis ? 'bun' : 'node';
  return start([process.execPath, ...argsOf(runtime), surroundings.main ?? MAIN, ...args], surroundings);
}

export const RUNTIMES = ['node', 'deno', 'bun'] as const;
type Runtime = (typeof RUNTIMES)[number];

function argsOf(runtime: Runtime): readonly string[] {
  return { node: ['--expose-gc'], deno: DENO_ARGS, bun: [] }[runtime];
}

/** Like `runChild`, but in the given runtime. */
export function runChildOf(runtime: Runtime, args: readonly string[], surroundings: Surroundings = {}): Child {
  const program =
    runtime === 'node' ? 'node' : fileURLToPath(new URL(`../../../../node_modules/.bin/${runtime}`, import.meta.url));
  return start([program, ...argsOf(runtime), surroundings.main ?? MAIN, ...args], surroundings);
}

function start(command: readonly string[], { env, within = [] }: Surroundings): Child {
  const [program, ...args] = [...within, ...command] as [string, ...string[]];
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'], env: { ...process.env, ...env } });
  const ended = once(child, 'exit');
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    line: async () => (await lines.next()).value as string | undefined,
    kill: () => child.kill('SIGKILL'),
    ended,
  };
}
