// The synchronous faces, for an engine in this thread: the same names, with values instead of
// promises.
import { KvError } from '../base/errors.ts';
import { isSuperseded } from '../base/superseded.ts';
import type { Key, KeyPrefix } from '../codec/keys.ts';
import type {
  Bounds,
  Collection,
  Durability,
  Entry,
  Range,
  SetOptions,
  SyncCollection,
  SyncDatabase,
  SyncIndex,
  SyncReader,
  SyncSnapshot,
  SyncTransaction,
  SyncUpdater,
  SyncView,
  WithMeta,
  WriteOptions,
} from '../types/index.ts';
import type { IndexEntry, IndexEntryWithMeta, SyncIndexRange } from '../types/indexes.ts';
import { checkFunction, checkSignal, dispose } from '../base/async.ts';
import { Op } from '../wire/opcodes.ts';
import { IndexVerbs } from './index-verbs.ts';
import { WRITE, durabilityCode } from './arguments.ts';
import { checkNames } from '../base/names.ts';
import { ReadVerbs } from './read-verbs.ts';
import { DatabaseScope, TransactionScope, WriteVerbs } from './write-verbs.ts';
import type { WriteScope } from './write-verbs.ts';
import { SnapshotView } from './snapshot-view.ts';
import { SyncScan } from './sync-scan.ts';
import { immediate } from './task.ts';
import type { Task, Verbs } from './task.ts';
import type { Connection } from '../wire/connection.ts';
import { NEWEST } from '../wire/collection-target.ts';
import type { Target } from '../wire/collection-target.ts';
import type { View } from '../wire/contracts.ts';

/** Carries a verb's task out. */
function now<T>({ target }: Verbs, task: Task<T>): T {
  return immediate(target.connection, task);
}

class KvSyncIndex<K, V> implements SyncIndex<K, V> {
  readonly name: string;
  /** @internal */
  readonly verbs: IndexVerbs<K, V>;

  constructor(target: Target<K, V>, view: View, name: string) {
    this.verbs = new IndexVerbs(target, view, name, false);
    this.name = name;
  }

  get(indexKey: Key): V | undefined {
    return now(this.verbs, this.verbs.get(indexKey));
  }

  entries(options: SyncIndexRange & WithMeta): IterableIterator<IndexEntryWithMeta<K, V>>;
  entries(options?: SyncIndexRange): IterableIterator<IndexEntry<K, V>>;
  entries(options?: SyncIndexRange & Partial<WithMeta>): IterableIterator<unknown> {
    return new SyncScan(this.verbs.entries(options));
  }

  keys(options?: SyncIndexRange): IterableIterator<K> {
    return new SyncScan(this.verbs.keys(options));
  }

  values(options?: SyncIndexRange): IterableIterator<V> {
    return new SyncScan(this.verbs.values(options));
  }

  first(options?: SyncIndexRange): IndexEntry<K, V> | undefined {
    return now(this.verbs, this.verbs.first(options));
  }

  last(options?: SyncIndexRange): IndexEntry<K, V> | undefined {
    return now(this.verbs, this.verbs.last(options));
  }

  at(index: number, options?: SyncIndexRange): IndexEntry<K, V> | undefined {
    return now(this.verbs, this.verbs.at(index, options));
  }

  count(options?: SyncIndexRange): number {
    return now(this.verbs, this.verbs.count(options));
  }

  rank(indexKey: Key, options?: SyncIndexRange): number {
    return now(this.verbs, this.verbs.rank(indexKey, options));
  }

  [Symbol.iterator](): IterableIterator<IndexEntry<K, V>> {
    return this.entries();
  }
}

class KvSyncReader<K, V> implements SyncReader<K, V> {
  /** @internal */
  readonly verbs: ReadVerbs<K, V>;

  constructor(target: Target<K, V>, view: View, verbs = new ReadVerbs(target, view)) {
    this.verbs = verbs;
  }

  get size(): number {
    return this.count();
  }

  get(key: K): V | undefined {
    return now(this.verbs, this.verbs.get(key));
  }

  getMany(keys: Iterable<K>): (V | undefined)[] {
    return now(this.verbs, this.verbs.getMany(keys));
  }

  getEntry(key: K): Entry<K, V> | undefined {
    return now(this.verbs, this.verbs.getEntry(key));
  }

  has(key: K): boolean {
    return now(this.verbs, this.verbs.has(key));
  }

  hasMany(keys: Iterable<K>): boolean[] {
    return now(this.verbs, this.verbs.hasMany(keys));
  }

