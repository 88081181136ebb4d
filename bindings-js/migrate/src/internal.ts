/**
 * For the packages of this project that stand in for libraries on IndexedDB: exempt from semantic versioning.
 *
 * @module @mangrove-kv/migrate/internal
 */
export { checkTwinOptions } from './twin/databases.ts';
export type { TwinOptions } from './twin/databases.ts';
export { TwinStore, asIndexedDB, keyFrom, keyTo } from './twin/store.ts';
export type { Opened, Place } from './twin/store.ts';
export { fromStored, holdsBlob, stored } from './twin/stored.ts';
