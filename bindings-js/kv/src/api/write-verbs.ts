// The verbs that write a collection, each described once for all faces, and where they write to: the
// database or a transaction.
import { KvError } from '../base/errors.ts';
import type { Bound } from '../codec/keys.ts';
import { performance } from '../base/platform.ts';
import { DELETE, KEEP } from '../types/index.ts';
import type {
  Durability,
  Entry,
  RangeOptions,
  SetOptions,
  StreamOptions,
  Updated,
  WriteOptions,
} from '../types/index.ts';
import { checkFunction, checkSignal, ignore, turn } from '../base/async.ts';
import { ChangeList } from './changes.ts';
import type { Connection } from '../wire/connection.ts';
import { decodeValue, encodeKey, encodeValue } from '../wire/codecs.ts';
import {
  CLEAR,
  SET,
  SIGNAL,
  STREAM,
  WRITE,
  checkClear,
  checkIterable,
  checkPair,
  durabilityCode,
  toExpiry,
  toNewExpiry,
} from './arguments.ts';
import { checkNames } from '../base/names.ts';
import { forgetIndexes } from './indexes.ts';
import { Op } from '../wire/opcodes.ts';
import type { ReplyReader, RequestWriter } from '../wire/protocol.ts';
import { boundsOf, isPart, toWindow } from './range.ts';
import { ReadVerbs } from './read-verbs.ts';
import type { LoadValueStream } from './read-verbs.ts';
import { isPromise, validNow } from './schema.ts';
import { promised, step, within } from './task.ts';
import type { Call, Steps, Task } from './task.ts';
import { checkName } from '../wire/collection-target.ts';
import type { Target } from '../wire/collection-target.ts';
import type { View } from '../wire/contracts.ts';

/** How long `setMany` encodes an array before it yields to the event loop. */
const SLICE_MS = 8;
/** Entries encoded between two checks of the clock. */
const LOOK_EVERY = 16;

const CLEAR_UNTIL = { ...CLEAR, ...SIGNAL };

/** The callbacks of an asynchronous face may return promises. */
type Compute<K, I> = (key: K) => I | Promise<I>;
type Update<K, V, I> = (old: V | undefined, key: K, entry: Entry<K, V> | undefined) => Updated<I> | Promise<Updated<I>>;

/** The failure of a write that was never sent. */
export interface Refused {
  readonly error: unknown;
}

export interface WriteScope {
  /** Writes how a write begins: with its opcode and durability, in a transaction after its id. */
  begin(writer: RequestWriter, op: number, options: WriteOptions | undefined): RequestWriter;
  /** Its commit fails if what was read has changed, so single writes need no check of that. */
  readonly detectsConflicts?: boolean;
  /** Throws if the scope refuses writes at the moment. */
  check(): void;
  /** Tracks the outcome of a write: its promise, or the failure that kept it from being sent. */
  readonly follow?: (<T>(outcome: Promise<T> | Refused) => Promise<T>) | undefined;
  /**
   * `Connection.hold`, if that is possible now. Transactions have none: one could end during the
   * hold.
   */
  readonly hold?: (<T>(prepared: Promise<void>, run: () => Promise<T>) => Promise<T>) | undefined;
}

/** Each write is its own commit. */
export class DatabaseScope implements WriteScope {
  readonly #connection: Connection;
  readonly #durability: number;

  constructor(connection: Connection, durability: Durability) {
    this.#connection = connection;
    this.#durability = durabilityCode(durability);
  }

  check(): void {
    this.#connection.checkOutside();
  }

  get hold(): WriteScope['hold'] {
    const connection = this.#connection;
    return connection.canHold ? (prepared, run) => connection.hold(prepared, run) : undefined;
  }

  begin(writer: RequestWriter, op: number, options: WriteOptions | undefined): RequestWriter {
    const durability = options?.durability;
    return writer.u8(op).u8(durability === undefined ? this.#durability : durabilityCode(durability));
  }
}

/** What a scope needs from its transaction. */
export interface OpenTransaction {
  readonly id: number;
  checkWritable(): void;
  follow?<T>(outcome: Promise<T> | Refused): Promise<T>;
}

/** Writes go to a transaction in the engine and wait there for its commit. */
export class TransactionScope implements WriteScope {
  readonly detectsConflicts = true;
  readonly follow: WriteScope['follow'];
  readonly #transaction: OpenTransaction;

  constructor(transaction: OpenTransaction) {
    this.#transaction = transaction;
    this.follow = transaction.follow && ((outcome) => transaction.follow!(outcome));
  }

