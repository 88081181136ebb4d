// Rows with indexes, the same for every store, and what reading them has to find.
import type { IndexedRow } from './peers/indexed.ts';
import { random } from './records.ts';

export const DUE = 100_000;
const AUTHORS = 1000;

const hex = (value: number): string => value.toString(16).padStart(8, '0');

/** Rows of about 150 bytes whose ids are in no order. */
export function indexedRows(count: number): IndexedRow[] {
  const next = random(11);
  return Array.from({ length: count }, () => {
    const id = `${hex(next())}${hex(next())}${hex(next())}`;
    return {
      id,
      author: `author ${next() % AUTHORS}`,
      done: next() % 4 === 0 ? 1 : 0,
      due: next() % DUE,
      score: next(),
      code: id.slice(0, 12),
      body: `${id} ${id}`,
    };
  });
}

/** Rows that are not done, in the order of the compound index. */
export function inOrder(rows: readonly IndexedRow[]): IndexedRow[] {
  return rows.filter(({ done }) => done === 0).sort((a, b) => a.due - b.due || (a.id < b.id ? -1 : 1));
}

/** Position of the first row that is due at `due` or later. */
export function firstAt(ordered: readonly IndexedRow[], due: number): number {
  let [low, high] = [0, ordered.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((ordered[middle] as IndexedRow).due < due) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function isSame(found: IndexedRow | undefined, wanted: IndexedRow | undefined): boolean {
  return found?.id === wanted?.id && found?.due === wanted?.due && found?.body === wanted?.body;
}
