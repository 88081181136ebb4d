// Transactions, which the engine keeps under an id, and the loop that runs a callback until one
// commits.
import { KvError } from '../base/errors.ts';
import { isSuperseded } from '../base/superseded.ts';
import type {
  Collection,
  CommitInfo,
  Durability,
  Reader,
  Result,
  Savepoint,
  Transaction,
  TransactionOptions,
  WriteOptions,
  Writer,
} from '../types/index.ts';
import {
  LazyPromise,
  attempt,
  checkFunction,
  checkLimit,
  checkOneOf,
  checkSignal,
  dispose,
  ignore,
} from '../base/async.ts';
import { CollectionWriter, write } from './collection.ts';
import type { Connection } from '../wire/connection.ts';
import { Handle, weakly } from '../wire/handle.ts';
import type { CallBack } from '../wire/per-key-queue.ts';
import { Op } from '../wire/opcodes.ts';
import { TRANSACTION, WRITE, durabilityCode } from './arguments.ts';
import { checkNames } from '../base/names.ts';
import type { Target } from '../wire/collection-target.ts';
import type { View } from '../wire/contracts.ts';
import { TransactionScope } from './write-verbs.ts';
import type { OpenTransaction, Refused } from './write-verbs.ts';

const DEFAULT_TIMEOUT_MS = 60_000;
const DEFAULT_RETRIES = 10;
/** Maximum delay of `setTimeout`; a longer timeout never expires. */
const MAX_TIMEOUT_MS = 0x7fff_ffff;

export type Resolve = <K, V, I>(collection: Collection<K, V, I> | string, options?: object) => Target<K, V>;

interface Checked {
  readonly mode: 'readwrite' | 'readonly';
  readonly isSnapshot: boolean;
  readonly maxRetries: number;
  readonly timeoutMs: number;
  readonly durability: Durability;
  readonly signal: AbortSignal | undefined;
}

export function checkTransactionOptions(
  call: string,
  options: TransactionOptions = {},
  durability: Durability,
): Checked {
  checkNames(call, options, TRANSACTION);
  const {
    mode = 'readwrite',
    isolation = 'serializable',
    maxRetries = DEFAULT_RETRIES,
    timeout = DEFAULT_TIMEOUT_MS,
  } = options;
  checkOneOf('mode', mode, ['readwrite', 'readonly']);
  checkOneOf('isolation', isolation, ['serializable', 'snapshot']);
  if (options.durability !== undefined) durabilityCode(options.durability);
  return {
    mode,
    isSnapshot: isolation === 'snapshot',
    maxRetries: checkLimit('maxRetries', maxRetries),
    timeoutMs: checkLimit('timeout', timeout),
    durability: options.durability ?? durability,
    signal: options.signal,
  };
}

const { then } = Promise.prototype;

/** A promise that records whether anyone handles its rejection. */
class Noticed<T> extends Promise<T> {
  isNoticed = false;

  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  override then<A = T, B = never>(
    onFulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    if (onRejected) this.isNoticed = true;
    return super.then(onFulfilled, onRejected);
  }
}

interface Failure {
  readonly error: unknown;
  readonly write: Noticed<unknown>;
}

/** The state shared by all collections of a transaction. */
class TransactionState implements View, OpenTransaction {
  readonly connection: Connection;
  readonly options: Checked;
  readonly held: Handle;
  readonly version: Promise<number>;
  status: Transaction['status'] = 'active';
  /** What ended the transaction, if something failed. */
  failure: unknown;
  #give: (failure: unknown) => void = ignore;
  /** Rejects with `failure` when the transaction ends with one. */
  readonly failed = new Promise<never>((_, reject) => {
    this.#give = reject;
  });
  /** Failed writes, except those that a savepoint undid. */
  readonly failures: Failure[] = [];
  #pending = 0;
  /** Resolves when no write is pending; created only if a commit waits for that. */
  #settled: Promise<void> | undefined;
  #settle = ignore;

  /**
   * In a callback, timer and signal keep the transaction alive, because the caller waits for it.
   * Otherwise they do not, so that a forgotten transaction can be collected.
   */
  constructor(connection: Connection, options: Checked, isInCallback: boolean) {
    this.connection = connection;
    this.options = options;
    checkSignal(options.signal);
    const isReading = options.mode === 'readonly';
    this.held = new Handle(connection, isReading ? Op.snapshotClose : Op.transactionClose);
    const { id } = this.held;
    this.version = connection.request(
      (writer) => {
        if (isReading) writer.u8(Op.snapshotOpen).uv(id);
        else
          writer
            .u8(Op.transactionOpen)
            .uv(id)
            .u8(options.isSnapshot ? 1 : 0);
      },
      (reader) => reader.uv(),
    );
    this.failed.catch(ignore);
    // Later calls on the transaction fail with the reason why it could not begin.
    this.version.catch((error: unknown) => this.end('rolled-back', error));
    const { signal, timeoutMs } = options;
    this.held.own(this, signal, abort, isInCallback);
    if (timeoutMs <= MAX_TIMEOUT_MS) {
      const timer = (this.held.timer = setTimeout(
        isInCallback ? () => expire(this) : weakly<TransactionState>(this, expire),
        timeoutMs,
      ));
      (timer as { unref?: () => void }).unref?.();
    }
  }

