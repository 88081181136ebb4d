// From RxDB's query plan to a range of an index, and what reading that range leaves to be done.
import { KvError, MAX_KEY } from 'mangrove-kv';
import type { Bound, Bounds, Key } from 'mangrove-kv';
import { INDEX_MAX, INDEX_MIN, getInQueryRangeOpts, getQueryPlan } from 'rxdb';
import type { FilledMangoQuery, PreparedQuery, RxDocumentData, RxJsonSchema, RxQueryPlan } from 'rxdb';
import { AFTER_STRINGS, indexName, toElement } from './layout.ts';
import type { IndexField, Layout } from './layout.ts';

/**
 * In which order the range has to be read to have the documents as they are sorted:
 *
 * - `forward`, `reverse`: in this one.
 * - `groups`: in reverse, which leaves the documents that are equal but for their primary key in the
 *   wrong order among themselves.
 * - `none`: none would do.
 */
export type Order = 'forward' | 'reverse' | 'groups' | 'none';

/** What to read. */
export interface Scan {
  /** Name of the index. */
  readonly index: string;
  readonly range: Bounds<Key>;
  /** Whether all documents of the range match the selector. */
  readonly isExact: boolean;
  readonly order: Order;
}

type Operators = Readonly<Record<string, unknown>>;
type Element = Key | typeof MAX_KEY;

const LOWER = ['$eq', '$gt', '$gte'] as const;
const UPPER = ['$eq', '$lt', '$lte'] as const;

/**
 * The least and the greatest element of the type of a bound: a comparison with a number matches numbers only, and so
 * with the other types. The schema does not tell: a field may have several types.
 */
function limitsOf(bound: unknown, type: IndexField['type']): readonly [Key, Key] | undefined {
  switch (typeof bound) {
    case 'number':
      return [-Infinity, Infinity];
    case 'string':
      return ['', AFTER_STRINGS];
    case 'boolean':
      return [toElement(false, type), toElement(true, type)];
    default:
      return undefined;
  }
}

function isOf(type: IndexField['type'], value: unknown): boolean {
  return typeof value === type && !Number.isNaN(value);
}

function isScalar(value: unknown): boolean {
  return isOf('string', value) || isOf('number', value) || isOf('boolean', value);
}

class Selector {
  readonly #operators: Readonly<Record<string, unknown>>;
  readonly #fields: ReadonlyMap<string, IndexField>;

  constructor(selector: object, fields: readonly IndexField[]) {
    this.#operators = selector as Readonly<Record<string, unknown>>;
    this.#fields = new Map(fields.map((field) => [field.path, field]));
  }

  of(path: string): Operators {
    const operators = Object.hasOwn(this.#operators, path) ? this.#operators[path] : undefined;
    return typeof operators === 'object' && operators !== null ? (operators as Operators) : {};
  }

  /** Whether a field is bounded at one end, so that the plan's key there is the selector's. */
  bounds(path: string, names: readonly string[]): boolean {
    const operators = this.of(path);
    // RxDB bounds a field by some lists only.
    return names.some((name) => operators[name] !== undefined) || getInQueryRangeOpts(operators['$in']) !== undefined;
  }

  /**
   * Whether all fields have operators, with values of their types. Others match documents in ways
   * that no range does: `{}` stands for itself.
   */
  isTyped(): boolean {
    return Object.keys(this.#operators).every((path) => {
      const field = this.#fields.get(path);
      const values = Object.values(this.of(path));
      return field !== undefined && values.length > 0 && values.every((value) => isOf(field.type, value));
    });
  }

