// A batch being built. Each `KvBatch` writes to one collection; all of a batch share its changes.
import { KvError } from '../base/errors.ts';
import type { Batch, Collection, CommitInfo, Expiry, Result, WriteOptions } from '../types/index.ts';
import { attempt, dispose } from '../base/async.ts';
import { ChangeList } from './changes.ts';
import { EXPIRY, WRITE, toExpiry } from './arguments.ts';
import { checkNames } from '../base/names.ts';
import type { Target } from '../wire/collection-target.ts';
import { toResult } from './transaction.ts';

/** Shared by all `KvBatch` objects of a batch. */
export class BatchState {
  changes = new ChangeList();
  isClosed = false;
  readonly resolve: <K, V, I>(collection: Collection<K, V, I> | string, options?: object) => Target<K, V>;
  readonly send: (changes: ChangeList, options: WriteOptions | undefined) => Promise<CommitInfo>;

  constructor(resolve: BatchState['resolve'], send: BatchState['send']) {
    this.resolve = resolve;
    this.send = send;
  }

  close(): void {
    this.isClosed = true;
    this.changes = new ChangeList();
  }

  checkOpen(): void {
    if (this.isClosed) throw new KvError('KV_CLOSED', 'the batch was committed or dropped');
  }
}

export class KvBatch<K, I> implements Batch<K, I> {
  readonly #state: BatchState;
  readonly #target: Target<K, unknown>;

  constructor(state: BatchState, target: Target<K, unknown>) {
    this.#state = state;
    this.#target = target;
  }

  get length(): number {
    return this.#state.changes.length;
  }

  get byteLength(): number {
    return this.#state.changes.byteLength;
  }

  set(key: K, value: I, options?: Expiry): this {
    this.#state.checkOpen();
    checkNames('set', options, EXPIRY);
    this.#state.changes.set(this.#target, key, value, toExpiry(options, this.#target.expireIn));
    return this;
  }

  check(key: K, version: number | null | undefined): this {
    this.#state.checkOpen();
    this.#state.changes.check(this.#target, key, version);
    return this;
  }

  delete(key: K): this {
    this.#state.checkOpen();
    this.#state.changes.delete(this.#target, key);
    return this;
  }

  collection<K2, V2, I2>(collection: Collection<K2, V2, I2> | string, options?: object): Batch<K2, I2> {
    return new KvBatch(this.#state, this.#state.resolve(collection, options) as Target<K2, unknown>);
  }

  commit(options?: WriteOptions): Promise<CommitInfo> {
    return attempt(() => {
      this.#state.checkOpen();
      checkNames('commit', options, WRITE);
      const committed = this.#state.send(this.#state.changes, options);
      this.#state.close();
      return committed;
    }, options?.signal);
  }

  tryCommit(options?: WriteOptions): Promise<Result<void>> {
    return toResult(this.commit(options).then(({ version }) => ({ value: undefined, version })));
  }

  [dispose](): void {
    this.#state.close();
  }
}
