// How the examples are started: in Node, or in the runtime that `EXAMPLES_IN` names.
import { fileURLToPath } from 'node:url';

export const RUNTIME = process.env['EXAMPLES_IN'] ?? 'node';
export const DIRECTORY = fileURLToPath(new URL('..', import.meta.url));

const COMMANDS: { readonly [runtime: string]: readonly string[] } = {
  node: [process.execPath, '--import', 'tsx'],
  deno: ['deno', 'run', '--allow-all', '--no-check', '--no-lock', '--node-modules-dir=manual'],
  bun: ['bun'],
};

/** Returns the command that runs an example. */
export function commandOf(example: string, ...args: string[]): [program: string, args: string[]] {
  const [program, ...flags] = COMMANDS[RUNTIME] ?? [];
  if (program === undefined)
    throw new Error(`EXAMPLES_IN is ${RUNTIME}; there are ${Object.keys(COMMANDS).join(', ')}`);
  return [program, [...flags, fileURLToPath(new URL(`../${example}`, import.meta.url)), ...args]];
}
