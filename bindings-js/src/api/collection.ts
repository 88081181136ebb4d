// Reading and writing one collection, in the database or in a transaction.
import { KvError } from '../base/errors.ts';
import type { Bound } from '../codec/keys.ts';
import { performance } from '../base/platform.ts';
import { DELETE, KEEP } from '../types/index.ts';
import type { Commit, CommitIterator, Subscription, WatchOptions } from '../types/feed.ts';
import type {
  Bounds, Collection, RangeOptions, SetOptions, SignalOptions, StreamOptions, Transaction, TransactionOptions, Updater, WriteOptions, Writer,
} from '../types/index.ts';
import type { BuildIndexesOptions } from '../types/indexes.ts';
import { abortable, attempt, checkFunction, checkSignal, turn } from '../base/async.ts';
import { ChangeList } from './changes.ts';
import { batchCall, clearCall, getOrInsertCall } from './calls.ts';
import { encodeKey, encodeValue } from '../wire/codecs.ts';
import { toExpiry, toNewExpiry } from './expiry.ts';
import { CLEAR, MAINTENANCE, SET, SIGNAL, STREAM, WRITE, checkClear, checkIterable, checkNames, checkPair } from './names.ts';
import { subscribe, watch } from './feed/follow.ts';
import { checkIndexName } from './indexes.ts';
import { Op } from '../wire/opcodes.ts';
import type { Goal } from './parts.ts';
import { boundsOf, isPart, toWindow } from './range.ts';
import { CollectionReader } from './reader.ts';
import { validated } from './schema.ts';
import { NEWEST } from '../wire/target.ts';
import type { Target, View } from '../wire/target.ts';
import { durabilityCode } from './scope.ts';
import type { WriteScope } from './scope.ts';
import type { Names } from '../base/names.ts';

/** How long `setMany` encodes an array before it yields to the event loop. */
const SLICE_MS = 8;
/** Entries encoded between two checks of the clock. */
const LOOK_EVERY = 16;

const CLEAR_UNTIL: Names<RangeOptions<unknown>> = { ...CLEAR, ...SIGNAL };

/** Reads from `view` and writes through `scope`. */
export class CollectionWriter<K, V, I = V> extends CollectionReader<K, V> implements Writer<K, V, I> {
  readonly #scope: WriteScope;

  constructor(target: Target<K, V>, view: View, scope: WriteScope) {
    super(target, view);
    this.#scope = scope;
  }

  set(key: K, value: I, options?: SetOptions): Promise<void> {
    return this.writing('set', options, SET, () => {
      const goal = this.#goal(key, options);
      return validated(this.target, value, options?.signal, (valid) => this.target.value.isBlob ? this.inParts('set', key, valid, goal) : goal.store(valid));
    });
  }

  setStream(key: K, stream: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>, options?: StreamOptions): Promise<void> {
    return this.writing('setStream', options, STREAM, () => this.inParts('setStream', key, stream, this.#goal(key, options)));
  }

  /** How an entry is written; `store` does so with a valid value. */
  #goal(key: K, options: SetOptions | undefined): Goal<V> {
    const { target } = this;
    const expiresAt = toExpiry(options, target.expireIn);
    const keyBytes = encodeKey(target, key);
    const store = (value: V): Promise<void> => {
      if (expiresAt !== 0 || target.indexes !== undefined) {
        const changes = new ChangeList();
        changes.put(target, key, value, expiresAt);
        return this.writeBatch(changes, options).then(() => undefined);
      }
      const valueBytes = encodeValue(target, value);
      return this.#scope.write(Op.set, options, (writer) => {
        writer.uv(target.index).bytes(keyBytes).bytes(valueBytes);
      }, () => undefined);
    };
    return { scope: this.#scope, expiresAt, options, store };
  }

