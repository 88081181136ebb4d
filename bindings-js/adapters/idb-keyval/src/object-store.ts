// The object store that the callback of a `UseStore` receives: IndexedDB's interface on a transaction of the database.
// What an object store without keys in its values and without indexes has is here.
import { compareKeys } from 'mangrove-kv';
import type { Collection, Key, Reader, Transaction, Writer } from 'mangrove-kv';
import { asIndexedDB, fromStored, keyFrom, keyTo, stored } from '@mangrove-kv/migrate/internal';
import type { Opened } from '@mangrove-kv/migrate/internal';

type Entries = Reader<Key, unknown> & Writer<Key, unknown>;
type Bounds = { readonly gt?: Key; readonly gte?: Key; readonly lt?: Key; readonly lte?: Key };
type Handler = ((event: Event) => void) | null;

function refusal(name: string, message: string): DOMException {
  return new DOMException(message, name);
}

/** The range that a query stands for: a key, a key range, or nothing for all. */
function boundsOf(query: unknown): Bounds {
  if (query === undefined || query === null) return {};
  const range = query as Partial<IDBKeyRange>;
  // By its properties: outside browsers the program may bring any implementation of IDBKeyRange.
  if (typeof query !== 'object' || !('lowerOpen' in query)) {
    const key = keyFrom(query);
    return { gte: key, lte: key };
  }
  const [lower, upper] = [range.lower, range.upper].map((key) => (key === undefined ? undefined : keyFrom(key)));
  return {
    ...(lower !== undefined && (range.lowerOpen ? { gt: lower } : { gte: lower })),
    ...(upper !== undefined && (range.upperOpen ? { lt: upper } : { lte: upper })),
  };
}

/** An event target with the `on…` properties of its events. */
class Target extends EventTarget {
  /**
   * Dispatches an event; a handler that throws aborts the transaction, as in IndexedDB. Returns whether the default of
   * the event was prevented.
   */
  emit(type: string, property: string, transaction: StoreTransaction): boolean {
    const event = new Event(type, { cancelable: type === 'error' });
    this.dispatchEvent(event);
    const handler = (this as unknown as Record<string, Handler>)[property];
    try {
      handler?.call(this, event);
    } catch (error) {
      transaction.fail(error);
    }
    return event.defaultPrevented;
  }
}

class Request extends Target {
  readyState: 'pending' | 'done' = 'pending';
  onsuccess: Handler = null;
  onerror: Handler = null;
  readonly source: StoreObjects;
  readonly transaction: StoreTransaction;
  #result: unknown;
  #error: unknown = null;

  constructor(source: StoreObjects) {
    super();
    this.source = source;
    this.transaction = source.transaction;
  }

  get result(): unknown {
    if (this.readyState === 'pending') throw refusal('InvalidStateError', 'the request is still pending');
    return this.#result;
  }

  get error(): unknown {
    if (this.readyState === 'pending') throw refusal('InvalidStateError', 'the request is still pending');
    return this.#error;
  }

  /** A cursor answers its request once for each entry. */
  renew(): void {
    this.readyState = 'pending';
  }

