// Runs queries on one state of the rows: reads what was planned, up to what the query wants.
import { compareKeys } from 'mangrove-kv';
import type { Index, Key, Reader } from 'mangrove-kv';
import { comparatorOf, predicateOf, valuesAt } from './expressions.ts';
import type { Row } from './expressions.ts';
import type { Columns } from './indexes.ts';
import { isUnavailable, plan } from './plan.ts';
import type { Query, Scan } from './plan.ts';

/** Entries that are read at once. */
const BATCH = 512;
/** Entries of the first part of a range that may not be needed to its end, and of the largest. */
const FIRST_PART = 32;
const LARGEST_PART = 2048;

/** A row that was read. */
export interface Read {
  readonly key: Key;
  readonly value: Row;
  /** Number of the commit that wrote it. */
  readonly version: number;
}

type RowIndex = Index<Key, Row>;

/** One state of rows. */
export interface Source {
  readonly rows: Reader<Key, Row>;
  readonly indexes: ReadonlyMap<string, Columns>;
  /** Path of the property that is the key of a row, if it is known. */
  readonly keyPath?: readonly string[] | undefined;
}

/** What a query keeps of the rows that are read. */
class Found {
  readonly #fits: ((row: Row) => boolean) | undefined;
  readonly #compare: (one: Read, other: Read) => number;
  readonly isSorted: boolean;
  /** Number of rows that matter, from the first on. */
  readonly end: number;
  readonly rows: Read[] = [];

  constructor({ where, orderBy, limit, offset }: Query) {
    this.#fits = predicateOf(where);
    const compare = comparatorOf(orderBy);
    this.isSorted = compare !== undefined;
    this.#compare = (one, other) => compare?.(one.value, other.value) || compareKeys(one.key, other.key);
    this.end = (offset ?? 0) + (limit ?? Infinity);
  }

  add(row: Read): void {
    if (this.#fits === undefined || this.#fits(row.value)) this.rows.push(row);
  }

  /** Sorts the rows from a position on, and drops those after the end. */
  settle(from = 0): void {
    const rest = this.rows.splice(from).sort(this.#compare);
    for (const row of rest.slice(0, Math.max(0, this.end - from))) this.rows.push(row);
  }

  /** As `settle`, now and then. */
  trim(): void {
    if (this.rows.length > 2 * this.end + 1000) this.settle();
  }
}

async function readAll(rows: Reader<Key, Row>, found: Found): Promise<void> {
  const entries = rows.entries({ meta: true });
  try {
    for (let batch = await entries.nextMany(BATCH); batch.length > 0; batch = await entries.nextMany(BATCH)) {
      for (const entry of batch) found.add(entry);
      // Rows come by key, so without an order the first ones are wanted.
      if (!found.isSorted && found.rows.length >= found.end) break;
      found.trim();
    }
  } finally {
    await entries.return();
  }
}

async function readKeys(rows: Reader<Key, Row>, values: readonly unknown[], found: Found): Promise<void> {
  // A date is equal to the number of its milliseconds.
  const operands = values.map((value) => (value instanceof Date ? value.getTime() : value));
  const keys = new Set(
    operands.filter(
      (value) => typeof value === 'string' || (typeof value === 'number' && !Number.isNaN(value)),
    ) as Key[],
  );
  for (const entry of await Promise.all([...keys].map((key) => rows.getEntry(key))))
    if (entry !== undefined) found.add(entry);
}

async function readUnordered(index: RowIndex, { parts }: Scan, found: Found): Promise<void> {
  for (const { range } of parts) {
    const entries = index.entries({ ...range, meta: true });
    try {
      for (let batch = await entries.nextMany(BATCH); batch.length > 0; batch = await entries.nextMany(BATCH)) {
        for (const entry of batch) found.add(entry);
        found.trim();
      }
    } finally {
      await entries.return();
    }
  }
}

/** Reads in the order of the query, up to its end: rows with equal index keys are sorted among themselves. */
async function readOrdered(index: RowIndex, { parts, order }: Scan, found: Found): Promise<void> {
  const { column, isAnyText } = order!;
  const isSameGroup = (one: Key, other: Key): boolean =>
    (isAnyText && typeof one === 'string' && typeof other === 'string') || compareKeys(one, other) === 0;
  let group: { readonly key: Key; readonly from: number } | undefined;
  let limit = Math.min(Math.max(found.end + 1, FIRST_PART), LARGEST_PART);
  for (const { range, reverse } of parts) {
    for (let offset = 0; ; ) {
      const entries = await index.entries({ ...range, reverse, offset, limit, meta: true }).toArray();
      for (const { indexKey, ...entry } of entries) {
        const key = (indexKey as Key[])[column]!;
        if (group === undefined || !isSameGroup(group.key, key)) {
          if (group !== undefined) found.settle(group.from);
          if (found.rows.length >= found.end) return;
          group = { key, from: found.rows.length };
        }
        found.add(entry);
      }
      if (entries.length < limit) break;
      offset += entries.length;
      limit = Math.min(4 * limit, LARGEST_PART);
    }
  }
  if (group !== undefined) found.settle(group.from);
}

/**
 * Returns the rows that fit, in the order of the query and then by key, from `offset` on and at most
 * `limit`.
 */
export async function readRows({ rows, indexes, keyPath }: Source, query: Query): Promise<Read[]> {
  const { where, limit, offset = 0 } = query;
  if (limit !== undefined && limit <= 0) return [];
  const keys = where === undefined || keyPath === undefined ? undefined : valuesAt(where, keyPath);
  const run = async (read: (found: Found) => Promise<void>, isSettled: boolean): Promise<Read[]> => {
    const found = new Found(query);
    await read(found);
    if (!isSettled) found.settle();
    return found.rows.slice(offset, found.end);
  };
  if (keys !== undefined) return run((found) => readKeys(rows, keys, found), false);
  const indexed = (name: string): RowIndex => rows.index(name);
  const scan = indexes.size === 0 ? undefined : await plan(indexes, indexed, query, await rows.size);
  if (scan !== undefined) {
    try {
      const isOrdered = scan.order !== undefined;
      return await run(
        (found) => (isOrdered ? readOrdered : readUnordered)(indexed(scan.index), scan, found),
        isOrdered,
      );
    } catch (error) {
      if (!isUnavailable(error)) throw error;
    }
  }
  return run((found) => readAll(rows, found), false);
}
