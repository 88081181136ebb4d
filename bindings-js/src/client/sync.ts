// The synchronous face of a database whose engine runs in this thread: the same names, plain values, no promises.
import { KvError } from '../errors.ts';
import type { Bound, KeyPrefix } from '../codec/keys.ts';
import { DELETE, KEEP } from '../types.ts';
import type {
  Bounds, Collection, Durability, Entry, Range, SetOptions, SyncCollection, SyncDatabase, SyncReader, SyncTransaction, Updated,
  WriteOptions,
} from '../types.ts';
import { checkFunction, checkSignal, dispose } from './async.ts';
import { ChangeList } from './changes.ts';
import { decodeKey, decodeValue, encodeKey, encodeValue } from './codecs.ts';
import type { Connection } from './connection.ts';
import { toExpiry } from './expiry.ts';
import { Op } from './protocol.ts';
import type { ReplyReader, RequestWriter } from './protocol.ts';
import { boundsOf, isPart, refuseWindow, toWindow } from './range.ts';
import type { Window } from './range.ts';
import type { Target, View } from './reader.ts';
import { validatedSync } from './schema.ts';
import { durabilityCode } from './scope.ts';

const REVERSE = 1;
const WITH_KEYS = 2;
const WITH_VALUES = 4;
const FIRST_CHUNK_ITEMS = 64;
const MAX_CHUNK_ITEMS = 4096;
const CHUNK_BYTES = 256 << 10;

interface OpenScan {
  readonly connection: Connection;
  readonly id: number;
}

function closeScan({ connection, id }: OpenScan): void {
  if (connection.status === 'open') connection.requestSync((writer) => writer.u8(Op.scanClose).uv(id), () => undefined);
}

/** An iterator that nobody ended would keep its snapshot's space in the file. */
const abandoned = new FinalizationRegistry<OpenScan>((scan) => {
  try {
    closeScan(scan);
  } catch {
    // The engine is gone, and the scan with it.
  }
});

export class KvSyncReader<K, V> implements SyncReader<K, V> {
  protected readonly target: Target<K, V>;
  protected readonly view: View;

  constructor(target: Target<K, V>, view: View) {
    this.target = target;
    this.view = view;
  }

  get size(): number {
    return this.count();
  }