  setMany(entries: Iterable<readonly [K, I]>, options?: SetOptions): Promise<void> {
    return this.writing('setMany', options, SET, () => {
      const expiresAt = toExpiry(options, this.target.expireIn);
      const changes = new ChangeList();
      const write = (): Promise<undefined> => this.writeBatch(changes, options).then(() => undefined);
      const { hold } = this.#scope;
      if (hold === undefined || !Array.isArray(entries) || this.target.validate !== undefined) {
        for (const entry of checkIterable('the entries of setMany', entries)) this.#addTo(changes, entry, expiresAt);
        return write();
      }
      const list = entries as readonly (readonly [K, I])[];
      const at = this.#encodeSome(changes, list, 0, expiresAt);
      if (at === list.length) return write();
      // The caller may change the array once this call has returned.
      const rest = list.slice(at);
      return hold(this.#encodeRest(changes, rest, expiresAt, options?.signal), write);
    });
  }

  #addTo(changes: ChangeList, entry: readonly [K, I], expiresAt: number): void {
    const [key, value] = checkPair(entry);
    changes.set(this.target, key, value, expiresAt);
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

  async #encodeRest(changes: ChangeList, rest: readonly (readonly [K, I])[], expiresAt: number, signal: AbortSignal | undefined): Promise<void> {
    for (let at = 0; at < rest.length;) {
      await turn();
      checkSignal(signal);
      at = this.#encodeSome(changes, rest, at, expiresAt);
    }
  }

  delete(key: K, options?: WriteOptions): Promise<boolean> {
    return this.writing('delete', options, WRITE, () => {
      const keyBytes = encodeKey(this.target, key);
      return this.#scope.write(Op.delete, options, (writer) => {
        writer.uv(this.target.index).bytes(keyBytes);
      }, (reader) => reader.u8() !== 0);
    });
  }

  deleteMany(keys: Iterable<K>, options?: WriteOptions): Promise<number> {
    return this.writing('deleteMany', options, WRITE, () => {
      const changes = new ChangeList();
      for (const key of checkIterable('the keys of deleteMany', keys)) changes.delete(this.target, key);
      return this.writeBatch(changes, options).then(({ existed }) => existed);
    });
  }

  clear(...args: [range?: RangeOptions<K> | undefined, options?: WriteOptions]): Promise<void> {
    const [range = {}, options] = args;
    return this.writing('clear', options, WRITE, () => {
      checkClear(args);
      const window = toWindow(this.target, 'clear', range, CLEAR_UNTIL);
      if (isPart(window)) return this.clearPart(range, window.limit, options);
      const { write, read } = clearCall(this.target, window);
      return this.#scope.write(Op.clear, options, write, read);
    }, range?.signal);
  }

  getOrInsert(key: K, value: I, options?: SetOptions): Promise<V> {
    return this.writing('getOrInsert', options, SET, () => {
      const { target } = this;
      const expiresAt = toExpiry(options, target.expireIn);
      const keyBytes = encodeKey(target, key);
      // The engine's own request has no place for index keys.
      if (target.indexes !== undefined) return this.update(key, (old) => (old === undefined ? value : KEEP), options) as Promise<V>;
      return validated(target, value, options?.signal, (valid) => {
        const { write, read } = getOrInsertCall(target, keyBytes, valid, expiresAt);
        return this.#scope.write(Op.getOrInsert, options, write, read);
      });
    });
  }

  getOrInsertComputed(key: K, compute: (key: K) => I | Promise<I>, options?: SetOptions): Promise<V> {
    return this.writing('getOrInsertComputed', options, SET, async () => {
      checkFunction(compute);
      const found = await this.get(key);
      checkSignal(options?.signal);
      // `getOrInsert` checks the signal before it writes.
      return found === undefined ? this.getOrInsert(key, await compute(key), options) : found;
    });
  }

  update(key: K, fn: Updater<K, V, I>, options?: SetOptions): Promise<V | undefined> {
    const signal = options?.signal;
    const { target } = this;
    return this.writing('update', options, SET, () => {
      checkFunction(fn);
      const name = `${this.viewId} ${target.index} ${encodeKey(target, key).join()}`;
      return target.connection.line.join(name, signal, async (call) => {
        for (;;) {
          const entry = await this.getEntry(key);
          checkSignal(signal);
          const next = await call(() => fn(entry?.value, key, entry));
          if (next === KEEP) return entry?.value;
          const changes = new ChangeList();
          this.guard(changes, key, entry?.version ?? null);
          const write = async (value: V | undefined): Promise<V | undefined> => {
            if (next === DELETE) changes.delete(target, key);
            else changes.put(target, key, value as V, toNewExpiry(options, target.expireIn, entry));
            checkSignal(signal);
            await this.writeBatch(changes, options);
            return value;
          };
          try {
            return await (next === DELETE ? write(undefined) : validated(target, next, signal, write));
          } catch (error) {
            if (!(error instanceof KvError && error.code === 'KV_CONFLICT')) throw error;
          }
        }
      });
    });
  }

  /** Runs a write like `attempt`, after checking its options and that the scope accepts writes. */
  protected writing<T>(
    call: string,
    options: WriteOptions | undefined,
    names: Names<WriteOptions>,
    start: () => Promise<T>,
    other?: AbortSignal,
  ): Promise<T> {
    const scope = this.#scope;
    let outcome;
    try {
      checkNames(call, options, names);
      const { signal = other, durability } = options ?? {};
      if (durability !== undefined) durabilityCode(durability);
      checkSignal(signal);
      scope.check();
      outcome = abortable(start(), signal);
    } catch (error) {
      return scope.follow?.({ error }) ?? Promise.reject(error);
    }
    return scope.follow?.(outcome) ?? outcome;
  }

  /** The variant within a transaction, where the reads and the clear see the same state. */
  protected async clearPart(range: RangeOptions<K>, limit: number, _options: WriteOptions | undefined): Promise<void> {
    const first = await this.first(range);
    const last = limit === Infinity ? undefined : await this.at(limit - 1, range);
    if (first !== undefined) await this.clear(boundsOf(range, first[0] as Bound<K>, last?.[0] as Bound<K> | undefined));
  }

  /** Makes the batch depend on the version that the new value was computed from. */
  protected guard(changes: ChangeList, key: K, version: number | null): void {
    changes.check(this.target, key, version);
  }

  protected writeBatch(
    changes: ChangeList,
    options: WriteOptions | undefined,
  ): Promise<{ version: number; existed: number }> {
    const { write, read } = batchCall(changes);
    const send = (): Promise<{ version: number; existed: number }> => {
      const sent = this.#scope.write(Op.batch, options, write, (reader, version) => ({ version, existed: read(reader) }));
      return changes.isIndexed ? sent.catch((error: unknown) => {
        changes.failed(error);
        throw error;
      }) : sent;
    };
    const ready = changes.ready();
    if (ready === undefined) return send();
    return ready.then(() => {
      checkSignal(options?.signal);
      return send();
    });
  }
}

