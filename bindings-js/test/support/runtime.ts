// The runtime that runs the tests.
export const isDeno = 'Deno' in globalThis;
export const isBun = 'Bun' in globalThis;

/** What stands between the runtime's program and a script. */
export function runtimeArgs(): string[] {
  return isDeno ? ['run', '--allow-all', '--no-lock', '--node-modules-dir=manual'] : [];
}
