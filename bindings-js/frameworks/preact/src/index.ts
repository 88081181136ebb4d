/**
 * Live queries as hooks of Preact that return signals.
 *
 * @module @mangrove-kv/preact
 */
import type { IndexRange, LiveIndex, Range } from 'mangrove-kv';
import type { LiveQuery, LiveResult, LiveSource, LiveWindow } from 'mangrove-kv/live';
import { Signal, computed, effect, signal, untracked } from '@preact/signals';
import type { ReadonlySignal } from '@preact/signals';
import { useLayoutEffect, useState } from 'preact/hooks';
import { copyOf, initialOf, isSame, keeping, queryOf, showing, windowOf } from 'mangrove-kv/internal';
import type { Asked, InitialEntries, KeepPrevious, LiveIndexed, NamedIndexRange } from 'mangrove-kv/internal';

export type { InitialEntries, KeepPrevious, LiveIndexed, NamedIndexRange } from 'mangrove-kv/internal';

/** A value, a signal of it, or a function that returns it and may read signals. */
export type MaybeSignal<T> = T | ReadonlySignal<T> | (() => T);

/** A live query as signals: the same ones each time the component is drawn. */
export interface LiveSignals<K, V> {
  /** The whole result, for code that distinguishes its types by `status`. */
  readonly result: ReadonlySignal<LiveResult<K, V>>;
  /** The entries: empty while loading, and after a failure the last ones that were read. */
  readonly entries: ReadonlySignal<readonly (readonly [K, V])[]>;
  /** `loading`, `ready` or `failed`. */
  readonly status: ReadonlySignal<LiveResult<K, V>['status']>;
  /** Whether the entries were read before something that may have changed them. */
  readonly isStale: ReadonlySignal<boolean>;
  /** Why the last read failed. Unless the status is `failed`, there is going to be another. */
  readonly error: ReadonlySignal<unknown>;
}

/** A window as signals. */
export interface LiveWindowSignals<K, V> extends LiveSignals<K, V> {
  /** As `move` of `LiveWindow`: always the same function. */
  readonly move: LiveWindow<K, V>['move'];
}

/**
 * The entries of a range of one of the collection's indexes, in the order of the index; otherwise
 * as for a collection.
 */
export function useLiveQuery<K, V>(
  source: MaybeSignal<LiveIndexed<K, V> | null | undefined>,
  range: MaybeSignal<NamedIndexRange & KeepPrevious>,
  options?: InitialEntries<K, V>,
): LiveSignals<K, V>;
/** The entries of a range of index keys; otherwise as for a collection. */
export function useLiveQuery<K, V>(
  source: MaybeSignal<LiveIndex<K, V> | null | undefined>,
  range?: MaybeSignal<Omit<IndexRange, 'signal'> & KeepPrevious>,
  options?: InitialEntries<K, V>,
): LiveSignals<K, V>;
/**
 * The entries of a range, kept up to date until the component is unmounted. Reading, errors and cost are those of
 * `liveQuery`. Reading begins when the component is mounted, so nothing is read while a server renders, unless it was
 * preloaded. What is mirrored, preloaded or shown elsewhere has the status `ready` when it is first drawn.
 *
 * Source and range may be signals or functions; ranges are compared by what they say, so they may be written where the
 * component is drawn. When they change, the query begins anew, with the status `loading` and no entries, unless the range
 * has `keepPrevious`.
 *
 * Without a source, as while a database is being opened, the status is `loading`. Never throws: the
 * status is `failed` after an error, an invalid argument included.
 */
export function useLiveQuery<K, V>(
  source: MaybeSignal<LiveSource<K, V> | null | undefined>,
  range?: MaybeSignal<Range<K> & KeepPrevious>,
  options?: InitialEntries<K, V>,
): LiveSignals<K, V>;
export function useLiveQuery<K, V>(
  source: unknown,
  range: unknown = {},
  options: InitialEntries<K, V> = {},
): LiveSignals<K, V> {
  return useFollowed<K, V, LiveQuery<K, V>>(queryOf, source, range, options).live;
}

