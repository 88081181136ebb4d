// What an application sees: a database that follows a log, and tells how far it is.
import {
  abortable,
  AbortController,
  Event,
  EventTarget as OwnEventTarget,
  fromPlain,
  tracerOf,
} from 'mangrove-kv/internal';
import { KvError } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import type { RawConflict } from './apply.ts';
import { toKvError, toPlain } from './failures.ts';
import { Leader, MAX_BACKOFF_MS, MIN_BACKOFF_MS, decodeConflict } from './leader.ts';
import type { ReplicationEventMap, ReplicationOptions, ReplicationProgress } from './options.ts';
import type { RawDivergence } from './replica-context.ts';
import type { Position, RemoteLog } from './remote-log.ts';
import { logUnavailable } from './remote-log.ts';
import { runStrict } from './strict.ts';
import type { Sent, StrictHost, StrictOptions, StrictTransaction } from './strict.ts';
import { Tables } from './tables.ts';
import { Tabs } from './tabs.ts';
import type { Notice } from './tabs.ts';
import { hostOf, perform } from './verbs.ts';
import type { Verb, Verbs } from './verbs.ts';

/** Databases that are being replicated in this thread. */
const active = new WeakSet<Database>();

// By its global name, which all projects' libraries have; the declarations of `platform.ts` need more.
const EventTarget: typeof globalThis.EventTarget = OwnEventTarget;

/** A database that is kept in step with a log. */
export class Replication extends EventTarget {
  readonly #db: Database;
  readonly #options: ReplicationOptions;
  readonly #tables: Tables;
  /** Present if the database is traced. */
  readonly #tracer: ReturnType<typeof tracerOf>;
  readonly #stop = new AbortController();
  /** The tabs that have this database, where there can be several. */
  readonly #tabs: Tabs | undefined;
  /** While this tab replicates. */
  #leader: Leader | undefined;
  #release: (() => void) | undefined;
  #state: ReplicationProgress = { status: 'connecting', pending: 0, position: 0, lastError: undefined };
  readonly #ended: Promise<void>;

