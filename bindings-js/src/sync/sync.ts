// What an application sees: a database that follows a log, and tells how far it is.
import { KvError } from '../base/errors.ts';
import { AbortController, Event, EventTarget } from '../base/platform.ts';
import { lockByName } from '../storage/web-lock.ts';
import type { Database } from '../types/index.ts';
import type { RawConflict } from './apply.ts';
import type { Position, RemoteLog, SnapshotStore } from './remote-log.ts';
import { Replica } from './replica.ts';
import { runStrict } from './strict.ts';
import type { Sent } from './strict.ts';
import type { StrictOptions, StrictTransaction } from './strict.ts';
import type { SyncCollectionOptions, SyncMode, Table } from './tables.ts';
import type { Seal } from './wire.ts';

/** Options of `syncDatabase`. */
export interface SyncOptions {
  /** The log of this database. Sync closes it at the end. */
  readonly log: RemoteLog;
  /** Where snapshots and large values are. Without it there are none: see docs/SYNC.md. */
  readonly snapshots?: SnapshotStore | undefined;
  /**
   * What is synchronized: names of collections, with the options with which they are opened. All
   * devices have to use the same ones. Other collections stay local.
   */
  readonly collections: { readonly [name: string]: SyncCollectionOptions };
  /** Mode of collections without a mode of their own. Default: "merge". */
  readonly mode?: SyncMode | undefined;
  /** Seals everything that leaves the device. Default: nothing is sealed. */
  readonly seal?: Seal | undefined;
  /**
   * For servers: this database becomes the only writer of the log. One that was it before is fenced
   * off: its next record is refused, and its sync stops with KV_SYNC_FENCED. Default: false.
   */
  readonly exclusive?: boolean | undefined;
  /**
   * Called for each conflict, at least once and one at a time; may write a merged value to the
   * database. If it throws, it is called again after the next start. Default: the winner stays.
   */
  readonly resolve?: ((conflict: SyncConflict) => void | Promise<void>) | undefined;
}

/** A write of this device lost against a write of another device that did not know it. */
export interface SyncConflict {
  readonly collection: string;
  readonly key: unknown;
  /** What this device wrote; undefined: it deleted the entry. */
  readonly mine: unknown;
  /** What the entry is now; undefined: it is deleted. */
  readonly theirs: unknown;
}

/**
 * - "waiting": another tab synchronizes this database.
 * - "connecting": nothing was heard of the log yet.
 * - "catching-up": the log has more.
 * - "live": the log had nothing more when it was read last.
 * - "offline": the log cannot be reached; `lastError` says why. Sync keeps trying.
 * - "stopped": sync ended, by `close` or with `lastError`.
 */
export type SyncStatus = 'waiting' | 'connecting' | 'catching-up' | 'live' | 'offline' | 'stopped';

/** How far sync is. Never changes; a new state is a new object. */
export interface SyncProgress {
  readonly status: SyncStatus;
  /** Number of records that the log has not confirmed. */
  readonly pending: number;
  /** The log's position up to which the database has everything. */
  readonly position: Position;
  /** The newest failure since sync was live. */
  readonly lastError: KvError | undefined;
}

/** Events that sync dispatches. */
export interface SyncEventMap {
  /** `Sync.state` changed. */
  state: Event & { readonly state: SyncProgress };
  conflict: Event & { readonly conflict: SyncConflict };
  /** The log had lost history; this device put back what it has of it, in so many records. */
  repair: Event & { readonly records: number };
  /** Something is wrong: sync goes on unless the state is "stopped". */
  error: Event & { readonly error: KvError };
}

const POLL_MS = 30_000;
const MIN_BACKOFF_MS = 50;
const MAX_BACKOFF_MS = 30_000;
/** Failures after which trying again does not help. */
const FINAL: ReadonlySet<string> = new Set(['KV_CLOSED', 'KV_SYNC_FENCED', 'KV_SYNC_MODE', 'KV_VERSION_UNSUPPORTED', 'KV_VERSION_CHANGED', 'KV_INVALID_ARGUMENT', 'KV_READ_ONLY', 'KV_CODEC_MISMATCH', 'KV_INDEX_MISMATCH']);

/** Databases that are being synchronized in this thread. */
const active = new WeakSet<Database>();

/** A signal that can be raised and waited for. */
class Bell {
  #isRung = false;
  #wake: (() => void) | undefined;

  ring(): void {
    this.#isRung = true;
    this.#wake?.();
  }

