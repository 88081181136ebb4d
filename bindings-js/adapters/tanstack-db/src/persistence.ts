/**
 * TanStack DB's persistence contract over a database, for `persistedCollectionOptions`.
 *
 * @module @mangrove-kv/tanstack-db/persistence
 */
import { KvError } from 'mangrove-kv';
import type { Database, Durability } from 'mangrove-kv';
import { misnamed } from 'mangrove-kv/internal';
import type { Names } from 'mangrove-kv/internal';
import type {
  PersistedCollectionCoordinator,
  PersistedCollectionMode,
  PersistedCollectionPersistence,
} from '@tanstack/db-sqlite-persistence-core';
import { MangrovePersistenceAdapter } from './adapter.ts';
import type { Expected, Shared } from './adapter.ts';
import { MangroveCoordinator } from './coordinator.ts';
import { Layout } from './layout.ts';

/** Options of `mangrovePersistence`. */
export interface MangrovePersistenceOptions {
  /** Beginning of the names of the database's collections that are used, without a `/`. Default: `"tanstack"`. */
  readonly prefix?: string | undefined;
  /** When a transaction counts as stored. Default: as the database was opened. */
  readonly durability?: Durability | undefined;
  /**
   * What becomes of the rows of a collection that was stored with another `schemaVersion`: `"reset"`
   * removes them, `"error"` refuses to use the collection. Default: `"reset"` for collections with a
   * source that sends them again, `"error"` for those without.
   */
  readonly schemaMismatchPolicy?: 'reset' | 'error' | undefined;
}

const OPTIONS: Names<MangrovePersistenceOptions> = { prefix: 1, durability: 1, schemaMismatchPolicy: 1 };
const DEFAULT_SCHEMA_VERSION = 1;

function refused(what: string): KvError {
  return new KvError('KV_INVALID_ARGUMENT', what);
}

/**
 * Returns the option `persistence` of `persistedCollectionOptions`, for any number of collections. Each
 * persisted transaction is one commit, and an index that TanStack DB has is an index of the rows. Tabs
 * share the database, so no tab leads: each follows the commits of all.
 *
 * @throws KvError KV_INVALID_ARGUMENT if an option is wrong.
 */
export function mangrovePersistence(
  database: Database | Promise<Database>,
  options: MangrovePersistenceOptions = {},
): PersistedCollectionPersistence & { readonly coordinator: PersistedCollectionCoordinator } {
  const wrong = misnamed('mangrovePersistence', options, OPTIONS);
  if (wrong !== undefined) throw refused(wrong);
  const { prefix = 'tanstack', durability, schemaMismatchPolicy } = options;
  // With one, `a` and `a/rows` could name the same collection.
  if (typeof prefix !== 'string' || prefix.includes('/'))
    throw refused('prefix of mangrovePersistence has to be a string without "/"');
  if (schemaMismatchPolicy !== undefined && schemaMismatchPolicy !== 'reset' && schemaMismatchPolicy !== 'error')
    throw refused('schemaMismatchPolicy of mangrovePersistence has to be "reset" or "error"');
  const layout = Promise.resolve(database).then((db) => new Layout(db, prefix));
  // Each call awaits it and reports the failure.
  layout.catch(() => undefined);

  const shared: Shared = {
    layout,
    durability,
    following: () => coordinator.following(),
    committing: (commit) => coordinator.committing(commit),
    observe: (position) => coordinator.observe(position),
  };
  const adapters = new Map<string, MangrovePersistenceAdapter>();
  /** By the id of the collection, the adapter that its options were resolved to last. */
  const resolved = new Map<string, MangrovePersistenceAdapter>();
  const adapterFor = (
    mode: PersistedCollectionMode,
    schemaVersion = DEFAULT_SCHEMA_VERSION,
  ): MangrovePersistenceAdapter => {
    const expected: Expected = {
      schemaVersion,
      onMismatch: schemaMismatchPolicy ?? (mode === 'sync-present' ? 'reset' : 'error'),
    };
    const key = JSON.stringify(expected);
    let adapter = adapters.get(key);
    if (adapter === undefined) adapters.set(key, (adapter = new MangrovePersistenceAdapter(shared, expected)));
    return adapter;
  };
  const adapter = adapterFor('sync-absent');
  const coordinator = new MangroveCoordinator(layout, (id) => resolved.get(id) ?? adapter);
  return {
    adapter,
    coordinator,
    resolvePersistenceForCollection: ({ collectionId, mode, schemaVersion }) => {
      const own = adapterFor(mode, schemaVersion);
      resolved.set(collectionId, own);
      return { adapter: own, coordinator };
    },
  };
}
