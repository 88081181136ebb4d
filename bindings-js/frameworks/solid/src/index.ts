/**
 * Live queries as primitives of Solid.
 *
 * @module @mangrove-kv/solid
 */
import type { IndexRange, LiveIndex, Range } from 'mangrove-kv';
import type { LiveQuery, LiveResult, LiveSource, LiveWindow } from 'mangrove-kv/live';
import { createEffect, createMemo, createSignal, onCleanup, untrack } from 'solid-js';
import type { Accessor } from 'solid-js';
import { copyOf, initialOf, isSame, keeping, queryOf, showing, windowOf } from 'mangrove-kv/internal';
import type { Asked, InitialEntries, KeepPrevious, LiveIndexed, NamedIndexRange } from 'mangrove-kv/internal';

export type { InitialEntries, KeepPrevious, LiveIndexed, NamedIndexRange } from 'mangrove-kv/internal';

/** A value, or a function that returns it and may read signals, props and stores. */
export type MaybeAccessor<T> = T | Accessor<T>;

/** A live query as accessors. An entry that has not changed is the same object, so `<For>` keeps its row. */
export interface LiveAccessors<K, V> {
  /** The whole result, for code that distinguishes its types by `status`. */
  readonly result: Accessor<LiveResult<K, V>>;
  /** The entries: empty while loading, and after a failure the last ones that were read. */
  readonly entries: Accessor<readonly (readonly [K, V])[]>;
  /** `loading`, `ready` or `failed`. */
  readonly status: Accessor<LiveResult<K, V>['status']>;
  /** Whether the entries were read before something that may have changed them. */
  readonly isStale: Accessor<boolean>;
  /** Why the last read failed. Unless the status is `failed`, there is going to be another. */
  readonly error: Accessor<unknown>;
}

/** A window as accessors. */
export interface LiveWindowAccessors<K, V> extends LiveAccessors<K, V> {
  /** As `move` of `LiveWindow`. */
  readonly move: LiveWindow<K, V>['move'];
}

/**
 * The entries of a range of one of the collection's indexes, in the order of the index; otherwise
 * as for a collection.
 */
export function createLiveQuery<K, V>(
  source: MaybeAccessor<LiveIndexed<K, V> | null | undefined>,
  range: MaybeAccessor<NamedIndexRange & KeepPrevious>,
  options?: InitialEntries<K, V>,
): LiveAccessors<K, V>;
/** The entries of a range of index keys; otherwise as for a collection. */
export function createLiveQuery<K, V>(
  source: MaybeAccessor<LiveIndex<K, V> | null | undefined>,
  range?: MaybeAccessor<Omit<IndexRange, 'signal'> & KeepPrevious>,
  options?: InitialEntries<K, V>,
): LiveAccessors<K, V>;
/**
 * The entries of a range, kept up to date until the owner is disposed of. Reading, errors and cost are those of
 * `liveQuery`. Reading begins in an effect, so nothing is read while a server renders, unless it was preloaded. What is
 * mirrored, preloaded or shown elsewhere has the status `ready` in the first rendering.
 *
 * Source and range may be accessors. When they change, the query begins anew, with the status `loading` and no entries,
 * unless the range has `keepPrevious`; a range that says the same changes nothing.
 *
 * Without a source, as while a database is being opened, the status is `loading`. Never throws: the
 * status is `failed` after an error, an invalid argument included.
 */
export function createLiveQuery<K, V>(
  source: MaybeAccessor<LiveSource<K, V> | null | undefined>,
  range?: MaybeAccessor<Range<K> & KeepPrevious>,
  options?: InitialEntries<K, V>,
): LiveAccessors<K, V>;
export function createLiveQuery<K, V>(
  source: unknown,
  range: unknown = {},
  options: InitialEntries<K, V> = {},
): LiveAccessors<K, V> {
  return follow<K, V, LiveQuery<K, V>>(queryOf, source, range, options).live;
}

/** As for a collection, over positions in one of its indexes. */
export function createLiveWindow<K, V>(
  source: MaybeAccessor<LiveIndexed<K, V> | null | undefined>,
  range: MaybeAccessor<NamedIndexRange & KeepPrevious>,
): LiveWindowAccessors<K, V>;
/** As for a collection, over positions in an index. */
export function createLiveWindow<K, V>(
  source: MaybeAccessor<LiveIndex<K, V> | null | undefined>,
  range?: MaybeAccessor<Omit<IndexRange, 'signal'> & KeepPrevious>,
): LiveWindowAccessors<K, V>;
/** As `createLiveQuery`, for lists that scroll. `offset` and `limit` are where the window begins. */
export function createLiveWindow<K, V>(
  source: MaybeAccessor<LiveSource<K, V> | null | undefined>,
  range?: MaybeAccessor<Range<K> & KeepPrevious>,
): LiveWindowAccessors<K, V>;
export function createLiveWindow<K, V>(source: unknown, range: unknown = {}): LiveWindowAccessors<K, V> {
  const { live, query } = follow<K, V, LiveWindow<K, V>>(windowOf, source, range, {});
  return { ...live, move: (offset, limit) => untrack(query).move(offset, limit) };
}

interface Held<Q> {
  readonly asked: Asked;
  readonly query: Q;
}

function follow<K, V, Q extends LiveQuery<K, V>>(
  make: (asked: Asked) => Q,
  source: unknown,
  range: unknown,
  options: InitialEntries<K, V>,
): { live: LiveAccessors<K, V>; query: Accessor<Q> } {
  const ask = (): Asked => ({ source: valueOf(source), range: copyOf(valueOf(range)) });
  const asked = createMemo(ask, undefined, { equals: isSame });
  const initial = untrack(() => initialOf(options, asked().range));
  const held = createMemo<Held<Q>>((before?: Held<Q>) => {
    const now = asked();
    const query = keeping<K, V, Q>(make, now, before && { asked: before.asked, result: before.query.getSnapshot() });
    return { asked: now, query: before === undefined ? showing<K, V, Q>(query, initial) : query };
  });
  // A page takes over what the server has sent, even if newer entries are there.
  const [isFirst, setFirst] = createSignal(true);
  const [told, tell] = createSignal(undefined, { equals: false });
  const result = createMemo(() => {
    told();
    const { query } = held();
    return isFirst() && initial !== undefined ? initial : query.getSnapshot();
  });
  createEffect(() => {
    onCleanup(held().query.subscribe(() => tell()));
    setFirst(false);
    tell();
  });
  const live: LiveAccessors<K, V> = {
    result,
    entries: createMemo(() => result().entries),
    status: createMemo(() => result().status),
    isStale: createMemo(() => result().isStale),
    error: createMemo(() => result().error),
  };
  return { live, query: () => held().query };
}

function valueOf(given: unknown): unknown {
  return typeof given === 'function' ? (given as Accessor<unknown>)() : given;
}
