// Index keys of values, in the order in which TanStack DB compares values, and cuts between them.
import { MAX_KEY, compareKeys } from 'mangrove-kv';
import type { Bound, Key } from 'mangrove-kv';
import type { Bounds } from 'mangrove-kv';

/** Code units of a string that an index key has. Those after them are compared when entries are read. */
const TEXT = 128;
/** Bits of a bigint that an index key has room for. */
const BIGINT_BITS = 512;

/** Objects, arrays, bytes and the like: TanStack DB gives them no order that lasts. */
const OTHER: Key = [0];
/** NaN and invalid dates, which TanStack DB sorts after everything else. */
const UNORDERABLE: Key = [1];

const isDate = (value: object): value is Date => Object.prototype.toString.call(value) === '[object Date]';

/** The index key of a value. Values that compare as equal have the same one; long strings share theirs. */
export function toKey(value: unknown): Key {
  switch (typeof value) {
    case 'undefined':
      return null;
    case 'boolean':
      return value;
    case 'number':
      return Number.isNaN(value) ? UNORDERABLE : value;
    case 'bigint':
      return BigInt.asIntN(BIGINT_BITS, value) === value ? value : OTHER;
    case 'string':
      return value.length > TEXT ? value.slice(0, TEXT) : value;
    case 'object':
      if (value === null) return null;
      if (!isDate(value)) return OTHER;
      return Number.isNaN(value.getTime()) ? UNORDERABLE : new Date(value.getTime());
    default:
      return OTHER;
  }
}

/** The value at a path of a row, from its own properties only, as they are what is stored. */
export function valueAt(row: unknown, path: readonly string[]): unknown {
  let value = row;
  for (const property of path) {
    if (value === null || value === undefined) return value;
    if (!Object.hasOwn(value as object, property)) return undefined;
    value = (value as Record<string, unknown>)[property];
  }
  return value;
}

/** A place between index keys: before a key or after it. */
export interface Cut {
  readonly key: Key;
  readonly isAfter: boolean;
}

/** Keys between two cuts; without the second one, all after the first. */
export type Interval = readonly [Cut, Cut | undefined];

export const before = (key: Key): Cut => ({ key, isAfter: false });
export const after = (key: Key): Cut => ({ key, isAfter: true });

/** All values, null and undefined included. */
export const ALL: Interval = [before(null), undefined];
/** Null and undefined, which are one key. */
export const NULLS: Interval = [before(null), after(null)];
/** All values but those. */
export const VALUES: Interval = [after(null), undefined];

const isCutBefore = (one: Cut, other: Cut): boolean => {
  const order = compareKeys(one.key, other.key);
  return order < 0 || (order === 0 && !one.isAfter && other.isAfter);
};

const later = (one: Cut, other: Cut): Cut => (isCutBefore(one, other) ? other : one);

function earlierEnd(one: Cut | undefined, other: Cut | undefined): Cut | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return isCutBefore(one, other) ? one : other;
}

const isEmpty = ([from, to]: Interval): boolean => to !== undefined && !isCutBefore(from, to);

/** The keys that are in one of the intervals and in one of the others. Both are in order. */
export function intersection(some: readonly Interval[], others: readonly Interval[]): Interval[] {
  return some
    .flatMap(([from, to]) => others.map(([start, end]): Interval => [later(from, start), earlierEnd(to, end)]))
    .filter((interval) => !isEmpty(interval));
}

/** The same keys as intervals in order that do not overlap. */
export function union(intervals: readonly Interval[]): Interval[] {
  const sorted = intervals.filter((interval) => !isEmpty(interval));
  sorted.sort(([one], [other]) => (isCutBefore(one, other) ? -1 : 1));
  const merged: Interval[] = [];
  for (const [from, to] of sorted) {
    const last = merged.at(-1);
    if (last === undefined || (last[1] !== undefined && isCutBefore(last[1], from))) merged.push([from, to]);
    else if (last[1] !== undefined && (to === undefined || isCutBefore(last[1], to)))
      merged[merged.length - 1] = [last[0], to];
  }
  return merged;
}

