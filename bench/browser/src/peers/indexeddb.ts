import type { Durability, Entry, Peer, Row, Store } from './peer.ts';

const STORE = 'kv';
const CHUNK = 1000;

interface IdbRecord {
  readonly key: string;
  readonly value: Row;
}

/** Newer than the types of TypeScript. */
interface WithRecords {
  getAllRecords?(options: {
    query?: IDBKeyRange | undefined;
    count: number;
    direction: IDBCursorDirection;
  }): IDBRequest<IdbRecord[]>;
}

export function result<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => {
      resolve(request.result);
    };
    request.onerror = () => {
      reject(request.error ?? new Error('the request failed'));
    };
  });
}

export function completed(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => {
      resolve();
    };
    transaction.onabort = () => {
      reject(transaction.error ?? new Error('the transaction was aborted'));
    };
  });
}

export function openDatabase(name: string): Promise<IDBDatabase> {
  const request = indexedDB.open(name, 1);
  request.onupgradeneeded = () => {
    request.result.createObjectStore(STORE);
  };
  return result(request);
}

export async function deleteDatabase(name: string): Promise<void> {
  await result(indexedDB.deleteDatabase(name));
}

/** All entries that were there, up to `count`, by the fastest way this browser has. */
async function range(
  db: IDBDatabase,
  query: IDBKeyRange | undefined,
  count: number,
  reverse: boolean,
): Promise<Entry[]> {
  const store = db.transaction(STORE).objectStore(STORE);
  const { getAllRecords } = store as WithRecords;
  if (getAllRecords !== undefined) {
    const records = await result(getAllRecords.call(store, { query, count, direction: reverse ? 'prev' : 'next' }));
    return records.map(({ key, value }) => [key, value]);
  }
  if (!reverse) {
    const [keys, values] = await Promise.all([
      result(store.getAllKeys(query, count)),
      result(store.getAll(query, count)),
    ]);
    return keys.map((key, at) => [key as string, values[at] as Row]);
  }
  return new Promise((resolve, reject) => {
    const entries: Entry[] = [];
    const request = store.openCursor(query, 'prev');
    request.onerror = () => {
      reject(request.error ?? new Error('the cursor failed'));
    };
    request.onsuccess = () => {
      const cursor = request.result;
      if (cursor !== null) entries.push([cursor.key as string, cursor.value as Row]);
      if (cursor === null || entries.length === count) resolve(entries);
      else cursor.continue();
    };
  });
}

class IdbStore implements Store {
  readonly #db: IDBDatabase;
  readonly #durability: Durability;

  constructor(db: IDBDatabase, durability: Durability) {
    this.#db = db;
    this.#durability = durability;
  }

  async putMany(entries: readonly Entry[]): Promise<void> {
    const transaction = this.#db.transaction(STORE, 'readwrite', { durability: this.#durability });
    const store = transaction.objectStore(STORE);
    for (const [key, value] of entries) store.put(value, key);
    const done = completed(transaction);
    transaction.commit();
    await done;
  }

  put(key: string, value: Row): Promise<void> {
    return this.putMany([[key, value]]);
  }

  get(key: string): Promise<Row | undefined> {
    return result<Row | undefined>(this.#db.transaction(STORE).objectStore(STORE).get(key));
  }

  getMany(keys: readonly string[]): Promise<(Row | undefined)[]> {
    const store = this.#db.transaction(STORE).objectStore(STORE);
    return Promise.all(keys.map((key) => result<Row | undefined>(store.get(key))));
  }

  async scan(
    { reverse, limit }: { reverse: boolean; limit: number },
    take: (entries: readonly Entry[]) => void,
  ): Promise<void> {
    let query: IDBKeyRange | undefined;
    for (let left = limit; left > 0; ) {
      const entries = await range(this.#db, query, Math.min(CHUNK, left), reverse);
      const last = entries.at(-1)?.[0];
      if (last === undefined) return;
      take(entries);
      left -= entries.length;
      query = reverse ? IDBKeyRange.upperBound(last, true) : IDBKeyRange.lowerBound(last, true);
    }
  }

  page(prefix: string, limit: number): Promise<Entry[]> {
    return range(this.#db, IDBKeyRange.bound(prefix, `${prefix}\uffff`), limit, false);
  }

  async close(): Promise<void> {
    this.#db.close();
  }
}

export const peer: Peer = {
  open: async (name, durability) => new IdbStore(await openDatabase(name), durability),
  openIndexed: async (name) => (await import('./indexeddb-indexed.ts')).openIndexed(name),
  destroy: deleteDatabase,
};
