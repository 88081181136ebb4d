// Which part of which index to read for a query: the one with the fewest rows.
import type { Bounds, Index, Key, KvError } from 'mangrove-kv';
import type { IR } from '@tanstack/db';
import { intervalsAt, pathOf } from './expressions.ts';
import type { Row } from './expressions.ts';
import type { Columns } from './indexes.ts';
import { ALL, NULLS, ORDERED, VALUES, intersection, pointOf, toRange, typeOf } from './keys.ts';
import type { Interval } from './keys.ts';

/** Combinations of values of the first columns that are read one by one. */
const MAX_COMBINATIONS = 1000;

/** A range of an index to be read in one direction. */
export interface Part {
  readonly range: Bounds<Key>;
  readonly reverse: boolean;
}

/** What to read. */
export interface Scan {
  /** Name of the index. */
  readonly index: string;
  readonly parts: readonly Part[];
  /** Number of rows in them. */
  readonly count: number;
  /**
   * The column that the query orders by first, if the parts are in its order; and whether strings
   * in it are not, because they are ordered by a locale or a function.
   */
  readonly order: { readonly column: number; readonly isAnyText: boolean } | undefined;
}

/** What is asked for. */
export interface Query {
  readonly where?: IR.BasicExpression<boolean> | undefined;
  readonly orderBy?: IR.OrderBy | undefined;
  readonly limit?: number | undefined;
  readonly offset?: number | undefined;
}

type RowIndex = Index<Key, Row>;

/** Codes of failures of an index that is not there, or not yet. */
const UNAVAILABLE = new Set(['KV_INDEX_INCOMPLETE', 'KV_INDEX_MISMATCH', 'KV_NOT_FOUND']);

export const isUnavailable = (error: unknown): boolean => UNAVAILABLE.has((error as Partial<KvError>).code ?? '');

/** The parts of an index that a predicate leaves, and how many of its first columns have one value. */
interface Restriction {
  readonly combinations: readonly (readonly Key[])[];
  /** Intervals of the column after those of the combinations. */
  readonly intervals: readonly Interval[];
  readonly isRestricted: boolean;
}

function restrictionOf(columns: Columns, where: Query['where']): Restriction {
  let combinations: readonly (readonly Key[])[] = [[]];
  let isRestricted = false;
  for (const [at, path] of columns.entries()) {
    const intervals = where === undefined ? undefined : intervalsAt(where, path);
    if (intervals === undefined) return { combinations, intervals: [ALL], isRestricted };
    isRestricted = true;
    const points = intervals.map(pointOf);
    const isLast = at === columns.length - 1;
    if (isLast || points.includes(undefined) || points.length * combinations.length > MAX_COMBINATIONS)
      return { combinations, intervals, isRestricted };
    combinations = combinations.flatMap((keys) => points.map((point) => [...keys, point!]));
  }
  return { combinations, intervals: [ALL], isRestricted };
}

async function countOf(index: RowIndex, ranges: readonly Bounds<Key>[]): Promise<number> {
  const counts = await Promise.all(ranges.map((range) => index.count(range)));
  return counts.reduce((sum, count) => sum + count, 0);
}

/** Whether the values in these intervals have one type, so that their keys have the order of TanStack DB. */
async function haveOneType(index: RowIndex, keys: readonly Key[], intervals: readonly Interval[]): Promise<boolean> {
  const ranges = intersection(intervals, [ORDERED]).map((interval) => toRange(keys, interval));
  const ends = await Promise.all(ranges.map((range) => Promise.all([index.first(range), index.last(range)])));
  const types = ends
    .flat()
    .flatMap((entry) => (entry === undefined ? [] : [typeOf((entry.indexKey as Key[])[keys.length]!)]));
  return new Set(types).size <= 1;
}

/** The parts of an index in the order of a query; `undefined` if it does not have that order. */
async function ordered(
  index: RowIndex,
  columns: Columns,
  { combinations, intervals }: Restriction,
  { orderBy }: Query,
): Promise<Pick<Scan, 'parts' | 'order'> | undefined> {
  const clause = orderBy?.[0];
  const path = clause === undefined ? undefined : pathOf(clause.expression);
  if (clause === undefined || path === undefined) return undefined;
  // Of several values of the first columns only those with rows matter.
  let [keys] = combinations;
  if (combinations.length > 1) {
    const counts = await Promise.all(combinations.map((each) => index.count(toRange(each, ALL))));
    const present = combinations.filter((_, at) => counts[at]! > 0);
    if (present.length > 1) return undefined;
    keys = present[0] ?? keys;
  }
  if (keys === undefined) return undefined;
  const column = keys.length;
  if (column >= columns.length || JSON.stringify(columns[column]) !== JSON.stringify(path)) return undefined;
  const { direction, nulls, stringSort } = clause.compareOptions;
  const values = intersection(intervals, [VALUES]);
  if (!(await haveOneType(index, keys, values))) return undefined;
  const reverse = direction === 'desc';
  const toPart = (interval: Interval): Part => ({ range: toRange(keys, interval), reverse });
  const valueParts = values.map(toPart);
  if (reverse) valueParts.reverse();
  const nullParts = intersection(intervals, [NULLS]).map(toPart);
  return {
    parts: nulls === 'first' ? [...nullParts, ...valueParts] : [...valueParts, ...nullParts],
    order: { column, isAnyText: stringSort === 'locale' || stringSort === 'custom' },
  };
}

async function scansOf(name: string, columns: Columns, index: RowIndex, query: Query): Promise<Scan[]> {
  const restriction = restrictionOf(columns, query.where);
  const { combinations, intervals, isRestricted } = restriction;
  const ranges = combinations.flatMap((keys) => intervals.map((interval) => toRange(keys, interval)));
  try {
    const inOrder = query.limit === undefined ? undefined : await ordered(index, columns, restriction, query);
    if (!isRestricted && inOrder === undefined) return [];
    const count = await countOf(index, ranges);
    const unordered: Scan = {
      index: name,
      parts: ranges.map((range) => ({ range, reverse: false })),
      count,
      order: undefined,
    };
    return [
      ...(isRestricted ? [unordered] : []),
      ...(inOrder === undefined ? [] : [{ index: name, count, ...inOrder }]),
    ];
  } catch (error) {
    // The other indexes, or all rows, give the same result.
    if (isUnavailable(error)) return [];
    throw error;
  }
}

/**
 * Returns what to read for a query, of the indexes with these columns; `undefined` if all rows. O(log n)
 * for each range of each index that may help.
 */
export async function plan(
  indexes: ReadonlyMap<string, Columns>,
  indexOf: (name: string) => RowIndex,
  query: Query,
  size: number,
): Promise<Scan | undefined> {
  if (query.where === undefined && (query.limit === undefined || query.orderBy === undefined)) return undefined;
  const scans = (
    await Promise.all([...indexes].map(([name, columns]) => scansOf(name, columns, indexOf(name), query)))
  ).flat();
  // An estimate of the rows that fit, to tell how far an ordered scan has to go.
  const fitting = Math.max(1, Math.min(size, ...scans.map(({ count }) => count)));
  const end = (query.offset ?? 0) + (query.limit ?? 0);
  const cost = ({ count, order }: Scan): number =>
    order === undefined ? count : Math.min(count, Math.ceil((end * count) / fitting));
  let best: Scan | undefined;
  for (const scan of scans) {
    if (best === undefined || cost(scan) < cost(best) || (cost(scan) === cost(best) && scan.order !== undefined))
      best = scan;
  }
  return best !== undefined && cost(best) <= size ? best : undefined;
}
