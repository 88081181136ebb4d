// The synchronous API, for an engine in this thread: the same names, with values instead of
// promises.
import { KvError } from '../base/errors.ts';
import type { Names } from '../base/names.ts';
import type { Bound, KeyPrefix } from '../codec/keys.ts';
import { DELETE, KEEP } from '../types/index.ts';
import type {
  Bounds, Collection, Durability, Entry, Range, SetOptions, SyncCollection, SyncDatabase, SyncIndex, SyncReader, SyncSnapshot,
  SyncTransaction, SyncUpdater, SyncView, WithMeta, WriteOptions,
} from '../types/index.ts';
import { checkFunction, checkSignal, dispose } from '../base/async.ts';
import { ChangeList } from './changes.ts';
import { ReadCalls, batchCall, checkOpen, clearCall, getOrInsertCall, itemDecoders } from './calls.ts';
import type { Call, Items } from './calls.ts';
import { Content } from '../wire/chunk.ts';
import type { DecodeItem } from '../wire/chunk.ts';
import { encodeKey } from '../wire/codecs.ts';
import { toExpiry, toNewExpiry } from './expiry.ts';
import type { Connection } from '../wire/connection.ts';
import { Handle } from '../wire/handle.ts';
import { Op, ScanFlag } from '../wire/opcodes.ts';
import type { RequestWriter } from '../wire/protocol.ts';
import { BOUNDS, CLEAR, META, PREFIXED, RANGE, SET, WRITE, checkClear, checkIterable, checkNames, checkPair } from './names.ts';
import { boundsOf, isPart, toWindow } from './range.ts';
import { validatedSync } from './schema.ts';
import { ASK, NEWEST } from '../wire/target.ts';
import type { Target, View } from '../wire/target.ts';
import { durabilityCode } from './scope.ts';
import { KvSyncIndex } from './sync-index.ts';
import { SyncScan } from './sync-scan.ts';

const ENTRIES: Names<Range<unknown> & WithMeta> = { ...RANGE, ...META };

class KvSyncReader<K, V> implements SyncReader<K, V> {
  protected readonly target: Target<K, V>;
  protected readonly view: View;
  readonly #calls: ReadCalls<K, V>;

  constructor(target: Target<K, V>, view: View) {
    this.target = target;
    this.view = view;
    this.#calls = new ReadCalls(target, view, false);
  }

  get size(): number {
    return this.count();
  }

  get(key: K): V | undefined {
    const found = this.#calls.find(key);
    return found === ASK ? this.#send(this.#calls.get(key)) : found;
  }

  getMany(keys: Iterable<K>): (V | undefined)[] {
    return this.#sendUnlessFound(this.#calls.getMany(keys));
  }

  getEntry(key: K): Entry<K, V> | undefined {
    return this.#send(this.#calls.getEntry(key));
  }

  has(key: K): boolean {
    return this.hasMany([key])[0] === true;
  }

  hasMany(keys: Iterable<K>): boolean[] {
    return this.#sendUnlessFound(this.#calls.hasMany(keys));
  }

  entries(options: Range<K> & WithMeta): IterableIterator<Entry<K, V>>;
  entries(options?: Range<K>): IterableIterator<[K, V]>;
  entries(options?: Range<K> & Partial<WithMeta>): IterableIterator<[K, V]> | IterableIterator<Entry<K, V>> {
    return this.#entries('entries', options);
  }

  keys(options?: Range<K>): IterableIterator<K> {
    return this.#iterate('keys', options, RANGE, Content.keys, 'key');
  }

  values(options?: Range<K>): IterableIterator<V> {
    return this.#iterate('values', options, RANGE, Content.values, 'value');
  }

  range(options: Range<K> & WithMeta): IterableIterator<Entry<K, V>>;
  range(options: Range<K>): IterableIterator<[K, V]>;
  range(options: Range<K>): IterableIterator<[K, V]> | IterableIterator<Entry<K, V>> {
    return this.#entries('range', options);
  }

  prefix(prefix: KeyPrefix<K>, options: Omit<Range<K>, 'prefix'> & WithMeta): IterableIterator<Entry<K, V>>;
  prefix(prefix: KeyPrefix<K>, options?: Omit<Range<K>, 'prefix'>): IterableIterator<[K, V]>;
  prefix(prefix: KeyPrefix<K>, options?: Omit<Range<K>, 'prefix'>): IterableIterator<[K, V]> | IterableIterator<Entry<K, V>> {
    checkNames('prefix', options, PREFIXED);
    return this.#entries('prefix', { ...options, prefix });
  }