  /** @internal Use `replicate`. */
  constructor(db: Database, options: ReplicationOptions) {
    super();
    this.#db = db;
    this.#options = options;
    this.#tracer = tracerOf(db);
    this.#tables = new Tables(db, options.collections, options.mode ?? 'merge');
    if (['opfs', 'indexeddb'].includes(db.persistence)) {
      this.#tabs = new Tabs(
        db,
        {
          state: (state) => this.#set(state ?? { status: 'waiting' }),
          notice: (notice) => this.#hear(notice),
          asked: (verb, args, signal) => this.#lead(verb, args as never, signal),
          online: () => this.#leader?.retry(),
          sleep: () => this.#resign(),
        },
        this.#stop.signal,
      );
      this.#state = { ...this.#state, status: 'waiting' };
    } else if (options.log === undefined) {
      throw new KvError(
        'KV_INVALID_ARGUMENT',
        `replicate: the option \`log\` is missing, and no other thread can replicate a database with persistence "${db.persistence}"`,
      );
    }
    active.add(db);
    this.#traceStatus(this.#state);
    this.#ended = this.#run();
  }

  /** How far replication is. */
  get state(): ReplicationProgress {
    return this.#state;
  }

  /** Calls `onChange` when there is a new state; returns the function that ends this. */
  readonly subscribe = (onChange: () => void): (() => void) => {
    this.addEventListener('state', onChange);
    return () => this.removeEventListener('state', onChange);
  };

  /**
   * Runs `fn` on the newest state of the log, and resolves when its writes are in the log and in
   * the database. One that only reads appends an empty record: a server that lags cannot make it stale. If another device wrote meanwhile, everything is undone and `fn` runs again:
   * strict transactions of all devices take effect one after another. Waits while the log cannot
   * be reached.
   *
   * @throws KvError KV_REPLICATION_MODE for writes to collections that are not in mode "strict";
   * KV_CONFLICT (retryable) after too many conflicts; KV_CLOSED if replication is stopped: if the record
   * was sent, it may still take effect.
   */
  async transaction<T>(fn: (tx: StrictTransaction) => T | Promise<T>, options: StrictOptions = {}): Promise<T> {
    const run = <R>(host: (signal: AbortSignal) => Promise<StrictHost<R>>): Promise<T> => {
      const sent: Sent<T, R> = {};
      return this.#online(async (signal) => {
        try {
          return await runStrict(await host(signal), fn, { ...options, signal }, sent);
        } catch (error) {
          // The record was sent and its outcome is unknown: a caller that retried `fn` could apply it twice.
          if (sent.open !== undefined && (error as Partial<KvError>).code === 'KV_LOG_REFUSED')
            throw logUnavailable('the log does not tell the outcome of a transaction', error);
          throw error;
        }
      }, options.signal);
    };
    const tabs = this.#tabs;
    return tabs === undefined
      ? run(async (signal) => (await this.#started(signal)).replica)
      : run(async () =>
          hostOf(this.#tables, tabs.id, (verb, args, signal = this.#stop.signal) => this.#call(verb, args, signal)),
        );
  }

  /**
   * Resolves when everything written before is in the log. Waits while the log cannot be reached,
   * which can be long: no user interface should wait for it.
   */
  flush({ signal }: { readonly signal?: AbortSignal | undefined } = {}): Promise<void> {
    return this.#online((stop) => this.#call('settle', [], stop), signal);
  }

  /**
   * Appends a check, with which all devices compare what they have, writes a snapshot of all collections
   * that the log has to the object store, and removes records from the log that are in the snapshot
   * before it. One device has to do this from time to time. Resolves to the snapshot's position, or to
   * undefined if there was nothing new.
   *
   * @throws KvError KV_LOG_UNAVAILABLE (retryable) if writes, here or elsewhere, never paused long enough;
   * KV_LOG_CONFLICT (retryable) if another device compacted at the same time; KV_REPLICATION_DIVERGED and
   * KV_VERSION_UNSUPPORTED if this device lacks something that the log has; KV_SNAPSHOT_LOST (retryable)
   * if other tabs took over the database's files again and again.
   */
  compact({
    signal,
  }: {
    readonly signal?: AbortSignal | undefined;
  } = {}): Promise<{ readonly position: Position } | undefined> {
    return this.#online((stop) => this.#call('compact', [], stop), signal, false);
  }

  /**
   * The records of the log that have no effect on this database, or only a part of it, each with the
   * reason that was the event `error`: damaged ones, those that mean nothing, and those of a newer
   * version of the package. The newest 256. `record` is as the log has it, to be kept or examined.
   */
  async aside(): Promise<
    readonly { readonly position: Position; readonly error: KvError; readonly record: Uint8Array }[]
  > {
    const rows = await this.#tables.aside.entries().toArray();
    return rows.map(([position, { code, message, record }]) => ({
      position,
      error: new KvError(code, message),
      record,
    }));
  }

  /**
   * Stops, and closes the log; local commits stay for the next time. Other tabs go on. Idempotent.
   */
  async close(): Promise<void> {
    const reason = new KvError('KV_CLOSED', 'replication was closed');
    this.#leader?.end(reason);
    this.#stop.abort(reason);
    await this.#ended;
  }

  /** Listens for an event. */
  override addEventListener<E extends keyof ReplicationEventMap>(
    type: E,
    listener: (event: ReplicationEventMap[E]) => void,
    options?: Parameters<EventTarget['addEventListener']>[2],
  ): void;
  override addEventListener(...listener: Parameters<EventTarget['addEventListener']>): void;
  override addEventListener(...listener: Parameters<EventTarget['addEventListener']>): void {
    super.addEventListener(...listener);
  }

  #tell(type: keyof ReplicationEventMap, fields: object): void {
    this.dispatchEvent(Object.assign(new Event(type), fields));
  }

  #tellRepair(records: number): void {
    this.#tracer?.record({ source: 'replication', event: 'repair', records });
    this.#tell('repair', { records });
  }

  #tellError(error: KvError): void {
    this.#tracer?.record({ source: 'replication', event: 'error', error: toPlain(error) });
    this.#tell('error', { error: this.#tracer?.attach(error) ?? error });
  }

  #tellConflicts(conflicts: readonly RawConflict[]): void {
    for (const raw of conflicts) {
      this.#tracer?.record({ source: 'replication', event: 'conflict', collection: raw.collection });
      const conflict = decodeConflict(this.#tables, raw);
      if (conflict !== undefined) this.#tell('conflict', { conflict });
    }
  }

  #tellDivergences(divergences: readonly RawDivergence[]): void {
    for (const { collection, entries, from, to } of divergences) {
      const key = this.#tables.byName.get(collection)?.key;
      this.#tracer?.record({ source: 'replication', event: 'diverged', collection, entries });
      this.#tell('diverged', { collection, entries, from: key?.decode(from), to: key?.decode(to) });
    }
  }

  /** What the tab that replicates tells. */
  #hear(notice: Notice): void {
    if (notice.type === 'conflicts') this.#tellConflicts(notice.conflicts);
    else if (notice.type === 'diverged') this.#tellDivergences(notice.divergences);
    else if (notice.type === 'error') this.#tellError(fromPlain(notice.error));
    else this.#tellRepair(notice.records);
  }

  /** What this tab knows because it replicates. */
  #announce(notice: Notice): void {
    this.#hear(notice);
    this.#tabs?.tell(notice);
  }

  #set(change: Partial<ReplicationProgress>): void {
    const last = this.#state.lastError;
    const next = { ...this.#state, ...change };
    // From another tab, errors come as copies.
    if (next.lastError?.code === last?.code && next.lastError?.message === last?.message) next.lastError = last;
    const names = ['status', 'pending', 'position', 'lastError'] as const;
    if (names.every((name) => next[name] === this.#state[name])) return;
    if (next.status !== this.#state.status) this.#traceStatus(next);
    this.#state = next;
    if (this.#leader !== undefined) this.#tabs?.tellState(next);
    this.#tell('state', { state: next });
  }

  #traceStatus({ status, pending, position, lastError }: ReplicationProgress): void {
    this.#tracer?.record({
      source: 'replication',
      event: 'status',
      status,
      pending,
      position,
      ...(lastError && { error: toPlain(lastError) }),
    });
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
      for (let wait = MIN_BACKOFF_MS; ; wait = Math.min(wait * 2, MAX_BACKOFF_MS)) {
        stop.signal.throwIfAborted();
        try {
          return await work(stop.signal);
        } catch (error) {
          stop.signal.throwIfAborted();
          const { code } = error as Partial<KvError>;
          // The log may have lost its history meanwhile.
          if (code === 'KV_LOG_UNAVAILABLE') this.#leader?.replica.reconnect();
          if (!isRepeated || (code !== 'KV_LOG_UNAVAILABLE' && code !== 'KV_REPLICATION_GAP')) throw error;
        }
        await new Promise<void>((resolve) => {
          const end = (): void => {
            clearTimeout(timer);
            stop.signal.removeEventListener('abort', end);
            this.removeEventListener('state', onState);
            resolve();
          };
          const onState = (): void => {
            if (this.#state.status === 'live') end();
          };
          const timer = setTimeout(end, wait);
          stop.signal.addEventListener('abort', end);
          this.addEventListener('state', onState);
        });
      }
    } finally {
      for (const signal of [given, this.#stop.signal]) signal?.removeEventListener('abort', abort);
      this.#leader?.retry();
    }
  }

  /** The leader, when it has started. Rejects if it ends before. */
  async #started(signal: AbortSignal): Promise<Leader> {
    const leader = this.#leader;
    if (leader === undefined) throw logUnavailable('this tab does not replicate the database');
    await abortable(leader.started, signal);
    return leader;
  }

  /** Asks the tab that replicates, which may be this one. */
  async #call<V extends Verb>(verb: V, args: Parameters<Verbs[V]>, signal: AbortSignal): Promise<ReturnType<Verbs[V]>> {
    return this.#leader === undefined && this.#tabs !== undefined
      ? this.#tabs.ask(verb, args, signal)
      : this.#lead(verb, args, signal);
  }

  async #lead<V extends Verb>(verb: V, args: Parameters<Verbs[V]>, signal: AbortSignal): Promise<ReturnType<Verbs[V]>> {
    const leader = await this.#started(signal);
    const stop = new AbortController();
    const abort = (): void => stop.abort();
    const signals = [signal, leader.signal];
    for (const each of signals) {
      if (each.aborted) abort();
      each.addEventListener('abort', abort);
    }
    try {
      const result = await perform(leader.replica, verb, args, stop.signal);
      // Whoever has waited for it finds what is pending, and the position, in the state.
      await leader
        .refresh(leader.replica.isCaughtUp ? { status: 'live', lastError: undefined } : {})
        .catch(() => undefined);
      return result;
    } catch (error) {
      signal.throwIfAborted();
      // Another tab takes over.
      if (leader.signal.aborted && !this.#isStopped)
        throw logUnavailable('this tab has stopped to replicate the database');
      throw error;
    } finally {
      for (const each of signals) each.removeEventListener('abort', abort);
    }
  }

  async #run(): Promise<void> {
    const onClosed = (): void => void this.close();
    this.#db.addEventListener('close', onClosed);
    try {
      const { log } = this.#options;
      if (log === undefined) await new Promise((resolve) => this.#stop.signal.addEventListener('abort', resolve));
      while (log !== undefined && !this.#isStopped) {
        if (this.#tabs !== undefined) this.#release = await this.#tabs.elect();
        await this.#follow(log);
      }
    } catch (error) {
      if (!this.#isStopped) this.#fail(error);
    } finally {
      this.#resign();
      this.#db.removeEventListener('close', onClosed);
      this.#tabs?.close();
      active.delete(this.#db);
      await this.#options.log?.close().catch(() => undefined);
      this.#set({ status: 'stopped' });
    }
  }

  /** Follows the log until this tab stops, or has to leave that to another one. */
  async #follow(log: RemoteLog): Promise<void> {
    const leader = new Leader(this.#db, this.#tables, log, this.#options, {
      state: (change) => this.#set(change),
      conflicts: (conflicts) => this.#announce({ type: 'conflicts', conflicts }),
      repaired: (records) => this.#announce({ type: 'repair', records }),
      diverged: (divergences) => this.#announce({ type: 'diverged', divergences }),
      alarm: (error) => this.#announce({ type: 'error', error: toPlain(error) }),
    });
    this.#leader = leader;
    this.#set({ status: 'connecting' });
    // Even if nothing has changed.
    this.#tabs?.tellState(this.#state);
    this.#forgetOthers(leader).catch(() => undefined);
    const endWake = log.wake((isReconnected) => {
      if (isReconnected === true) leader.replica.reconnect();
      leader.wake();
    });
    try {
      await leader.ended();
    } finally {
      endWake();
      if (this.#leader === leader) this.#resign();
    }
  }

  /** What tabs that are gone have offered: nobody will ask for it. */
  async #forgetOthers(leader: Leader): Promise<void> {
    await leader.started;
    const isOver = await this.#tabs?.isOver();
    if (isOver !== undefined) await leader.replica.forget((id) => isOver(id.split('/')[0] as string));
  }

  /** Leaves replicating to another tab. */
  #resign(): void {
    this.#leader?.end(new KvError('KV_CLOSED', 'another tab replicates'));
    this.#leader = undefined;
    this.#release?.();
    this.#release = undefined;
    if (this.#tabs !== undefined && !this.#isStopped) this.#set({ status: 'waiting' });
  }

  #fail(error: unknown): void {
    const failure = toKvError(error);
    this.#set({ lastError: failure });
    this.#tellError(failure);
    this.#stop.abort(failure);
  }
}

/**
 * Keeps a database in step with a log, from now on and until it is closed. Everything works
 * offline: reads and writes of the database never wait for the log, except `Replication.transaction` and
 * `Replication.flush`. Open the database with `feed: true`; without a feed, each start compares all entries.
 *
 * @throws KvError KV_INVALID_ARGUMENT for collections that cannot be replicated; KV_LOCKED if the
 * database is being replicated in this thread.
 */
export function replicate<K, V, I>(db: Database<K, V, I>, options: ReplicationOptions): Promise<Replication> {
  // The default collection's types are of no interest here.
  const plain = db as unknown as Database;
  return new Promise((resolve) => {
    if (active.has(plain))
      throw new KvError('KV_LOCKED', 'this database is being replicated already: close that first', {
        retryable: true,
      });
    resolve(new Replication(plain, options));
  });
}