  get(key: K): V | undefined {
    const bytes = encodeKey(this.target.key, key);
    return this.#request(Op.get, (writer) => writer.bytes(bytes), (reader) => {
      const value = reader.optional();
      return value === undefined ? undefined : this.#value(value);
    });
  }

  getMany(keys: Iterable<K>): (V | undefined)[] {
    return this.#many(Op.getMany, keys, (reader) => {
      const value = reader.optional();
      return value === undefined ? undefined : this.#value(value);
    });
  }

  getEntry(key: K): Entry<K, V> | undefined {
    const bytes = encodeKey(this.target.key, key);
    return this.#request(Op.entry, (writer) => writer.bytes(bytes), (reader) => {
      const value = reader.optional();
      if (value === undefined) return undefined;
      const version = reader.uv();
      const expiresAt = reader.uv();
      const entry = { key: this.#key(bytes), value: this.#value(value), version };
      return expiresAt === 0 ? entry : { ...entry, expiresAt };
    });
  }

  has(key: K): boolean {
    return this.hasMany([key])[0] === true;
  }

  hasMany(keys: Iterable<K>): boolean[] {
    return this.#many(Op.hasMany, keys, (reader) => reader.u8() !== 0);
  }

  entries(options?: Range<K>): IterableIterator<[K, V]> {
    return this.#iterate(options, true, true, (reader) => {
      const key = reader.bytes();
      return [this.#key(key), this.#value(reader.bytes())];
    });
  }

  keys(options?: Range<K>): IterableIterator<K> {
    return this.#iterate(options, true, false, (reader) => this.#key(reader.bytes()));
  }

  values(options?: Range<K>): IterableIterator<V> {
    return this.#iterate(options, false, true, (reader) => this.#value(reader.bytes()));
  }

  range(options: Range<K>): IterableIterator<[K, V]> {
    return this.entries(options);
  }

  prefix(prefix: KeyPrefix<K>, options?: Range<K>): IterableIterator<[K, V]> {
    return this.entries({ ...options, prefix });
  }

  first(options?: Range<K>): [K, V] | undefined {
    return this.at(0, options);
  }

  last(options?: Range<K>): [K, V] | undefined {
    return this.at(-1, options);
  }

  at(index: number, options?: Range<K>): [K, V] | undefined {
    if (!Number.isSafeInteger(index)) throw new KvError('KV_INVALID_ARGUMENT', 'index has to be a whole number');
    const window = toWindow(this.target.key, options);
    const { range, reverse, offset, limit } = window;
    if (index < 0 && offset === 0 && limit === Infinity) return this.#atPosition(range, !reverse, -index - 1);
    const fromStart = index < 0 ? this.#countIn(window) + index : index;
    const position = offset + fromStart;
    if (fromStart < 0 || fromStart >= limit || !Number.isSafeInteger(position)) return undefined;
    return this.#atPosition(range, reverse, position);
  }

  count(options?: Range<K>): number {
    return this.#countIn(toWindow(this.target.key, options));
  }

  rank(key: K, options?: Bounds<K>): number {
    refuseWindow(options);
    const { range } = toWindow(this.target.key, options);
    const bytes = encodeKey(this.target.key, key);
    return this.#request(Op.rank, (writer) => writer.range(range).bytes(bytes), (reader) => reader.uv());
  }

  [Symbol.iterator](): IterableIterator<[K, V]> {
    return this.entries();
  }

  #key(bytes: Uint8Array): K {
    return decodeKey(this.target.key, bytes);
  }

  #value(bytes: Uint8Array): V {
    return decodeValue(this.target.value, bytes);
  }

  #request<T>(op: number, write: (writer: RequestWriter) => unknown, read: (reader: ReplyReader) => T): T {
    this.#checkOpen();
    const { connection, index } = this.target;
    return connection.requestSync((writer) => write(writer.u8(op).uv(this.view.id).uv(index)), read);
  }

  #many<T>(op: number, keys: Iterable<K>, read: (reader: ReplyReader) => T): T[] {
    const encoded = Array.from(keys, (key) => encodeKey(this.target.key, key));
    return this.#request(op, (writer) => {
      writer.uv(encoded.length);
      for (const bytes of encoded) writer.bytes(bytes);
    }, (reader) => encoded.map(() => read(reader)));
  }

  #countIn({ range, offset, limit }: Window): number {
    const all = this.#request(Op.count, (writer) => writer.range(range), (reader) => reader.uv());
    return Math.min(Math.max(all - offset, 0), limit);
  }

  #atPosition(range: Window['range'], fromEnd: boolean, index: number): [K, V] | undefined {
    return this.#request(Op.at, (writer) => writer.range(range).u8(fromEnd ? 1 : 0).uv(index), (reader) => {
      if (reader.u8() === 0) return undefined;
      const key = reader.bytes();
      return [this.#key(key), this.#value(reader.bytes())];
    });
  }

  /** The state is that of the call, not that of the first `next`. */
  #iterate<T>(
    options: Range<K> | undefined,
    keys: boolean,
    values: boolean,
    decode: (reader: ReplyReader) => T,
  ): IterableIterator<T> {
    const { range, reverse, offset, limit } = toWindow(this.target.key, options);
    const { connection, index } = this.target;
    const fields = (keys ? 1 : 0) + (values ? 1 : 0);
    const scan: OpenScan = { connection, id: connection.newId() };
    const read = (reader: ReplyReader): { isLast: boolean; left: number; items: ReplyReader } => {
      const isLast = reader.u8() !== 0;
      const left = reader.uv();
      return { isLast, left, items: reader.fork(left * fields) };
    };
    const flags = (reverse ? REVERSE : 0) | (keys ? WITH_KEYS : 0) | (values ? WITH_VALUES : 0);
    this.#checkOpen();
    let chunk = limit === 0 ? undefined : connection.requestSync((writer) => {
      writer.u8(Op.scanOpen).uv(scan.id).uv(this.view.id).uv(index).range(range).u8(flags).uv(offset);
      writer.uv(limit === Infinity ? 0 : limit).uv(FIRST_CHUNK_ITEMS).uv(CHUNK_BYTES);
    }, read);
    let items = FIRST_CHUNK_ITEMS;
    let isOpen = chunk?.isLast === false;
    function* generate(): Generator<T, undefined> {
      try {
        while (chunk !== undefined) {
          for (; chunk.left > 0; chunk.left--) yield decode(chunk.items);
          if (!isOpen) return;
          items = Math.min(items * 4, MAX_CHUNK_ITEMS);
          chunk = connection.requestSync((writer) => writer.u8(Op.scanNext).uv(scan.id).uv(items).uv(CHUNK_BYTES), read);
          isOpen = !chunk.isLast;
        }
      } finally {
        if (isOpen && connection.status === 'open') closeScan(scan);
        abandoned.unregister(scan);
      }
    }
    const iterator = generate();
    if (isOpen) abandoned.register(iterator, scan, scan);
    return iterator;
  }

  #checkOpen(): void {
    if (this.view.isClosed) throw new KvError('KV_CLOSED', 'the snapshot is closed');
  }
}

