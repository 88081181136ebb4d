// What expressions of TanStack DB say about the values at a path, and how rows are compared.
import { compileSingleRowExpression, toBooleanPredicate } from '@tanstack/db';
import type { IR } from '@tanstack/db';
import { ALL, NULLS, VALUES, compared, equal, intersection, startingWith, toKey, union } from './keys.ts';
import type { Comparison, Interval } from './keys.ts';

type Expression = IR.BasicExpression;

/** A row of a TanStack DB collection. */
export type Row = Record<string, unknown>;

/** The path of a reference to a property of the row. */
export function pathOf(expression: Expression): readonly string[] | undefined {
  if (expression.type !== 'ref') return undefined;
  const { path, sourceAlias } = expression as { path: string[]; sourceAlias?: string };
  return sourceAlias !== undefined && path[0] === sourceAlias ? path.slice(1) : path;
}

const isSamePath = (one: readonly string[] | undefined, other: readonly string[]): boolean =>
  one !== undefined && one.length === other.length && one.every((property, at) => property === other[at]);

const FLIPPED: Readonly<Record<string, Comparison | undefined>> = { gt: 'lt', gte: 'lte', lt: 'gt', lte: 'gte' };

function comparisonOf(
  name: string,
  [left, right]: readonly Expression[],
  path: readonly string[],
): Interval[] | undefined {
  if (left === undefined || right === undefined) return undefined;
  const isReversed = left.type === 'val';
  const [reference, value] = isReversed ? [right, left] : [left, right];
  if (value.type !== 'val' || !isSamePath(pathOf(reference), path)) return undefined;
  const operand: unknown = value.value;
  if (name === 'eq') return equal(operand);
  return compared((isReversed ? FLIPPED[name] : name) as Comparison, operand);
}

/**
 * Intervals of the index keys that the value at a path can have in rows that fit; `undefined` if
 * they can have any. Rows outside of them do not fit; rows inside may not fit either.
 */
export function intervalsAt(where: Expression, path: readonly string[]): Interval[] | undefined {
  if (where.type === 'val') return where.value === true ? undefined : [];
  if (where.type === 'ref') return isSamePath(pathOf(where), path) ? equal(true) : undefined;
  const { name, args } = where;
  switch (name) {
    case 'eq':
    case 'gt':
    case 'gte':
    case 'lt':
    case 'lte':
      return comparisonOf(name, args, path);
    case 'in': {
      const [value, list] = args;
      if (value === undefined || list?.type !== 'val' || !isSamePath(pathOf(value), path)) return undefined;
      return Array.isArray(list.value) ? union(list.value.flatMap((each) => equal(each))) : [];
    }
    case 'like': {
      const [value, pattern] = args;
      if (value === undefined || pattern?.type !== 'val' || !isSamePath(pathOf(value), path)) return undefined;
      return typeof pattern.value === 'string' ? startingWith(/^[^%_]*/.exec(pattern.value)![0]) : [];
    }
    case 'isNull':
    case 'isUndefined':
      return args[0] !== undefined && isSamePath(pathOf(args[0]), path) ? [NULLS] : undefined;
    case 'and': {
      const known = args.map((each) => intervalsOfOperand(each, path)).filter((each) => each !== undefined);
      return known.length === 0 ? undefined : known.reduce(intersection, [ALL]);
    }
    case 'or': {
      const all = args.map((each) => intervalsAt(each, path));
      return all.every((each) => each !== undefined) ? union(all.flat()) : undefined;
    }
    default:
      return undefined;
  }
}

/** As `intervalsAt` for an operand of `and`, which any value but false, null and undefined satisfies. */
function intervalsOfOperand(operand: Expression, path: readonly string[]): Interval[] | undefined {
  if (operand.type === 'val') return operand.value === false || toKey(operand.value) === null ? [] : undefined;
  if (operand.type === 'ref') return isSamePath(pathOf(operand), path) ? [VALUES] : undefined;
  return intervalsAt(operand, path);
}

