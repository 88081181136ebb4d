// The libraries that pages keep data with, and the copying of what they have kept.
import { Dexie } from 'dexie';
import * as idbKeyval from 'idb-keyval';
import localforage from 'localforage';
import { migrateIndexedDB, migrateLocalStorage } from 'mangrove-kv/migrate';

export { Dexie, idbKeyval, localforage, migrateIndexedDB, migrateLocalStorage };
