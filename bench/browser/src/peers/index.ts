// The stores by name, ours first. Each is loaded when it runs.
import type { Peer } from './peer.ts';

export interface PeerInfo {
  readonly title: string;
  readonly package?: string;
  readonly ours?: boolean;
  /** Whether it is measured with indexes too. */
  readonly hasIndexes?: boolean;
  /** The only stages that it takes part in. */
  readonly only?: readonly string[];
  /** Whether it stores nothing; then nobody is compared with it. */
  readonly isVolatile?: boolean;
  /** Whether it runs only if it is chosen. */
  readonly isOptional?: boolean;
  /** One sentence: how the benchmark uses it. */
  readonly use: string;
  load(): Promise<{ peer: Peer }>;
}

// The program imports this module as well, and there Vite defines nothing.
const { process } = globalThis as { process?: { readonly env: Readonly<Record<string, string | undefined>> } };
const env = (import.meta.env as Readonly<Record<string, string | undefined>> | undefined) ?? process?.env;
/** The `dist` of another build of ours, to compare with. The run serves it beside the page. */
export const BEFORE = env?.['VITE_MANGROVE_BEFORE'];

/** RxDB's own harness, for its storages. */
export const RXDB_STAGE = 'rxdb';

const STORES: Readonly<Record<string, PeerInfo>> = {
  mangrove: {
    title: 'Mangrove',
    package: 'mangrove-kv',
    ours: true,
    hasIndexes: true,
    load: () => import('./mangrove.ts'),
    use: '`open(name)` as it comes; `setMany`, `getMany`, `nextMany`, `prefix`.',
  },
  indexeddb: {
    title: 'IndexedDB',
    hasIndexes: true,
    load: () => import('./indexeddb.ts'),
    use: 'no library; one transaction for many gets or puts, scans by `getAllRecords` where the browser has it, else `getAll` with `getAllKeys` and a cursor backwards.',
  },
  'idb-keyval': {
    title: 'idb-keyval',
    package: 'idb-keyval',
    load: () => import('./idb-keyval.ts'),
    use: '`set`, `setMany`, `get`, `getMany` on a store of its own, whose transactions ask for the durability. It has no ranges.',
  },
  dexie: {
    title: 'Dexie',
    package: 'dexie',
    hasIndexes: true,
    load: () => import('./dexie.ts'),
    use: 'the key is a property of the object; `bulkPut`, `bulkGet`, `toArray` of ranges.',
  },
  'browser-level': {
    title: 'browser-level',
    package: 'browser-level',
    load: () => import('./browser-level.ts'),
    use: '`put`, `batch`, `get`, `getMany`, `nextv` with JSON values; its transactions are made to ask for the durability, for which it has no option.',
  },
  'sqlite-wasm': {
    title: 'SQLite (opfs-sahpool)',
    package: '@sqlite.org/sqlite-wasm',
    hasIndexes: true,
    load: () => import('./sqlite-wasm.ts'),
    use: 'in a worker spoken to by messages; a table without row ids, values as JSON text, prepared statements, write-ahead log with an exclusive lock.',
  },
  'wa-sqlite': {
    title: 'wa-sqlite (OPFSWriteAheadVFS)',
    package: '@journeyapps/wa-sqlite',
    load: () => import('./wa-sqlite.ts'),
    use: "PowerSync's published build, the synchronous one, in a worker spoken to by messages; table, values and statements as for SQLite.",
  },
  rxdb: {
    title: 'RxDB (Dexie)',
    package: 'rxdb',
    // Its tabs cannot go on with an old schema while another builds an index.
    only: ['indexes', RXDB_STAGE],
    load: () => import('./rxdb.ts'),
    use: 'its free storage on IndexedDB, whose transactions ask for the durability, in one tab without an own channel to others; `bulkInsert`, `find`, `count`, `incrementalPatch`; a new index is a schema version with a migration.',
  },
  'rxdb-memory': {
    title: 'RxDB (memory, not durable)',
    package: 'rxdb',
    only: ['indexes', RXDB_STAGE],
    isVolatile: true,
    load: () => import('./rxdb-memory.ts'),
    use: 'the same in memory: nothing is stored.',
  },
  'rxdb-mangrove': {
    title: 'RxDB (Mangrove)',
    package: 'rxdb',
    ours: true,
    only: [RXDB_STAGE],
    load: () => import('./rxdb-mangrove.ts'),
    use: 'RxDB with `getRxStorageMangrove({ durability })`.',
  },
  pglite: {
    title: 'PGlite (opfs-ahp)',
    package: '@electric-sql/pglite',
    load: () => import('./pglite.ts'),
    use: 'its own `PGliteWorker`, which elects a leader among tabs; text columns, many rows by `unnest`, many gets by `ANY`.',
  },
  'mangrove-encrypted': {
    title: 'Mangrove, encrypted',
    package: 'mangrove-kv',
    ours: true,
    isOptional: true,
    load: async () => ({ peer: (await import('./mangrove.ts')).encrypted }),
    use: 'as Mangrove, with a key.',
  },
};

export const PEERS: Readonly<Record<string, PeerInfo>> =
  BEFORE === undefined
    ? STORES
    : {
        ...STORES,
        'mangrove-before': {
          title: 'Mangrove before',
          hasIndexes: true,
          use: 'an earlier build, used as Mangrove is.',
          load: async () => {
            const { peerOf } = await import('./mangrove.ts');
            return { peer: peerOf(await import(/* @vite-ignore */ new URL('before/index.js', document.baseURI).href)) };
          },
        },
      };

/** Those that run if none are chosen. */
export const DEFAULT_PEERS: readonly string[] = Object.keys(PEERS).filter((name) => PEERS[name]?.isOptional !== true);

/** Stages that need indexes. */
export const INDEX_STAGES: readonly string[] = ['indexes', 'indexBuild'];

/** Whether a stage is for this store. */
export function takesPart(peer: string, stage: string): boolean {
  const { hasIndexes = false, only } = PEERS[peer] ?? {};
  if (only !== undefined) return only.includes(stage);
  return INDEX_STAGES.includes(stage) ? hasIndexes : stage !== RXDB_STAGE;
}