  #entries(call: string, options?: Range<K> & Partial<WithMeta>): IterableIterator<[K, V]> | IterableIterator<Entry<K, V>> {
    if (options?.meta) return this.#iterate(call, options, ENTRIES, Content.meta, 'meta');
    return this.#iterate(call, options, ENTRIES, Content.entries, 'entry');
  }

  first(options?: Range<K>): [K, V] | undefined {
    return this.#at('first', 0, options);
  }

  last(options?: Range<K>): [K, V] | undefined {
    return this.#at('last', -1, options);
  }

  at(index: number, options?: Range<K>): [K, V] | undefined {
    return this.#at('at', index, options);
  }

  #at(call: string, index: number, options: Range<K> | undefined): [K, V] | undefined {
    const found = this.#find(call, index, options);
    if (index === 0 || index === -1) this.#checkMisread(found, options);
    return found;
  }

  #find(call: string, index: number, options: Range<K> | undefined): [K, V] | undefined {
    if (!Number.isSafeInteger(index)) throw new KvError('KV_INVALID_ARGUMENT', 'index has to be a whole number');
    const window = toWindow(this.target, call, options, RANGE);
    const { range, reverse, offset, limit } = window;
    if (index < 0 && offset === 0 && limit === Infinity) return this.#send(this.#calls.at(range, !reverse, -index - 1));
    const fromStart = index < 0 ? this.#send(this.#calls.count(window)) + index : index;
    const position = offset + fromStart;
    if (fromStart < 0 || fromStart >= limit || !Number.isSafeInteger(position)) return undefined;
    return this.#send(this.#calls.at(range, reverse, position));
  }

  count(options?: Range<K>): number {
    const count = this.#send(this.#calls.count(toWindow(this.target, 'count', options, RANGE)));
    this.#checkMisread(count, options);
    return count;
  }

  rank(key: K, options?: Bounds<K>): number {
    return this.#send(this.#calls.rank(key, options, BOUNDS));
  }

  index(name: string): SyncIndex<K, V> {
    return new KvSyncIndex(this.target, this.view, name);
  }

  [Symbol.iterator](): IterableIterator<[K, V]> {
    return this.entries();
  }

  #send<T>({ write, read }: Call<T>): T {
    return this.target.connection.requestSync(write, read);
  }

  #sendUnlessFound<T>(found: T[] | Call<T[]>): T[] {
    return Array.isArray(found) ? found : this.#send(found);
  }

  /** If nothing was found, throws if `ReadCalls.misread` can explain that. */
  #checkMisread(found: unknown, options: Range<K> | undefined): void {
    const call = found ? undefined : this.#calls.misread(options);
    if (call !== undefined) this.#send(call);
  }

  /** Reads the state as of this call, not as of the first `next`. */
  #iterate<N extends keyof Items<K, V>>(
    call: string,
    options: Range<K> | undefined,
    names: Names<Range<K>>,
    content: number,
    kind: N,
  ): IterableIterator<Items<K, V>[N]> {
    const { range, reverse, offset, limit } = toWindow(this.target, call, options, names);
    const { connection, index } = this.target;
    const flags = (reverse ? ScanFlag.reverse : 0) | content;
    const decoders = itemDecoders(this.target);
    checkOpen(this.view);
    const scan = new SyncScan({
      connection,
      write: (writer) =>
        writer.uv(this.view.id).uv(index).range(range).u8(flags).uv(offset).uv(limit === Infinity ? 0 : limit),
      limit,
      decode: decoders[kind] as DecodeItem<Items<K, V>[N]>,
      isFast: decoders.isFast,
    });
    this.#checkMisread(!scan.isEmpty || limit === 0, options);
    return scan;
  }
}

/** Writes the start of a request: opcode and durability, preceded in a transaction by its id. */
type Begin = (writer: RequestWriter, op: number, options: WriteOptions | undefined) => RequestWriter;

class KvSyncCollection<K, V, I = V> extends KvSyncReader<K, V> implements SyncCollection<K, V, I> {
  readonly #begin: Begin;
  readonly #check: () => void;

  constructor(target: Target<K, V>, view: View, begin: Begin, check: () => void) {
    super(target, view);
    this.#begin = begin;
    this.#check = check;
  }

  get name(): string {
    return this.target.name;
  }

  set(key: K, value: I, options?: SetOptions): this {
    this.#set('set', key, value, options);
    return this;
  }

  setMany(entries: Iterable<readonly [K, I]>, options?: SetOptions): void {
    this.#checkWrite('setMany', options, SET);
    const expiresAt = toExpiry(options, this.target.expireIn);
    const changes = new ChangeList();
    for (const entry of checkIterable('the entries of setMany', entries)) {
      const [key, value] = checkPair(entry);
      changes.put(this.target, key, validatedSync(this.target, value), expiresAt);
    }
    this.#batch(changes, options);
  }

