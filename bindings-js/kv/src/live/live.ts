/**
 * Live queries: the entries of a range, for views that redraw when it changes.
 *
 * @module mangrove-kv/live
 */
import type { Key } from '../codec/keys.ts';
import { RANGE, onlyBounds } from '../api/arguments.ts';
import { checkNames } from '../base/names.ts';
import { KvError } from '../base/errors.ts';
import { AbortController, queueMicrotask } from '../base/platform.ts';
import { isSnapshotLost } from '../base/superseded.ts';
import { isSame as isSameBytes } from '../codec/bytes.ts';
import { encodeValue } from '../wire/codecs.ts';
import type { Target } from '../wire/collection-target.ts';
import { mirroredOf } from '../mirror/lookup.ts';
import type { Mirrored } from '../mirror/lookup.ts';
import { sourceOf } from '../mirror/source.ts';
import type { CommitIterator, WatchOptions } from '../types/feed.ts';
import { isEqual } from './equal.ts';
import type {
  Bounds,
  Entry,
  IndexRange,
  KvIterator,
  LiveIndex,
  Range,
  RangeOptions,
  SignalOptions,
  WithMeta,
} from '../types/index.ts';

export { IndexMirror, Mirror, mirror } from '../mirror/mirror.ts';
export type {
  BaseMirror,
  MirrorErrorEvent,
  MirrorEventMap,
  MirrorOptions,
  MirrorStatus,
  MirroredIndexRange,
  RollbackEvent,
  ShrinkEvent,
} from '../mirror/mirror.ts';

/** The range of a result: `offset` is the position of its first entry. */
export interface LiveRange {
  readonly offset?: number;
  readonly limit?: number;
  readonly [option: string]: unknown;
}

/** Result of a live query. Never changes; a new result is a new object. */
export interface LiveResult<K, V> {
  /**
   * - `loading`: no read has succeeded yet.
   * - `ready`: `entries` are from the last read that succeeded.
   * - `failed`: the last read failed, and the query does not retry it. It reads again when it gets a
   *   subscriber while it has none.
   */
  readonly status: 'loading' | 'ready' | 'failed';
  /** An unchanged entry is the same object as in the last result, unless its key contains bytes. */
  readonly entries: readonly (readonly [K, V])[];
  /** The range that `entries` were read with. */
  readonly range: LiveRange;
  /** Whether `entries` may be outdated: a read failed, or the window has moved. */
  readonly isStale: boolean;
  /** Why the last read failed, if it did. Unless the status is `failed`, the query retries. */
  readonly error: unknown;
}

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

/** A live query over positions, as for a list that scrolls. */
export interface LiveWindow<K, V> extends LiveQuery<K, V> {
  /**
   * Shows `limit` entries from the position `offset` on. The last entries stay, marked with
   * `isStale`, until those are read; `range` of the result says where its entries are.
   *
   * @throws KvError KV_INVALID_ARGUMENT unless both are whole numbers from 0 on.
   */
  readonly move: (offset: number, limit: number) => void;
}

/** Result of a live value; status, `isStale` and `error` are those of `LiveResult`. */
export interface LiveValueResult<T> {
  readonly status: 'loading' | 'ready' | 'failed';
  /** The last value; `undefined` while loading. */
  readonly value: T | undefined;
  readonly isStale: boolean;
  readonly error: unknown;
}

/** As `LiveQuery`. */
export interface LiveValue<T> {
  /** As `LiveQuery.subscribe`. */
  readonly subscribe: LiveQuery<never, never>['subscribe'];
  /** As `LiveQuery.getSnapshot`. */
  readonly getSnapshot: () => LiveValueResult<T>;
}

/** What a live query needs of a collection. */
export interface LiveSource<K, V> {
  /** The entries of a range with version and expiry, as `Collection.entries` returns them. */
  entries(range: RangeOptions<K> & WithMeta): KvIterator<Entry<K, V>, K>;
  /** The commits that touch a range, as `Collection.watch` returns them. */
  watch(options?: WatchOptions<K>): CommitIterator<K, V>;
  /** When the next entry of a range expires, as `Collection.nextExpiry` returns it. Without it, the range is read once a second where that matters. */
  nextExpiry?(options?: Bounds<K> & SignalOptions): Promise<number | undefined>;
}

