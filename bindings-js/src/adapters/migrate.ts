/**
 * Copies what a page has in IndexedDB or in localStorage into a database, once.
 *
 * @module mangrove-kv/migrate
 */
import { KvError } from 'mangrove-kv';
import type { Batch, Collection, CommitInfo, Database, Key, WriteOptions } from 'mangrove-kv';
import { misnamed } from '../names.ts';
import type { Names } from '../names.ts';

/** A database of any key and value types. */
export interface MigrationTarget {
  /** That of a `Database`. */
  readonly collection: Database['collection'];
  /** That of a `Database`. */
  batch(): {
    /** The same batch, writing another collection. */
    collection<K, V>(collection: Collection<K, V>): Batch<K, V>;
    /** Applies all or none. */
    commit(options?: WriteOptions): Promise<CommitInfo>;
  };
}

/** An entry of the source; `store` is the object store's name, `""` for localStorage. */
export interface SourceEntry {
  readonly store: string;
  readonly key: Key;
  readonly value: unknown;
}

/** How far a migration is, earlier calls included. */
export interface MigrationProgress {
  /** Entries of the source that are done with. */
  readonly done: number;
  /** Entries of the source. */
  readonly total: number;
}

/** Options of every migration. */
export interface MigrationOptions<K, V> {
  /**
   * What to store instead; `undefined` leaves the entry out. It may wait, as for the bytes of a Blob. What IndexedDB keeps and a database does
   * not, such as a Blob, a File or a CryptoKey, ends the migration with KV_INVALID_VALUE, which names the entry; nothing is left out unasked.
   */
  transform?: ((entry: SourceEntry) => readonly [K, V] | undefined | Promise<readonly [K, V] | undefined>) | undefined;
  /** Told after each commit. */
  onProgress?: ((progress: MigrationProgress) => void) | undefined;
  /** Ends it between two commits; it rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** Options of `migrateIndexedDB`. */
export interface IndexedDBMigration<K, V> extends MigrationOptions<K, V> {
  /** Name of the IndexedDB database. */
  name: string;
  /** Object stores to copy. Default: all. */
  stores?: Iterable<string> | undefined;
  /** The collection for an object store. Default: the one of its name. */
  into?: ((store: string) => Collection<K, V>) | undefined;
  /** Entries that are read at once and written as one commit. Default 256. */
  batchSize?: number | undefined;
  /** Default: the global one. */
  indexedDB?: IDBFactory | undefined;
}

/** Options of `migrateLocalStorage`. */
export interface LocalStorageMigration<K, V> extends MigrationOptions<K, V> {
  /** Default: the collection `localStorage`. */
  into?: Collection<K, V> | undefined;
  /** Only keys that begin with this. */
  prefix?: string | undefined;
  /** Default: the global `localStorage`. */
  storage?: Storage | undefined;
}

const EVERY: Names<MigrationOptions<unknown, unknown>> = { transform: 1, onProgress: 1, signal: 1 };
const INDEXED_DB: Names<IndexedDBMigration<unknown, unknown>> = { ...EVERY, name: 1, stores: 1, into: 1, batchSize: 1, indexedDB: 1 };
const LOCAL_STORAGE: Names<LocalStorageMigration<unknown, unknown>> = { ...EVERY, into: 1, prefix: 1, storage: 1 };

function invalid(message: string): KvError {
  return new KvError('KV_INVALID_ARGUMENT', message);
}

function checkCall(call: string, db: MigrationTarget, options: Pick<MigrationOptions<unknown, unknown>, 'onProgress' | 'signal'> & { transform?: unknown }, names: object): void {
  if (typeof db?.collection !== 'function' || typeof db.batch !== 'function') throw invalid(`${call} needs an open database`);
  const wrong = options === undefined ? `${call} needs options` : misnamed(call, options, names);
  if (wrong !== undefined) throw invalid(wrong);
  for (const name of ['transform', 'onProgress'] as const) {
    if (options[name] !== undefined && typeof options[name] !== 'function') throw invalid(`${name} has to be a function`);
  }
  if (options.signal !== undefined && typeof options.signal?.throwIfAborted !== 'function') throw invalid('signal has to be an AbortSignal');
}

interface State {
  readonly last?: Key;
  readonly done: number;
  readonly isComplete: boolean;
}

const NOTHING: State = { done: 0, isComplete: false };

/** How far each source is, in the same commits as its entries. */
function statesOf(db: MigrationTarget): Collection<Key, State> {
  return db.collection<Key, State>('mangrove-kv/migrate');
}

function describe(key: Key): string {
  const text = typeof key === 'string' ? JSON.stringify(key) : key instanceof Date ? key.toISOString() : String(key);
  return text.length > 100 ? `${text.slice(0, 100)}…` : text;
}

async function put<K, V>(batch: Batch<K, V>, entry: SourceEntry, { transform }: MigrationOptions<K, V>): Promise<void> {
  const pair = transform === undefined ? [entry.key as K, entry.value as V] as const : await transform(entry);
  if (pair === undefined) return;
  try {
    batch.set(pair[0], pair[1]);
  } catch (error) {
    if (!(error instanceof KvError)) throw error;
    const where = `${entry.store === '' ? 'localStorage' : entry.store}: ${describe(entry.key)}`;
    throw new KvError(error.code, `${where} cannot be stored (${error.message}); convert it or leave it out with transform`, { cause: error });
  }
}

function result<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** Undefined if there is no such database; none is created. */
async function openSource(factory: IDBFactory, name: string): Promise<IDBDatabase | undefined> {
  const request = factory.open(name);
  let isMissing = false;
  request.onupgradeneeded = () => {
    isMissing = true;
    request.transaction?.abort();
  };
  try {
    const source = await result(request);
    // Another tab that wants to upgrade or delete it does not have to wait; this migration fails and can be resumed.
    source.onversionchange = () => source.close();
    return source;
  } catch (error) {
    if (isMissing) return undefined;
    throw error;
  }
}

/**
 * Copies object stores, as those of idb-keyval, localForage and Dexie, in batches, each of which is one commit. It is resumable: after an
 * interruption another call goes on after the last batch, and once all is copied it copies nothing. The source stays as it is, and is not to
 * be written meanwhile. Gives how many entries this call went through; 0 if there is no such database.
 */
export async function migrateIndexedDB<K = Key, V = unknown>(db: MigrationTarget, options: IndexedDBMigration<K, V>): Promise<number> {
  checkCall('migrateIndexedDB', db, options, INDEXED_DB);
  const { name, signal, into = (store) => db.collection<K, V>(store), batchSize = 256, indexedDB = globalThis.indexedDB } = options;
  if (typeof name !== 'string') throw invalid('name has to be the name of an IndexedDB database');
  if (typeof into !== 'function') throw invalid('into has to be a function that gives a collection');
  if (!Number.isSafeInteger(batchSize) || batchSize < 1) throw invalid('batchSize has to be a whole number from 1');
  if (options.stores !== undefined && (typeof options.stores === 'string' || typeof options.stores?.[Symbol.iterator] !== 'function')) {
    throw invalid('stores have to be an array of names');
  }
  if (indexedDB === undefined) throw new KvError('KV_UNSUPPORTED', 'there is no IndexedDB here; give one with the option indexedDB');
  if (typeof indexedDB?.open !== 'function') throw invalid('indexedDB has to be an IDBFactory');
  signal?.throwIfAborted();
  const source = await openSource(indexedDB, name);
  if (source === undefined) return 0;
  try {
    const stores = [...options.stores ?? source.objectStoreNames];
    const states = statesOf(db);
    const found = (await states.getMany(stores.map((store) => ['indexedDB', name, store]))).map((state) => state ?? NOTHING);
    const counts = await Promise.all(stores.map((store) => result(source.transaction(store).objectStore(store).count())));
    const total = counts.reduce((sum, count) => sum + count, 0);
    const before = found.reduce((sum, { done }) => sum + done, 0);
    let copied = 0;
    for (const [index, store] of stores.entries()) {
      let state = found[index] as State;
      while (!state.isComplete) {
        signal?.throwIfAborted();
        const range = state.last === undefined ? null : IDBKeyRange.lowerBound(state.last, true);
        const objects = source.transaction(store).objectStore(store);
        const [keys, values] = await Promise.all([result(objects.getAllKeys(range, batchSize)), result(objects.getAll(range, batchSize))]);
        const batch = db.batch();
        const target = batch.collection(into(store));
        for (const [at, key] of (keys as Key[]).entries()) await put(target, { store, key, value: values[at] }, options);
        const last = keys.length > 0 ? keys.at(-1) as Key : state.last;
        state = { done: state.done + keys.length, isComplete: keys.length < batchSize, ...last !== undefined && { last } };
        batch.collection(states).set(['indexedDB', name, store], state);
        signal?.throwIfAborted();
        await batch.commit();
        copied += keys.length;
        options.onProgress?.({ done: before + copied, total });
      }
    }
    return copied;
  } finally {
    source.close();
  }
}

/**
 * Copies localStorage, whose values are strings, as one commit: all or nothing, and once it has succeeded another call copies nothing.
 * The source stays as it is. Gives how many entries this call went through.
 */
export async function migrateLocalStorage<K = string, V = string>(
  db: MigrationTarget,
  options: LocalStorageMigration<K, V> = {},
): Promise<number> {
  checkCall('migrateLocalStorage', db, options, LOCAL_STORAGE);
  const { prefix = '', signal, storage = globalThis.localStorage, into = db.collection<K, V>('localStorage') } = options;
  if (typeof prefix !== 'string') throw invalid('prefix has to be a string');
  if (storage === undefined) throw new KvError('KV_UNSUPPORTED', 'there is no localStorage here; give one with the option storage');
  if (typeof storage?.getItem !== 'function') throw invalid('storage has to be a Storage, as localStorage is');
  signal?.throwIfAborted();
  const states = statesOf(db);
  const place: Key = ['localStorage', prefix];
  if (await states.has(place)) return 0;
  const keys = Array.from({ length: storage.length }, (_, index) => storage.key(index)).filter((key) => key?.startsWith(prefix)) as string[];
  const entries = keys.map((key): SourceEntry => ({ store: '', key, value: storage.getItem(key) }));
  const batch = db.batch();
  const target = batch.collection(into);
  for (const entry of entries) await put(target, entry, options);
  batch.collection(states).set(place, { done: entries.length, isComplete: true });
  signal?.throwIfAborted();
  await batch.commit();
  options.onProgress?.({ done: entries.length, total: entries.length });
  return entries.length;
}