  /** Whether an operator is used on any field. */
  uses(name: string): boolean {
    return Object.keys(this.#operators).some((path) => this.of(path)[name] !== undefined);
  }

  /** Whether all matching documents have the same value in this field. */
  isFixed({ path, type }: IndexField): boolean {
    return isOf(type, this.of(path)['$eq']);
  }
}

/** Removes what bounds nothing: an array sorts before all that it is the beginning of. */
function trimmed(elements: Element[]): Element[] {
  while (elements.length > 0 && elements.at(-1) === null) elements.pop();
  return elements;
}

function lowerBound(
  fields: readonly IndexField[],
  { startKeys, endKeys, inclusiveStart }: RxQueryPlan,
  selector: Selector,
): Bounds<Key> {
  const elements: Element[] = [];
  for (const [at, { path, type }] of fields.entries()) {
    const key = startKeys[at] as unknown;
    if (selector.bounds(path, LOWER)) {
      if (!isScalar(key)) return { gte: trimmed(elements) as Bound<Key> };
      elements.push(toElement(key, type));
    } else if (key === INDEX_MAX) {
      // The fields before are excluded with all that follows them.
      return { gt: [...elements, MAX_KEY] as Bound<Key> };
    } else {
      elements.push(selector.bounds(path, UPPER) ? (limitsOf(endKeys[at], type)?.[0] ?? null) : null);
    }
  }
  return inclusiveStart ? { gte: trimmed(elements) as Bound<Key> } : { gt: elements as Bound<Key> };
}

function upperBound(
  fields: readonly IndexField[],
  { startKeys, endKeys, inclusiveEnd }: RxQueryPlan,
  selector: Selector,
): Bounds<Key> {
  const elements: Element[] = [];
  for (const [at, { path, type }] of fields.entries()) {
    const key = endKeys[at] as unknown;
    if (selector.bounds(path, UPPER)) {
      if (!isScalar(key)) return { lte: [...elements, MAX_KEY] as Bound<Key> };
      elements.push(toElement(key, type));
    } else if (key === INDEX_MIN) {
      return { lt: elements as Bound<Key> };
    } else {
      const limits = selector.bounds(path, LOWER) ? limitsOf(startKeys[at], type) : undefined;
      if (limits === undefined) return { lte: [...elements, MAX_KEY] as Bound<Key> };
      elements.push(limits[1]);
    }
  }
  return inclusiveEnd ? { lte: elements as Bound<Key> } : { lt: elements as Bound<Key> };
}

function orderOf<D>(
  fields: readonly IndexField[],
  { sort }: FilledMangoQuery<D>,
  selector: Selector,
  primary: string,
): Order {
  const left = fields.filter((field) => !selector.isFixed(field)).map(({ path }) => path);
  const fixed = new Set(fields.filter((field) => selector.isFixed(field)).map(({ path }) => path));
  const sorted = sort.flatMap((part) => Object.entries(part)).filter(([path]) => !fixed.has(path));
  if (sorted.length !== left.length || sorted.some(([path], at) => path !== left[at])) return 'none';
  const isDescending = sorted.map(([, direction]) => direction === 'desc');
  if (!isDescending.includes(true)) return 'forward';
  if (!isDescending.includes(false)) return 'reverse';
  const isPrimaryLast = sorted.at(-1)?.[0] === primary;
  return isPrimaryLast && isDescending.indexOf(false) === sorted.length - 1 ? 'groups' : 'none';
}

/**
 * Whether the range is exactly what the selector asks for. RxDB includes an exclusive bound that
 * lies outside of what the schema allows, where documents that nobody validated may be.
 */
function isExact({ selectorSatisfiedByIndex, inclusiveStart, inclusiveEnd }: RxQueryPlan, selector: Selector): boolean {
  if (!selectorSatisfiedByIndex || !selector.isTyped()) return false;
  return !(inclusiveStart && selector.uses('$gt')) && !(inclusiveEnd && selector.uses('$lt'));
}

function toScan<D>(layout: Layout<D>, query: FilledMangoQuery<D>, plan: RxQueryPlan): Scan {
  const index = indexName(plan.index);
  const fields = layout.fields.get(index);
  if (fields === undefined) {
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      `the query needs the index ${JSON.stringify(plan.index)}, which the schema of the collection does not have; add it to "indexes"`,
    );
  }
  const selector = new Selector(query.selector, fields);
  return {
    index,
    range: { ...lowerBound(fields, plan, selector), ...upperBound(fields, plan, selector) },
    isExact: isExact(plan, selector),
    order: plan.sortSatisfiedByIndex ? 'forward' : orderOf(fields, query, selector, layout.primary),
  };
}

/**
 * Returns what to read for a query. RxDB plans as if no index could be read in reverse, so a query
 * in descending order is planned again as if it were ascending.
 */
export function planScan<D>(
  layout: Layout<D>,
  schema: RxJsonSchema<RxDocumentData<D>>,
  { query, queryPlan }: PreparedQuery<D>,
): Scan {
  const scan = toScan(layout, query, queryPlan);
  if (scan.order !== 'none' || !query.sort.some((part) => Object.values(part)[0] === 'desc')) return scan;
  const ascending = query.sort.map((part) => ({ [Object.keys(part)[0]!]: 'asc' })) as FilledMangoQuery<D>['sort'];
  const plan = getQueryPlan(schema, { ...query, sort: ascending });
  const other = toScan(layout, query, { ...plan, sortSatisfiedByIndex: false });
  return other.order === 'none' ? scan : other;
}