  delete(key: K, options?: WriteOptions): boolean {
    this.#checkWrite('delete', options, WRITE);
    return this.#delete([key], options) > 0;
  }

  deleteMany(keys: Iterable<K>, options?: WriteOptions): number {
    this.#checkWrite('deleteMany', options, WRITE);
    return this.#delete(checkIterable('the keys of deleteMany', keys), options);
  }

  #delete(keys: Iterable<K>, options: WriteOptions | undefined): number {
    const changes = new ChangeList();
    for (const key of keys) changes.delete(this.target, key);
    return this.#batch(changes, options);
  }

  clear(...args: [range?: Range<K> | undefined, options?: WriteOptions]): void {
    const [range = {}, options] = args;
    this.#checkWrite('clear', options, WRITE);
    checkClear(args);
    const window = toWindow(this.target, 'clear', range, CLEAR);
    if (isPart(window)) {
      // Synchronous, so no other write comes between.
      const first = this.first(range);
      const last = window.limit === Infinity ? undefined : this.at(window.limit - 1, range);
      if (first !== undefined) this.clear(boundsOf(range, first[0] as Bound<K>, last?.[0] as Bound<K> | undefined), options);
      return;
    }
    this.#write(Op.clear, options, clearCall(this.target, window));
  }

  getOrInsert(key: K, value: I, options?: SetOptions): V {
    this.#checkWrite('getOrInsert', options, SET);
    const expiresAt = toExpiry(options, this.target.expireIn);
    const keyBytes = encodeKey(this.target, key);
    if (this.target.indexes !== undefined) {
      const found = this.get(key);
      return found === undefined ? this.#set('getOrInsert', key, value, options) : found;
    }
    const valid = validatedSync(this.target, value);
    return this.#write(Op.getOrInsert, options, getOrInsertCall(this.target, keyBytes, valid, expiresAt));
  }

  getOrInsertComputed(key: K, compute: (key: K) => I, options?: SetOptions): V {
    this.#checkWrite('getOrInsertComputed', options, SET);
    checkFunction(compute);
    const found = this.get(key);
    return found === undefined ? this.getOrInsert(key, compute(key), options) : found;
  }

  update(key: K, fn: SyncUpdater<K, V, I>, options?: SetOptions): V | undefined {
    this.#checkWrite('update', options, SET);
    checkFunction(fn);
    // No check of the version: only `fn` itself can write in between.
    const entry = this.getEntry(key);
    const next = fn(entry?.value, key, entry);
    if (next === KEEP) return entry?.value;
    if (next === DELETE) {
      this.delete(key, options);
      return undefined;
    }
    return this.#set('update', key, next, options, entry);
  }

  #checkWrite(call: string, options: WriteOptions | undefined, names: Names<WriteOptions>): void {
    checkNames(call, options, names);
    const { durability, signal } = options ?? {};
    if (durability !== undefined) durabilityCode(durability);
    checkSignal(signal);
    this.#check();
    this.target.indexes?.declareSync(this.target);
  }

  /** Returns the stored value. */
  #set(call: string, key: K, value: I, options: SetOptions | undefined, before?: Entry<K, V>): V {
    this.#checkWrite(call, options, SET);
    const changes = new ChangeList();
    const valid = validatedSync(this.target, value);
    changes.put(this.target, key, valid, toNewExpiry(options, this.target.expireIn, before));
    this.#batch(changes, options);
    return valid;
  }

  #batch(changes: ChangeList, options: WriteOptions | undefined): number {
    try {
      return this.#write(Op.batch, options, batchCall(changes));
    } catch (error) {
      changes.failed(error);
      throw error;
    }
  }

  #write<T>(op: number, options: WriteOptions | undefined, { write, read }: Call<T>): T {
    return this.target.connection.requestSync((writer) => write(this.#begin(writer, op, options)), (reader) => {
      reader.uv();
      return read(reader);
    });
  }
}

/** Resolves a collection's name or handle in the database. */
export type ResolveCollection = <K, V, I>(collection: Collection<K, V, I> | string, options?: object) => Target<K, V>;

class KvSyncView<K, V> extends KvSyncReader<K, V> implements SyncView<K, V> {
  readonly #resolve: ResolveCollection;

  constructor(target: Target<K, V>, view: View, resolve: ResolveCollection) {
    super(target, view);
    this.#resolve = resolve;
  }

  collection<K2, V2, I2>(collection: Collection<K2, V2, I2> | string): SyncReader<K2, V2> {
    return new KvSyncReader<K2, V2>(this.#resolve(collection), this.view);
  }
}

/** Shared by a snapshot's readers, so that each of them keeps the snapshot from being collected. */
class SyncSnapshotView implements View {
  readonly #held: Handle;
  readonly version: number;
  isClosed = false;