/** How a write begins: in the database with its durability, or in a transaction. */
type Begin = (writer: RequestWriter, op: number, options: WriteOptions | undefined) => RequestWriter;

export class KvSyncCollection<K, V, I = V> extends KvSyncReader<K, V> implements SyncCollection<K, V, I> {
  readonly #begin: Begin;

  constructor(target: Target<K, V>, view: View, begin: Begin) {
    super(target, view);
    this.#begin = begin;
  }

  get name(): string {
    return this.target.name;
  }

  set(key: K, value: I, options?: SetOptions): this {
    this.#set(key, value, options);
    return this;
  }

  setMany(entries: Iterable<readonly [K, I]>, options?: SetOptions): void {
    const expiresAt = toExpiry(options, this.target.expireIn);
    const changes = new ChangeList();
    for (const [key, value] of entries) changes.put(this.target, key, validatedSync(this.target, value), expiresAt);
    this.#batch(changes, options);
  }

  delete(key: K, options?: WriteOptions): boolean {
    return this.deleteMany([key], options) > 0;
  }

  deleteMany(keys: Iterable<K>, options?: WriteOptions): number {
    const changes = new ChangeList();
    for (const key of keys) changes.delete(this.target, key);
    return this.#batch(changes, options);
  }

  clear(range: Range<K> = {}, options?: WriteOptions): void {
    const window = toWindow(this.target.key, range);
    if (isPart(window)) {
      // Nothing else runs meanwhile.
      const first = this.first(range);
      const last = window.limit === Infinity ? undefined : this.at(window.limit - 1, range);
      if (first !== undefined) this.clear(boundsOf(range, first[0] as Bound<K>, last?.[0] as Bound<K> | undefined), options);
      return;
    }
    this.#write(Op.clear, options, (writer) => writer.uv(this.target.index).range(window.range), () => undefined);
  }

