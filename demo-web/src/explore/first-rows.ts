// The rows that a reload draws in its first frame, before the database is open: those that the page showed when it was left.
import type { Entry } from '../cities.ts';

/** Rows of the list by name, all of it or from a place that was scrolled to. */
export interface FirstRows {
  readonly total: number;
  /** Position of the first of them. */
  readonly offset: number;
  readonly entries: readonly Entry[];
}

const keyOf = (database: string): string => `explore ${database}`;

/** Keeps rows for as long as this tab lives. */
export function keepRows(database: string, rows: FirstRows | undefined): void {
  try {
    if (rows === undefined) sessionStorage.removeItem(keyOf(database));
    else sessionStorage.setItem(keyOf(database), JSON.stringify(rows));
  } catch {
    // Without room or permission, the first frame has no rows.
  }
}

export function keptRows(database: string): FirstRows | undefined {
  try {
    return JSON.parse(sessionStorage.getItem(keyOf(database)) ?? 'null') ?? undefined;
  } catch {
    return undefined;
  }
}