/**
 * The values that the property at a path can have in rows that fit, if it is one of a few; `undefined`
 * otherwise.
 */
export function valuesAt(where: Expression, path: readonly string[]): unknown[] | undefined {
  if (where.type !== 'func') return undefined;
  const { name, args } = where;
  switch (name) {
    case 'eq': {
      const [left, right] = args;
      if (left?.type === 'val' && right !== undefined && isSamePath(pathOf(right), path)) return [left.value];
      if (right?.type === 'val' && left !== undefined && isSamePath(pathOf(left), path)) return [right.value];
      return undefined;
    }
    case 'in': {
      const [value, list] = args;
      if (value === undefined || list?.type !== 'val' || !isSamePath(pathOf(value), path)) return undefined;
      return Array.isArray(list.value) ? (list.value as unknown[]) : [];
    }
    case 'and':
      return args.map((each) => valuesAt(each, path)).find((each) => each !== undefined);
    case 'or': {
      const all = args.map((each) => valuesAt(each, path));
      return all.every((each) => each !== undefined) ? all.flat() : undefined;
    }
    default:
      return undefined;
  }
}

/** Whether a row fits a predicate, as TanStack DB evaluates it. */
export function predicateOf(where: Expression | undefined): ((row: Row) => boolean) | undefined {
  if (where === undefined) return undefined;
  const evaluate = compileSingleRowExpression(where) as (row: Row) => boolean | null;
  return (row) => toBooleanPredicate(evaluate(row));
}

const isUnorderable = (value: unknown): boolean => Number.isNaN(value instanceof Date ? value.getTime() : value);

/** Compares two values in ascending order, as TanStack DB does. Objects that are not dates are equal. */
function compareValues(one: unknown, other: unknown, options: IR.OrderByClause['compareOptions']): number {
  if (one === null || one === undefined || other === null || other === undefined) {
    const order = Number(one === null || one === undefined) - Number(other === null || other === undefined);
    return options.nulls === 'first' ? -order : order;
  }
  const unordered = Number(isUnorderable(one)) - Number(isUnorderable(other));
  if (unordered !== 0 || isUnorderable(one)) return unordered;
  if (typeof one === 'string' && typeof other === 'string') {
    if (options.stringSort === 'locale') return one.localeCompare(other, options.locale, options.localeOptions);
    if (options.stringSort === 'custom') return options.compare(one, other);
  }
  if (Array.isArray(one) && Array.isArray(other)) {
    for (let at = 0; at < Math.min(one.length, other.length); at++) {
      const order = compareValues(one[at], other[at], options);
      if (order !== 0) return order;
    }
    return one.length - other.length;
  }
  if (one instanceof Date && other instanceof Date) return one.getTime() - other.getTime();
  const objects = Number(typeof one === 'object') - Number(typeof other === 'object');
  if (objects !== 0 || typeof one === 'object') return objects;
  return (one as number) < (other as number) ? -1 : (one as number) > (other as number) ? 1 : 0;
}

/** Compares rows in an order; rows that it does not tell apart are equal. */
export function comparatorOf(orderBy: IR.OrderBy | undefined): ((one: Row, other: Row) => number) | undefined {
  if (orderBy === undefined || orderBy.length === 0) return undefined;
  const clauses = orderBy.map(({ expression, compareOptions }) => ({
    evaluate: compileSingleRowExpression(expression) as (row: Row) => unknown,
    compareOptions,
  }));
  return (one, other) => {
    for (const { evaluate, compareOptions } of clauses) {
      const [left, right] = [evaluate(one), evaluate(other)];
      const isNull = left === null || left === undefined || right === null || right === undefined;
      const order =
        compareOptions.direction === 'desc' && !isNull
          ? compareValues(right, left, compareOptions)
          : compareValues(left, right, compareOptions);
      if (order !== 0) return order;
    }
    return 0;
  };
}
