/**
 * Live queries as signals of Angular 19 and later, with and without zones.
 *
 * @module @mangrove-kv/angular
 */
import type { IndexRange, LiveIndex, Range } from 'mangrove-kv';
import type { LiveQuery, LiveResult, LiveSource, LiveWindow } from 'mangrove-kv/live';
import {
  Injector,
  PLATFORM_ID,
  afterNextRender,
  assertInInjectionContext,
  computed,
  effect,
  inject,
  linkedSignal,
  signal,
  untracked,
} from '@angular/core';
import type { Signal } from '@angular/core';
import { copyOf, initialOf, isSame, keeping, queryOf, showing, windowOf } from 'mangrove-kv/internal';
import type { Asked, InitialEntries, KeepPrevious, LiveIndexed, NamedIndexRange } from 'mangrove-kv/internal';

export type { InitialEntries, KeepPrevious, LiveIndexed, NamedIndexRange } from 'mangrove-kv/internal';

/** A value, or a signal or function that returns it. It is called when the query is first read: inputs are set by then. */
export type MaybeSignal<T> = T | (() => T);

/** Where a query lives. */
export interface InjectOptions {
  /** What it ends with. Default: what the function is called in, such as a component. */
  readonly injector?: Injector | undefined;
}

/** Options of `injectLiveQuery`. */
export interface QueryOptions<K, V> extends InjectOptions, InitialEntries<K, V> {}

/** A live query as signals. */
export interface LiveSignals<K, V> {
  /** The whole result, for code that distinguishes its types by `status`. */
  readonly result: Signal<LiveResult<K, V>>;
  /** The entries: empty while loading, and after a failure the last ones that were read. */
  readonly entries: Signal<readonly (readonly [K, V])[]>;
  /** `loading`, `ready` or `failed`. */
  readonly status: Signal<LiveResult<K, V>['status']>;
  /** Whether the entries were read before something that may have changed them. */
  readonly isStale: Signal<boolean>;
  /** Why the last read failed. Unless the status is `failed`, there is going to be another. */
  readonly error: Signal<unknown>;
}

/** A window as signals. */
export interface LiveWindowSignals<K, V> extends LiveSignals<K, V> {
  /** As `move` of `LiveWindow`. */
  readonly move: LiveWindow<K, V>['move'];
}

/**
 * The entries of a range of one of the collection's indexes, in the order of the index; otherwise
 * as for a collection.
 */
export function injectLiveQuery<K, V>(
  source: MaybeSignal<LiveIndexed<K, V> | null | undefined>,
  range: MaybeSignal<NamedIndexRange & KeepPrevious>,
  options?: QueryOptions<K, V>,
): LiveSignals<K, V>;
/** The entries of a range of index keys; otherwise as for a collection. */
export function injectLiveQuery<K, V>(
  source: MaybeSignal<LiveIndex<K, V> | null | undefined>,
  range?: MaybeSignal<Omit<IndexRange, 'signal'> & KeepPrevious>,
  options?: QueryOptions<K, V>,
): LiveSignals<K, V>;
/**
 * The entries of a range, kept up to date until the component, or the injector, is destroyed. Reading, errors and cost are
 * those of `liveQuery`. Reading begins in an effect; on a server nothing is read, unless it was preloaded. What is
 * mirrored, preloaded or shown elsewhere has the status `ready` in the first rendering.
 *
 * Source and range may be signals, inputs or functions that read them. When they change, the query begins anew, with the
 * status `loading` and no entries, unless the range has `keepPrevious`; a range that says the same changes nothing.
 *
 * Without a source, as while a database is being opened, the status is `loading`. What is wrong with source or range is a
 * result with the status `failed`.
 *
 * @throws NG0203 of Angular if it is called outside of an injection context, without `injector`.
 */