/** A collection of the database, outside of transactions. */
export class KvCollection<K, V, I = V> extends CollectionWriter<K, V, I> implements Collection<K, V, I> {
  /** @internal `transaction` of the database, which sets this. */
  transact!: (work: (tx: Pick<Transaction, 'collection'>) => Promise<void>, options: TransactionOptions) => Promise<void>;

  constructor(target: Target<K, V>, scope: WriteScope) {
    super(target, NEWEST, scope);
  }

  get name(): string {
    return this.target.name;
  }

  protected override clearPart(range: RangeOptions<K>, _limit: number, options: WriteOptions | undefined): Promise<void> {
    return this.transact((tx) => tx.collection(this).clear(range), { ...options, maxRetries: Infinity });
  }

  buildIndexes(options?: BuildIndexesOptions): Promise<void> {
    return attempt(() => {
      checkNames('buildIndexes', options, MAINTENANCE);
      const { onProgress, signal } = options ?? {};
      if (onProgress !== undefined) checkFunction(onProgress);
      return this.target.indexes?.build(this.target, { onProgress, signal }) ?? Promise.resolve();
    }, options?.signal);
  }

  dropIndex(name: string): Promise<boolean> {
    return attempt(() => {
      checkIndexName(name);
      const { connection, index, indexes } = this.target;
      connection.checkOutside();
      return connection.requestLoading((writer) => writer.u8(Op.dropIndex).u8(0).uv(index).str(name), (reader) => {
        reader.uv();
        indexes?.forget(this.target);
        return reader.u8() !== 0;
      });
    });
  }

  watch(options?: WatchOptions<K>): CommitIterator<K, V> {
    return watch(this.target, options, (range) => this.entries(range).toArray());
  }

  subscribe(range: Bounds<K> & SignalOptions, listener: (commit: Commit<K, V>) => void): Subscription {
    return subscribe(this.target, range, listener);
  }
}
