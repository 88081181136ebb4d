/**
 * Live queries as a store of Svelte, and as an object for the runes of Svelte 5.
 *
 * @module @mangrove-kv/svelte
 */
import { KvError } from 'mangrove-kv';
import type { IndexRange, LiveIndex, Range } from 'mangrove-kv';
import type { LiveQuery, LiveResult, LiveSource, LiveWindow } from 'mangrove-kv/live';
import * as stores from 'svelte/store';
import type { Readable } from 'svelte/store';
import { copyOf, initialOf, isSame, keeping, queryOf, showing, windowOf } from 'mangrove-kv/internal';
import type { Asked, Earlier, InitialEntries, KeepPrevious, LiveIndexed, NamedIndexRange } from 'mangrove-kv/internal';

export type { InitialEntries, KeepPrevious, LiveIndexed, NamedIndexRange } from 'mangrove-kv/internal';

/** A range, or a store of the ranges to follow one after the other. */
export type StoreOf<R> = R | Readable<R & KeepPrevious>;
/** A range, or a function that returns the one to follow, with reactive state. */
export type GetterOf<R> = R | (() => R & KeepPrevious);

/** A live query whose properties are reactive where they are read in a template, `$derived` or `$effect`. */
export interface LiveState<K, V> {
  /** The whole result, for code that distinguishes its types by `status`. */
  readonly result: LiveResult<K, V>;
  /** The entries: empty while loading, and after a failure the last ones that were read. */
  readonly entries: readonly (readonly [K, V])[];
  /** `loading`, `ready` or `failed`. */
  readonly status: LiveResult<K, V>['status'];
  /** Whether the entries were read before something that may have changed them. */
  readonly isStale: boolean;
  /** Why the last read failed. Unless the status is `failed`, there is going to be another. */
  readonly error: unknown;
}

/** A window whose properties are reactive. */
export interface LiveWindowState<K, V> extends LiveState<K, V> {
  /** As `move` of `LiveWindow`. */
  readonly move: LiveWindow<K, V>['move'];
}

/**
 * The entries of a range of one of the collection's indexes, in the order of the index; otherwise
 * as for a collection.
 */
export function liveStore<K, V>(
  source: LiveIndexed<K, V> | null | undefined,
  range: StoreOf<NamedIndexRange>,
  options?: InitialEntries<K, V>,
): Readable<LiveResult<K, V>>;
/** The entries of a range of index keys; otherwise as for a collection. */
export function liveStore<K, V>(
  source: LiveIndex<K, V> | null | undefined,
  range?: StoreOf<Omit<IndexRange, 'signal'>>,
  options?: InitialEntries<K, V>,
): Readable<LiveResult<K, V>>;
/**
 * A readable store of the entries of a range, for `$store` in Svelte 4 and 5. What is mirrored, preloaded or shown
 * elsewhere has the status `ready` at once. It reads while it has
 * subscribers, from the microtask after the first one on, so a server that renders reads nothing.
 * Reading, errors and cost are those of `liveQuery`.
 *
 * For a range that changes, pass a store of ranges, which may have `keepPrevious`; or make a new store:
 * `$: notes = liveStore(db, { prefix: [author] })`.
 *
 * Without a source, as while a database is being opened, the status is `loading`. Never throws: the
 * status is `failed` after an error, an invalid argument included.
 */
export function liveStore<K, V>(
  source: LiveSource<K, V> | null | undefined,
  range?: StoreOf<Range<K>>,
  options?: InitialEntries<K, V>,
): Readable<LiveResult<K, V>>;
export function liveStore<K, V>(
  source: unknown,
  range: unknown = {},
  options: InitialEntries<K, V> = {},
): Readable<LiveResult<K, V>> {
  if (isStore(range)) return following<K, V, LiveQuery<K, V>>(queryOf, source, range, options);
  const initial = initialOf(options, range);
  const query = showing<K, V, LiveQuery<K, V>>(queryOf({ source, range: copyOf(range) }), initial);
  return storeOf(query, { result: initial });
}

function isStore(range: unknown): range is Readable<unknown> {
  return typeof range === 'object' && range !== null && 'subscribe' in range;
}

/** The results of one query after the other, each for a range of `ranges`. */
function following<K, V, Q extends LiveQuery<K, V>>(
  make: (asked: Asked) => Q,
  source: unknown,
  ranges: Readable<unknown>,
  options: InitialEntries<K, V> = {},
): Readable<LiveResult<K, V>> {
  let first: First<K, V> | undefined;
  return {
    subscribe(run) {
      let earlier: Earlier<K, V> | undefined;
      let stop = (): void => undefined;
      const stopRanges = ranges.subscribe((range) => {
        const asked = { source, range: copyOf(range) };
        if (earlier !== undefined && isSame(earlier.asked, asked)) return;
        stop();
        const kept = keeping<K, V, Q>(make, asked, earlier);
        const initial = earlier === undefined ? initialOf(options, asked.range) : undefined;
        first ??= { result: initial };
        stop = storeOf<K, V>(showing<K, V, Q>(kept, initial), first).subscribe((result) => {
          earlier = { asked, result };
          run(result);
        });
      });
      return () => {
        stopRanges();
        stop();
      };
    },
  };
}

