// Reads a subset as TanStack DB asks for it.
import { IR } from '@tanstack/db';
import type { LoadSubsetOptions } from '@tanstack/db';
import { comparatorOf } from './expressions.ts';
import { readRows } from './read.ts';
import type { Read, Source } from './read.ts';

const both = (
  one: IR.BasicExpression<boolean> | undefined,
  other: IR.BasicExpression<boolean>,
): IR.BasicExpression<boolean> => (one === undefined ? other : new IR.Func('and', [one, other]));

/** What says which rows are in a subset. */
export type SubsetRequest = Pick<LoadSubsetOptions, 'where' | 'orderBy' | 'limit' | 'offset' | 'cursor'>;

/** Returns the rows of a subset: with a cursor, those at it and `limit` of those after it. */
export async function readSubset(source: Source, options: SubsetRequest): Promise<Read[]> {
  const { where, orderBy, limit, offset, cursor } = options;
  if (cursor === undefined) return readRows(source, { where, orderBy, limit, offset });
  const [current, next] = await Promise.all([
    readRows(source, { where: both(where, cursor.whereCurrent), orderBy }),
    readRows(source, { where: both(where, cursor.whereFrom), orderBy, limit }),
  ]);
  const rows = [...new Map([...current, ...next].map((row) => [row.key, row])).values()];
  const compare = comparatorOf(orderBy);
  return compare === undefined ? rows : rows.sort((one, other) => compare(one.value, other.value));
}
