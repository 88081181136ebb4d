/**
 * Live queries, and the state of replication, as hooks of React 18 and later.
 *
 * @module @mangrove-kv/react
 */
import type { IndexRange, LiveIndex, Range } from 'mangrove-kv';
import type { LiveQuery, LiveResult, LiveSource, LiveWindow } from 'mangrove-kv/live';
import type { Replication, ReplicationProgress } from '@mangrove-kv/replication';
import { useState, useSyncExternalStore } from 'react';
import { copyOf, initialOf, isSame, keeping, queryOf, showing, windowOf } from 'mangrove-kv/internal';
import type { Asked, InitialEntries, KeepPrevious, LiveIndexed, NamedIndexRange } from 'mangrove-kv/internal';
import { preload } from 'mangrove-kv/live';

export type { InitialEntries, KeepPrevious, LiveIndexed, NamedIndexRange } from 'mangrove-kv/internal';

/** How a query is drawn. */
export interface QueryOptions<K, V> extends InitialEntries<K, V> {
  /**
   * Whether the component waits, within the nearest `Suspense`, until the entries are read; errors go to the nearest error
   * boundary, and an attempt more than 200 ms after the error reads again. The status is `ready` then. Without a source it
   * does not wait. Default: false.
   */
  suspense?: boolean | undefined;
}

/** What a window shows, and `move` of `LiveWindow`, which is the same function until source or range are others. */
export type LiveWindowState<K, V> = readonly [result: LiveResult<K, V>, move: LiveWindow<K, V>['move']];

interface Held<Q> {
  readonly asked: Asked;
  readonly query: Q;
}

function holding<K, V, Q extends LiveQuery<K, V>>(
  make: (asked: Asked) => Q,
  given: Asked,
  before: Held<Q> | undefined,
  options: QueryOptions<K, V>,
): Held<Q> {
  const known = options.suspense === true ? waitedFor(given) : undefined;
  if (known !== undefined) return known as unknown as Held<Q>;
  const asked = { source: given.source, range: copyOf(given.range) };
  const query = keeping<K, V, Q>(make, asked, before && { asked: before.asked, result: before.query.getSnapshot() });
  return { asked, query: before === undefined ? showing<K, V, Q>(query, initialOf(options, asked.range)) : query };
}

function useHeld<K, V, Q extends LiveQuery<K, V>>(
  make: (asked: Asked) => Q,
  asked: Asked,
  options: QueryOptions<K, V> = {},
): Held<Q> {
  const [held, hold] = useState(() => holding<K, V, Q>(make, asked, undefined, options));
  if (isSame(held.asked, asked)) return held;
  // React draws the component again at once, with this state.
  const next = holding<K, V, Q>(make, asked, held, options);
  hold(next);
  return next;
}

/** A query that components wait for. */
interface Waited extends Held<LiveQuery<unknown, unknown>> {
  /** Resolves when there is a first result, a failure included. */
  readonly reading: Promise<void>;
  /** It has failed and will be forgotten. */
  isOver?: boolean;
}

/** By their source. React forgets all else of a component that has not been drawn yet, and draws it anew. */
const waited = new WeakMap<object, Set<Waited>>();

/** For how long a query that has been read is kept for them: shorter than `preload` keeps it up to date. */
const KEPT_MS = 9000;

/**
 * For how long a query that has failed is kept after React saw its error. In a page React draws once more before it believes
 * an error, and lets timers run before that if the drawing takes long: forgotten at once, the query would be read without end.
 * A server draws once, and the next request reads again.
 */
const FAILED_KEPT_MS = typeof window === 'undefined' ? 0 : 200;

function waitedFor(asked: Asked): Waited | undefined {
  for (const each of waited.get(asked.source as object) ?? []) if (isSame(each.asked, asked)) return each;
  return undefined;
}

/** Reads a query that has failed again. */
function nextOf<K, V>(query: LiveQuery<K, V>): Promise<unknown> {
  return new Promise((resolve) => {
    const failed = query.getSnapshot();
    const stop = query.subscribe(() => {
      if (query.getSnapshot() === failed) return;
      resolve(preload(query));
      stop();
    });
  });
}

/** Waits for the first result: throws a promise, as React wants it, or what reading has failed with. */
function suspend<K, V>({ asked, query }: Held<LiveQuery<K, V>>): void {
  const { source } = asked;
  const { status, error } = query.getSnapshot();
  if (status === 'ready' || typeof source !== 'object' || source === null) return;
  const all = waited.get(source) ?? new Set();
  waited.set(source, all);
  let own = [...all].find((each) => each.query === query);
  const forgetAfter = (milliseconds: number): void => {
    const timer = setTimeout(() => all.delete(own!), milliseconds);
    (timer as { unref?: () => void }).unref?.();
  };
  // A query that was made for the source fails at once if that is invalid; one that was given reads again.
  if (status === 'failed' && (own !== undefined || source !== query)) {
    // A later attempt reads again, however many there are.
    if (own !== undefined && own.isOver !== true) {
      own.isOver = true;
      forgetAfter(FAILED_KEPT_MS);
    }
    throw error;
  }
  if (own === undefined) {
    const reading = (status === 'failed' ? nextOf(query) : preload(query)).then(
      () => forgetAfter(KEPT_MS),
      () => forgetAfter(KEPT_MS),
    );
    own = { asked, query, reading };
    all.add(own);
  }
  throw own.reading;
}

