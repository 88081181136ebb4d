// Options for collections of TanStack DB whose rows are in a database.
import { KvError } from 'mangrove-kv';
import type { Database, Durability } from 'mangrove-kv';
import { BTreeIndex, withCollectionConfigFactory } from '@tanstack/db';
import type { BaseCollectionConfig, CollectionConfig, InferSchemaOutput, SyncConfig, UtilsRecord } from '@tanstack/db';
import type { Row } from './expressions.ts';
import { Follower } from './follower.ts';
import type { RowKey } from './follower.ts';
import { Rows, toColumns } from './indexes.ts';
import type { IndexedProperties } from './indexes.ts';
import { commit } from './mutations.ts';
import type { Mutation, Store } from './mutations.ts';

type Schema = NonNullable<BaseCollectionConfig['schema']>;

/** A transaction of TanStack DB, as functions that store it receive it. */
export interface TransactionOfMutations {
  readonly mutations: readonly Mutation[];
}

/** What `collection.utils` has. */
export interface MangroveCollectionUtils extends UtilsRecord {
  /**
   * Stores the mutations of this collection that a transaction has, in one commit: for the
   * `mutationFn` of `createTransaction` and `createOptimisticAction`. Resolves when they are stored and
   * the collection has them. `persistTransaction` stores those of several collections in one commit.
   */
  acceptMutations: (transaction: TransactionOfMutations) => Promise<void>;
}

/** Options of `mangroveCollectionOptions`, besides those of every collection of TanStack DB. */
export interface MangroveCollectionConfig<T extends object, TKey extends RowKey, TSchema extends Schema = never>
  extends BaseCollectionConfig<T, TKey, TSchema, UtilsRecord> {
  /** The database or a promise of one, which its owner closes. */
  readonly database: Database | Promise<Database>;
  /** Name of the collection of the database that has the rows, by their keys. */
  readonly name: string;
  /**
   * Properties that queries filter or order by, as `'createdAt'` or `'address.city'`, and arrays of
   * them for indexes of several properties. Each is an index of the collection. Default: none.
   */
  readonly indexes?: readonly IndexedProperties[] | undefined;
  /**
   * Path of the property that `getKey` returns, as `'id'`: queries for some of its values, joins
   * included, read only these rows. Default: not known.
   */
  readonly keyPath?: string | undefined;
  /** When a write resolves. Default: as the database was opened. */
  readonly durability?: Durability | undefined;
  /**
   * With `syncMode: 'on-demand'`: milliseconds for which rows stay in the collection, and current, that
   * no query needs any more. Default: 300 000, five minutes.
   */
  readonly subsetGcTime?: number | undefined;
}

/** The options that `mangroveCollectionOptions` returns, for `createCollection`. */
export type MangroveCollectionOptions<
  T extends object,
  TKey extends RowKey,
  TSchema extends Schema = never,
> = CollectionConfig<T, TKey, TSchema, MangroveCollectionUtils> & {
  readonly id: string;
  readonly utils: MangroveCollectionUtils;
};

type Ours = Pick<
  MangroveCollectionConfig<object, RowKey>,
  'database' | 'name' | 'indexes' | 'keyPath' | 'durability' | 'subsetGcTime'
>;

const DEFAULT_SUBSET_GC_TIME = 300_000;

/** By the `utils` of collections of TanStack DB. */
const stores = new WeakMap<object, Store>();

const storeOf = (collection: object): Store | undefined => {
  const { utils } = collection as { utils?: object };
  return utils === undefined ? undefined : stores.get(utils);
};

function refused(what: string): KvError {
  return new KvError('KV_INVALID_ARGUMENT', `mangroveCollectionOptions: ${what}`);
}

function check({ database, name, indexes, subsetGcTime, keyPath }: Ours, getKey: unknown): void {
  if (typeof database !== 'object' || database === null)
    throw refused('database has to be an open database or a promise of one');
  if (typeof name !== 'string' || name === '') throw refused('name has to be the name of a collection of the database');
  if (typeof getKey !== 'function') throw refused('getKey has to be a function that returns the key of a row');
  if (indexes !== undefined && !Array.isArray(indexes)) throw refused('indexes has to be an array of properties');
  if (subsetGcTime !== undefined && !(typeof subsetGcTime === 'number' && subsetGcTime >= 0))
    throw refused('subsetGcTime has to be a number of milliseconds');
  if (keyPath !== undefined) toColumns(keyPath);
}

function toStore({ database, name, indexes = [], durability }: Ours): Store {
  const columns = indexes.map(toColumns);
  const rows = Promise.resolve(database).then((db) => new Rows(db, name, columns));
  // Reads of the rows report the failure.
  rows.catch(() => undefined);
  return { rows, durability, follower: undefined, writing: new Map() };
}

