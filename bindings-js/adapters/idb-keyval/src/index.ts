/**
 * The interface of idb-keyval 6 on Mangrove. Entries that idb-keyval stored are moved at the first call.
 *
 * @module @mangrove-kv/idb-keyval
 */
import { TwinStore, checkTwinOptions } from '@mangrove-kv/migrate/internal';
import type { TwinOptions } from '@mangrove-kv/migrate/internal';
import { inTransaction } from './object-store.ts';

/**
 * Runs a callback with an object store, in a transaction that commits when it is asked for nothing more. What
 * `createStore` returns is one; a program may pass one of its own, on any object store of IndexedDB.
 */
export type UseStore = <T>(
  txMode: IDBTransactionMode,
  callback: (store: IDBObjectStore) => T | PromiseLike<T>,
) => Promise<T>;

/** Where stores keep their data, and how they move old data there. */
export interface StoreOptions extends TwinOptions {}

const stores = new WeakMap<UseStore, TwinStore>();
let defaults: StoreOptions = {};
let defaultStore: UseStore | undefined;

/**
 * Sets the options of the default store, and of stores created from now on. Call it before the first use of the default
 * store. Not in idb-keyval.
 */
export function configure(options: StoreOptions): void {
  checkTwinOptions('configure', options);
  defaults = options;
  defaultStore = undefined;
}

/** Resolves with the result of a request, or when a transaction is complete. */
export function promisifyRequest<T = undefined>(request: IDBRequest<T> | IDBTransaction): Promise<T> {
  const target = request as IDBRequest<T> & IDBTransaction;
  return new Promise((resolve, reject) => {
    target.oncomplete = target.onsuccess = () => resolve(target.result);
    target.onabort = target.onerror = () => reject(target.error);
  });
}

/**
 * A store of its own, to pass as the last argument. It opens with its first use: a database whose name is
 * `idb-keyval/` and the escaped `dbName`, and in it the collection `storeName`. Several stores may have one `dbName`.
 */
export function createStore(dbName: string, storeName: string, options: StoreOptions = defaults): UseStore {
  checkTwinOptions('createStore', options);
  const store = new TwinStore({ name: String(dbName), store: String(storeName) }, 'idb-keyval', options);
  const use: UseStore = (txMode, callback) => {
    // As in IndexedDB, a transaction that writes has the store for itself, within this page.
    if (txMode === 'readonly') return store.open().then((opened) => inTransaction(opened, txMode, callback).result);
    return new Promise((resolve, reject) => {
      store
        .alone((opened) => {
          const { result, ended } = inTransaction(opened, txMode, callback);
          result.then(resolve, reject);
          return ended;
        })
        .catch(reject);
    });
  };
  stores.set(use, store);
  return use;
}

function defaultUse(): UseStore {
  defaultStore ??= createStore('keyval-store', 'keyval');
  return defaultStore;
}

/** Closes the database of a store, the default one if none is given. The next call opens it again. Not in idb-keyval. */
export async function close(customStore: UseStore = defaultUse()): Promise<void> {
  await stores.get(customStore)?.close();
}

/** The stand-in behind a store; `undefined` for a program's own `UseStore`, which gets IndexedDB's calls. */
function twinOf(use: UseStore): TwinStore | undefined {
  return stores.get(use);
}

/** Returns the value, or `undefined` if there is no entry. O(log n). */
// biome-ignore lint/suspicious/noExplicitAny: idb-keyval's type
export function get<T = any>(key: IDBValidKey, customStore: UseStore = defaultUse()): Promise<T | undefined> {
  const twin = twinOf(customStore);
  if (twin !== undefined) return twin.get(key) as Promise<T | undefined>;
  return customStore('readonly', (store) => promisifyRequest<T | undefined>(store.get(key)));
}

/** Inserts or replaces an entry. */
// biome-ignore lint/suspicious/noExplicitAny: idb-keyval's type
export function set(key: IDBValidKey, value: any, customStore: UseStore = defaultUse()): Promise<void> {
  return setMany([[key, value]], customStore);
}

/** Inserts or replaces all entries or none. */
// biome-ignore lint/suspicious/noExplicitAny: idb-keyval's type
export function setMany(entries: [IDBValidKey, any][], customStore: UseStore = defaultUse()): Promise<void> {
  const twin = twinOf(customStore);
  if (twin !== undefined) return twin.write(entries);
  return customStore('readwrite', (store) => {
    for (const [key, value] of entries) store.put(value, key);
    return promisifyRequest(store.transaction);
  });
}

