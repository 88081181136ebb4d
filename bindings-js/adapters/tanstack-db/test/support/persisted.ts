// The version of TanStack DB that the persistence core depends on.
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

type TanStack = typeof import('@tanstack/db');

const core = createRequire(fileURLToPath(import.meta.resolve('@tanstack/db-sqlite-persistence-core')));
const directory = dirname(core.resolve('@tanstack/db/package.json'));

export const { createCollection, createLiveQueryCollection, eq, gt, BTreeIndex } = (await import(
  pathToFileURL(join(directory, 'dist', 'esm', 'index.js')).href
)) as TanStack;
