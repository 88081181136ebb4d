/**
 * Copies a page's data from IndexedDB or localStorage into a database, once.
 *
 * @module @mangrove-kv/migrate
 */
import { KvError, keyCodecs } from 'mangrove-kv';
import type { Batch, Collection, CollectionOptions, CommitInfo, Database, Key, WriteOptions } from 'mangrove-kv';
import { misnamed } from 'mangrove-kv/internal';
import type { Names } from 'mangrove-kv/internal';
import { indexesOf } from './idb-indexes.ts';
import type { Indexes } from './idb-indexes.ts';
import { objectsOf, openSource, result } from './source.ts';
import { NOTHING, placeOf, statesOf } from './states.ts';
import type { State } from './states.ts';

export { dexieIndexes, indexesOf } from './idb-indexes.ts';
export type { IndexedDBIndex, Indexes } from './idb-indexes.ts';

// Derived from the environment, so that programs without the DOM types compile too.
type FactoryType = typeof globalThis extends { IDBFactory: new (...args: never[]) => infer F } ? F : object;
type StorageType = typeof globalThis extends { Storage: new (...args: never[]) => infer S } ? S : object;

/** A database of any key and value types. */
export interface MigrationTarget {
  /** Same as `collection` of a `Database`. */
  readonly collection: Database['collection'];
  /** Same as `batch` of a `Database`. */
  batch(): {
    /** The same batch, writing to another collection. */
    collection<K, V>(collection: Collection<K, V>): Batch<K, V>;
    /** Applies all writes or none. */
    commit(options?: WriteOptions): Promise<CommitInfo>;
  };
}

/** An entry of the source; `store` is the object store's name, `""` for localStorage. */
export interface SourceEntry {
  readonly store: string;
  readonly key: Key;
  readonly value: unknown;
}

/** Progress of a migration, including earlier calls. */
export interface MigrationProgress {
  /** Number of source entries processed so far. */
  readonly done: number;
  /** Number of entries in the source. */
  readonly total: number;
}

