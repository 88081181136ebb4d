/**
 * Collections of TanStack DB whose rows are in a database.
 *
 * @module @mangrove-kv/tanstack-db
 */
export { mangroveCollectionOptions, persistTransaction } from './collection.ts';
export type {
  MangroveCollectionConfig,
  MangroveCollectionOptions,
  MangroveCollectionUtils,
  TransactionOfMutations,
} from './collection.ts';
export type { IndexedProperties } from './indexes.ts';
export type { Mutation } from './mutations.ts';