  succeed(result: unknown): void {
    [this.readyState, this.#result] = ['done', result];
    this.emit('success', 'onsuccess', this.transaction);
  }

  /** Returns whether a listener prevents that the transaction is aborted. */
  fail(error: unknown): boolean {
    [this.readyState, this.#error] = ['done', error];
    return this.emit('error', 'onerror', this.transaction);
  }
}

/** Commits when it has been asked for nothing for a turn. */
class StoreTransaction extends Target {
  readonly mode: IDBTransactionMode;
  readonly durability = 'default';
  readonly objectStoreNames: readonly string[];
  error: unknown = null;
  oncomplete: Handler = null;
  onabort: Handler = null;
  onerror: Handler = null;
  /** Resolves when the transaction has ended, either way. */
  readonly ended: Promise<void>;
  readonly store: StoreObjects;
  readonly entries: Entries;
  readonly #tx: Transaction<Key, unknown>;
  #end!: () => void;
  #last: Promise<void> = Promise.resolve();
  #waiting = 0;
  #isOver = false;

  constructor({ db, collection }: Opened, mode: IDBTransactionMode) {
    super();
    this.mode = mode;
    this.objectStoreNames = [collection.name];
    this.#tx = db.begin({ mode: mode === 'readonly' ? 'readonly' : 'readwrite', timeout: Number.POSITIVE_INFINITY });
    this.entries = this.#tx.collection(collection as Collection<Key, unknown>);
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
    this.store = new StoreObjects(this, collection.name);
  }

  objectStore(name: string): StoreObjects {
    if (name !== this.store.name) throw refusal('NotFoundError', `no object store ${JSON.stringify(name)} here`);
    return this.store;
  }

  /** Runs the requests one after the other. */
  ask(request: Request, work: () => Promise<unknown>): void {
    if (this.#isOver) throw refusal('TransactionInactiveError', 'the transaction has ended');
    this.#waiting++;
    this.#last = this.#last.then(async () => {
      if (this.#isOver) {
        request.fail(refusal('AbortError', 'the transaction was aborted'));
        return;
      }
      try {
        request.succeed(await work());
      } catch (error) {
        const found = asIndexedDB(error);
        if (!request.fail(found)) this.fail(found);
      } finally {
        this.#waiting--;
        this.commitWhenIdle();
      }
    });
  }

  /** Callbacks of promises may ask for more within the turn. */
  commitWhenIdle(): void {
    setTimeout(() => {
      if (this.#waiting === 0) void this.#commit();
    });
  }

  commit(): void {
    void this.#last.then(() => this.#commit());
  }

  async #commit(): Promise<void> {
    if (this.#isOver) return;
    this.#isOver = true;
    try {
      if (this.mode === 'readonly') this.#tx.rollback();
      else await this.#tx.commit();
    } catch (error) {
      const isConflict = (error as { code?: unknown }).code === 'KV_CONFLICT';
      this.error = isConflict
        ? Object.assign(refusal('AbortError', 'another tab changed the store meanwhile'), { cause: error })
        : asIndexedDB(error);
      this.#aborted();
      return;
    }
    this.#end();
    this.emit('complete', 'oncomplete', this);
  }

  abort(): void {
    if (this.#isOver) throw refusal('InvalidStateError', 'the transaction has ended');
    this.#rollBack();
  }

  /** Aborts because of an error, which becomes that of the transaction. */
  fail(error: unknown): void {
    if (this.#isOver) return;
    this.error = error;
    this.emit('error', 'onerror', this);
    this.#rollBack();
  }

  #rollBack(): void {
    this.#isOver = true;
    this.#tx.rollback();
    // As in IndexedDB, requests that wait fail first.
    void this.#last.then(() => this.#aborted());
  }

  #aborted(): void {
    this.#end();
    this.emit('abort', 'onabort', this);
  }
}

class StoreObjects {
  readonly transaction: StoreTransaction;
  readonly name: string;
  readonly keyPath = null;
  readonly autoIncrement = false;
  readonly indexNames: readonly string[] = [];

  constructor(transaction: StoreTransaction, name: string) {
    this.transaction = transaction;
    this.name = name;
  }

  #ask(work: (entries: Entries) => Promise<unknown>, request = new Request(this)): Request {
    this.transaction.ask(request, () => work(this.transaction.entries));
    return request;
  }

  #write(key: unknown, value: unknown, isNew: boolean): Request {
    this.#checkWritable();
    const at = keyFrom(key);
    // Copies now, as IndexedDB does, and throws what cannot be copied.
    const copy = stored(structuredClone(value));
    return this.#ask(async (entries) => {
      if (isNew && (await entries.has(at))) throw refusal('ConstraintError', 'there is an entry with this key');
      await entries.set(at, await copy);
      return keyTo(at);
    });
  }

  #checkWritable(): void {
    if (this.transaction.mode === 'readonly') throw refusal('ReadOnlyError', 'the transaction is readonly');
  }

  put(value: unknown, key?: unknown): Request {
    return this.#write(key, value, false);
  }

  add(value: unknown, key?: unknown): Request {
    return this.#write(key, value, true);
  }

  delete(query: unknown): Request {
    this.#checkWritable();
    if (query === undefined || query === null) throw refusal('DataError', 'delete needs a key or a range');
    const bounds = boundsOf(query);
    return this.#ask((entries) => entries.clear(bounds));
  }

  clear(): Request {
    this.#checkWritable();
    return this.#ask((entries) => entries.clear());
  }

  get(query: unknown): Request {
    const bounds = boundsOf(query ?? keyFrom(query));
    return this.#ask(async (entries) => fromStored((await entries.first(bounds))?.[1]));
  }

  getKey(query: unknown): Request {
    const bounds = boundsOf(query ?? keyFrom(query));
    return this.#ask(async (entries) => {
      const entry = await entries.first(bounds);
      return entry === undefined ? undefined : keyTo(entry[0]);
    });
  }

  getAll(query?: unknown, count?: number): Request {
    const range = { ...boundsOf(query), ...(count && { limit: count }) };
    return this.#ask(async (entries) => (await entries.values(range).toArray()).map(fromStored));
  }

  getAllKeys(query?: unknown, count?: number): Request {
    const range = { ...boundsOf(query), ...(count && { limit: count }) };
    return this.#ask(async (entries) => (await entries.keys(range).toArray()).map(keyTo));
  }

  count(query?: unknown): Request {
    const bounds = boundsOf(query);
    return this.#ask((entries) => entries.count(bounds));
  }

  openCursor(query?: unknown, direction: IDBCursorDirection = 'next'): Request {
    return this.#openCursor(query, direction, true);
  }

  openKeyCursor(query?: unknown, direction: IDBCursorDirection = 'next'): Request {
    return this.#openCursor(query, direction, false);
  }

  #openCursor(query: unknown, direction: IDBCursorDirection, hasValues: boolean): Request {
    const request = new Request(this);
    const cursor = new Cursor(request, direction, hasValues, boundsOf(query));
    return this.#ask((entries) => cursor.read(entries, 0), request);
  }

  index(name: string): never {
    throw refusal('NotFoundError', `no index ${JSON.stringify(name)}: a store of idb-keyval has none`);
  }

  createIndex(): never {
    throw refusal('InvalidStateError', 'indexes can be created while a database is upgraded only');
  }

  deleteIndex(): never {
    throw refusal('InvalidStateError', 'indexes can be deleted while a database is upgraded only');
  }
}