  entries(options: Range<K> & WithMeta): IterableIterator<Entry<K, V>>;
  entries(options?: Range<K>): IterableIterator<[K, V]>;
  entries(options?: Range<K> & Partial<WithMeta>): IterableIterator<unknown> {
    return new SyncScan(this.verbs.entries(options));
  }

  keys(options?: Range<K>): IterableIterator<K> {
    return new SyncScan(this.verbs.keys(options));
  }

  values(options?: Range<K>): IterableIterator<V> {
    return new SyncScan(this.verbs.values(options));
  }

  prefix(prefix: KeyPrefix<K>, options: Range<K> & WithMeta): IterableIterator<Entry<K, V>>;
  prefix(prefix: KeyPrefix<K>, options?: Omit<Range<K>, 'prefix'>): IterableIterator<[K, V]>;
  prefix(prefix: KeyPrefix<K>, options?: Range<K> & Partial<WithMeta>): IterableIterator<unknown> {
    return new SyncScan(this.verbs.prefix(prefix, options));
  }

  first(options?: Range<K>): [K, V] | undefined {
    return now(this.verbs, this.verbs.first(options));
  }

  last(options?: Range<K>): [K, V] | undefined {
    return now(this.verbs, this.verbs.last(options));
  }

  at(index: number, options?: Range<K>): [K, V] | undefined {
    return now(this.verbs, this.verbs.at(index, options));
  }

  count(options?: Range<K>): number {
    return now(this.verbs, this.verbs.count(options));
  }

  rank(key: K, options?: Bounds<K>): number {
    return now(this.verbs, this.verbs.rank(key, options));
  }

  index(name: string): SyncIndex<K, V> {
    return new KvSyncIndex(this.verbs.target, this.verbs.view, name);
  }

  [Symbol.iterator](): IterableIterator<[K, V]> {
    return this.entries();
  }
}

class KvSyncCollection<K, V, I = V> extends KvSyncReader<K, V> implements SyncCollection<K, V, I> {
  /** @internal */
  declare readonly verbs: WriteVerbs<K, V, I>;

  constructor(target: Target<K, V>, view: View, scope: WriteScope) {
    super(target, view, new WriteVerbs<K, V, I>(target, view, scope));
  }

  get name(): string {
    return this.verbs.target.name;
  }

  set(key: K, value: I, options?: SetOptions): this {
    now(this.verbs, this.verbs.set(key, value, options));
    return this;
  }

  setMany(entries: Iterable<readonly [K, I]>, options?: SetOptions): void {
    now(this.verbs, this.verbs.setMany(entries, options));
  }

  delete(key: K, options?: WriteOptions): boolean {
    return now(this.verbs, this.verbs.delete(key, options));
  }

  deleteMany(keys: Iterable<K>, options?: WriteOptions): number {
    return now(this.verbs, this.verbs.deleteMany(keys, options));
  }

  clear(...args: [range?: Range<K> | undefined, options?: WriteOptions]): void {
    now(this.verbs, this.verbs.clear(...args));
  }

  getOrInsert(key: K, value: I, options?: SetOptions): V {
    return now(this.verbs, this.verbs.getOrInsert(key, value, options));
  }

  getOrInsertComputed(key: K, compute: (key: K) => I, options?: SetOptions): V {
    return now(this.verbs, this.verbs.getOrInsertComputed(key, compute, options));
  }

  update(key: K, fn: SyncUpdater<K, V, I>, options?: SetOptions): V | undefined {
    return now(this.verbs, this.verbs.update(key, fn, options));
  }
}

/** A collection by a handle of either API, or by name. */
type Reference<K, V, I> = Collection<K, V, I> | SyncCollection<K, V, I> | string;

/** Resolves a collection's name or handle in the database. */
export type ResolveCollection = <K, V, I>(collection: Collection<K, V, I> | string, options?: object) => Target<K, V>;

/** The same, for handles of this API, too. */
type Resolve = <K, V, I>(collection: Reference<K, V, I>, options?: object) => Target<K, V>;

const withOwn =
  (connection: Connection, resolve: ResolveCollection): Resolve =>
  <K, V, I>(collection: Reference<K, V, I>, options?: object): Target<K, V> => {
    const isOwn =
      collection instanceof KvSyncCollection &&
      collection.verbs.target.connection === connection &&
      options === undefined;
    return isOwn ? collection.verbs.target : resolve(collection as Collection<K, V, I> | string, options);
  };