  constructor(connection: Connection) {
    this.#held = new Handle(connection, Op.snapshotClose, 'snapshot');
    this.version = connection.requestSync((writer) => writer.u8(Op.snapshotOpen).uv(this.id), (reader) => reader.uv());
    this.#held.own(this);
  }

  get id(): number {
    return this.#held.id;
  }

  close(): void {
    this.isClosed = true;
    this.#held.close();
  }
}

class KvSyncSnapshot<K, V> extends KvSyncView<K, V> implements SyncSnapshot<K, V> {
  readonly #own: SyncSnapshotView;

  constructor(target: Target<K, V>, resolve: ResolveCollection, view = new SyncSnapshotView(target.connection)) {
    super(target, view, resolve);
    this.#own = view;
  }

  get version(): number {
    return this.#own.version;
  }

  close(): void {
    this.#own.close();
  }

  [dispose](): void {
    this.close();
  }
}

class KvSyncDatabase<K, V, I = V> extends KvSyncCollection<K, V, I> implements SyncDatabase<K, V, I> {
  readonly #resolve: ResolveCollection;
  readonly #view: View;
  readonly #durability: Durability;

  constructor(target: Target<K, V>, view: View, durability: Durability, resolve: ResolveCollection) {
    super(target, view, KvSyncDatabase.#toDatabase(durability), () => target.connection.checkOutside());
    this.#resolve = resolve;
    this.#view = view;
    this.#durability = durability;
  }

  static #toDatabase(durability: Durability): Begin {
    return (writer, op, options) => writer.u8(op).u8(durabilityCode(options?.durability === undefined ? durability : options.durability));
  }

  collection<K2, V2, I2>(collection: Collection<K2, V2, I2> | string, options?: object): SyncCollection<K2, V2, I2> {
    const target = this.#resolve(collection, options);
    const check = (): void => target.connection.checkOutside();
    return new KvSyncCollection<K2, V2, I2>(target, this.#view, KvSyncDatabase.#toDatabase(this.#durability), check);
  }

  transaction<T>(fn: (tx: SyncTransaction<K, V, I>) => T, options?: WriteOptions): T {
    checkFunction(fn);
    checkNames('transaction', options, WRITE);
    checkSignal(options?.signal);
    const { connection } = this.target;
    connection.checkOutside();
    const durability = durabilityCode(options?.durability === undefined ? this.#durability : options.durability);
    const view = { id: connection.newId(), isClosed: false };
    connection.requestSync((writer) => writer.u8(Op.transactionOpen).uv(view.id).u8(0), (reader) => reader.uv());
    const check = (): void => {
      if (view.isClosed) throw new KvError('KV_CLOSED', 'the transaction has ended');
    };
    const begin: Begin = (writer, op) => writer.u8(Op.within).uv(view.id).u8(op).u8(0);
    try {
      const own = new KvSyncCollection<K, V, I>(this.target, view, begin, check);
      const tx = Object.assign(own, {
        collection: <K2, V2, I2>(collection: Collection<K2, V2, I2> | string) =>
          new KvSyncCollection<K2, V2, I2>(this.#resolve(collection), view, begin, check),
      });
      const result = connection.runCallback(() => fn(tx));
      if (typeof (result as { then?: unknown } | undefined)?.then === 'function') {
        throw new KvError('KV_INVALID_ARGUMENT', 'the callback of a synchronous transaction may not be asynchronous');
      }
      connection.requestSync(
        (writer) => writer.u8(Op.transactionCommit).uv(view.id).u8(durability),
        (reader) => reader.uv(),
      );
      return result;
    } finally {
      view.isClosed = true;
      if (connection.status === 'open') {
        connection.requestSync((writer) => writer.u8(Op.transactionClose).uv(view.id), () => undefined);
      }
    }
  }

  snapshot(): SyncSnapshot<K, V> {
    return new KvSyncSnapshot(this.target, this.#resolve);
  }

  flush(): void {
    this.target.connection.requestSync((writer) => writer.u8(Op.flush), () => undefined);
  }

  close(): void {
    this.target.connection.closeSync();
  }

  [dispose](): void {
    this.close();
  }
}


/**
 * Creates the objects of the synchronous API. Transports that support it carry this object, so that
 * the others need not load this module.
 */
export const syncFaces = {
  view: <K, V>(target: Target<K, V>, view: View, resolve: ResolveCollection): SyncView<K, V> => new KvSyncView(target, view, resolve),
  database: <K, V, I>(target: Target<K, V>, durability: Durability, resolve: ResolveCollection): SyncDatabase<K, V, I> =>
    new KvSyncDatabase<K, V, I>(target, NEWEST, durability, resolve),
};