  get id(): number {
    return this.held.id;
  }

  get isClosed(): boolean {
    this.check();
    return false;
  }

  /** Throws if the transaction has ended. */
  check(): void {
    if (this.status === 'active') return;
    throw (
      this.failure ??
      new KvError('KV_CLOSED', `the transaction is ${this.status.replace('-', ' ')}; await its calls before it ends`)
    );
  }

  checkWritable(): void {
    this.check();
    if (this.options.mode === 'readonly')
      throw new KvError('KV_READ_ONLY', 'the transaction was begun with mode "readonly"');
  }

  follow<T>(outcome: Promise<T> | Refused): Promise<T> {
    const isRefused = 'error' in outcome;
    // The transaction has ended, so there is no commit that should fail for this write.
    if (this.status !== 'active') return isRefused ? Promise.reject(outcome.error) : outcome;
    const write = new Noticed<T>((resolve, reject) => (isRefused ? reject(outcome.error) : resolve(outcome)));
    const failed = (error: unknown): void => void this.failures.push({ error, write });
    if (isRefused) {
      failed(outcome.error);
      then.call(write, undefined, ignore);
      return write;
    }
    const settled = (): void => {
      if (--this.#pending > 0) return;
      this.#settled = undefined;
      this.#settle();
    };
    this.#pending++;
    then.call(write, settled, (error) => {
      failed(error);
      settled();
    });
    return write;
  }

  /**
   * Returns a promise that settles when no write is pending, or undefined if none is. In the latter
   * case, rolls back and throws if a write failed and nobody handles its rejection.
   */
  settle(): Promise<unknown> | undefined {
    if (this.#pending > 0) {
      this.#settled ??= new Promise((resolve) => {
        this.#settle = resolve;
      });
      return Promise.race([this.#settled, this.failed]);
    }
    const failure = this.failures.find(({ write }) => !write.isNoticed);
    if (failure === undefined) return undefined;
    this.end('rolled-back', failure.error);
    throw failure.error;
  }

  /** Ends the transaction in the client only. Returns whether it was active. */
  finish(status: 'committed' | 'rolled-back', failure?: unknown): boolean {
    if (this.status !== 'active') return false;
    this.status = status;
    this.failure = failure;
    if (failure !== undefined) this.#give(failure);
    return true;
  }

  end(status: 'committed' | 'rolled-back', failure?: unknown): void {
    if (this.finish(status, failure)) this.held.close();
  }
}

function abort(state: TransactionState): void {
  state.end('rolled-back', state.options.signal?.reason);
}

function expire(state: TransactionState): void {
  const message = `the transaction was open for more than ${state.options.timeoutMs} ms and was rolled back`;
  state.end('rolled-back', new KvError('KV_TIMEOUT', message, { retryable: true }));
}

/** `rollback` throws this within a callback, to end the callback. */
function rolledBack(reason: unknown): KvError {
  return new KvError('KV_ROLLBACK', 'the transaction was rolled back', { cause: reason });
}

export class KvTransaction<K, V, I = V> extends CollectionWriter<K, V, I> implements Transaction<K, V, I> {
  readonly #state: TransactionState;
  readonly #resolve: Resolve;
  /** Whether `rollback` has to end a callback. */
  readonly #isInCallback: boolean;

  constructor(target: Target<K, V>, resolve: Resolve, options: Checked, isInCallback: boolean) {
    const state = new TransactionState(target.connection, options, isInCallback);
    super(target, state, new TransactionScope(state));
    this.#state = state;
    this.#resolve = resolve;
    this.#isInCallback = isInCallback;
  }

  get mode(): Transaction['mode'] {
    return this.#state.options.mode;
  }

  get status(): Transaction['status'] {
    return this.#state.status;
  }

