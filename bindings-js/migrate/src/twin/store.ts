// An object store of IndexedDB that is a collection: keys, values, errors and the order of calls are IndexedDB's.
import { KvError } from 'mangrove-kv';
import type { Collection, Database, Key } from 'mangrove-kv';
import { isSnapshotLost, untilWhole } from 'mangrove-kv/internal';
import { toKey } from '../idb-keys.ts';
import { databaseName, sharedDatabase } from './databases.ts';
import type { TwinOptions } from './databases.ts';
import { dropStores, moveStore } from './move.ts';
import { fromStored, holdsBlob, isRefusal, stored, toStored, toStoredWithBlobs } from './stored.ts';

/** Which object store a collection stands for. */
export interface Place {
  /** Name of the IndexedDB database. */
  readonly name: string;
  /** Name of the object store. */
  readonly store: string;
}

/** The collection, once everything was moved there. */
export interface Opened {
  readonly db: Database;
  readonly collection: Collection<Key, unknown>;
}

const NAMES: Partial<Record<KvError['code'], string>> = {
  KV_INVALID_KEY: 'DataError',
  KV_KEY_TOO_LARGE: 'DataError',
  KV_INVALID_VALUE: 'DataCloneError',
  KV_QUOTA_EXCEEDED: 'QuotaExceededError',
};

function exception(name: string, message: string, cause?: unknown): DOMException {
  return Object.assign(new DOMException(message, name), cause !== undefined && { cause });
}

/** The exception that IndexedDB has for an error, with that as its cause; other errors stay what they are. */
export function asIndexedDB(error: unknown): unknown {
  const name = error instanceof KvError ? NAMES[error.code] : undefined;
  return name === undefined ? error : exception(name, (error as KvError).message, error);
}

/** The key that a value is. */
export function keyFrom(value: unknown): Key {
  const key = toKey(value);
  if (key === undefined)
    throw exception(
      'DataError',
      `a ${typeof value} is not a valid key; keys are numbers, strings, Dates, binaries and arrays`,
    );
  return key;
}

/** The key as IndexedDB returns it: binaries are ArrayBuffers. */
export function keyTo(key: Key): unknown {
  if (Array.isArray(key)) return (key as Key[]).map(keyTo);
  return key instanceof Uint8Array ? key.slice().buffer : key;
}

/** The value as its copy is stored. Throws for one that is never stored. */
function returned(value: unknown): unknown {
  if (typeof (value as { then?: unknown } | null | undefined)?.then === 'function')
    throw exception('DataCloneError', 'a promise could not be cloned; the callback of update has to return the value');
  return stored(value);
}

/** Deletions of stores that are under way, by the database; later calls on any store of it wait for them. */
const drops = new Map<string, Promise<void>>();

/** An object store's stand-in. It opens its database, and moves the entries there, with its first call. */
export class TwinStore {
  readonly #place: Place;
  /** Name of the database. */
  readonly #database: string;
  readonly #options: TwinOptions;
  #opening: Promise<Opened> | undefined;
  /** Calls that later ones wait for: those that read Blobs or run a function of the program first. */
  #tail: Promise<void> | undefined;

  constructor(place: Place, directory: string, options: TwinOptions) {
    this.#place = place;
    this.#database = databaseName(options.directory ?? directory, place.name);
    this.#options = options;
  }