class KvSyncView<K, V> extends KvSyncReader<K, V> implements SyncView<K, V> {
  readonly #resolve: Resolve;

  constructor(target: Target<K, V>, view: View, resolve: Resolve) {
    super(target, view);
    this.#resolve = resolve;
  }

  collection<K2, V2, I2>(collection: Reference<K2, V2, I2>, options?: object): SyncReader<K2, V2> {
    return new KvSyncReader<K2, V2>(this.#resolve(collection, options), this.verbs.view);
  }
}

class KvSyncSnapshot<K, V> extends KvSyncView<K, V> implements SyncSnapshot<K, V> {
  readonly #own: SnapshotView<number>;

  constructor(target: Target<K, V>, resolve: Resolve) {
    const { connection } = target;
    const view = new SnapshotView(connection, (opening) => immediate(connection, opening));
    super(target, view, resolve);
    this.#own = view;
  }

  get version(): number {
    return this.#own.version;
  }

  close(): void {
    immediate(this.verbs.target.connection, this.#own.close());
  }

  [dispose](): void {
    this.close();
  }
}

class KvSyncDatabase<K, V, I = V> extends KvSyncCollection<K, V, I> implements SyncDatabase<K, V, I> {
  readonly #resolve: Resolve;
  readonly #durability: Durability;

  constructor(target: Target<K, V>, durability: Durability, resolve: Resolve) {
    super(target, NEWEST, new DatabaseScope(target.connection, durability));
    this.#resolve = resolve;
    this.#durability = durability;
  }

  collection<K2, V2, I2>(collection: Reference<K2, V2, I2>, options?: object): SyncCollection<K2, V2, I2> {
    return new KvSyncCollection<K2, V2, I2>(this.#resolve(collection, options), NEWEST, this.verbs.scope);
  }

  transaction<T>(fn: (tx: SyncTransaction<K, V, I>) => T, options?: WriteOptions): T {
    checkFunction(fn);
    checkNames('transaction', options, WRITE);
    checkSignal(options?.signal);
    this.verbs.target.connection.checkOutside();
    const durability = durabilityCode(options?.durability === undefined ? this.#durability : options.durability);
    try {
      return this.#run(fn, durability);
    } catch (error) {
      // Nobody else commits meanwhile, but a declaration of indexes within is a commit of its own.
      if (!(error instanceof KvError && isSuperseded(error))) throw error;
      return this.#run(fn, durability);
    }
  }

  #run<T>(fn: (tx: SyncTransaction<K, V, I>) => T, durability: number): T {
    const { connection } = this.verbs.target;
    const view = { id: connection.newId(), isClosed: false };
    connection.requestSync(
      (writer) => writer.u8(Op.transactionOpen).uv(view.id).u8(0),
      (reader) => reader.uv(),
    );
    const checkWritable = (): void => {
      if (view.isClosed) throw new KvError('KV_CLOSED', 'the transaction has ended');
    };
    const scope = new TransactionScope({ id: view.id, checkWritable });
    const within = <K2, V2, I2>(target: Target<K2, V2>): KvSyncCollection<K2, V2, I2> =>
      new KvSyncCollection<K2, V2, I2>(target, view, scope);
    try {
      const tx = Object.assign(within<K, V, I>(this.verbs.target), {
        collection: <K2, V2, I2>(collection: Reference<K2, V2, I2>, given?: object) =>
          within<K2, V2, I2>(this.#resolve(collection, given)),
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
        connection.requestSync(
          (writer) => writer.u8(Op.transactionClose).uv(view.id),
          () => undefined,
        );
      }
    }
  }

  snapshot(): SyncSnapshot<K, V> {
    return new KvSyncSnapshot(this.verbs.target, this.#resolve);
  }

  flush(): void {
    this.verbs.target.connection.requestSync(
      (writer) => writer.u8(Op.flush),
      () => undefined,
    );
  }

  close(): void {
    this.verbs.target.connection.closeSync();
  }

  [dispose](): void {
    this.close();
  }
}

/** See `SyncFaces`. */
export const syncFaces = {
  view: <K, V>(target: Target<K, V>, view: View, resolve: ResolveCollection): SyncView<K, V> =>
    new KvSyncView(target, view, withOwn(target.connection, resolve)),
  database: <K, V, I>(
    target: Target<K, V>,
    durability: Durability,
    resolve: ResolveCollection,
  ): SyncDatabase<K, V, I> => new KvSyncDatabase<K, V, I>(target, durability, withOwn(target.connection, resolve)),
};

export type ApiSyncFaces = typeof syncFaces;