/** Options of every migration. */
export interface MigrationOptions<K, V> {
  /**
   * Returns what to store instead of an entry; `undefined` leaves the entry out. It may be
   * asynchronous, for example to read the bytes of a Blob.
   *
   * IndexedDB can hold values that a database cannot, such as a Blob, a File or a CryptoKey.
   * Without a `transform` that handles it, such a value ends the migration with KV_INVALID_VALUE,
   * which names the entry; nothing is left out silently.
   */
  transform?: ((entry: SourceEntry) => readonly [K, V] | undefined | Promise<readonly [K, V] | undefined>) | undefined;
  /** Called after each commit. */
  onProgress?: ((progress: MigrationProgress) => void) | undefined;
  /** Ends the migration between two commits; it rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** Options of `migrateIndexedDB`. */
export interface IndexedDBMigration<K, V> extends MigrationOptions<K, V> {
  /** Name of the IndexedDB database. */
  name: string;
  /** Object stores to copy. Default: all. */
  stores?: Iterable<string> | undefined;
  /**
   * Returns the collection for an object store. Default: the collection of the same name, with the
   * indexes of the object store.
   */
  into?: ((store: string) => Collection<K, V>) | undefined;
  /**
   * Number of entries that are read at once. Default: as many as take about 16 MiB, at most 256. A
   * commit has them all, or, if they take more than about 16 MiB, some of them.
   */
  batchSize?: number | undefined;
  /**
   * Whether the collection of an object store gets its indexes. Programs that write to it then have
   * to declare them, as `dexieIndexes` and `indexesOf` do. Has no effect with `into`, whose
   * collections have the indexes they were opened with. Default: true.
   */
  indexes?: boolean | undefined;
  /** Factory of the source. Default: the global one. */
  indexedDB?: FactoryType | undefined;
}

/** Options of `migrateLocalStorage`. */
export interface LocalStorageMigration<K, V> extends MigrationOptions<K, V> {
  /** Collection to copy into. Default: the collection `localStorage`. */
  into?: Collection<K, V> | undefined;
  /** Copies only keys that start with this prefix. */
  prefix?: string | undefined;
  /** Source to copy. Default: the global `localStorage`. */
  storage?: StorageType | undefined;
}

/** About what a commit has, and what is read at once without `batchSize`. */
const BATCH_BYTES = 16 << 20;
/** How many entries are read at first, when nothing is known of their size, and later. */
const [FIRST_ENTRIES, MAX_ENTRIES] = [16, 256];

const EVERY: Names<MigrationOptions<unknown, unknown>> = { transform: 1, onProgress: 1, signal: 1 };
const INDEXED_DB: Names<IndexedDBMigration<unknown, unknown>> = {
  ...EVERY,
  name: 1,
  stores: 1,
  into: 1,
  batchSize: 1,
  indexes: 1,
  indexedDB: 1,
};
const LOCAL_STORAGE: Names<LocalStorageMigration<unknown, unknown>> = { ...EVERY, into: 1, prefix: 1, storage: 1 };

function invalid(message: string): KvError {
  return new KvError('KV_INVALID_ARGUMENT', message);
}

function checkCall(
  call: string,
  db: MigrationTarget,
  options: Pick<MigrationOptions<unknown, unknown>, 'onProgress' | 'signal'> & { transform?: unknown },
  names: object,
): void {
  if (typeof db?.collection !== 'function' || typeof db.batch !== 'function')
    throw invalid(`${call} needs an open database`);
  const wrong = options === undefined ? `${call} needs options` : misnamed(call, options, names);
  if (wrong !== undefined) throw invalid(wrong);
  for (const name of ['transform', 'onProgress'] as const) {
    if (options[name] !== undefined && typeof options[name] !== 'function')
      throw invalid(`${name} has to be a function`);
  }
  if (options.signal !== undefined && typeof options.signal?.throwIfAborted !== 'function')
    throw invalid('signal has to be an AbortSignal');
}

function describe(key: Key): string {
  const text = typeof key === 'string' ? JSON.stringify(key) : key instanceof Date ? key.toISOString() : String(key);
  return text.length > 100 ? `${text.slice(0, 100)}…` : text;
}

function place({ store, key }: SourceEntry): string {
  return `${store === '' ? 'localStorage' : store}: ${describe(key)}`;
}

/** Returns what it adds to the batch. */
async function put<K, V>(
  batch: Batch<K, V>,
  entry: SourceEntry,
  { transform }: MigrationOptions<K, V>,
): Promise<readonly [K, V] | undefined> {
  const pair = transform === undefined ? ([entry.key as K, entry.value as V] as const) : await transform(entry);
  if (pair === undefined) return undefined;
  try {
    batch.set(pair[0], pair[1]);
  } catch (error) {
    if (!(error instanceof KvError)) throw error;
    throw new KvError(
      error.code,
      `${place(entry)} cannot be stored (${error.message}); convert it or leave it out with transform`,
      { cause: error },
    );
  }
  return pair;
}

function sourceIndexes(source: IDBDatabase, store: string): Indexes {
  const objects = objectsOf(source, store);
  return indexesOf([...objects.indexNames].map((name) => objects.index(name)));
}

/** What a batch writes for an entry of the source. */
interface Written {
  readonly entry: SourceEntry;
  readonly key: Key;
  readonly value: unknown;
}

/** The engine does not know which entry of a batch has too long a key or index key: names the one with the longest. */
function namingKey(error: unknown, written: readonly Written[], indexes: Indexes): unknown {
  if (!(error instanceof KvError) || error.code !== 'KV_KEY_TOO_LARGE') return error;
  let longest = { bytes: 0, where: '' };
  for (const { entry, key, value } of written) {
    for (const [name, { key: compute, multi = false }] of Object.entries(indexes)) {
      const computed = typeof compute === 'function' ? compute(value, key) : undefined;
      for (const indexKey of multi ? ((computed ?? []) as readonly Key[]) : [computed]) {
        const bytes =
          indexKey === undefined ? 0 : keyCodecs.any.encode(indexKey).length + keyCodecs.any.encode(key).length;
        if (bytes > longest.bytes)
          longest = { bytes, where: `${place(entry)} cannot be stored in the index ${JSON.stringify(name)}` };
      }
    }
  }
  if (longest.bytes === 0) {
    const bytes = written.map(({ key }) => keyCodecs.any.encode(key).length);
    const entry = written[bytes.indexOf(Math.max(...bytes))]?.entry;
    if (entry === undefined) return error;
    return new KvError(
      error.code,
      `${place(entry)} cannot be stored (${error.message}); shorten the key or leave the entry out with transform`,
      { cause: error },
    );
  }
  return new KvError(
    error.code,
    `${longest.where} (${error.message}); shorten the value or leave the entry out with transform`,
    { cause: error },
  );
}

/**
 * Copies object stores, for example those of idb-keyval, localForage and Dexie, in batches. Each
 * batch is one commit. The collections get the indexes of the object stores, by the same names, with
 * the same order and contents.
 *
 * The migration is resumable: after an interruption, another call continues after the last batch.
 * Once everything is copied, further calls copy nothing. The source stays unchanged, and must not
 * be written to meanwhile.
 *
 * Returns how many entries this call processed; 0 if there is no such database.
 */
export async function migrateIndexedDB<K = Key, V = unknown>(
  db: MigrationTarget,
  options: IndexedDBMigration<K, V>,
): Promise<number> {
  checkCall('migrateIndexedDB', db, options, INDEXED_DB);
  const { name, signal, into, batchSize, indexes = true, indexedDB = globalThis.indexedDB } = options;
  if (typeof name !== 'string') throw invalid('name has to be the name of an IndexedDB database');
  if (into !== undefined && typeof into !== 'function')
    throw invalid('into has to be a function that returns a collection');
  if (batchSize !== undefined && (!Number.isSafeInteger(batchSize) || batchSize < 1))
    throw invalid('batchSize has to be a whole number of at least 1');
  if (typeof indexes !== 'boolean') throw invalid('indexes has to be a boolean');
  if (
    options.stores !== undefined &&
    (typeof options.stores === 'string' || typeof options.stores?.[Symbol.iterator] !== 'function')
  ) {
    throw invalid('stores have to be an array of names');
  }
  if (indexedDB === undefined)
    throw new KvError('KV_UNSUPPORTED', 'there is no IndexedDB here; pass one with the option indexedDB');
  if (typeof indexedDB?.open !== 'function') throw invalid('indexedDB has to be an IDBFactory');
  signal?.throwIfAborted();
  const source = await openSource(indexedDB, name);
  if (source === undefined) return 0;
  try {
    const stores = [...(options.stores ?? source.objectStoreNames)];
    const states = statesOf(db);
    const found = (await states.getMany(stores.map((store) => placeOf(name, store)))).map((state) => state ?? NOTHING);
    const unknown = stores.find((store) => !source.objectStoreNames.contains(store));
    if (unknown !== undefined)
      throw invalid(
        `the IndexedDB database ${JSON.stringify(name)} has no object store ${JSON.stringify(unknown)}, but ${[...source.objectStoreNames].map((store) => JSON.stringify(store)).join(', ')}`,
      );
    const counts = await Promise.all(stores.map((store) => result(objectsOf(source, store).count(), store)));
    const total = counts.reduce((sum, count) => sum + count, 0);
    const before = found.reduce((sum, { done }) => sum + done, 0);
    let copied = 0;
    for (const [index, store] of stores.entries()) {
      let state = found[index] as State;
      if (state.isComplete) continue;
      const declared = into === undefined && indexes ? sourceIndexes(source, store) : {};
      // The keys of an object store are keys of the default codec, whatever the caller's types say.
      const target =
        into === undefined
          ? db.collection<K, V>(store, { indexes: declared as CollectionOptions<K, V>['indexes'] })
          : into(store);
      for (let limit = batchSize ?? FIRST_ENTRIES; !state.isComplete; ) {
        signal?.throwIfAborted();
        const range = state.last === undefined ? null : IDBKeyRange.lowerBound(state.last, true);
        const objects = objectsOf(source, store);
        const [keys, values] = (await Promise.all([
          result(objects.getAllKeys(range, limit), store),
          result(objects.getAll(range, limit), store),
        ])) as [Key[], unknown[]];
        let [at, bytes] = [0, 0];
        do {
          const begin = at;
          const batch = db.batch();
          const entries = batch.collection(target);
          const written: Written[] = [];
          for (; at < keys.length && (at === begin || entries.byteLength < BATCH_BYTES); at++) {
            const entry = { store, key: keys[at] as Key, value: values[at] };
            const pair = await put(entries, entry, options);
            if (pair !== undefined) written.push({ entry, key: pair[0] as Key, value: pair[1] });
          }
          bytes += entries.byteLength;
          const last = keys[at - 1] ?? state.last;
          state = {
            done: state.done + at - begin,
            isComplete: at === keys.length && at < limit,
            ...(last !== undefined && { last }),
          };
          batch.collection(states).set(placeOf(name, store), state);
          signal?.throwIfAborted();
          await batch.commit().catch((error: unknown) => {
            throw namingKey(error, written, declared);
          });
          copied += at - begin;
          options.onProgress?.({ done: before + copied, total });
        } while (at < keys.length);
        limit = batchSize ?? Math.max(1, Math.min(MAX_ENTRIES, Math.floor((BATCH_BYTES * at) / Math.max(1, bytes))));
      }
    }
    return copied;
  } finally {
    source.close();
  }
}

/**
 * Copies localStorage, whose values are strings, as one commit: all or nothing. Once that has
 * succeeded, further calls copy nothing. The source stays unchanged.
 *
 * Returns how many entries this call processed.
 */
export async function migrateLocalStorage<K = string, V = string>(
  db: MigrationTarget,
  options: LocalStorageMigration<K, V> = {},
): Promise<number> {
  checkCall('migrateLocalStorage', db, options, LOCAL_STORAGE);
  const {
    prefix = '',
    signal,
    storage = globalThis.localStorage,
    into = db.collection<K, V>('localStorage'),
  } = options;
  if (typeof prefix !== 'string') throw invalid('prefix has to be a string');
  if (storage === undefined)
    throw new KvError('KV_UNSUPPORTED', 'there is no localStorage here; pass one with the option storage');
  if (typeof storage?.getItem !== 'function') throw invalid('storage has to be a Storage, as localStorage is');
  signal?.throwIfAborted();
  const states = statesOf(db);
  const place: Key = ['localStorage', prefix];
  if (await states.has(place)) return 0;
  const keys = Array.from({ length: storage.length }, (_, index) => storage.key(index)).filter((key) =>
    key?.startsWith(prefix),
  ) as string[];
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
