// The engines by name, ours first. Each module has `open(directory, options)`, which gives an object with
//
// - `write(entries)`, one atomic commit, and `put(key, value)`;
// - `get(key)`, awaited by the benchmark, `getSync(key)` where there is one, `getMany(keys)`;
// - `scan(reverse)`, how many entries it has read, and `range(from, limit)`, an array of entries;
// - `take()`, which removes the first entry in the order of the keys, in one commit, and gives it;
// - `close()`.
//
// and, where there are indexes, `openIndexed`, which gives an object with
//
// - `load(rows)`, `update(id, due)` and `close()`;
// - `get(id)`, `query(due, limit)`, in the order of what is due and then of ids, and `count(from, to)`, where indexes can be read;
// - `build()` and `buildBeside()` of an index over the full table each, `countBuilt()` and `countBuiltBeside()`.
//
// What is asynchronous gives a promise; what waits for the disk in the calling thread does not, and has no `overlaps`.
// Options are `ints` (numbers to numbers instead of strings to values), `values` ('bytes' or 'text'), `durable` and `cacheBytes`.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const require = createRequire(import.meta.url);

export const ENGINES = {
  mangrove: { load: () => import('./mangrove.mjs'), package: 'mangrove-kv', ours: true },
  'mangrove-sync': { load: () => import('./mangrove-sync.mjs'), package: 'mangrove-kv', ours: true },
  lmdb: { load: () => import('./lmdb.mjs'), package: 'lmdb' },
  'classic-level': { load: () => import('./classic-level.mjs'), package: 'classic-level' },
  'better-sqlite3': { load: () => import('./better-sqlite3.mjs'), package: 'better-sqlite3' },
  'node:sqlite': { load: () => import('./node-sqlite.mjs') },
  'mangrove-encrypted': {
    load: () => import('./mangrove-encrypted.mjs'),
    package: 'mangrove-kv',
    ours: true,
    isOptional: true,
  },
  'lmdb-encrypted': { load: () => import('./lmdb-encrypted.mjs'), package: 'lmdb', isOptional: true },
};

/** Those that run if none are chosen. */
export const DEFAULT_ENGINES = Object.keys(ENGINES).filter((name) => !ENGINES[name].isOptional);

/** What is installed, '' where it comes with Node, undefined where it is not there. */
export function version(name) {
  const { package: packageName } = ENGINES[name];
  if (packageName === undefined) return '';
  const directory = require.resolve.paths(packageName).map((path) => join(path, packageName));
  for (const place of directory) {
    try {
      return JSON.parse(readFileSync(join(place, 'package.json'), 'utf8')).version;
    } catch {
      // Not here.
    }
  }
  return undefined;
}
