// The versions of TanStack DB that its other packages depend on.
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

/** TanStack DB as a package imports it. */
export async function tanStackOf(name: string): Promise<typeof import('@tanstack/db')> {
  const from = createRequire(fileURLToPath(import.meta.resolve(name)));
  const directory = dirname(from.resolve('@tanstack/db/package.json'));
  return import(pathToFileURL(join(directory, 'dist', 'esm', 'index.js')).href);
}
