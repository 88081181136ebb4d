// The libraries from which pages migrate, and the functions that migrate their data.
import { Dexie } from 'dexie';
import * as idbKeyval from 'idb-keyval';
import localforage from 'localforage';
import { dexieIndexes, indexesOf, migrateIndexedDB, migrateLocalStorage } from '@mangrove-kv/migrate';
import { PEOPLE, compareIndexes, fillPeople, peopleOf } from '../../bindings-js/migrate/test/support/dexie-people.ts';

export {
  Dexie,
  PEOPLE,
  compareIndexes,
  dexieIndexes,
  fillPeople,
  idbKeyval,
  indexesOf,
  localforage,
  migrateIndexedDB,
  migrateLocalStorage,
  peopleOf,
};