class Cursor {
  readonly request: Request;
  readonly direction: IDBCursorDirection;
  readonly source: StoreObjects;
  key: unknown;
  primaryKey: unknown;
  value: unknown;
  readonly #hasValues: boolean;
  readonly #isReverse: boolean;
  #bounds: Bounds;
  #at: Key | undefined;
  #isMoving = true;

  constructor(request: Request, direction: IDBCursorDirection, hasValues: boolean, bounds: Bounds) {
    this.request = request;
    this.source = request.source;
    this.direction = direction;
    this.#hasValues = hasValues;
    this.#isReverse = direction.startsWith('prev');
    this.#bounds = bounds;
  }

  /** Moves on by `skip` entries and one. */
  async read(entries: Entries, skip: number): Promise<Cursor | null> {
    const reverse = this.#isReverse;
    const [entry] = await entries.entries({ ...this.#bounds, reverse, offset: skip, limit: 1 }).toArray();
    this.#isMoving = false;
    if (entry === undefined) return null;
    this.#at = entry[0];
    this.key = this.primaryKey = keyTo(entry[0]);
    this.value = this.#hasValues ? fromStored(entry[1]) : undefined;
    return this;
  }

  #move(bounds: Bounds, skip: number): void {
    if (this.#isMoving) throw refusal('InvalidStateError', 'the cursor is being moved, or has come to its end');
    this.#isMoving = true;
    const { gt: _gt, gte: _gte, lt: _lt, lte: _lte } = this.#bounds;
    const rest: Bounds = this.#isReverse
      ? { ...(_gt !== undefined && { gt: _gt }), ...(_gte !== undefined && { gte: _gte }) }
      : { ...(_lt !== undefined && { lt: _lt }), ...(_lte !== undefined && { lte: _lte }) };
    this.#bounds = { ...rest, ...bounds };
    this.request.renew();
    this.source.transaction.ask(this.request, () => this.read(this.source.transaction.entries, skip));
  }

  #beyond(key: Key, isInclusive: boolean): Bounds {
    if (this.#isReverse) return isInclusive ? { lte: key } : { lt: key };
    return isInclusive ? { gte: key } : { gt: key };
  }

  continue(key?: unknown): void {
    if (key === undefined) {
      this.#move(this.#beyond(this.#at as Key, false), 0);
      return;
    }
    const to = keyFrom(key);
    // A cursor that has come to its end is refused by #move, as is one that moves.
    const steps = compareKeys(to, this.#at as Key);
    if (!this.#isMoving && (this.#isReverse ? steps >= 0 : steps <= 0))
      throw refusal('DataError', 'a cursor goes on to keys beyond its own only');
    this.#move(this.#beyond(to, true), 0);
  }

  advance(count: number): void {
    if (!Number.isInteger(count) || count < 1) throw new TypeError('advance needs a whole number of at least 1');
    this.#move(this.#beyond(this.#at as Key, false), count - 1);
  }

  update(value: unknown): Request {
    return this.source.put(value, this.key);
  }

  delete(): Request {
    return this.source.delete(this.key);
  }
}

/**
 * Calls `use` with the object store of a new transaction; resolves to what it returns, and `ended` when the transaction
 * has ended.
 */
export function inTransaction<T>(
  opened: Opened,
  mode: IDBTransactionMode,
  use: (store: IDBObjectStore) => T | PromiseLike<T>,
): { result: Promise<T>; ended: Promise<void> } {
  const transaction = new StoreTransaction(opened, mode);
  const result = (async () => await use(transaction.store as unknown as IDBObjectStore))();
  // Nothing may have been asked for.
  transaction.commitWhenIdle();
  return { result, ended: transaction.ended };
}