/** What is shown before all else. A page takes over what the server has sent, even if newer entries are there. */
interface First<K, V> {
  result: LiveResult<K, V> | undefined;
}

function storeOf<K, V>(query: LiveQuery<K, V>, first: First<K, V> = { result: undefined }): Readable<LiveResult<K, V>> {
  return {
    subscribe(run) {
      let shown = first.result ?? query.getSnapshot();
      let isOver = false;
      let stop = (): void => undefined;
      const show = (): void => {
        const next = query.getSnapshot();
        if (next !== shown) run((shown = next));
      };
      run(shown);
      queueMicrotask(() => {
        first.result = undefined;
        if (isOver) return;
        stop = query.subscribe(show);
        // Another subscriber may have been told of a newer one meanwhile.
        show();
      });
      return () => {
        isOver = true;
        stop();
      };
    },
  };
}

/**
 * The entries of a range of one of the collection's indexes, in the order of the index; otherwise
 * as for a collection.
 */
export function useLiveQuery<K, V>(
  source: LiveIndexed<K, V> | null | undefined,
  range: GetterOf<NamedIndexRange>,
  options?: InitialEntries<K, V>,
): LiveState<K, V>;
/** The entries of a range of index keys; otherwise as for a collection. */
export function useLiveQuery<K, V>(
  source: LiveIndex<K, V> | null | undefined,
  range?: GetterOf<Omit<IndexRange, 'signal'>>,
  options?: InitialEntries<K, V>,
): LiveState<K, V>;
/**
 * The entries of a range, kept up to date while an effect or a template reads them. Otherwise as
 * `liveStore`. `const notes = useLiveQuery(db, () => ({ prefix: [author] }))` follows changes of what the
 * function reads, and begins anew with the status `loading` and no entries, unless the range has
 * `keepPrevious`. `$derived(useLiveQuery(db, { prefix: [author] }))` always begins anew, for another source too, also with
 * its `initial`: with that, pass a function.
 *
 * @throws KvError KV_UNSUPPORTED before Svelte 5.
 */
export function useLiveQuery<K, V>(
  source: LiveSource<K, V> | null | undefined,
  range?: GetterOf<Range<K>>,
  options?: InitialEntries<K, V>,
): LiveState<K, V>;
export function useLiveQuery<K, V>(source: unknown, range?: unknown, options?: InitialEntries<K, V>): LiveState<K, V> {
  if (typeof range !== 'function') return stateOf(liveStore(source as LiveSource<K, V>, range as Range<K>, options));
  return stateOf(following<K, V, LiveQuery<K, V>>(queryOf, source, toStore(range as () => unknown), options));
}

/** As for a collection, over positions in one of its indexes. */
export function useLiveWindow<K, V>(
  source: LiveIndexed<K, V> | null | undefined,
  range: GetterOf<NamedIndexRange>,
): LiveWindowState<K, V>;
/** As for a collection, over positions in an index. */
export function useLiveWindow<K, V>(
  source: LiveIndex<K, V> | null | undefined,
  range?: GetterOf<Omit<IndexRange, 'signal'>>,
): LiveWindowState<K, V>;
/**
 * As `useLiveQuery`, for lists that scroll. `offset` and `limit` are where the window begins.
 *
 * @throws KvError KV_UNSUPPORTED before Svelte 5.
 */
export function useLiveWindow<K, V>(
  source: LiveSource<K, V> | null | undefined,
  range?: GetterOf<Range<K>>,
): LiveWindowState<K, V>;
export function useLiveWindow<K, V>(source: unknown, range: unknown = {}): LiveWindowState<K, V> {
  let current: LiveWindow<K, V> | undefined;
  const make = (asked: Asked): LiveWindow<K, V> => (current = windowOf<K, V>(asked));
  const store =
    typeof range === 'function'
      ? following<K, V, LiveWindow<K, V>>(make, source, toStore(range as () => unknown))
      : storeOf(make({ source, range: copyOf(range) }));
  return Object.assign(stateOf(store), {
    move: ((offset, limit) => current?.move(offset, limit)) satisfies LiveWindow<K, V>['move'],
  });
}

// Bundlers refuse names that do not exist before Svelte 5.
function fromSvelte5<Name extends 'fromStore' | 'toStore'>(name: Name): (typeof stores)[Name] {
  const found = Reflect.get(stores, name) as (typeof stores)[Name] | undefined;
  if (found === undefined)
    throw new KvError('KV_UNSUPPORTED', 'useLiveQuery and useLiveWindow need Svelte 5; use liveStore');
  return found;
}

/** Svelte's own reads the state at once, and so makes a `$derived` around the query depend on it. */
function toStore(get: () => unknown): Readable<unknown> {
  return { subscribe: (run) => fromSvelte5('toStore')(get).subscribe(run) };
}

function stateOf<K, V>(store: Readable<LiveResult<K, V>>): LiveState<K, V> {
  const held = fromSvelte5('fromStore')(store);
  return {
    get result() {
      return held.current;
    },
    get entries() {
      return held.current.entries;
    },
    get status() {
      return held.current.status;
    },
    get isStale() {
      return held.current.isStale;
    },
    get error() {
      return held.current.error;
    },
  };
}