/** The one key of an interval, if it has no more. */
export function pointOf([from, to]: Interval): Key | undefined {
  if (to === undefined || from.isAfter || !to.isAfter || compareKeys(from.key, to.key) !== 0) return undefined;
  return from.key;
}

const point = (key: Key): Interval => [before(key), after(key)];

type Type = 'boolean' | 'number' | 'bigint' | 'date' | 'string';

const OLDEST = -8.64e15;

/** Where the keys of each type begin, in their order. */
const STARTS: readonly (readonly [Type | 'other', Cut])[] = [
  ['boolean', before(false)],
  ['number', before(-Infinity)],
  ['bigint', after(Infinity)],
  ['date', before(new Date(OLDEST))],
  ['string', before('')],
  ['other', before(OTHER)],
];

/** The type of values that a key belongs to, null and those without an order apart. */
export function typeOf(key: Key): Type | 'other' | 'none' {
  if (key === null || (Array.isArray(key) && key[0] === 1)) return 'none';
  if (key instanceof Date) return 'date';
  const type = typeof key;
  return type === 'object' ? 'other' : (type as Type);
}

/** Those that are neither NaN nor an invalid date. */
export const ORDERED: Interval = [after(null), before(UNORDERABLE)];

export type Comparison = 'gt' | 'gte' | 'lt' | 'lte';

/**
 * Intervals with all values that compare like this with an operand, and maybe others. Values of
 * another type are all in them, as JavaScript converts them.
 */
export function compared(operator: Comparison, operand: unknown): Interval[] | undefined {
  const key = toKey(operand);
  const at = STARTS.findIndex(([type]) => type === typeOf(key));
  if (at < 0 || at === STARTS.length - 1) return undefined;
  const start = STARTS[at]![1];
  const end = STARTS[at + 1]![1];
  const isCut = typeof operand === 'string' && operand.length >= TEXT;
  switch (operator) {
    case 'gt':
      return union([
        [after(null), start],
        [isCut ? before(key) : after(key), undefined],
      ]);
    case 'gte':
      return union([
        [after(null), start],
        [before(key), undefined],
      ]);
    case 'lt':
      return union([
        [after(null), isCut ? after(key) : before(key)],
        [end, undefined],
      ]);
    case 'lte':
      return union([
        [after(null), after(key)],
        [end, undefined],
      ]);
  }
}

/** Intervals with all values that are equal to an operand. Null and undefined are equal to none. */
export function equal(operand: unknown): Interval[] {
  const key = toKey(operand);
  if (key === null) return [];
  // A date is equal to the number of its milliseconds.
  if (typeof key === 'number' && Number.isInteger(key) && Math.abs(key) <= -OLDEST)
    return union([point(key), point(new Date(key))]);
  if (key instanceof Date) return union([point(key.getTime()), point(key)]);
  return [point(key)];
}

/** Strings that begin like this, and maybe others. */
export function startingWith(prefix: string): Interval[] {
  const text = prefix.slice(0, TEXT).replace(/\uFFFF+$/, '');
  if (text === '') return [[before(''), before(OTHER)]];
  const next = text.slice(0, -1) + String.fromCharCode(text.charCodeAt(text.length - 1) + 1);
  return [[before(text), before(next)]];
}

/** The range of an index whose first columns have these keys, and the next one is in an interval. */
export function toRange(columns: readonly Key[], [from, to]: Interval): Bounds<Key> {
  const bound = (...last: (Key | typeof MAX_KEY)[]): Bound<Key> => [...columns, ...last] as unknown as Bound<Key>;
  return {
    ...(from.isAfter ? { gt: bound(from.key, MAX_KEY) } : { gte: bound(from.key) }),
    ...(to === undefined
      ? { lte: bound(MAX_KEY) }
      : to.isAfter
        ? { lte: bound(to.key, MAX_KEY) }
        : { lt: bound(to.key) }),
  };
}