  get baseVersion(): Promise<number> {
    return new LazyPromise(() => this.#state.version);
  }

  collection<K2, V2, I2>(
    collection: Collection<K2, V2, I2> | string,
    options?: object,
  ): Reader<K2, V2> & Writer<K2, V2, I2> {
    const state = this.#state;
    return new CollectionWriter<K2, V2, I2>(this.#resolve(collection, options), state, new TransactionScope(state));
  }

  dropCollection(name: string): Promise<boolean> {
    return write(this.verbs, (verbs) => verbs.dropCollection(name));
  }

  renameCollection(from: string, to: string): Promise<boolean> {
    return write(this.verbs, (verbs) => verbs.renameCollection(from, to));
  }

  savepoint(): Savepoint {
    const state = this.#state;
    state.checkWritable();
    const { connection, id } = state;
    const number = connection.request(
      (writer) => writer.u8(Op.savepoint).uv(id),
      (reader) => reader.uv(),
    );
    number.catch(ignore);
    const failures = state.failures.length;
    return {
      rollback: async () => {
        const savepoint = await number;
        state.check();
        await connection.request((writer) => writer.u8(Op.rollbackTo).uv(id).uv(savepoint), ignore);
        state.failures.splice(failures);
      },
    };
  }

  commit(options?: WriteOptions): Promise<CommitInfo> {
    return attempt(
      () => {
        checkNames('commit', options, WRITE);
        if (options?.durability !== undefined) durabilityCode(options.durability);
        return this.#commit(options);
      },
      options?.signal === undefined ? this.#state.options.signal : options.signal,
    );
  }

  #commit(options: WriteOptions | undefined): Promise<CommitInfo> {
    const state = this.#state;
    state.check();
    const {
      connection,
      id,
      version,
      options: { mode, durability },
    } = state;
    const code = durabilityCode(options?.durability ?? durability);
    const settled = state.settle();
    if (settled !== undefined) return settled.then(() => this.#commit(options));
    if (mode === 'readonly') {
      state.end('committed');
      return version.then((base) => ({ version: base }));
    }
    const committed = connection.request(
      (writer) => writer.u8(Op.transactionCommit).uv(id).u8(code),
      (reader) => ({ version: reader.uv() }),
    );
    state.finish('committed');
    state.held.release();
    return committed.catch((error: unknown) => {
      state.status = 'rolled-back';
      throw error;
    });
  }

  tryCommit(options?: WriteOptions): Promise<Result<void>> {
    return toResult(this.commit(options).then(({ version }) => ({ value: undefined, version })));
  }

  rollback(reason?: unknown): void {
    this.#state.end('rolled-back');
    if (this.#isInCallback) throw rolledBack(reason);
  }

  [dispose](): void {
    this.#state.end('rolled-back');
  }

  /** @internal */
  get failure(): unknown {
    return this.#state.failure;
  }

  /** @internal */
  get failed(): Promise<never> {
    return this.#state.failed;
  }
}

/** Turns the failures that callers expect into results. */
export function toResult<T>(outcome: Promise<{ readonly value: T; readonly version: number }>): Promise<Result<T>> {
  return outcome.then(
    ({ value, version }) => ({ ok: true, value, version }),
    (error: unknown) => {
      const reasons: Record<string, 'conflict' | 'rollback' | 'timeout'> = {
        KV_CONFLICT: 'conflict',
        KV_ROLLBACK: 'rollback',
        KV_TIMEOUT: 'timeout',
      };
      const reason = error instanceof KvError ? reasons[error.code] : undefined;
      if (reason === undefined) throw error;
      return { ok: false, reason, error: error as KvError };
    },
  );
}

/** How often a transaction may lose before it takes turns with others that have. */
const TURN_AFTER = 3;
const TURNS = 'transactions';

/**
 * Runs a callback in one transaction after another until one commits or retries run out. Those that
 * have lost a few times run one by one, and what begins meanwhile waits for them: otherwise rivals that
 * are always as fast make one lose until its retries run out.
 */
export async function runTransaction<K, V, I, T>(
  { queue }: Connection,
  begin: () => KvTransaction<K, V, I>,
  fn: (tx: Transaction<K, V, I>) => T | Promise<T>,
  { maxRetries, mode, signal }: Checked,
): Promise<{ value: T; version: number }> {
  checkFunction(fn);
  let attempts = 0;
  /** Undefined after `most` attempts. */
  const run = async (most: number, call: CallBack): Promise<{ value: T; version: number } | undefined> => {
    for (;;) {
      const tx = begin();
      try {
        // A callback that never settles must not outlast its transaction.
        const value = await Promise.race([call(() => tx.target.connection.runCallback(() => fn(tx))), tx.failed]);
        // It may have timed out or been aborted, or the callback caught what `rollback` threw.
        if (tx.status === 'rolled-back') throw tx.failure ?? rolledBack(undefined);
        const version = tx.status === 'active' ? (await tx.commit()).version : await tx.baseVersion;
        return { value, version };
      } catch (error) {
        if (!(error instanceof KvError && isSuperseded(error)) || attempts >= maxRetries) throw tx.failure ?? error;
      } finally {
        tx[dispose]();
      }
      attempts++;
      if (attempts === most) return undefined;
      await pause(attempts);
    }
  };
  const others = mode === 'readwrite' ? queue.settled(TURNS) : undefined;
  if (others !== undefined) await others;
  return (
    (await run(TURN_AFTER, async (callback) => callback())) ??
    queue.run(TURNS, signal, (call) => run(Infinity, call) as Promise<{ value: T; version: number }>)
  );
}

/** Backs off for up to 2^(attempts - 1) ms, at most 64; random, so that rivals do not collide again. */
function pause(attempts: number): Promise<void> {
  const most = Math.min(2 ** (attempts - 1), 64);
  return new Promise((resolve) => {
    setTimeout(resolve, Math.random() * most);
  });
}
