// Reading and writing one collection, in the database or in a transaction.
import type { Commit, CommitIterator, Subscription, WatchOptions } from '../types/feed.ts';
import type { Bounds, Collection, SetOptions, SignalOptions, Transaction, TransactionOptions, Writer } from '../types/index.ts';
import type { BuildIndexesOptions } from '../types/indexes.ts';
import { abortable, attempt, checkFunction } from '../base/async.ts';
import { MAINTENANCE, checkNames } from './names.ts';
import { subscribe, watch } from './feed/follow.ts';
import { checkIndexName } from './indexes.ts';
import { Op } from '../wire/opcodes.ts';
import { CollectionReader, loadValueStream } from './reader.ts';
import { NEWEST } from '../wire/collection-target.ts';
import type { Target } from '../wire/collection-target.ts';
import type { View } from '../wire/contracts.ts';
import type { WriteScope } from './scope.ts';
import { derive, promised, runPromised, verbsOf } from './task.ts';
import type { Promised, Task } from './task.ts';
import { WriteVerbs } from './write-verbs.ts';

type Writes = 'setStream' | 'setMany' | 'delete' | 'deleteMany' | 'clear' | 'getOrInsert' | 'getOrInsertComputed' | 'update';

/** Verbs of the database and of transactions. */
export type Catalog = 'dropCollection' | 'renameCollection';

type OfNewest = 'nextExpiry';

export interface KvCollection<K, V, I = V> extends Promised<WriteVerbs<K, V, I>, OfNewest> {}

export interface CollectionWriter<K, V, I> extends Promised<WriteVerbs<K, V, I>, Writes> {}

/** Reads from `view` and writes through `scope`. */
export class CollectionWriter<K, V, I = V> extends CollectionReader<K, V> implements Writer<K, V, I> {
  /** @internal */
  declare readonly verbs: WriteVerbs<K, V, I>;

  constructor(target: Target<K, V>, view: View, scope: WriteScope) {
    super(target, view, new WriteVerbs<K, V, I>(target, view, scope, loadValueStream));
  }

  // Written out, as it is called most.
  set(key: K, value: I, options?: SetOptions): Promise<void> {
    try {
      return sent(this.verbs, this.verbs.set(key, value, options), options?.signal);
    } catch (error) {
      return refused(this.verbs, error);
    }
  }
}

/** Carries a write out. The scope learns how it ends, or what kept it from being sent. */
export function runWrite(face: Pick<CollectionWriter<unknown, unknown, unknown>, 'verbs'>, name: string, args: readonly unknown[], at: number): Promise<unknown> {
  try {
    return sent(face.verbs, verbsOf<Task<unknown>>(face)[name]!(...args), (args[at] as SignalOptions | undefined)?.signal);
  } catch (error) {
    return refused(face.verbs, error);
  }
}

interface Writing {
  readonly scope: WriteScope;
  readonly target: Pick<Target<never, never>, 'connection'>;
}

function sent<T>({ scope, target }: Writing, task: Task<T>, signal: AbortSignal | undefined): Promise<T> {
  const outcome = abortable(promised(target.connection, task), signal);
  return scope.follow?.(outcome) ?? outcome;
}

function refused({ scope }: Writing, error: unknown): Promise<never> {
  return scope.follow?.({ error }) ?? Promise.reject(error);
}

derive(CollectionWriter, ['setMany', 'delete', 'deleteMany'] satisfies Writes[], runWrite, 1);
derive(CollectionWriter, ['clear'] satisfies Writes[], (face, name, args) => runWrite(face, name, args, (args[1] as SignalOptions | undefined)?.signal ? 1 : 0));
derive(CollectionWriter, ['setStream', 'getOrInsert', 'getOrInsertComputed', 'update'] satisfies Writes[], runWrite, 2);

/** A collection of the database, outside of transactions. */
export class KvCollection<K, V, I = V> extends CollectionWriter<K, V, I> implements Collection<K, V, I> {
  /** @internal `transaction` of the database, which sets this. */
  transact!: (work: (tx: Pick<Transaction, 'collection'>) => Promise<void>, options: TransactionOptions) => Promise<void>;

  constructor(target: Target<K, V>, scope: WriteScope) {
    super(target, NEWEST, scope);
    this.verbs.clearPart = (range, options) => this.transact((tx) => tx.collection(this).clear(range), { ...options, maxRetries: Infinity });
  }

  get name(): string {
    return this.target.name;
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

derive(KvCollection, ['nextExpiry'] satisfies OfNewest[], runPromised, 0);
