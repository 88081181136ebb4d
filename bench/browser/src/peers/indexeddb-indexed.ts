import type { IndexedRow, IndexedStore } from './indexed.ts';
import { completed, result } from './indexeddb.ts';

const ROWS = 'rows';
const NOTES = 'notes';

function createRows(db: IDBDatabase): void {
  const rows = db.createObjectStore(ROWS, { keyPath: 'id' });
  rows.createIndex('byAuthor', 'author');
  rows.createIndex('byDue', ['done', 'due']);
  rows.createIndex('byScore', 'score');
  db.createObjectStore(NOTES);
}

/** Opens the newest version there is, or upgrades to `version`. */
function connect(name: string, version?: number): Promise<IDBDatabase> {
  const request = indexedDB.open(name, version);
  request.onupgradeneeded = ({ oldVersion }) => {
    if (oldVersion === 0) createRows(request.result);
    if (request.result.version === 2) request.transaction?.objectStore(ROWS).createIndex('byCode', 'code');
  };
  return result(request);
}

class IdbIndexed implements IndexedStore {
  readonly #name: string;
  /** Another tab that builds an index makes this one connect again. */
  #db: Promise<IDBDatabase>;

  constructor(name: string) {
    this.#name = name;
    this.#db = this.#connect();
  }

  async #connect(version?: number): Promise<IDBDatabase> {
    const db = await connect(this.#name, version);
    db.onversionchange = () => {
      this.#db = this.#connect();
      db.close();
    };
    return db;
  }

  async #store(): Promise<IDBObjectStore> {
    return (await this.#db).transaction(ROWS).objectStore(ROWS);
  }

  async #write(name: string, write: (store: IDBObjectStore) => void): Promise<void> {
    const transaction = (await this.#db).transaction(name, 'readwrite', { durability: 'strict' });
    const done = completed(transaction);
    write(transaction.objectStore(name));
    await done;
  }

  load(list: readonly IndexedRow[]): Promise<void> {
    return this.#write(ROWS, (store) => {
      for (const row of list) store.put(row);
      store.transaction.commit();
    });
  }

  update(id: string, due: number): Promise<void> {
    return this.#write(ROWS, (store) => {
      const request = store.get(id) as IDBRequest<IndexedRow>;
      request.onsuccess = () => {
        store.put({ ...request.result, due });
        store.transaction.commit();
      };
    });
  }

  async get(id: string): Promise<IndexedRow | undefined> {
    return result<IndexedRow | undefined>((await this.#store()).get(id));
  }

  async query(due: number, limit: number): Promise<IndexedRow[]> {
    const range = IDBKeyRange.bound([0, due], [1], false, true);
    return result<IndexedRow[]>((await this.#store()).index('byDue').getAll(range, limit));
  }

  async count(from: number, to: number): Promise<number> {
    return result((await this.#store()).index('byDue').count(IDBKeyRange.bound([0, from], [0, to], false, true)));
  }

  async build(): Promise<void> {
    (await this.#db).close();
    this.#db = this.#connect(2);
    await this.#db;
  }

  async countBuilt(): Promise<number> {
    return result((await this.#store()).index('byCode').count());
  }

  note(value: number): Promise<void> {
    return this.#write(NOTES, (store) => {
      store.put(value, 'note');
      store.transaction.commit();
    });
  }

  async close(): Promise<void> {
    (await this.#db).close();
  }
}

export async function openIndexed(name: string): Promise<IndexedStore> {
  const store = new IdbIndexed(name);
  await store.get('');
  return store;
}