  check(): void {
    this.#transaction.checkWritable();
  }

  begin(writer: RequestWriter, op: number): RequestWriter {
    this.check();
    return writer.u8(Op.within).uv(this.#transaction.id).u8(op).u8(0);
  }
}

/** How an entry is written in parts. */
export interface Goal<V = never> {
  readonly scope: WriteScope;
  readonly expiresAt: number;
  readonly options: SetOptions | undefined;
  /** Stores an encoded value by one message. */
  readonly store: (value: V) => Task<void>;
}

export class WriteVerbs<K, V, I = V> extends ReadVerbs<K, V> {
  readonly scope: WriteScope;
  /** Clears part of a range in a transaction, where the view may change meanwhile. */
  clearPart: ((range: RangeOptions<K>, options: WriteOptions | undefined) => Promise<void>) | undefined;

  constructor(target: Target<K, V>, view: View, scope: WriteScope, parts?: LoadValueStream) {
    super(target, view, parts);
    this.scope = scope;
  }

  /** Checks a write's options, and that the scope accepts writes. */
  begin(call: string, options: WriteOptions | undefined, names: object, other?: AbortSignal): void {
    checkNames(call, options, names);
    const { durability, signal = other } = options ?? {};
    if (durability !== undefined) durabilityCode(durability);
    checkSignal(signal);
    this.scope.check();
    if (!this.canWait) this.target.indexes?.declareSync(this.target);
  }

  set(key: K, value: I, options?: SetOptions): Task<void> {
    this.begin('set', options, SET);
    const { target } = this;
    const expiresAt = toExpiry(options, target.expireIn);
    const keyBytes = encodeKey(target, key);
    if (this.canWait && target.value.isBlob)
      return this.#validated(value, options, (valid) => this.#setInParts('set', key, valid, options));
    if (target.validate === undefined) return this.#put(key, keyBytes, value as unknown as V, expiresAt, options);
    return this.#validated(value, options, (valid) => this.#put(key, keyBytes, valid, expiresAt, options));
  }

  setStream(
    key: K,
    stream: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>,
    options?: StreamOptions,
  ): Task<void> {
    this.begin('setStream', options, STREAM);
    return this.#setInParts('setStream', key, stream, options);
  }

  setMany(entries: Iterable<readonly [K, I]>, options?: SetOptions): Task<void> {
    this.begin('setMany', options, SET);
    const {
      target,
      scope: { hold },
    } = this;
    const expiresAt = toExpiry(options, target.expireIn);
    const changes = new ChangeList();
    if (hold === undefined || !Array.isArray(entries) || target.validate !== undefined || target.value.isBlob) {
      for (const entry of checkIterable('the entries of setMany', entries)) this.#addTo(changes, entry, expiresAt);
      return this.batch(changes, options, ignore);
    }
    const list = entries as readonly (readonly [K, I])[];
    const at = this.#encodeSome(changes, list, 0, expiresAt);
    if (at === list.length) return this.batch(changes, options, ignore);
    // The caller may change the array once this call has returned.
    const rest = list.slice(at);
    return hold(this.#encodeRest(changes, rest, expiresAt, options?.signal), () =>
      promised(target.connection, this.batch(changes, options, ignore)),
    );
  }

  delete(key: K, options?: WriteOptions): Task<boolean> {
    this.begin('delete', options, WRITE);
    const { target, scope } = this;
    const keyBytes = encodeKey(target, key);
    return {
      write: (writer) => scope.begin(writer, Op.delete, options).uv(target.index).bytes(keyBytes),
      read: readExisted,
    };
  }

  deleteMany(keys: Iterable<K>, options?: WriteOptions): Task<number> {
    this.begin('deleteMany', options, WRITE);
    const changes = new ChangeList();
    for (const key of checkIterable('the keys of deleteMany', keys)) changes.delete(this.target, key);
    return this.batch(changes, options, (existed) => existed);
  }

  clear(...args: [range?: RangeOptions<K> | undefined, options?: WriteOptions]): Task<void> {
    const [range = {}, options] = args;
    this.begin('clear', options, WRITE, this.canWait ? range?.signal : undefined);
    checkClear(args);
    const { target, scope } = this;
    const window = toWindow(target, 'clear', range, this.canWait ? CLEAR_UNTIL : CLEAR);
    if (isPart(window)) return this.clearPart?.(range, options) ?? this.#clearPart(range, window.limit, options);
    return {
      write: (writer) => scope.begin(writer, Op.clear, options).uv(target.index).range(window.range),
      read: (reader) => {
        reader.uv();
        reader.uv();
      },
    };
  }