/** What a live value needs of a collection. */
export interface Followed {
  /** The commits that may change what is read, as `Collection.watch` returns them. */
  watch(options: SignalOptions): AsyncIterable<unknown>;
  /** As that of `LiveSource`. */
  nextExpiry?(options?: SignalOptions): Promise<number | undefined>;
}

/** A collection, or an index of it with ranges of index keys. */
interface Source<K, V, R> {
  entries(range: Range<R> & SignalOptions & WithMeta): KvIterator<Entry<K, V>, R>;
  watch(options?: Bounds<R> & SignalOptions): CommitIterator<K, V>;
  nextExpiry?(options?: Bounds<R> & SignalOptions): Promise<number | undefined>;
}

/** Index ranges have `eq`; a collection refuses it. */
const LIVE_RANGE = { ...RANGE, eq: 2 } as const;

/** Longest delay of setTimeout. */
const MAX_WAIT_MS = 0x7fff_ffff;

/** Poll interval where a result depends on entries that are not read, and the source does not tell when one expires. */
const RECHECK_MS = 1000;
/** Skipped entries that expire one after the other cause no more reads than one in this time. */
const SKIPPED_MS = 100;

/** Delay before the first retry, which doubles up to the last. */
const FIRST_PAUSE_MS = 50;
const LAST_PAUSE_MS = 2000;

/** Whether another tab took over during the read, or the feed dropped commits: a retry need not wait. */
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

/**
 * When a result that depends on entries which are not read has to be read again. No commit reports that one has
 * expired. To be asked before the read: of entries that expire meanwhile, the time has passed then.
 */
async function skippedExpiry(
  source: { nextExpiry?(options?: SignalOptions): Promise<number | undefined> },
  options: SignalOptions,
): Promise<number> {
  if (source.nextExpiry === undefined) return Date.now() + RECHECK_MS;
  return Math.max((await source.nextExpiry(options)) ?? Infinity, Date.now() + SKIPPED_MS);
}

/** Identifies a key by its value; undefined if it contains bytes, or is an object of a custom codec. */
function nameOf(key: unknown): string | undefined {
  if (typeof key !== 'object' || key === null) return `${typeof key} ${String(key)}`;
  if (key instanceof Date) return `date ${key.getTime()}`;
  if (!Array.isArray(key)) return undefined;
  const names = key.map(nameOf);
  return names.includes(undefined) ? undefined : JSON.stringify(names);
}

interface Row<K, V> {
  readonly version: number;
  readonly row: readonly [K, V];
}

/** Live queries that follow their source, by the connection of that. A new one begins with what an equal one shows. */
const following = new WeakMap<object, Set<Live<unknown, unknown, unknown>>>();

class Live<K, V, R> {
  readonly #source: Source<K, V, R>;
  /** Where and under which name others find it; `undefined` if the source is not of this package. */
  readonly #place:
    | { readonly connection: object; readonly name: string; readonly target: Target<unknown, unknown> }
    | undefined;
  #range: Range<R>;
  readonly #listeners = new Set<{ readonly call: () => void }>();
  #result: LiveResult<K, V>;
  /** The entries of the result, by `nameOf` their keys. */
  #rows = new Map<string, Row<K, V>>();
  /** Reads the range again; defined while a subscription follows the source. */
  #refresh: (() => void) | undefined;
  /** Of the entries of the result, if that is what mirrors had. */
  #mirroredVersions: readonly number[] | undefined;
  #stop: AbortController | undefined;
  /** Reads that failed since the last one that succeeded. */
  #failures = 0;
  /** Whether any read has succeeded. */
  #wasRead = false;
  /** Another tab may have taken over since the last read. Versions that died with the one before are given again. */
  #isDoubtful = false;