export function injectLiveQuery<K, V>(
  source: MaybeSignal<LiveSource<K, V> | null | undefined>,
  range?: MaybeSignal<Range<K> & KeepPrevious>,
  options?: QueryOptions<K, V>,
): LiveSignals<K, V>;
export function injectLiveQuery<K, V>(
  source: unknown,
  range: unknown = {},
  options: QueryOptions<K, V> = {},
): LiveSignals<K, V> {
  if (options.injector === undefined) assertInInjectionContext(injectLiveQuery);
  return follow<K, V, LiveQuery<K, V>>(queryOf, source, range, options).live;
}

/** As for a collection, over positions in one of its indexes. */
export function injectLiveWindow<K, V>(
  source: MaybeSignal<LiveIndexed<K, V> | null | undefined>,
  range: MaybeSignal<NamedIndexRange & KeepPrevious>,
  options?: InjectOptions,
): LiveWindowSignals<K, V>;
/** As for a collection, over positions in an index. */
export function injectLiveWindow<K, V>(
  source: MaybeSignal<LiveIndex<K, V> | null | undefined>,
  range?: MaybeSignal<Omit<IndexRange, 'signal'> & KeepPrevious>,
  options?: InjectOptions,
): LiveWindowSignals<K, V>;
/** As `injectLiveQuery`, for lists that scroll. `offset` and `limit` are where the window begins. */
export function injectLiveWindow<K, V>(
  source: MaybeSignal<LiveSource<K, V> | null | undefined>,
  range?: MaybeSignal<Range<K> & KeepPrevious>,
  options?: InjectOptions,
): LiveWindowSignals<K, V>;
export function injectLiveWindow<K, V>(
  source: unknown,
  range: unknown = {},
  options: InjectOptions = {},
): LiveWindowSignals<K, V> {
  if (options.injector === undefined) assertInInjectionContext(injectLiveWindow);
  const { live, query } = follow<K, V, LiveWindow<K, V>>(windowOf, source, range, options);
  return { ...live, move: (offset, limit) => untracked(query).move(offset, limit) };
}

interface Held<Q> {
  readonly asked: Asked;
  readonly query: Q;
}

function follow<K, V, Q extends LiveQuery<K, V>>(
  make: (asked: Asked) => Q,
  source: unknown,
  range: unknown,
  options: QueryOptions<K, V>,
): { live: LiveSignals<K, V>; query: Signal<Q> } {
  const injector = options.injector ?? inject(Injector);
  const asked = computed<Asked>(() => ({ source: valueOf(source), range: copyOf(valueOf(range)) }), { equal: isSame });
  const initial = computed(() => initialOf(options, asked().range));
  const held = linkedSignal<Asked, Held<Q>>({
    source: asked,
    computation: (now, before) => {
      const earlier = before && { asked: before.source, result: before.value.query.getSnapshot() };
      const query = keeping<K, V, Q>(make, now, earlier);
      return { asked: now, query: before === undefined ? showing<K, V, Q>(query, untracked(initial)) : query };
    },
  });
  // A page takes over what the server has sent, even if newer entries are there.
  const isFirst = signal(options.initial !== undefined);
  const told = signal(0);
  const tell = (): void => told.update((times) => times + 1);
  const result = computed<LiveResult<K, V>>(() => {
    told();
    const { query } = held();
    return (isFirst() ? initial() : undefined) ?? query.getSnapshot();
  });
  if (injector.get(PLATFORM_ID) !== 'server') {
    effect(
      (onCleanup) => {
        onCleanup(held().query.subscribe(tell));
        untracked(tell);
      },
      { injector },
    );
    if (options.initial !== undefined) afterNextRender(() => isFirst.set(false), { injector });
  }
  const live: LiveSignals<K, V> = {
    result,
    entries: computed(() => result().entries),
    status: computed(() => result().status),
    isStale: computed(() => result().isStale),
    error: computed(() => result().error),
  };
  return { live, query: computed(() => held().query) };
}

function valueOf(given: unknown): unknown {
  return typeof given === 'function' ? (given as () => unknown)() : given;
}
