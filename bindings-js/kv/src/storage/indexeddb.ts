// Stores files as blocks in IndexedDB. The engine is synchronous and IndexedDB is not, so the whole
// files are held in memory, and changes are written behind in transactions, one at a time.
//
// Each transaction takes everything that changed before it starts, so the stored state is always
// one that the files had at the end of a message. `settled` reports when the changes are stored;
// nothing may be acknowledged before.
//
// All transactions are strict: browsers do not promise that a relaxed transaction is on disk when a
// later strict one is.
import { KvError } from '../base/errors.ts';
import { soon } from '../base/platform.ts';
import type { CustomStorage, StorageFile } from '../types/index.ts';
import { BlockFile } from './block-file.ts';
import { BLOCKS, SIZES, finished, openIdb, result } from './idb.ts';
import { toKvError } from './opfs.ts';
import { lockByName } from './web-lock.ts';

/** Blocks requested at once while loading files. */
const LOAD_BLOCKS = 256;

type BlockKey = [file: string, index: number];

export class IndexedDbStorage implements CustomStorage {
  readonly #db: IDBDatabase;
  readonly #release: () => void;
  readonly #files = new Map<string, BlockFile>();
  readonly #removed = new Set<string>();
  #isChanged = false;
  /** The running transaction. */
  #running: Promise<void> | undefined;
  /** The transaction that starts after the running one. */
  #next: Promise<void> | undefined;
  #failure: KvError | undefined;
  /** Called when the browser has closed the database. */
  onLost: ((error: KvError) => void) | undefined;

  private constructor(db: IDBDatabase, release: () => void) {
    this.#db = db;
    this.#release = release;
    // The browser closes a database by itself when its data is removed.
    db.onclose = () => {
      this.#fail(
        new KvError('KV_IO', 'the browser closed the database, perhaps because its data was removed; open it again'),
      );
      this.onLost?.(this.#failure as KvError);
    };
  }

  /**
   * Locks and loads a database's files; waits up to `timeoutMs` while somebody else holds the lock.
   */
  static async open(
    name: string,
    create: boolean,
    timeoutMs: number,
    { signal, bucket }: { readonly signal?: AbortSignal | undefined; readonly bucket?: string | undefined } = {},
  ): Promise<IndexedDbStorage> {
    const release = await lockByName(name, timeoutMs, signal, bucket);
    let db: IDBDatabase | undefined;
    try {
      db = await openIdb(name, create, bucket);
      if (db === undefined) throw new KvError('KV_NOT_FOUND', `the database ${name} does not exist`);
      const storage = new IndexedDbStorage(db, release);
      await storage.#load();
      return storage;
    } catch (error) {
      db?.close();
      release();
      throw toKvError(error, `open ${name}`);
    }
  }

  open(name: string): StorageFile {
    let file = this.#files.get(name);
    if (file === undefined) {
      this.#change();
      file = this.#newFile();
      this.#files.set(name, file);
    }
    return file;
  }

  list(): string[] {
    return [...this.#files.keys()];
  }

  remove(name: string): void {
    if (!this.#files.has(name)) return;
    this.#change();
    this.#files.delete(name);
    this.#removed.add(name);
  }

  /**
   * Resolves when all earlier writes are on disk; `undefined` if they already are. After it has
   * rejected, nothing more is stored.
   */
  settled(): Promise<void> | undefined {
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    if (!this.#isChanged) return this.#next ?? this.#running;
    this.#next ??= this.#storeAfter(this.#running);
    return this.#next;
  }

  /** Closes the database and releases its lock. Writes that have not settled may be lost. */
  close(): void {
    this.#failure ??= new KvError('KV_CLOSED', 'the database is closed');
    this.#db.close();
    this.#release();
  }

  #newFile(): BlockFile {
    return new BlockFile(
      () => this.#change(),
      () => this.#check(),
    );
  }

  #check(): void {
    if (this.#failure !== undefined) throw this.#failure;
  }

  #change(): void {
    this.#check();
    if (this.#isChanged) return;
    this.#isChanged = true;
    // `settled` is not called for changes that the engine makes without a message.
    soon(() => void this.settled()?.catch(() => undefined));
  }

  #fail(error: KvError): void {
    this.#failure ??= error;
  }

  async #load(): Promise<void> {
    const transaction = this.#db.transaction([BLOCKS, SIZES]);
    const sizes = transaction.objectStore(SIZES);
    const [names, values] = await Promise.all([
      result(sizes.getAllKeys()),
      result(sizes.getAll() as IDBRequest<number[]>),
    ]);
    for (const [index, name] of names.entries()) {
      const file = this.#newFile();
      file.loadSize(values[index] as number);
      this.#files.set(name as string, file);
    }
    const blocks = transaction.objectStore(BLOCKS);
    let range: IDBKeyRange | null = null;
    for (let isMore = true; isMore; ) {
      const [keys, bytes]: [IDBValidKey[], Uint8Array[]] = await Promise.all([
        result(blocks.getAllKeys(range, LOAD_BLOCKS)),
        result(blocks.getAll(range, LOAD_BLOCKS) as IDBRequest<Uint8Array[]>),
      ]);
      for (const [at, key] of (keys as BlockKey[]).entries())
        this.#files.get(key[0])?.load(key[1], bytes[at] as Uint8Array);
      isMore = keys.length === LOAD_BLOCKS;
      if (isMore) range = IDBKeyRange.lowerBound(keys.at(-1), true);
    }
  }

  async #storeAfter(before: Promise<void> | undefined): Promise<void> {
    await before;
    // From here on, changes belong to the next transaction.
    const running = this.#store();
    this.#running = running;
    this.#next = undefined;
    try {
      await running;
    } finally {
      if (this.#running === running) this.#running = undefined;
    }
  }

  async #store(): Promise<void> {
    this.#check();
    this.#isChanged = false;
    try {
      const transaction = this.#db.transaction([BLOCKS, SIZES], 'readwrite', { durability: 'strict' });
      const done = finished(transaction);
      try {
        this.#put(transaction);
      } catch (error) {
        // Never store half of the changes.
        done.catch(() => undefined);
        transaction.abort();
        throw error;
      }
      transaction.commit?.();
      await done;
    } catch (error) {
      const { code, message, retryable } = toKvError(error, 'store in IndexedDB');
      const failure = new KvError(code, `${message}; open the database again`, { cause: error, retryable });
      this.#fail(failure);
      throw failure;
    }
  }

  /** `put` copies the values. */
  #put(transaction: IDBTransaction): void {
    const blocks = transaction.objectStore(BLOCKS);
    const sizes = transaction.objectStore(SIZES);
    const drop = (name: string, from: number): void => {
      blocks.delete(IDBKeyRange.bound([name, from], [name, Infinity]));
    };
    for (const name of this.#removed) {
      sizes.delete(name);
      drop(name, 0);
    }
    this.#removed.clear();
    for (const [name, file] of this.#files) {
      const changes = file.takeChanges();
      if (changes.droppedFrom !== undefined) drop(name, changes.droppedFrom);
      for (const [index, bytes] of changes.blocks) blocks.put(bytes, [name, index]);
      sizes.put(changes.size, name);
    }
  }
}