function toSync(
  store: Store,
  isEager: boolean,
  { keyPath, subsetGcTime = DEFAULT_SUBSET_GC_TIME }: Ours,
): SyncConfig<Row, RowKey> {
  return {
    rowUpdateMode: 'full',
    sync: (parameters) => {
      const follower = new Follower(parameters, store.rows, { isEager, keyPath: keyPath?.split('.'), subsetGcTime });
      store.follower = follower;
      return {
        cleanup: () => {
          follower.stop();
          if (store.follower === follower) store.follower = undefined;
        },
        ...(isEager
          ? {}
          : {
              loadSubset: (options) => follower.load(options),
              unloadSubset: (options) => follower.unload(options),
            }),
      };
    },
  };
}

/**
 * Options for a collection of TanStack DB whose rows are in a collection of a database, which all tabs
 * share: `createCollection(mangroveCollectionOptions({ database, name, getKey }))`.
 *
 * Each transaction of TanStack DB is one commit. What other tabs commit arrives by itself. With
 * `syncMode: 'on-demand'` only the rows are loaded that queries ask for, by ranges of `indexes`;
 * otherwise all of them.
 *
 * @throws KvError KV_INVALID_ARGUMENT if an option is wrong.
 */
export function mangroveCollectionOptions<TSchema extends Schema, TKey extends RowKey>(
  config: MangroveCollectionConfig<InferSchemaOutput<TSchema>, TKey, TSchema> & { readonly schema: TSchema },
): MangroveCollectionOptions<InferSchemaOutput<TSchema>, TKey, TSchema> & { readonly schema: TSchema };
export function mangroveCollectionOptions<T extends object, TKey extends RowKey>(
  config: MangroveCollectionConfig<T, TKey> & { readonly schema?: never },
): MangroveCollectionOptions<T, TKey> & { schema?: never };
export function mangroveCollectionOptions(given: object): object {
  const config = given as MangroveCollectionConfig<Row, RowKey, Schema>;
  check(config, config.getKey);
  const { database: _1, name, indexes: _2, keyPath: _3, durability: _4, subsetGcTime: _5, ...rest } = config;
  const { id = name, syncMode = 'eager', onInsert, onUpdate, onDelete } = rest;
  const store = toStore(config);
  const utils: MangroveCollectionUtils = {
    ...rest.utils,
    acceptMutations: ({ mutations }) =>
      commit([{ store, mutations: mutations.filter(({ collection }) => storeOf(collection) === store) }]),
  };
  stores.set(utils, store);
  type Handled = { readonly transaction: TransactionOfMutations };
  const handler =
    (own: unknown) =>
    async (params: Handled): Promise<unknown> => {
      const result = await (own as ((params: Handled) => unknown) | undefined)?.(params);
      await utils.acceptMutations(params.transaction);
      return result;
    };
  // Windows of an order are completed from an index in memory; without one, TanStack DB asks for all rows.
  const isIndexed = syncMode === 'on-demand' && rest.autoIndex === undefined;
  const options = {
    ...rest,
    ...(isIndexed ? { autoIndex: 'eager', defaultIndexType: rest.defaultIndexType ?? BTreeIndex } : {}),
    id,
    syncMode,
    utils,
    sync: toSync(store, syncMode === 'eager', config),
    onInsert: handler(onInsert),
    onUpdate: handler(onUpdate),
    onDelete: handler(onDelete),
  } as unknown as CollectionConfig<Row, RowKey, Schema, MangroveCollectionUtils>;
  return withCollectionConfigFactory(options, () => mangroveCollectionOptions({ ...config, id } as never) as never);
}

/**
 * Stores all mutations of a transaction of TanStack DB, whichever of the collections made by
 * `mangroveCollectionOptions` they are of, in one commit: `createTransaction({ mutationFn:
 * persistTransaction })`. Resolves when they are stored and the collections have them.
 *
 * @throws KvError KV_INVALID_ARGUMENT if a collection is of another kind, or they are in several
 * databases; KV_EXISTS if a row that is inserted exists. Nothing is stored then.
 */
export async function persistTransaction({
  transaction,
}: {
  readonly transaction: TransactionOfMutations;
}): Promise<void> {
  const parts = new Map<Store, Mutation[]>();
  for (const mutation of transaction.mutations) {
    const store = storeOf(mutation.collection);
    if (store === undefined)
      throw new KvError(
        'KV_INVALID_ARGUMENT',
        `persistTransaction: the collection ${JSON.stringify((mutation.collection as { id?: unknown }).id)} was not made with mangroveCollectionOptions; store its mutations in a mutationFn of your own, and these with utils.acceptMutations`,
      );
    const known = parts.get(store);
    if (known === undefined) parts.set(store, [mutation]);
    else known.push(mutation);
  }
  await commit([...parts].map(([store, mutations]) => ({ store, mutations })));
}