/**
 * The entries of a live query that was made elsewhere, as with `preload` in a router.
 */
export function useLiveQuery<K, V>(query: LiveQuery<K, V>, options?: QueryOptions<K, V>): LiveResult<K, V>;
/**
 * The entries of a range of one of the collection's indexes, in the order of the index; otherwise
 * as for a collection.
 */
export function useLiveQuery<K, V>(
  source: LiveIndexed<K, V> | null | undefined,
  range: NamedIndexRange & KeepPrevious,
  options?: QueryOptions<K, V>,
): LiveResult<K, V>;
/**
 * The entries of a range of index keys. `Collection.index` returns a new object each time: keep it
 * beside the collection, or name the index in the range instead.
 */
export function useLiveQuery<K, V>(
  source: LiveIndex<K, V> | null | undefined,
  range?: Omit<IndexRange, 'signal'> & KeepPrevious,
  options?: QueryOptions<K, V>,
): LiveResult<K, V>;
/**
 * The entries of a range, drawn again when they change. Reading, errors and cost are those of
 * `liveQuery`; nothing is read on a server, unless it was preloaded, nor after the component is unmounted. What is
 * mirrored, preloaded or shown by another component has the status `ready` when it is first drawn.
 *
 * Ranges are compared by what they say, so they may be written where the component is drawn. The
 * source is compared as an object: make it outside of the component, or once with `useMemo` or
 * `useState`; React refuses a component that makes it each time. Another range or source begins anew, with the
 * status `loading` and no entries, unless the range has `keepPrevious` or the component waits.
 *
 * Without a source, as while a database is being opened, the status is `loading`. Never throws, but for `suspense`: the
 * status is `failed` after an error, an invalid argument included.
 */
export function useLiveQuery<K, V>(
  source: LiveSource<K, V> | null | undefined,
  range?: Range<K> & KeepPrevious,
  options?: QueryOptions<K, V>,
): LiveResult<K, V>;
export function useLiveQuery<K, V>(
  source: unknown,
  ...args: [range?: unknown, options?: QueryOptions<K, V>]
): LiveResult<K, V> {
  const isMade = isQuery<K, V>(source);
  const [range = {}, options = {}] = isMade ? [{}, args[0] as QueryOptions<K, V> | undefined] : args;
  const make = isMade ? (asked: Asked): LiveQuery<K, V> => asked.source as LiveQuery<K, V> : queryOf<K, V>;
  const held = useHeld<K, V, LiveQuery<K, V>>(make, { source, range }, options);
  if (options.suspense === true) suspend(held);
  // A page draws first what the server has sent, even if newer entries are there.
  const [first] = useState(() => initialOf(options, range));
  const { query } = held;
  return useSyncExternalStore(query.subscribe, query.getSnapshot, () => first ?? query.getSnapshot());
}

function isQuery<K, V>(source: unknown): source is LiveQuery<K, V> {
  return typeof (source as Partial<LiveQuery<K, V>> | null | undefined)?.getSnapshot === 'function';
}

/** As for a collection, over positions in one of its indexes. */
export function useLiveWindow<K, V>(
  source: LiveIndexed<K, V> | null | undefined,
  range: NamedIndexRange & KeepPrevious,
): LiveWindowState<K, V>;
/** As for a collection, over positions in an index. */
export function useLiveWindow<K, V>(
  source: LiveIndex<K, V> | null | undefined,
  range?: Omit<IndexRange, 'signal'> & KeepPrevious,
): LiveWindowState<K, V>;
/**
 * As `useLiveQuery`, for lists that scroll: `const [{ entries, range }, move] = useLiveWindow(db, { limit: 90 })`.
 * Call `move` in handlers of events or in effects. `offset` and `limit` are where the window begins.
 */
export function useLiveWindow<K, V>(
  source: LiveSource<K, V> | null | undefined,
  range?: Range<K> & KeepPrevious,
): LiveWindowState<K, V>;
export function useLiveWindow<K, V>(source: unknown, range: unknown = {}): LiveWindowState<K, V> {
  const { query } = useHeld<K, V, LiveWindow<K, V>>(windowOf, { source, range });
  return [useSyncExternalStore(query.subscribe, query.getSnapshot, query.getSnapshot), query.move];
}

const CONNECTING: ReplicationProgress = { status: 'connecting', pending: 0, position: 0, lastError: undefined };
const nothing = (): void => undefined;
const never = (): (() => void) => nothing;

/**
 * How far replication is, in any tab of the database; the component is drawn again when that changes.
 * Without a replication, as while a database is being opened, and on a server the status is "connecting".
 * Costs nothing to those who do not use it: it loads nothing of `@mangrove-kv/replication`.
 */
export function useReplication(replication: Replication | null | undefined): ReplicationProgress {
  return useSyncExternalStore(
    replication?.subscribe ?? never,
    () => replication?.state ?? CONNECTING,
    () => CONNECTING,
  );
}
