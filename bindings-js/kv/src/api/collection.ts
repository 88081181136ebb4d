// Reading and writing one collection, in the database or in a transaction.
import type { Commit, CommitIterator, Subscription, WatchOptions } from '../types/feed.ts';
import type {
  Bounds,
  Collection,
  RangeOptions,
  SetOptions,
  SignalOptions,
  StreamOptions,
  Transaction,
  TransactionOptions,
  Updater,
  WriteOptions,
  Writer,
} from '../types/index.ts';
import type { BuildIndexesOptions } from '../types/indexes.ts';
import { abortable, attempt, checkFunction } from '../base/async.ts';
import { MAINTENANCE } from './arguments.ts';
import { checkNames } from '../base/names.ts';
import { subscribe, watch } from './feed/follow.ts';
import { checkIndexName } from './indexes.ts';
import { Op } from '../wire/opcodes.ts';
import { CollectionReader, loadValueStream } from './reader.ts';
import { NEWEST } from '../wire/collection-target.ts';
import type { Target } from '../wire/collection-target.ts';
import type { View } from '../wire/contracts.ts';
import type { WriteScope } from './write-verbs.ts';
import { promised, run } from './task.ts';
import type { Task, Verbs } from './task.ts';
import { WriteVerbs } from './write-verbs.ts';

/** Reads from `view` and writes through `scope`. */
export class CollectionWriter<K, V, I = V> extends CollectionReader<K, V> implements Writer<K, V, I> {
  /** @internal */
  declare readonly verbs: WriteVerbs<K, V, I>;

  constructor(target: Target<K, V>, view: View, scope: WriteScope) {
    super(target, view, new WriteVerbs<K, V, I>(target, view, scope, loadValueStream));
  }

  set(key: K, value: I, options?: SetOptions): Promise<void> {
    return write(this.verbs, (verbs) => verbs.set(key, value, options), options);
  }

  setStream(
    key: K,
    stream: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>,
    options?: StreamOptions,
  ): Promise<void> {
    return write(this.verbs, (verbs) => verbs.setStream(key, stream, options), options);
  }

  setMany(entries: Iterable<readonly [K, I]>, options?: SetOptions): Promise<void> {
    return write(this.verbs, (verbs) => verbs.setMany(entries, options), options);
  }

  delete(key: K, options?: WriteOptions): Promise<boolean> {
    return write(this.verbs, (verbs) => verbs.delete(key, options), options);
  }

  deleteMany(keys: Iterable<K>, options?: WriteOptions): Promise<number> {
    return write(this.verbs, (verbs) => verbs.deleteMany(keys, options), options);
  }

  clear(...args: [range?: RangeOptions<K> | undefined, options?: WriteOptions]): Promise<void> {
    return write(this.verbs, (verbs) => verbs.clear(...args), args[1]?.signal ? args[1] : args[0]);
  }

  getOrInsert(key: K, value: I, options?: SetOptions): Promise<V> {
    return write(this.verbs, (verbs) => verbs.getOrInsert(key, value, options), options);
  }

  getOrInsertComputed(key: K, compute: (key: K) => I | Promise<I>, options?: SetOptions): Promise<V> {
    return write(this.verbs, (verbs) => verbs.getOrInsertComputed(key, compute, options), options);
  }

  update(key: K, fn: Updater<K, V, I>, options?: SetOptions): Promise<V | undefined> {
    return write(this.verbs, (verbs) => verbs.update(key, fn, options), options);
  }
}

/** Carries a write out. The scope learns how it ends, or what kept it from being sent. */
export function write<V extends Verbs & { readonly scope: WriteScope }, T>(
  verbs: V,
  verb: (verbs: V) => Task<T>,
  options?: SignalOptions,
): Promise<T> {
  const { scope } = verbs;
  try {
    const outcome = abortable(promised(verbs.target.connection, verb(verbs)), options?.signal);
    return scope.follow?.(outcome) ?? outcome;
  } catch (error) {
    return scope.follow?.({ error }) ?? Promise.reject(error);
  }
}

/** A collection of the database, outside of transactions. */
export class KvCollection<K, V, I = V> extends CollectionWriter<K, V, I> implements Collection<K, V, I> {
  /** @internal `transaction` of the database, which sets this. */
  transact!: (
    work: (tx: Pick<Transaction, 'collection'>) => Promise<void>,
    options: TransactionOptions,
  ) => Promise<void>;

  constructor(target: Target<K, V>, scope: WriteScope) {
    super(target, NEWEST, scope);
    this.verbs.clearPart = (range, options) =>
      this.transact((tx) => tx.collection(this).clear(range), { ...options, maxRetries: Infinity });
  }

  get name(): string {
    return this.target.name;
  }

  nextExpiry(range?: Bounds<K> & SignalOptions): Promise<number | undefined> {
    return run(this.verbs, (verbs) => verbs.nextExpiry(range), range);
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
      return connection.requestLoading(
        (writer) => writer.u8(Op.dropIndex).u8(0).uv(index).str(name),
        (reader) => {
          reader.uv();
          indexes?.forget(this.target);
          return reader.u8() !== 0;
        },
      );
    });
  }

  watch(options?: WatchOptions<K>): CommitIterator<K, V> {
    return watch(this.target, options, (range) => this.entries(range).toArray());
  }

  subscribe(range: Bounds<K> & SignalOptions, listener: (commit: Commit<K, V>) => void): Subscription {
    return subscribe(this.target, range, listener);
  }
}
