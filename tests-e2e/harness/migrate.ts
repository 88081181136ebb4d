// The libraries from which pages migrate, and the functions that migrate their data.
import { Dexie } from 'dexie';
import * as idbKeyval from 'idb-keyval';
import localforage from 'localforage';
import { migrateIndexedDB, migrateLocalStorage } from 'mangrove-kv/migrate';

export { Dexie, idbKeyval, localforage, migrateIndexedDB, migrateLocalStorage };