  getOrInsert(key: K, value: I, options?: SetOptions): V {
    const expiresAt = toExpiry(options, this.target.expireIn);
    const keyBytes = encodeKey(this.target.key, key);
    const valueBytes = encodeValue(this.target.value, validatedSync(this.target, value));
    const found = this.#write(Op.getOrInsert, options, (writer) => {
      writer.uv(this.target.index).bytes(keyBytes).bytes(valueBytes).uv(expiresAt);
    }, (reader) => reader.optional());
    return decodeValue(this.target.value, found ?? valueBytes);
  }

  getOrInsertComputed(key: K, compute: (key: K) => I, options?: SetOptions): V {
    checkFunction(compute);
    const found = this.get(key);
    return found === undefined ? this.getOrInsert(key, compute(key), options) : found;
  }

  update(key: K, fn: (old: V | undefined, key: K) => Updated<I>, options?: SetOptions): V | undefined {
    checkFunction(fn);
    // Nothing else runs meanwhile but what `fn` does itself.
    const old = this.get(key);
    const next = fn(old, key);
    if (next === KEEP) return old;
    if (next === DELETE) {
      this.delete(key, options);
      return undefined;
    }
    return this.#set(key, next, options);
  }

  /** Gives what was stored. */
  #set(key: K, value: I, options: SetOptions | undefined): V {
    const changes = new ChangeList();
    const valid = validatedSync(this.target, value);
    changes.put(this.target, key, valid, toExpiry(options, this.target.expireIn));
    this.#batch(changes, options);
    return valid;
  }

  #batch(changes: ChangeList, options: WriteOptions | undefined): number {
    return this.#write(Op.batch, options, (writer) => {
      writer.uv(changes.length).raw(changes.bytes);
    }, (reader) => reader.uv());
  }

  #write<T>(
    op: number,
    options: WriteOptions | undefined,
    write: (writer: RequestWriter) => unknown,
    read: (reader: ReplyReader) => T,
  ): T {
    checkSignal(options?.signal);
    return this.target.connection.requestSync((writer) => write(this.#begin(writer, op, options)), (reader) => {
      reader.uv();
      return read(reader);
    });
  }
}

/** How the database finds the collection that is meant. */
export type ResolveCollection = <K, V, I>(collection: Collection<K, V, I> | string, options?: object) => Target<K, V>;

export class KvSyncDatabase<K, V, I = V> extends KvSyncCollection<K, V, I> implements SyncDatabase<K, V, I> {
  readonly #resolve: ResolveCollection;
  readonly #view: View;
  readonly #durability: Durability;

  constructor(target: Target<K, V>, view: View, durability: Durability, resolve: ResolveCollection) {
    super(target, view, KvSyncDatabase.#toDatabase(durability));
    this.#resolve = resolve;
    this.#view = view;
    this.#durability = durability;
  }

  static #toDatabase(durability: Durability): Begin {
    return (writer, op, options) => writer.u8(op).u8(durabilityCode(options?.durability ?? durability));
  }

  collection<K2, V2, I2>(collection: Collection<K2, V2, I2> | string, options?: object): SyncCollection<K2, V2, I2> {
    const target = this.#resolve(collection, options);
    return new KvSyncCollection<K2, V2, I2>(target, this.#view, KvSyncDatabase.#toDatabase(this.#durability));
  }

  transaction<T>(fn: (tx: SyncTransaction<K, V, I>) => T, options?: WriteOptions): T {
    checkFunction(fn);
    checkSignal(options?.signal);
    const durability = durabilityCode(options?.durability ?? this.#durability);
    const { connection } = this.target;
    const view = { id: connection.newId(), isClosed: false };
    connection.requestSync((writer) => writer.u8(Op.transactionOpen).uv(view.id).u8(0), (reader) => reader.uv());
    const begin: Begin = (writer, op) => {
      if (view.isClosed) throw new KvError('KV_CLOSED', 'the transaction has ended');
      return writer.u8(Op.within).uv(view.id).u8(op).u8(0);
    };
    try {
      const own = new KvSyncCollection<K, V, I>(this.target, view, begin);
      const tx = Object.assign(own, {
        collection: <K2, V2, I2>(collection: Collection<K2, V2, I2> | string) =>
          new KvSyncCollection<K2, V2, I2>(this.#resolve(collection), view, begin),
      });
      const result = fn(tx);
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