  /** A copy that ends with the page, or that a service worker has for itself, is not what the next page opens. */
  #keepsSource({ persistence }: Database): boolean {
    const { keepSource = false, storage } = this.#options;
    return keepSource || persistence === 'memory' || (persistence === 'indexeddb' && storage !== 'indexeddb');
  }

  async #open(): Promise<Opened> {
    const db = await sharedDatabase(this.#database, this.#options);
    const { name, store } = this.#place;
    const { onUnmovable = 'throw', indexedDB } = this.#options;
    const collection = db.collection<Key, unknown>(store);
    await moveStore(db, {
      name,
      store,
      into: collection,
      keepSource: this.#keepsSource(db),
      onUnmovable,
      indexedDB: indexedDB as IDBFactory | undefined,
    });
    return { db, collection };
  }

  /** The collection, opened once; a failed opening is tried again by the next call. */
  open(): Promise<Opened> {
    if (this.#opening !== undefined) return this.#opening;
    const opening = this.#open();
    this.#opening = opening;
    const forget = (): void => {
      if (this.#opening === opening) this.#opening = undefined;
    };
    opening.then(({ db }) => db.addEventListener('close', forget), forget);
    return opening;
  }

  /** Lets later calls wait for `work`. */
  #after<T>(work: Promise<T>): Promise<T> {
    const tail: Promise<void> = Promise.allSettled([this.#tail, work]).then(() => {
      if (this.#tail === tail) this.#tail = undefined;
    });
    this.#tail = tail;
    return work;
  }

  /** What a call has to wait for, `undefined` if nothing. */
  #before(): Promise<unknown> | undefined {
    const drop = drops.get(this.#database);
    return drop === undefined ? this.#tail : Promise.all([this.#tail, drop]);
  }

  /** Makes a call after those before it. */
  async #run<T>(work: (opened: Opened) => Promise<T>): Promise<T> {
    try {
      return await this.open().then((opened) => {
        const before = this.#before();
        return before === undefined ? work(opened) : this.#after(before.then(() => work(opened)));
      });
    } catch (error) {
      throw asIndexedDB(error);
    }
  }

  /** Runs `work` alone: calls after it wait for its end. */
  alone<T>(work: (opened: Opened) => Promise<T>): Promise<T> {
    return this.#run((opened) => this.#after(work(opened)));
  }

  /** `undefined` if there is no entry. */
  async get(key: unknown): Promise<unknown> {
    const at = keyFrom(key);
    return this.#run(async ({ collection }) => fromStored(await collection.get(at)));
  }

  async has(key: unknown): Promise<boolean> {
    const at = keyFrom(key);
    return this.#run(({ collection }) => collection.has(at));
  }

  async getMany(keys: readonly unknown[]): Promise<unknown[]> {
    const all = keys.map(keyFrom);
    return this.#run(async ({ collection }) => (await collection.getMany(all)).map(fromStored));
  }

  /** Writes all entries or none. */
  async write(entries: readonly (readonly [key: unknown, value: unknown])[]): Promise<void> {
    const pairs = entries.map(([key, value]) => [keyFrom(key), value] as const);
    await this.#run(({ db, collection }) => {
      const commit = (values: readonly unknown[]): Promise<unknown> => {
        const batch = db.batch();
        const target = batch.collection(collection);
        try {
          for (const [index, [key]] of pairs.entries()) target.set(key, values[index]);
        } catch (error) {
          batch[Symbol.dispose]();
          throw error;
        }
        return batch.commit();
      };
      try {
        return commit(pairs.map(([, value]) => toStored(value)));
      } catch (error) {
        if (!isRefusal(error) || !pairs.some(([, value]) => holdsBlob(value))) throw error;
        // The copies are made now, so that the program may change its values.
        const copies = pairs.map(([, value]) =>
          holdsBlob(value) ? toStoredWithBlobs(value) : toStored(structuredClone(value)),
        );
        return this.#after(Promise.all(copies).then(commit));
      }
    });
  }

  async delete(keys: readonly unknown[]): Promise<void> {
    const all = keys.map(keyFrom);
    await this.#run(({ collection }) => collection.deleteMany(all));
  }

  clear(): Promise<void> {
    return this.#run(({ collection }) => collection.clear());
  }

  /** Changes a value atomically. `change` runs again if another tab changes it at the same moment. */
  async update(key: unknown, change: (old: unknown) => unknown): Promise<void> {
    const at = keyFrom(key);
    await this.alone(({ collection }) => collection.update(at, (old) => returned(change(fromStored(old)))));
  }

  keys(): Promise<unknown[]> {
    return this.#run(async ({ collection }) => (await untilWhole(() => collection.keys().toArray())).map(keyTo));
  }

  values(): Promise<unknown[]> {
    return this.#run(async ({ collection }) => (await untilWhole(() => collection.values().toArray())).map(fromStored));
  }

  entries(): Promise<[unknown, unknown][]> {
    return this.#run(async ({ collection }) =>
      (await untilWhole(() => collection.entries().toArray())).map(([key, value]) => [keyTo(key), fromStored(value)]),
    );
  }

  /**
   * Calls `visit` for each entry, in the order of keys, until it returns something; resolves to that. Sees one state,
   * unless the tab that keeps it ends meanwhile.
   */
  visit(visit: (value: unknown, key: unknown) => unknown): Promise<unknown> {
    return this.#run(async ({ collection }) => {
      let last: Key | undefined;
      for (;;) {
        try {
          for await (const [key, value] of collection.entries(last === undefined ? {} : { gt: last })) {
            last = key;
            const result = visit(fromStored(value), keyTo(key));
            if (result !== undefined) return result;
          }
          return undefined;
        } catch (error) {
          if (!isSnapshotLost(error)) throw error;
        }
      }
    });
  }

  count(): Promise<number> {
    return this.#run(({ collection }) => collection.count());
  }

  /** The key at a position, `undefined` beyond the end. */
  keyAt(index: number): Promise<unknown> {
    return this.#run(async ({ collection }) => {
      const [key] = await collection.keys({ offset: index, limit: 1 }).toArray();
      return key === undefined ? undefined : keyTo(key);
    });
  }

  /**
   * Deletes object stores, in IndexedDB too unless the source is kept; all of the database without `stores`. The stores
   * can be used again afterwards.
   */
  async drop(stores?: readonly string[]): Promise<void> {
    const { name } = this.#place;
    const indexedDB = this.#options.indexedDB as IDBFactory | undefined;
    const { keepSource = false } = this.#options;
    const work = Promise.resolve(this.#before()).then(async () => {
      const db = await sharedDatabase(this.#database, this.#options);
      // Unlike a move, a drop in IndexedDB for want of OPFS reaches the source: pages with OPFS would move it.
      await dropStores(db, { name, stores, keepSource: keepSource || db.persistence === 'memory', indexedDB });
    });
    const ended: Promise<void> = Promise.allSettled([work]).then(() => {
      if (drops.get(this.#database) === ended) drops.delete(this.#database);
    });
    drops.set(this.#database, ended);
    await work;
  }

  /** Closes the database, for all stores in it. The next call opens it again. */
  async close(): Promise<void> {
    if (this.#opening === undefined) return;
    const { db } = await this.#opening;
    await db.close();
  }
}
