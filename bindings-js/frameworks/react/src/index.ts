/**
 * Live queries, and the state of replication, as hooks of React 18 and later.
 *
 * @module @mangrove-kv/react
 */
import type { IndexRange, LiveIndex, Range } from 'mangrove-kv';
import type { LiveQuery, LiveResult, LiveSource, LiveWindow } from 'mangrove-kv/live';
import type { Replication, ReplicationProgress } from '@mangrove-kv/replication';
import { useState, useSyncExternalStore } from 'react';
import { copyOf, isSame, keeping, queryOf, windowOf } from 'mangrove-kv/internal';
import type { Asked, KeepPrevious, LiveIndexed, NamedIndexRange } from 'mangrove-kv/internal';

export type { KeepPrevious, LiveIndexed, NamedIndexRange } from 'mangrove-kv/internal';

/** What a window shows, and `move` of `LiveWindow`, which is the same function until source or range are others. */
export type LiveWindowState<K, V> = readonly [result: LiveResult<K, V>, move: LiveWindow<K, V>['move']];

interface Held<Q> {
  readonly asked: Asked;
  readonly query: Q;
}

function holding<K, V, Q extends LiveQuery<K, V>>(make: (asked: Asked) => Q, given: Asked, before?: Held<Q>): Held<Q> {
  const asked = { source: given.source, range: copyOf(given.range) };
  return {
    asked,
    query: keeping<K, V, Q>(make, asked, before && { asked: before.asked, result: before.query.getSnapshot() }),
  };
}

function useHeld<K, V, Q extends LiveQuery<K, V>>(make: (asked: Asked) => Q, asked: Asked): Q {
  const [held, hold] = useState(() => holding<K, V, Q>(make, asked));
  if (isSame(held.asked, asked)) return held.query;
  // React draws the component again at once, with this state.
  const next = holding<K, V, Q>(make, asked, held);
  hold(next);
  return next.query;
}

/**
 * The entries of a range of one of the collection's indexes, in the order of the index; otherwise
 * as for a collection.
 */
export function useLiveQuery<K, V>(
  source: LiveIndexed<K, V> | null | undefined,
  range: NamedIndexRange & KeepPrevious,
): LiveResult<K, V>;
/**
 * The entries of a range of index keys. `Collection.index` returns a new object each time: keep it
 * beside the collection, or name the index in the range instead.
 */
export function useLiveQuery<K, V>(
  source: LiveIndex<K, V> | null | undefined,
  range?: Omit<IndexRange, 'signal'> & KeepPrevious,
): LiveResult<K, V>;
/**
 * The entries of a range, drawn again when they change. Reading, errors and cost are those of
 * `liveQuery`; nothing is read on a server, nor after the component is unmounted.
 *
 * Ranges are compared by what they say, so they may be written where the component is drawn. The
 * source is compared as an object: make it outside of the component, or once with `useMemo` or
 * `useState`; React refuses a component that makes it each time. Another range or source begins anew, with the
 * status `loading` and no entries, unless the range has `keepPrevious`.
 *
 * Without a source, as while a database is being opened, the status is `loading`. Never throws: the
 * status is `failed` after an error, an invalid argument included.
 */
export function useLiveQuery<K, V>(
  source: LiveSource<K, V> | null | undefined,
  range?: Range<K> & KeepPrevious,
): LiveResult<K, V>;
export function useLiveQuery<K, V>(source: unknown, range: unknown = {}): LiveResult<K, V> {
  const query = useHeld<K, V, LiveQuery<K, V>>(queryOf, { source, range });
  return useSyncExternalStore(query.subscribe, query.getSnapshot, query.getSnapshot);
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
  const query = useHeld<K, V, LiveWindow<K, V>>(windowOf, { source, range });
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