  getOrInsert(key: K, value: I, options?: SetOptions): Task<V> {
    this.begin('getOrInsert', options, SET);
    const { target, scope } = this;
    const expiresAt = toExpiry(options, target.expireIn);
    const keyBytes = encodeKey(target, key);
    // The engine's own request has no place for index keys.
    if (target.indexes !== undefined)
      return this.update(key, (old) => (old === undefined ? value : KEEP), options) as Task<V>;
    return this.#validated(value, options, (valid) => {
      const valueBytes = encodeValue(target, valid);
      return {
        write: (writer) =>
          scope.begin(writer, Op.getOrInsert, options).uv(target.index).bytes(keyBytes).bytes(valueBytes).uv(expiresAt),
        read: (reader) => {
          reader.uv();
          // An inserted value is returned as a copy, like one that was found.
          return decodeValue(target.value, reader.optional() ?? valueBytes);
        },
      };
    });
  }

  getOrInsertComputed(key: K, compute: Compute<K, I>, options?: SetOptions): Task<V> {
    this.begin('getOrInsertComputed', options, SET);
    checkFunction(compute);
    return this.#getOrCompute(key, compute, options);
  }

  *#getOrCompute(key: K, compute: Compute<K, I>, options: SetOptions | undefined): Steps<V> {
    const found = yield* within(this.get(key));
    checkSignal(options?.signal);
    if (found !== undefined) return found;
    // `getOrInsert` checks the signal before it writes.
    const computed = compute(key);
    const value = this.#waitsFor(computed) ? yield* step(Promise.resolve(computed)) : (computed as I);
    return yield* within(this.getOrInsert(key, value, options));
  }

  update(key: K, fn: Update<K, V, I>, options?: SetOptions): Task<V | undefined> {
    this.begin('update', options, SET);
    checkFunction(fn);
    const {
      target: { connection, index },
      canWait,
    } = this;
    // Synchronous, so only `fn` itself could write in between.
    if (!canWait) return this.#update(key, fn, options, false);
    const name = `${this.view.id} ${index} ${encodeKey(this.target, key).join()}`;
    return connection.queue.run(name, options?.signal, (call) =>
      promised(
        connection,
        this.#update(key, (...args) => call(() => fn(...args)), options, this.scope.detectsConflicts !== true),
      ),
    );
  }

  /** Indexes go with a dropped collection, so a later write declares them again. */
  dropCollection(name: string): Task<boolean> {
    return this.#catalog([name], Op.drop);
  }

  renameCollection(from: string, to: string): Task<boolean> {
    return this.#catalog([from, to], Op.rename);
  }

  #catalog(names: readonly string[], op: number): Task<boolean> {
    names.forEach(checkName);
    this.scope.check();
    for (const name of names) forgetIndexes(this.target.connection, name);
    return {
      write: (writer) => {
        this.scope.begin(writer, op, undefined);
        for (const name of names) writer.str(name);
      },
      read: readExisted,
    };
  }

  /** Writes several changes as one. `pick` takes what the result is made of from the reply. */
  batch<T>(
    changes: ChangeList,
    options: WriteOptions | undefined,
    pick: (existed: number, version: number) => T,
  ): Task<T> {
    const call: Call<T> = {
      write: (writer) => this.scope.begin(writer, Op.batch, options).uv(changes.length).raw(changes.bytes),
      read: (reader) => {
        const version = reader.uv();
        return pick(reader.uv(), version);
      },
    };
    const ready = this.canWait ? changes.ready() : undefined;
    if (ready === undefined && !changes.isIndexed) return call;
    return (function* (): Steps<T> {
      if (ready !== undefined) {
        yield ready;
        checkSignal(options?.signal);
      }
      try {
        return yield* step(call);
      } catch (error) {
        changes.failed(error);
        throw error;
      }
    })();
  }

  /** Writes an entry whose value is valid. */
  #put(key: K, keyBytes: Uint8Array, value: V, expiresAt: number, options: WriteOptions | undefined): Task<void> {
    const { target, scope } = this;
    if (expiresAt !== 0 || target.indexes !== undefined) {
      const changes = new ChangeList();
      changes.put(target, key, value, expiresAt);
      return this.batch(changes, options, ignore);
    }
    const valueBytes = encodeValue(target, value);
    return {
      write: (writer) => scope.begin(writer, Op.set, options).uv(target.index).bytes(keyBytes).bytes(valueBytes),
      read: skipVersion,
    };
  }

  #setInParts(call: 'set' | 'setStream', key: K, value: unknown, options: SetOptions | undefined): Promise<void> {
    const { target, scope } = this;
    const expiresAt = toExpiry(options, target.expireIn);
    const keyBytes = encodeKey(target, key);
    const goal: Goal<V> = {
      scope,
      expiresAt,
      options,
      store: (whole) => this.#put(key, keyBytes, whole, expiresAt, options),
    };
    return this.inParts(call, key, value, goal);
  }

  #addTo(changes: ChangeList, entry: readonly [K, I], expiresAt: number): void {
    const [key, value] = checkPair(entry);
    if (this.canWait) changes.set(this.target, key, value, expiresAt);
    else changes.put(this.target, key, validNow(this.target, value), expiresAt);
  }

  /** Encodes entries from `from` on for about `SLICE_MS`; returns the index of the next one. */
  #encodeSome(changes: ChangeList, list: readonly (readonly [K, I])[], from: number, expiresAt: number): number {
    const end = performance.now() + SLICE_MS;
    for (let at = from; at < list.length; at++) {
      if (at > from && at % LOOK_EVERY === 0 && performance.now() >= end) return at;
      this.#addTo(changes, list[at] as readonly [K, I], expiresAt);
    }
    return list.length;
  }

  async #encodeRest(
    changes: ChangeList,
    rest: readonly (readonly [K, I])[],
    expiresAt: number,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    for (let at = 0; at < rest.length; ) {
      await turn();
      checkSignal(signal);
      at = this.#encodeSome(changes, rest, at, expiresAt);
    }
  }

  /** In a transaction, and synchronously, nothing comes between the reads and the clear. */
  *#clearPart(range: RangeOptions<K>, limit: number, options: WriteOptions | undefined): Steps<void> {
    const first = yield* within(this.first(range));
    const last = limit === Infinity ? undefined : yield* within(this.at(limit - 1, range));
    if (first !== undefined)
      yield* within(this.clear(boundsOf(range, first[0] as Bound<K>, last?.[0] as Bound<K> | undefined), options));
  }

  /** With `guards`, writes only if the entry still has the version that `fn` was called with. */
  *#update(key: K, fn: Update<K, V, I>, options: SetOptions | undefined, guards: boolean): Steps<V | undefined> {
    const { target } = this;
    const signal = options?.signal;
    for (;;) {
      const entry = (yield this.getEntry(key)) as Entry<K, V> | undefined;
      checkSignal(signal);
      const given = fn(entry?.value, key, entry);
      const next = this.#waitsFor(given) ? ((yield given) as Updated<I>) : (given as Updated<I>);
      if (next === KEEP) return entry?.value;
      const changes = new ChangeList();
      if (guards) changes.check(target, key, entry?.version ?? null);
      const write = (value: V | undefined): Task<V | undefined> => {
        if (next === DELETE) changes.delete(target, key);
        else changes.put(target, key, value as V, toNewExpiry(options, target.expireIn, entry));
        checkSignal(signal);
        return this.batch(changes, options, () => value);
      };
      try {
        return yield* within(next === DELETE ? write(undefined) : this.#validated(next, options, write));
      } catch (error) {
        if (!(guards && error instanceof KvError && error.code === 'KV_CONFLICT')) throw error;
      }
    }
  }

  #waitsFor<T>(result: T | Promise<T>): result is Promise<T> {
    return this.canWait && isPromise(result);
  }

  /** Calls `store` with the validated value, at once unless the schema is asynchronous. */
  #validated<T>(value: unknown, options: WriteOptions | undefined, store: (valid: V) => Task<T>): Task<T> {
    const { target, canWait } = this;
    if (!canWait) return store(validNow(target, value));
    const { validate } = target;
    const valid = validate === undefined ? (value as V) : validate(value);
    if (validate === undefined || !isPromise(valid)) return store(valid as V);
    return (function* (): Steps<T> {
      const output = yield* step(valid);
      checkSignal(options?.signal);
      return yield* within(store(output));
    })();
  }
}

// The reply to a write begins with the version of its commit.

function skipVersion(reader: ReplyReader): void {
  reader.uv();
}

function readExisted(reader: ReplyReader): boolean {
  reader.uv();
  return reader.u8() !== 0;
}