/** Returns the values in the order of the keys, all from one state. */
// biome-ignore lint/suspicious/noExplicitAny: idb-keyval's type
export function getMany<T = any>(
  keys: IDBValidKey[],
  customStore: UseStore = defaultUse(),
): Promise<(T | undefined)[]> {
  const twin = twinOf(customStore);
  if (twin !== undefined) return twin.getMany(keys) as Promise<(T | undefined)[]>;
  return customStore('readonly', (store) =>
    Promise.all(keys.map((key) => promisifyRequest<T | undefined>(store.get(key)))),
  );
}

/**
 * Changes a value by a function of the old one, atomically: also with respect to other tabs. If another tab changes the
 * entry at the same moment, the function runs again.
 */
// biome-ignore lint/suspicious/noExplicitAny: idb-keyval's type
export function update<T = any>(
  key: IDBValidKey,
  updater: (oldValue: T | undefined) => T,
  customStore: UseStore = defaultUse(),
): Promise<void> {
  const twin = twinOf(customStore);
  if (twin !== undefined) return twin.update(key, (old) => updater(old as T | undefined));
  return customStore(
    'readwrite',
    (store) =>
      new Promise<void>((resolve, reject) => {
        const request: IDBRequest<T | undefined> = store.get(key);
        request.onsuccess = () => {
          try {
            store.put(updater(request.result), key);
            resolve(promisifyRequest(store.transaction));
          } catch (error) {
            reject(error);
          }
        };
        request.onerror = () => reject(request.error);
      }),
  );
}

/** Deletes an entry, if there is one. */
export function del(key: IDBValidKey, customStore: UseStore = defaultUse()): Promise<void> {
  return delMany([key], customStore);
}

/** Deletes all of the keys or none. */
export function delMany(keys: IDBValidKey[], customStore: UseStore = defaultUse()): Promise<void> {
  const twin = twinOf(customStore);
  if (twin !== undefined) return twin.delete(keys);
  return customStore('readwrite', (store) => {
    for (const key of keys) store.delete(key);
    return promisifyRequest(store.transaction);
  });
}

/** Deletes all entries. */
export function clear(customStore: UseStore = defaultUse()): Promise<void> {
  const twin = twinOf(customStore);
  if (twin !== undefined) return twin.clear();
  return customStore('readwrite', (store) => {
    store.clear();
    return promisifyRequest(store.transaction);
  });
}

/** Returns all keys, in IndexedDB's order. */
export function keys<KeyType extends IDBValidKey>(customStore: UseStore = defaultUse()): Promise<KeyType[]> {
  const twin = twinOf(customStore);
  if (twin !== undefined) return twin.keys() as Promise<KeyType[]>;
  return customStore('readonly', (store) => promisifyRequest(store.getAllKeys() as unknown as IDBRequest<KeyType[]>));
}

/** Returns all values, in the order of their keys. */
// biome-ignore lint/suspicious/noExplicitAny: idb-keyval's type
export function values<T = any>(customStore: UseStore = defaultUse()): Promise<T[]> {
  const twin = twinOf(customStore);
  if (twin !== undefined) return twin.values() as Promise<T[]>;
  return customStore('readonly', (store) => promisifyRequest(store.getAll() as IDBRequest<T[]>));
}

/** Returns all entries, in the order of their keys, from one state. */
// biome-ignore lint/suspicious/noExplicitAny: idb-keyval's type
export function entries<KeyType extends IDBValidKey, ValueType = any>(
  customStore: UseStore = defaultUse(),
): Promise<[KeyType, ValueType][]> {
  const twin = twinOf(customStore);
  if (twin !== undefined) return twin.entries() as Promise<[KeyType, ValueType][]>;
  return customStore('readonly', async (store) => {
    const [all, found] = await Promise.all([
      promisifyRequest(store.getAllKeys() as unknown as IDBRequest<KeyType[]>),
      promisifyRequest(store.getAll() as IDBRequest<ValueType[]>),
    ]);
    return all.map((key, index) => [key, found[index] as ValueType]);
  });
}