/** As for a collection, over positions in one of its indexes. */
export function useLiveWindow<K, V>(
  source: MaybeSignal<LiveIndexed<K, V> | null | undefined>,
  range: MaybeSignal<NamedIndexRange & KeepPrevious>,
): LiveWindowSignals<K, V>;
/** As for a collection, over positions in an index. */
export function useLiveWindow<K, V>(
  source: MaybeSignal<LiveIndex<K, V> | null | undefined>,
  range?: MaybeSignal<Omit<IndexRange, 'signal'> & KeepPrevious>,
): LiveWindowSignals<K, V>;
/** As `useLiveQuery`, for lists that scroll. `offset` and `limit` are where the window begins. */
export function useLiveWindow<K, V>(
  source: MaybeSignal<LiveSource<K, V> | null | undefined>,
  range?: MaybeSignal<Range<K> & KeepPrevious>,
): LiveWindowSignals<K, V>;
export function useLiveWindow<K, V>(source: unknown, range: unknown = {}): LiveWindowSignals<K, V> {
  const { live, held } = useFollowed<K, V, LiveWindow<K, V>>(windowOf, source, range, {});
  const [move] = useState<LiveWindow<K, V>['move']>(
    () => (offset: number, limit: number) => held.peek().query.move(offset, limit),
  );
  return { ...live, move };
}

interface Held<Q> {
  readonly asked: Asked;
  readonly query: Q;
}

interface Followed<K, V, Q> {
  readonly held: Signal<Held<Q>>;
  readonly result: Signal<LiveResult<K, V>>;
  readonly live: LiveSignals<K, V>;
}

function useFollowed<K, V, Q extends LiveQuery<K, V>>(
  make: (asked: Asked) => Q,
  source: unknown,
  range: unknown,
  options: InitialEntries<K, V>,
): Followed<K, V, Q> {
  const ask = (): Asked => ({ source: valueOf(source), range: copyOf(valueOf(range)) });
  const [followed] = useState(() => begin<K, V, Q>(make, untracked(ask), options));
  const { held, result } = followed;
  const turn = (asked: Asked): void => {
    const before = held.peek();
    if (isSame(before.asked, asked)) return;
    const query = keeping<K, V, Q>(make, asked, { asked: before.asked, result: before.query.getSnapshot() });
    held.value = { asked, query };
    // Effects wait until the component is drawn, which is to show this.
    result.value = query.getSnapshot();
  };
  turn(untracked(ask));
  useLayoutEffect(() => effect(() => turn(ask())), [source, range]);
  useLayoutEffect(
    () =>
      effect(() => {
        const { query } = held.value;
        const show = (): void => {
          result.value = query.getSnapshot();
        };
        const stop = query.subscribe(show);
        show();
        return stop;
      }),
    [followed],
  );
  return followed;
}

function begin<K, V, Q extends LiveQuery<K, V>>(
  make: (asked: Asked) => Q,
  asked: Asked,
  options: InitialEntries<K, V>,
): Followed<K, V, Q> {
  const initial = initialOf(options, asked.range);
  const query = showing<K, V, Q>(keeping<K, V, Q>(make, asked, undefined), initial);
  // A page takes over what the server has sent, even if newer entries are there.
  const result = signal<LiveResult<K, V>>(initial ?? query.getSnapshot());
  const live: LiveSignals<K, V> = {
    result,
    entries: computed(() => result.value.entries),
    status: computed(() => result.value.status),
    isStale: computed(() => result.value.isStale),
    error: computed(() => result.value.error),
  };
  return { held: signal<Held<Q>>({ asked, query }), result, live };
}

function valueOf(given: unknown): unknown {
  if (given instanceof Signal) return given.value;
  return typeof given === 'function' ? (given as () => unknown)() : given;
}
