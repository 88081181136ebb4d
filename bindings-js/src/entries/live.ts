/**
 * Live queries: the entries of a range, for views that redraw when it changes.
 *
 * @module mangrove-kv/live
 */
import type { Key } from '../codec/keys.ts';
import { RANGE, checkNames, onlyBounds } from '../api/names.ts';
import { KvError } from '../base/errors.ts';
import { AbortController, queueMicrotask } from '../base/platform.ts';
import { isSnapshotLost } from '../base/superseded.ts';
import type { CommitIterator, WatchOptions } from '../types/feed.ts';
import type { Bounds, Entry, IndexRange, KvIterator, LiveIndex, Range, RangeOptions, SignalOptions, WithMeta } from '../types/index.ts';

interface LiveRows<K, V> {
  readonly entries: readonly (readonly [K, V])[];
  /** Whether the entries were read before something that may have changed them. */
  readonly isStale: boolean;
}

/** Result of a live query. Never changes; a new result is a new object. */
export type LiveResult<K, V> =
  /** Not read yet. `error` is why the last try failed, if one did; there is going to be another. */
  | LiveRows<K, V> & { readonly status: 'loading'; readonly error: unknown }
  /** As after `loading`, if the entries are stale: they are the last ones read. */
  | LiveRows<K, V> & { readonly status: 'ready'; readonly error: unknown }
  /** Reading failed for good; `entries` are the last ones read. The next first subscription tries again. */
  | LiveRows<K, V> & { readonly status: 'failed'; readonly error: unknown };

/**
 * Fits React's `useSyncExternalStore` and the stores of other frameworks. The functions need no
 * `this`.
 */
export interface LiveQuery<K, V> {
  /** Calls `onChange` when `getSnapshot` has a new result. Returns the function that ends this. */
  readonly subscribe: (onChange: () => void) => () => void;
  /** Returns the newest result: the same object until there is a new one. */
  readonly getSnapshot: () => LiveResult<K, V>;
}

/** What a live query needs of a collection. */
export interface LiveSource<K, V> {
  /** The entries of a range with version and expiry, as `Collection.entries` returns them. */
  entries(range: RangeOptions<K> & WithMeta): KvIterator<Entry<K, V>, K>;
  /** The commits that touch a range, as `Collection.watch` returns them. */
  watch(options?: WatchOptions<K>): CommitIterator<K, V>;
}

/** A collection, or an index of it with ranges of index keys. */
interface Source<K, V, R> {
  entries(range: Range<R> & SignalOptions & WithMeta): KvIterator<Entry<K, V>, R>;
  watch(options?: Bounds<R> & SignalOptions): CommitIterator<K, V>;
}

/** Index ranges have `eq`; a collection refuses it. */
const LIVE_RANGE = { ...RANGE, eq: 2 } as const;

/** Longest delay of setTimeout. */
const MAX_WAIT_MS = 0x7fff_ffff;

/** Time between two reads with an `offset`: when a skipped entry expires, nobody tells. */
const OFFSET_MS = 1000;

/** Time until the second try, and between later ones at most. */
const FIRST_PAUSE_MS = 50;
const LAST_PAUSE_MS = 2000;

const LOADING = { status: 'loading', entries: [], isStale: false, error: undefined } as const;

/** Whether another tab took over during a read, or the feed dropped commits: the current state can be read at once. */
function isInterrupted(error: unknown): boolean {
  return (error as Partial<KvError> | undefined)?.code === 'KV_TRUNCATED_FEED' || isSnapshotLost(error);
}

/** Whether a later read may succeed. */
function isPassing(error: unknown): boolean {
  const { code, retryable } = (error ?? {}) as Partial<KvError>;
  return retryable === true || code === 'KV_INDEX_INCOMPLETE' || isInterrupted(error);
}

/**
 * Calls `call` just after `at`, in milliseconds since 1970, or earlier if that is beyond the
 * longest delay. Keeps no process alive.
 */
function wake(call: () => void, at: number): ReturnType<typeof setTimeout> {
  const timer = setTimeout(call, Math.min(Math.max(at - Date.now(), 0) + 1, MAX_WAIT_MS));
  (timer as { unref?: () => void }).unref?.();
  return timer;
}

class Live<K, V, R> {
  readonly #source: Source<K, V, R>;
  readonly #range: Range<R>;
  readonly #listeners = new Set<{ readonly call: () => void }>();
  #result: LiveResult<K, V> = LOADING;
  /** Of each entry in the result. */
  #versions: readonly number[] = [];
  #stop: AbortController | undefined;
  /** Number of tries that failed since the last read that did not. */
  #failures = 0;

  constructor(source: Source<K, V, R>, range: Range<R>) {
    this.#source = source;
    this.#range = range;
  }

