// What the live queries of all frameworks share: sources that are not there yet, and ranges that
// are made anew for each drawing.
import { KvError } from 'mangrove-kv';
import type { IndexRange, IndexReadOptions, LiveIndex } from 'mangrove-kv';
import { liveQuery, liveWindow } from 'mangrove-kv/live';
import type { LiveQuery, LiveRange, LiveResult, LiveSource, LiveWindow } from 'mangrove-kv/live';
import { isEqual } from './equal.ts';

/** A collection that was opened with indexes. */
export interface LiveIndexed<K, V> {
  /** Returns an index, as `Collection.index` does. */
  index(name: string, options?: IndexReadOptions): LiveIndex<K, V>;
}

/** A range of one of a collection's indexes. */
export interface NamedIndexRange extends Omit<IndexRange, 'signal'>, IndexReadOptions {
  /** Name of the index. */
  index: string;
}

/** What happens when a query gets another range. */
export interface KeepPrevious {
  /**
   * Until the entries of another range of the same source are read, those of the one before stay, with
   * the status `ready` and marked with `isStale`; `range` of the result says which they are. Default:
   * false, the status `loading` and no entries.
   */
  keepPrevious?: boolean | undefined;
}

/** What a query shows before its entries are read for the first time. */
export interface InitialEntries<K = unknown, V = unknown> {
  /**
   * The entries as `preload` has read them on a server, for a page that renders what the server has sent. They show
   * until the first read, with the status `ready` and marked with `isStale`. Default: none, the status `loading`.
   */
  initial?: readonly (readonly [K, V])[] | undefined;
}

/** What `liveQuery` gets. */
export interface Asked {
  readonly source: unknown;
  readonly range: unknown;
}

const ignore = (): void => undefined;

/** The result as long as there is no source, and before the first read. */
export const LOADING: LiveResult<never, never> = {
  status: 'loading',
  entries: [],
  range: {},
  isStale: false,
  error: undefined,
};

function constant<K, V>(result: LiveResult<K, V>): LiveWindow<K, V> {
  return { subscribe: () => ignore, getSnapshot: () => result, move: ignore };
}

function namedIndex(source: unknown, name: string, options: IndexReadOptions): unknown {
  const { index } = source as { index?: unknown };
  if (typeof index === 'function') return (source as LiveIndexed<unknown, unknown>).index(name, options);
  throw new KvError('KV_INVALID_ARGUMENT', 'a range with the name of an index needs a collection or a database');
}

function made<K, V, Q>(
  make: (source: LiveSource<K, V>, range: object) => Q,
  { source, range }: Asked,
): Q | LiveWindow<K, V> {
  if (source === undefined || source === null) return constant<K, V>(LOADING);
  try {
    if (typeof range !== 'object' || range === null || !('index' in range))
      return make(source as LiveSource<K, V>, range as object);
    const { index, whenIncomplete, ...bounds } = range as NamedIndexRange;
    return make(namedIndex(source, index, { whenIncomplete }) as LiveSource<K, V>, bounds);
  } catch (error) {
    return constant<K, V>({ status: 'failed', entries: [], range: {}, isStale: true, error });
  }
}

/** As `liveQuery`; a missing source loads for ever, and what `liveQuery` refuses is a result. */
export function queryOf<K, V>(asked: Asked): LiveQuery<K, V> {
  return made<K, V, LiveQuery<K, V>>(liveQuery, asked);
}

/** As `queryOf`, for `liveWindow`. */
export function windowOf<K, V>(asked: Asked): LiveWindow<K, V> {
  return made<K, V, LiveWindow<K, V>>(liveWindow, asked);
}

/** What was asked before, and its result. */
export interface Earlier<K, V> {
  readonly asked: Asked;
  readonly result: LiveResult<K, V>;
}

/** The first result of a query that is not read yet. */
export function initialOf<K, V>({ initial }: InitialEntries<K, V>, range: unknown): LiveResult<K, V> | undefined {
  return initial && { status: 'ready', entries: initial, range: range as LiveRange, isStale: true, error: undefined };
}

/** Makes a query that shows `kept` as long as it loads. */
export function showing<K, V, Q extends LiveQuery<K, V>>(query: Q, kept: LiveResult<K, V> | undefined): Q {
  if (kept === undefined) return query;
  const getSnapshot = (): LiveResult<K, V> => {
    const result = query.getSnapshot();
    return result.status === 'loading' ? kept : result;
  };
  return { ...query, getSnapshot };
}

/** Makes a query that shows what an earlier one has shown until it has read something, if the range says so. */
export function keeping<K, V, Q extends LiveQuery<K, V>>(
  make: (asked: Asked) => Q,
  { source, range }: Asked,
  earlier: Earlier<K, V> | undefined,
): Q {
  if (typeof range !== 'object' || range === null || !('keepPrevious' in range)) return make({ source, range });
  const { keepPrevious, ...rest } = range as KeepPrevious;
  const query = make({ source, range: rest });
  if (
    keepPrevious !== true ||
    earlier === undefined ||
    earlier.asked.source !== source ||
    earlier.result.status !== 'ready'
  )
    return query;
  return showing(query, { ...earlier.result, isStale: true });
}

/** Copies objects and arrays: their owner may change them, and frameworks track what is read of them. */
export function copyOf<T>(value: T): T {
  if (Array.isArray(value)) return value.map(copyOf) as T;
  if (typeof value !== 'object' || value === null) return value;
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, copyOf(part) as unknown])) as T;
}

/** Whether both ask for the same entries of the same source. */
export function isSame(a: Asked, b: Asked): boolean {
  return a.source === b.source && isEqual(a.range, b.range);
}
