/**
 * Live queries as a composable of Vue 3.
 *
 * @module @mangrove-kv/vue
 */
import type { IndexRange, LiveIndex, Range } from 'mangrove-kv';
import type { LiveQuery, LiveResult, LiveSource, LiveWindow } from 'mangrove-kv/live';
import {
  computed,
  getCurrentInstance,
  getCurrentScope,
  onBeforeMount,
  onMounted,
  onScopeDispose,
  shallowRef,
  toRaw,
  toValue,
  watch,
} from 'vue';
import type { ComputedRef, MaybeRefOrGetter, ShallowRef } from 'vue';
import { copyOf, initialOf, isSame, keeping, queryOf, showing, windowOf } from 'mangrove-kv/internal';
import type { Asked, InitialEntries, KeepPrevious, LiveIndexed, NamedIndexRange } from 'mangrove-kv/internal';

export type { InitialEntries, KeepPrevious, LiveIndexed, NamedIndexRange } from 'mangrove-kv/internal';

/** A live query as refs. Their values are not made reactive: a new result is a new object. */
export interface LiveRefs<K, V> {
  /** The whole result, for code that distinguishes its types by `status`. */
  readonly result: Readonly<ShallowRef<LiveResult<K, V>>>;
  /** The entries: empty while loading, and after a failure the last ones that were read. */
  readonly entries: ComputedRef<readonly (readonly [K, V])[]>;
  /** `loading`, `ready` or `failed`. */
  readonly status: ComputedRef<LiveResult<K, V>['status']>;
  /** Whether the entries were read before something that may have changed them. */
  readonly isStale: ComputedRef<boolean>;
  /** Why the last read failed. Unless the status is `failed`, there is going to be another. */
  readonly error: ComputedRef<unknown>;
}

/** A window as refs. */
export interface LiveWindowRefs<K, V> extends LiveRefs<K, V> {
  /** As `move` of `LiveWindow`. */
  readonly move: LiveWindow<K, V>['move'];
}

/**
 * The entries of a range of one of the collection's indexes, in the order of the index; otherwise
 * as for a collection.
 */
export function useLiveQuery<K, V>(
  source: MaybeRefOrGetter<LiveIndexed<K, V> | null | undefined>,
  range: MaybeRefOrGetter<NamedIndexRange & KeepPrevious>,
  options?: InitialEntries<K, V>,
): LiveRefs<K, V>;
/** The entries of a range of index keys; otherwise as for a collection. */
export function useLiveQuery<K, V>(
  source: MaybeRefOrGetter<LiveIndex<K, V> | null | undefined>,
  range?: MaybeRefOrGetter<Omit<IndexRange, 'signal'> & KeepPrevious>,
  options?: InitialEntries<K, V>,
): LiveRefs<K, V>;
/**
 * The entries of a range, kept up to date until the effect scope ends. Reading, errors and cost are
 * those of `liveQuery`. In a component, reading begins before it is mounted, and with `initial` after that, so nothing is
 * read while a server renders; elsewhere it begins with the call. Outside of any scope it never ends. What is mirrored,
 * preloaded or shown elsewhere has the status `ready` in the first rendering.
 *
 * Source and range may be refs, getters or reactive objects. When they change, the query begins
 * anew, with the status `loading` and no entries, unless the range has `keepPrevious`; a range that says
 * the same changes nothing.
 *
 * Without a source, as while a database is being opened, the status is `loading`. Never throws: the
 * status is `failed` after an error, an invalid argument included.
 */
export function useLiveQuery<K, V>(
  source: MaybeRefOrGetter<LiveSource<K, V> | null | undefined>,
  range?: MaybeRefOrGetter<Range<K> & KeepPrevious>,
  options?: InitialEntries<K, V>,
): LiveRefs<K, V>;
export function useLiveQuery<K, V>(
  source: MaybeRefOrGetter<unknown>,
  range: MaybeRefOrGetter<unknown> = {},
  options: InitialEntries<K, V> = {},
): LiveRefs<K, V> {
  return follow<K, V, LiveQuery<K, V>>(queryOf, source, range, options);
}

/** As for a collection, over positions in one of its indexes. */
export function useLiveWindow<K, V>(
  source: MaybeRefOrGetter<LiveIndexed<K, V> | null | undefined>,
  range: MaybeRefOrGetter<NamedIndexRange & KeepPrevious>,
): LiveWindowRefs<K, V>;
/** As for a collection, over positions in an index. */
export function useLiveWindow<K, V>(
  source: MaybeRefOrGetter<LiveIndex<K, V> | null | undefined>,
  range?: MaybeRefOrGetter<Omit<IndexRange, 'signal'> & KeepPrevious>,
): LiveWindowRefs<K, V>;
/** As `useLiveQuery`, for lists that scroll. `offset` and `limit` are where the window begins. */
export function useLiveWindow<K, V>(
  source: MaybeRefOrGetter<LiveSource<K, V> | null | undefined>,
  range?: MaybeRefOrGetter<Range<K> & KeepPrevious>,
): LiveWindowRefs<K, V>;
export function useLiveWindow<K, V>(
  source: MaybeRefOrGetter<unknown>,
  range: MaybeRefOrGetter<unknown> = {},
): LiveWindowRefs<K, V> {
  let current: LiveWindow<K, V> | undefined;
  const refs = follow<K, V, LiveWindow<K, V>>((asked) => (current = windowOf<K, V>(asked)), source, range);
  return { ...refs, move: (offset, limit) => current?.move(offset, limit) };
}

function follow<K, V, Q extends LiveQuery<K, V>>(
  make: (asked: Asked) => Q,
  source: MaybeRefOrGetter<unknown>,
  range: MaybeRefOrGetter<unknown>,
  options: InitialEntries<K, V> = {},
): LiveRefs<K, V> {
  // A collection has private fields, which are out of reach through a reactive proxy.
  const ask = (): Asked => ({ source: toRaw(toValue(source)), range: copyOf(toValue(range)) });
  let asked = ask();
  const initial = initialOf(options, asked.range);
  let query = showing<K, V, Q>(keeping<K, V, Q>(make, asked, undefined), initial);
  // A page takes over what the server has sent, even if newer entries are there.
  const result = shallowRef<LiveResult<K, V>>(initial ?? query.getSnapshot());
  const show = (): void => {
    result.value = query.getSnapshot();
  };
  const scope = getCurrentScope();
  const start = (): void => {
    let end = query.subscribe(show);
    show();
    watch(
      ask,
      (now) => {
        if (isSame(asked, now)) return;
        end();
        query = keeping<K, V, Q>(make, now, { asked, result: result.value });
        asked = now;
        show();
        end = query.subscribe(show);
      },
      { immediate: true },
    );
    if (scope !== undefined) onScopeDispose(() => end());
  };
  const begin = (): void => (scope === undefined ? start() : scope.active ? scope.run(start) : undefined);
  if (getCurrentInstance()?.isMounted !== false) begin();
  else if (initial === undefined) onBeforeMount(begin);
  else onMounted(begin);
  return {
    result,
    entries: computed(() => result.value.entries),
    status: computed(() => result.value.status),
    isStale: computed(() => result.value.isStale),
    error: computed(() => result.value.error),
  };
}