  constructor(source: Source<K, V, R>, range: Range<R>) {
    this.#source = source;
    this.#range = range;
    this.#result = { status: 'loading', entries: [], range: range as LiveRange, isStale: false, error: undefined };
    const found = sourceOf(source);
    this.#place = found && { connection: found.target.connection, name: found.name, target: found.target };
    if (this.#readMirror() === undefined) this.#beginAsOthers();
  }

  /** Begins with what another query of the same entries shows, which follows them. */
  #beginAsOthers(): void {
    if (this.#place === undefined) return;
    for (const other of following.get(this.#place.connection) ?? []) {
      if (other.#place?.name !== this.#place.name || !isEqual(other.#range, this.#range)) continue;
      if (other.#result.status !== 'ready' || other.#result.range !== other.#range) continue;
      this.#rows = other.#rows as Map<string, Row<K, V>>;
      this.#wasRead = true;
      this.#result = { ...(other.#result as LiveResult<K, V>), range: this.#range as LiveRange };
      return;
    }
  }

  readonly subscribe = (onChange: () => void): (() => void) => {
    const listener = { call: onChange };
    this.#listeners.add(listener);
    if (this.#stop === undefined) this.#start();
    return () => {
      if (this.#listeners.delete(listener) && this.#listeners.size === 0) {
        this.#stop?.abort();
        this.#stop = this.#refresh = undefined;
      }
    };
  };

  readonly getSnapshot = (): LiveResult<K, V> => {
    if (this.#stop === undefined) this.#readMirror();
    return this.#result;
  };

  /** Takes the result from a mirror that has all entries of the range; `undefined` if there is none. */
  #readMirror(): Mirrored | undefined {
    const mirrored = this.#place && mirroredOf(this.#source, this.#range);
    if (mirrored === undefined) return undefined;
    const range = this.#range;
    const { status, entries: shown, range: shownRange, ...rest } = this.#result;
    const { rows, versions } = mirrored.rows();
    const entries = rows as (readonly [K, V])[];
    const { isStale, error } = mirrored;
    const isSame =
      status === 'ready' &&
      range === shownRange &&
      isStale === rest.isStale &&
      error === rest.error &&
      entries.length === shown.length &&
      entries.every((row, at) => row === shown[at]);
    this.#wasRead = true;
    this.#mirroredVersions = versions;
    if (!isSame) this.#result = { status: 'ready', entries, range: range as LiveRange, isStale, error };
    return mirrored;
  }

  readonly move = (offset: number, limit: number): void => {
    for (const [name, given] of [
      ['offset', offset],
      ['limit', limit],
    ] as const) {
      if (!Number.isSafeInteger(given) || given < 0)
        throw new KvError('KV_INVALID_ARGUMENT', `move: ${name} has to be a whole number from 0 on`);
    }
    if (this.#range.offset === offset && this.#range.limit === limit) return;
    this.#range = { ...this.#range, offset, limit };
    this.#refresh?.();
    const { status, isStale, range } = this.#result;
    if (status === 'ready' && !isStale && range !== this.#range) this.#publish({ ...this.#result, isStale: true });
  };

  #start(): void {
    const stop = new AbortController();
    this.#stop = stop;
    this.#join(stop.signal);
    const before = this.#result;
    const mirrored = this.#readMirror();
    if (mirrored !== undefined) {
      this.#followMirror(mirrored, stop);
      // Not at once: a listener may use what `subscribe` has yet to return.
      if (this.#result !== before) queueMicrotask(() => this.#tell());
      return;
    }
    const fail = (error: unknown): void => {
      if (stop.signal.aborted) return;
      stop.abort();
      this.#stop = this.#refresh = undefined;
      this.#isDoubtful = true;
      if (!isPassing(error)) return this.#publish({ ...this.#result, status: 'failed', isStale: true, error });
      const failures = this.#failures++;
      if (failures === 0 && isInterrupted(error)) return this.#start();
      this.#pause(Math.min(FIRST_PAUSE_MS * 2 ** failures, LAST_PAUSE_MS));
      this.#publish({ ...this.#result, status: this.#wasRead ? 'ready' : 'loading', isStale: this.#wasRead, error });
    };
    this.#follow(stop.signal, fail).catch(fail);
  }

  /** Lets others begin with what this shows. */
  #join(signal: AbortSignal): void {
    if (this.#place === undefined) return;
    const { connection } = this.#place;
    const others = following.get(connection) ?? new Set();
    following.set(connection, others);
    others.add(this as unknown as Live<unknown, unknown, unknown>);
    signal.addEventListener('abort', () => others.delete(this as unknown as Live<unknown, unknown, unknown>), {
      once: true,
    });
  }

  /** Follows a mirror for as long as it has all entries of the range. */
  #followMirror(mirrored: Mirrored, stop: AbortController): void {
    const unwatch = mirrored.watch(() => {
      const before = this.#result;
      if (this.#readMirror() === undefined) {
        stop.abort();
        this.#stop = undefined;
        this.#start();
      } else if (this.#result !== before) {
        this.#publish(this.#result);
      }
    });
    this.#refresh = () => {
      const before = this.#result;
      if (this.#readMirror() !== undefined && this.#result !== before) this.#publish(this.#result);
    };
    stop.signal.addEventListener('abort', unwatch, { once: true });
  }

  #pause(milliseconds: number): void {
    const stop = new AbortController();
    this.#stop = stop;
    const timer = wake(() => this.#start(), Date.now() + milliseconds);
    stop.signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
  }

  /** Goes on from what mirrors had: entries that have not changed stay the same objects. */
  #leaveMirrors(): void {
    const versions = this.#mirroredVersions;
    if (versions === undefined) return;
    this.#mirroredVersions = undefined;
    this.#rows = new Map();
    for (const [at, row] of this.#result.entries.entries()) {
      const name = nameOf(row[0]);
      if (name !== undefined) this.#rows.set(name, { version: versions[at]!, row });
    }
  }

  async #follow(signal: AbortSignal, fail: (error: unknown) => void): Promise<void> {
    this.#leaveMirrors();
    let isStale = false;
    let isReading = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
    const read = async (): Promise<void> => {
      try {
        while (isStale) {
          isStale = false;
          const range = this.#range;
          // Entries move up when one that `offset` skips expires.
          let next =
            (range.offset ?? 0) > 0 ? await skippedExpiry(this.#source, { ...onlyBounds(range), signal }) : Infinity;
          const entries = await this.#source.entries({ ...range, meta: true, signal }).toArray();
          signal.throwIfAborted();
          this.#failures = 0;
          this.#wasRead = true;
          clearTimeout(timer);
          for (const { expiresAt = Infinity } of entries) if (expiresAt < next) next = expiresAt;
          if (next < Infinity) timer = wake(refresh, next);
          this.#show(entries, range);
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
    this.#refresh = refresh;
    const commits = this.#source.watch({ ...onlyBounds(this.#range), signal });
    refresh();
    for await (const _ of commits) refresh();
  }

  /** Publishes what was read, unless it equals the result. */
  #show(entries: readonly Entry<K, V>[], range: Range<R>): void {
    const known = new Map<string, Row<K, V>>();
    const rows = entries.map(({ key, value, version }) => {
      const name = nameOf(key);
      const last = name === undefined ? undefined : this.#rows.get(name);
      const isSame = last?.version === version && (!this.#isDoubtful || this.#isSameValue(last.row[1], value));
      const row = isSame ? last.row : ([key, value] as const);
      if (name !== undefined) known.set(name, { version, row });
      return row;
    });
    this.#rows = known;
    this.#isDoubtful = false;
    const { status, isStale, entries: shown, range: shownRange } = this.#result;
    if (
      status === 'ready' &&
      !isStale &&
      range === shownRange &&
      rows.length === shown.length &&
      rows.every((row, at) => row === shown[at])
    )
      return;
    this.#publish({
      status: 'ready',
      entries: rows,
      range: range as LiveRange,
      isStale: range !== this.#range,
      error: undefined,
    });
  }

  #isSameValue(a: V, b: V): boolean {
    if (Object.is(a, b)) return true;
    const target = this.#place?.target;
    if (target === undefined) return false;
    try {
      // Codecs may encode into a buffer that they use again.
      return isSameBytes(encodeValue(target, a).slice(), encodeValue(target, b));
    } catch {
      return false;
    }
  }

  #publish(result: LiveResult<K, V>): void {
    this.#result = result;
    this.#tell();
  }

  #tell(): void {
    for (const listener of [...this.#listeners]) {
      // One that was called before may have ended it.
      if (!this.#listeners.has(listener)) continue;
      try {
        listener.call();
      } catch (error) {
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
}

function liveOf(call: string, collection: unknown, range: object): Live<unknown, unknown, unknown> {
  const source = collection as Source<unknown, unknown, unknown> | undefined;
  if (typeof source?.entries !== 'function' || typeof source.watch !== 'function') {
    throw new KvError('KV_INVALID_ARGUMENT', `${call} needs a collection, an index or a database`);
  }
  checkNames(call, range, LIVE_RANGE);
  return new Live(source, { ...range });
}

/**
 * The entries of a range of index keys, in the order of the index; otherwise as for a collection.
 * The range is read again after all commits that change the collection.
 */
export function liveQuery<K, V>(index: LiveIndex<K, V>, range?: Omit<IndexRange, 'signal'>): LiveQuery<K, V>;
/**
 * The entries of a range, kept up to date while there are subscriptions. Bounds, `limit`, `offset`
 * and `reverse` apply as in `entries`. The range is read again after commits that touch the bounds
 * and when one of its entries expires, also one that is skipped, once for all that happens meanwhile,
 * in O(log n + entries).
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
export function liveQuery<K, V>(
  collection: LiveSource<K, V> | LiveIndex<K, V>,
  range: Range<K> | Range<Key> = {},
): LiveQuery<K, V> {
  const { subscribe, getSnapshot } = liveOf('liveQuery', collection, range);
  return { subscribe, getSnapshot } as LiveQuery<K, V>;
}

/** How long the entries of a preloaded query are kept up to date for those that have not subscribed yet. */
const PRELOADED_MS = 10_000;

/**
 * Reads a live query before it is shown, as in a router: `await preload(liveQuery(db, range))`. It follows its source for
 * ten seconds more; queries of the same range that are created meanwhile begin with its entries, with the status `ready`.
 * On a server, that renders them.
 *
 * @throws what reading fails with, unless the query retries it by itself.
 */
export function preload<K, V>(query: LiveQuery<K, V>): Promise<LiveResult<K, V>> {
  return new Promise((resolve, reject) => {
    const unsubscribe = query.subscribe(() => look());
    const look = (): void => {
      const result = query.getSnapshot();
      if (result.status === 'loading') return;
      wake(unsubscribe, Date.now() + PRELOADED_MS);
      if (result.status === 'ready') resolve(result);
      else reject(result.error);
    };
    look();
  });
}

/** As for a collection, over positions in an index. */
export function liveWindow<K, V>(index: LiveIndex<K, V>, range?: Omit<IndexRange, 'signal'>): LiveWindow<K, V>;
/**
 * The entries at positions of a range, for lists that scroll: as `liveQuery`, and `move` shows
 * others.
 *
 * @throws KvError KV_INVALID_ARGUMENT if `collection` or `range` is invalid.
 */
export function liveWindow<K, V>(collection: LiveSource<K, V>, range?: Range<K>): LiveWindow<K, V>;
export function liveWindow<K, V>(
  collection: LiveSource<K, V> | LiveIndex<K, V>,
  range: Range<K> | Range<Key> = {},
): LiveWindow<K, V> {
  const { subscribe, getSnapshot, move } = liveOf('liveWindow', collection, range);
  return { subscribe, getSnapshot, move } as LiveWindow<K, V>;
}

/**
 * What `read` returns, as a count, kept up to date while there are subscriptions. It is read again
 * after commits that change the collection, and when one of its entries expires.
 * Listeners are called when the value is another one, as `Object.is` tells.
 *
 * @throws KvError KV_INVALID_ARGUMENT if `collection` or `read` is invalid.
 */
export function liveValue<S extends Followed, T>(collection: S, read: (collection: S) => T | Promise<T>): LiveValue<T> {
  if (typeof collection?.watch !== 'function')
    throw new KvError('KV_INVALID_ARGUMENT', 'a live value needs a collection, an index or a database');
  if (typeof read !== 'function') throw new KvError('KV_INVALID_ARGUMENT', 'read of liveValue has to be a function');
  let last: T | undefined;
  let version = 0;
  const toArray = async (): Promise<Entry<number, T>[]> => {
    const expiresAt = await skippedExpiry(collection, {});
    const value = await read(collection);
    if (!Object.is(value, last) || version === 0) version++;
    last = value;
    return [{ key: 0, value, version, expiresAt }];
  };
  const source = { entries: () => ({ toArray }), watch: (options: object) => collection.watch(options) };
  const live = new Live<number, T, never>(source as unknown as Source<number, T, never>, {});
  let shown: LiveResult<number, T> | undefined;
  let result: LiveValueResult<T>;
  return {
    subscribe: live.subscribe,
    getSnapshot: () => {
      const next = live.getSnapshot();
      if (next !== shown) {
        const { status, isStale, error, entries } = (shown = next);
        result = { status, value: entries[0]?.[1], isStale, error };
      }
      return result;
    },
  };
}