  readonly subscribe = (onChange: () => void): (() => void) => {
    const listener = { call: onChange };
    this.#listeners.add(listener);
    if (this.#stop === undefined) this.#start();
    return () => {
      if (this.#listeners.delete(listener) && this.#listeners.size === 0) {
        this.#stop?.abort();
        this.#stop = undefined;
      }
    };
  };

  readonly getSnapshot = (): LiveResult<K, V> => this.#result;

  #start(): void {
    const stop = new AbortController();
    this.#stop = stop;
    const fail = (error: unknown): void => {
      if (stop.signal.aborted) return;
      stop.abort();
      this.#stop = undefined;
      const { entries, status } = this.#result;
      if (!isPassing(error)) return this.#publish({ status: 'failed', entries, isStale: true, error });
      const failures = this.#failures++;
      if (failures === 0 && isInterrupted(error)) return this.#start();
      this.#pause(Math.min(FIRST_PAUSE_MS * 2 ** failures, LAST_PAUSE_MS));
      const isRead = status !== 'loading';
      this.#publish({ status: isRead ? 'ready' : status, entries, isStale: isRead, error });
    };
    this.#follow(stop.signal, fail).catch(fail);
  }

  #pause(milliseconds: number): void {
    const stop = new AbortController();
    this.#stop = stop;
    const timer = wake(() => this.#start(), Date.now() + milliseconds);
    stop.signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
  }

  async #follow(signal: AbortSignal, fail: (error: unknown) => void): Promise<void> {
    const { offset = 0 } = this.#range;
    let isStale = false;
    let isReading = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
    const read = async (): Promise<void> => {
      try {
        while (isStale) {
          isStale = false;
          const entries = await this.#source.entries({ ...this.#range, meta: true, signal }).toArray();
          signal.throwIfAborted();
          this.#failures = 0;
          clearTimeout(timer);
          // When an entry that `offset` skips expires, the others move up.
          let next = offset > 0 ? Date.now() + OFFSET_MS : Infinity;
          for (const { expiresAt = Infinity } of entries) if (expiresAt < next) next = expiresAt;
          if (next < Infinity) timer = wake(refresh, next);
          if (this.#has(entries)) continue;
          this.#versions = entries.map(({ version }) => version);
          this.#publish({ status: 'ready', entries: entries.map(({ key, value }) => [key, value] as const), isStale: false, error: undefined });
        }
      } finally {
        // In the same step as the last check of `isStale`, so that any later commit starts a read.
        isReading = false;
      }
    };
    // Commits during a read cause one more read, not one each.
    const refresh = (): void => {
      isStale = true;
      if (isReading) return;
      isReading = true;
      read().catch(fail);
    };
    const commits = this.#source.watch({ ...onlyBounds(this.#range), signal });
    refresh();
    for await (const _ of commits) refresh();
  }

  /**
 * Whether the result has exactly these entries, so that views need not update. Keys that are
 * objects are not compared.
 */
  #has(entries: readonly Entry<K, V>[]): boolean {
    const { status, isStale, entries: last } = this.#result;
    return status === 'ready' && !isStale && last.length === entries.length
      && entries.every(({ key, version }, at) => version === this.#versions[at] && typeof key !== 'object' && Object.is(key, last[at]![0]));
  }

  #publish(result: LiveResult<K, V>): void {
    this.#result = result;
    for (const { call } of [...this.#listeners]) {
      try {
        call();
      } catch (error) {
        queueMicrotask(() => { throw error; });
      }
    }
  }
}

/**
 * The entries of a range of index keys, in the order of the index; otherwise as for a collection.
 * The range is read again after all commits that change the collection.
 */
export function liveQuery<K, V>(index: LiveIndex<K, V>, range?: Omit<IndexRange, 'signal'>): LiveQuery<K, V>;
/**
 * The entries of a range, kept up to date while there are subscriptions. Bounds, `limit`, `offset`
 * and `reverse` apply as in `entries`. The range is read again after commits that touch the bounds
 * and when one of its entries expires, once for all that happens meanwhile, in O(log n + entries).
 * With an `offset` it is also read once a second, since an entry that is skipped may have expired.
 * Without subscriptions nothing is read, and the last result stays.
 *
 * After a failure that is retryable, and while an index is being built, it is read again by itself,
 * after pauses of 50 ms to 2 s; meanwhile the entries stay and are marked with `isStale`.
 *
 * Create it once per view, not on every render.
 *
 * @throws KvError KV_INVALID_ARGUMENT if `collection` or `range` is invalid. The result reports
 * invalid keys and later failures.
 */
export function liveQuery<K, V>(collection: LiveSource<K, V>, range?: Range<K>): LiveQuery<K, V>;
export function liveQuery<K, V>(collection: LiveSource<K, V> | LiveIndex<K, V>, range: Range<K> | Range<Key> = {}): LiveQuery<K, V> {
  if (typeof collection?.entries !== 'function' || typeof collection.watch !== 'function') {
    throw new KvError('KV_INVALID_ARGUMENT', 'a live query needs a collection, an index or a database');
  }
  checkNames('liveQuery', range, LIVE_RANGE);
  const live = new Live(collection as Source<K, V, K | Key>, range as Range<K | Key>);
  return { subscribe: live.subscribe, getSnapshot: live.getSnapshot };
}