  /** Resolves when it was rung, or after a time. */
  async wait(timeoutMs: number): Promise<void> {
    if (!this.#isRung) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, timeoutMs);
        (timer as { unref?: () => void }).unref?.();
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    this.#isRung = false;
    this.#wake = undefined;
  }
}

/** A database that is kept in step with a log. */
export class Sync extends EventTarget {
  readonly #db: Database;
  readonly #options: SyncOptions;
  readonly #replica: Replica;
  readonly #stop = new AbortController();
  readonly #incoming = new Bell();
  readonly #outgoing = new Bell();
  readonly #conflicted = new Bell();
  #state: SyncProgress = { status: 'connecting', pending: 0, position: 0, lastError: undefined };
  readonly #ended: Promise<void>;
  #started: Promise<void> = Promise.resolve();

  /** @internal Use `syncDatabase`. */
  constructor(db: Database, options: SyncOptions) {
    super();
    this.#db = db;
    this.#options = options;
    const { log, snapshots, collections, mode, seal, exclusive, resolve } = options;
    this.#replica = new Replica(db, { log, snapshots, collections, mode, seal, isExclusive: exclusive, keepsConflicts: resolve !== undefined }, {
      conflicts: (conflicts) => this.#tellConflicts(conflicts),
      alarm: (error) => this.#tell('error', { error }),
      repaired: (records) => this.#tell('repair', { records }),
      news: () => this.#outgoing.ring(),
    });
    active.add(db);
    this.#ended = this.#run();
  }

  /** How far sync is. */
  get state(): SyncProgress {
    return this.#state;
  }

  /** Calls `onChange` when there is a new state; returns the function that ends this. */
  readonly subscribe = (onChange: () => void): (() => void) => {
    this.addEventListener('state', onChange);
    return () => this.removeEventListener('state', onChange);
  };

  /**
   * Runs `fn` on the newest state of the log, and resolves when its writes are in the log and in
   * the database. If another device wrote meanwhile, everything is undone and `fn` runs again:
   * strict transactions of all devices take effect one after another. Waits while the log cannot
   * be reached.
   *
   * @throws KvError KV_SYNC_MODE for writes to collections that are not in mode "strict";
   * KV_CONFLICT (retryable) after too many conflicts; KV_CLOSED if sync is stopped: if the record
   * was sent, it may still take effect.
   */
  async transaction<T>(fn: (tx: StrictTransaction) => T | Promise<T>, options: StrictOptions = {}): Promise<T> {
    const sent: Sent<T> = {};
    return this.#online((signal) => runStrict(this.#replica, fn, { ...options, signal }, sent), options.signal);
  }

  /**
   * Resolves when everything written before is in the log. Waits while the log cannot be reached,
   * which can be long: no user interface should wait for it.
   */
  flush({ signal }: { readonly signal?: AbortSignal | undefined } = {}): Promise<void> {
    return this.#online((stop) => this.#replica.settle(stop), signal);
  }

  /**
   * Writes a snapshot of all collections to the object store, and removes records from the log that
   * are in the snapshot before it. One device has to do this from time to time. Resolves to the
   * snapshot's position, or to undefined if there was nothing new.
   *
   * @throws KvError KV_LOG_UNAVAILABLE (retryable) if local writes never paused long enough;
   * KV_LOG_CONFLICT (retryable) if another device compacted at the same time.
   */
  compact({ signal }: { readonly signal?: AbortSignal | undefined } = {}): Promise<{ readonly position: Position } | undefined> {
    return this.#online((stop) => this.#replica.compact(stop), signal, false);
  }

  /** Stops, and closes the log; local commits stay for the next time. Idempotent. */
  async close(): Promise<void> {
    this.#stop.abort(new KvError('KV_CLOSED', 'sync was closed'));
    for (const bell of [this.#incoming, this.#outgoing, this.#conflicted]) bell.ring();
    await this.#ended;
  }

  /** Listens for an event. */
  override addEventListener<E extends keyof SyncEventMap>(type: E, listener: (event: SyncEventMap[E]) => void, options?: Parameters<EventTarget['addEventListener']>[2]): void;
  override addEventListener(...listener: Parameters<EventTarget['addEventListener']>): void;
  override addEventListener(...listener: Parameters<EventTarget['addEventListener']>): void {
    super.addEventListener(...listener);
  }

  #tell(type: keyof SyncEventMap, fields: object): void {
    this.dispatchEvent(Object.assign(new Event(type), fields));
  }

  #tellConflicts(conflicts: readonly RawConflict[]): void {
    for (const conflict of conflicts) this.#tell('conflict', { conflict: this.#decode(conflict) });
    this.#conflicted.ring();
  }

  #decode({ collection, key, mine, theirs }: RawConflict): SyncConflict {
    const { key: keys, value: values } = this.#replica.tables.byName.get(collection) as Table;
    return { collection, key: keys.decode(key), mine: mine ? values.decode(mine.value) : undefined, theirs: theirs ? values.decode(theirs.value) : undefined };
  }

  #set(change: Partial<SyncProgress>): void {
    const next = { ...this.#state, ...change };
    const names = ['status', 'pending', 'position', 'lastError'] as const;
    if (names.every((name) => next[name] === this.#state[name])) return;
    this.#state = next;
    this.#tell('state', { state: next });
  }

  async #refresh(change: Partial<SyncProgress>): Promise<void> {
    const [pending, { cursor }] = await Promise.all([this.#replica.pending(), this.#replica.state()]);
    if (!this.#isStopped) this.#set({ ...change, pending, position: cursor.position });
  }

  get #isStopped(): boolean {
    return this.#stop.signal.aborted;
  }

  /** Retries work that needs the log until it succeeds or fails with an error that is not transient. */
  async #online<T>(work: (signal: AbortSignal) => Promise<T>, given?: AbortSignal, isRepeated = true): Promise<T> {
    const stop = new AbortController();
    const abort = (): void => stop.abort(given?.aborted ? given.reason : this.#stop.signal.reason);
    for (const signal of [given, this.#stop.signal]) {
      if (signal?.aborted) abort();
      signal?.addEventListener('abort', abort, { once: true });
    }
    try {
      await this.#started;
      for (let wait = MIN_BACKOFF_MS; ; wait = Math.min(wait * 2, MAX_BACKOFF_MS)) {
        stop.signal.throwIfAborted();
        try {
          return await work(stop.signal);
        } catch (error) {
          stop.signal.throwIfAborted();
          const { code } = error as Partial<KvError>;
          if (!isRepeated || (code !== 'KV_LOG_UNAVAILABLE' && code !== 'KV_SYNC_GAP')) throw error;
        }
        await new Promise<void>((resolve) => {
          const end = (): void => {
            clearTimeout(timer);
            stop.signal.removeEventListener('abort', end);
            resolve();
          };
          const timer = setTimeout(end, wait);
          stop.signal.addEventListener('abort', end);
        });
      }
    } finally {
      for (const signal of [given, this.#stop.signal]) signal?.removeEventListener('abort', abort);
      this.#incoming.ring();
    }
  }

  async #run(): Promise<void> {
    let release: (() => void) | undefined;
    const { promise, resolve, reject } = deferred();
    this.#started = promise;
    const onClosed = (): void => void this.close();
    this.#db.addEventListener('close', onClosed);
    const endWake = this.#options.log.wake(() => this.#incoming.ring());
    try {
      release = await this.#elect();
      this.#set({ status: 'connecting' });
      await this.#replica.start();
      if (this.#options.exclusive) await this.#fence();
      resolve();
      await Promise.all([this.#loop(this.#incoming, () => this.#receive()), this.#loop(this.#outgoing, () => this.#send()), this.#loop(this.#conflicted, () => this.#resolveConflicts())]);
    } catch (error) {
      if (!this.#isStopped) this.#fail(error);
    } finally {
      const { reason } = this.#stop.signal as { reason: unknown };
      reject(reason);
      this.#db.removeEventListener('close', onClosed);
      endWake();
      this.#replica.stop();
      release?.();
      active.delete(this.#db);
      await this.#options.log.close().catch(() => undefined);
      this.#set({ status: 'stopped' });
    }
  }

  /** Several tabs have the database, one of them synchronizes it. */
  async #elect(): Promise<(() => void) | undefined> {
    if (!['opfs', 'indexeddb'].includes(this.#db.persistence)) return undefined;
    this.#set({ status: 'waiting' });
    return lockByName(`sync of ${this.#db.path}`, Infinity, this.#stop.signal);
  }

  async #fence(): Promise<void> {
    for (let wait = MIN_BACKOFF_MS; ; wait = Math.min(wait * 2, MAX_BACKOFF_MS)) {
      this.#stop.signal.throwIfAborted();
      try {
        await this.#replica.fence(this.#stop.signal);
        return;
      } catch (error) {
        this.#stop.signal.throwIfAborted();
        if (FINAL.has((error as Partial<KvError>).code ?? '')) throw error;
        this.#replica.reconnect();
        this.#set({ status: 'offline', lastError: toKvError(error) });
      }
      await this.#incoming.wait(wait);
    }
  }

  /** Does work when the bell rings, and again, later and later, after failures. */
  async #loop(bell: Bell, work: () => Promise<void>): Promise<void> {
    for (let backoff = MIN_BACKOFF_MS; !this.#isStopped;) {
      try {
        await work();
        backoff = MIN_BACKOFF_MS;
        if (!this.#isStopped) await bell.wait(POLL_MS);
      } catch (error) {
        if (this.#isStopped) return;
        if (FINAL.has((error as Partial<KvError>).code ?? '')) return this.#fail(error);
        this.#replica.reconnect();
        this.#set({ status: 'offline', lastError: toKvError(error) });
        if ((error as Partial<KvError>).code !== 'KV_LOG_UNAVAILABLE') this.#tell('error', { error: toKvError(error) });
        await new Bell().wait(backoff * (0.5 + Math.random() / 2));
        backoff = Math.min(backoff * 2, MAX_BACKOFF_MS);
        // Nothing is sent before the log was read again.
        this.#incoming.ring();
      }
    }
  }

  async #receive(): Promise<void> {
    while (!this.#isStopped && await this.#replica.pull(this.#stop.signal)) await this.#refresh({ status: 'catching-up' });
    if (this.#isStopped) return;
    await this.#refresh({ status: 'live', lastError: undefined });
    // Sending waits until the log was read.
    this.#outgoing.ring();
  }

  async #send(): Promise<void> {
    while (!this.#isStopped && await this.#replica.drain());
    let isSent = false;
    while (!this.#isStopped && await this.#replica.publish(this.#stop.signal)) isSent = true;
    const pending = await this.#replica.pending();
    this.#set({ pending });
    if (isSent) this.#incoming.ring();
  }

  async #resolveConflicts(): Promise<void> {
    const { resolve } = this.#options;
    if (resolve === undefined) return;
    for (let next = await this.#replica.firstConflict(); next !== undefined && !this.#isStopped; next = await this.#replica.firstConflict()) {
      try {
        if (this.#replica.tables.byName.has(next.conflict.collection)) await resolve(this.#decode(next.conflict));
      } catch (error) {
        // It stays, and comes again later.
        return this.#tell('error', { error: toKvError(error) });
      }
      await this.#replica.removeConflict(next.id);
    }
  }

  #fail(error: unknown): void {
    const failure = toKvError(error);
    this.#set({ lastError: failure });
    this.#tell('error', { error: failure });
    this.#stop.abort(failure);
    for (const bell of [this.#incoming, this.#outgoing, this.#conflicted]) bell.ring();
  }
}

function toKvError(error: unknown): KvError {
  if ((error as Partial<KvError> | undefined)?.name === 'KvError') return error as KvError;
  return new KvError('KV_IO', `sync failed: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
}

function deferred(): { readonly promise: Promise<void>; readonly resolve: () => void; readonly reject: (reason: unknown) => void } {
  let [resolve, reject]: [() => void, (reason: unknown) => void] = [() => undefined, () => undefined];
  const promise = new Promise<void>((done, failed) => { [resolve, reject] = [done, failed]; });
  promise.catch(() => undefined);
  return { promise, resolve, reject };
}

/**
 * Keeps a database in step with a log, from now on and until it is closed. Everything works
 * offline: reads and writes of the database never wait for the log, except `Sync.transaction` and
 * `Sync.flush`. Open the database with `feed: true`; without a feed, each start compares all entries.
 *
 * @throws KvError KV_INVALID_ARGUMENT for collections that cannot be synchronized; KV_LOCKED if the
 * database is being synchronized in this thread.
 */
export function syncDatabase<K, V, I>(db: Database<K, V, I>, options: SyncOptions): Promise<Sync> {
  // The default collection's types are of no interest here.
  const plain = db as unknown as Database;
  return new Promise((resolve) => {
    if (active.has(plain)) throw new KvError('KV_LOCKED', 'this database is being synchronized already: close that first', { retryable: true });
    resolve(new Sync(plain, options));
  });
}
