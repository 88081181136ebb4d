// Finds local writes by comparing all entries with the base, where the feed does not have them: when a
// collection is replicated for the first time, if the feed was cut off, and where none is kept.
import type { Snapshot, Transaction } from 'mangrove-kv';
import type { Found } from './capture.ts';
import { Model } from './model.ts';
import { Row, UNKNOWN, checkOf, decodeRow, shownOf } from './row.ts';
import type { Shown } from './row.ts';
import type { ReplicaState } from './state.ts';
import type { Bytes, KnownTable, Tables } from './tables.ts';

/** Number of keys that one commit looks at. */
export const SCAN_SLICE = 500;

/**
 * Compares all entries of a snapshot, in slices. `now` is the device's clock, by which the engine removes what has
 * expired. At the end: up to which time it has removed what the log still has, as in `ReplicaState.removedUntil`.
 */
export async function* scan(
  tables: Tables,
  snapshot: Snapshot,
  state: ReplicaState,
  now: number,
): AsyncGenerator<readonly Found[], number> {
  const histories = { current: state.history, settled: state.settled };
  let removedUntil = 0;
  for (const table of tables.byName.values()) {
    const isFirst = !Object.hasOwn(state.collections, table.name);
    const [data, rows] = [snapshot.collection(table.data), snapshot.collection(table.rows)];
    const check = async (key: Bytes): Promise<Found | undefined> => {
      const [entry, stored] = await Promise.all([data.getEntry(key), rows.get(key)]);
      const row = new Row(table, key, histories, stored && decodeRow(stored), new Set());
      const value = entry === undefined ? null : { value: entry.value, expiresAt: entry.expiresAt ?? 0 };
      const isValue = ({ check, expiresAt }: Shown): boolean =>
        checkOf(value) === check && (value?.expiresAt ?? 0) === expiresAt;
      // What the entry has to be, as far as replication knows. While the log is read once more, an own write may have come back.
      const expected = row.pending ?? row.shown ?? shownOf(row.base ?? row.former);
      if (expected.check === UNKNOWN || isValue(expected) || (isFirst && isValue(shownOf(row.base)))) return undefined;
      if (value !== null || expected.expiresAt === 0) return { table, key, what: 'write', value, isFirst };
      // Expired by this device's clock, or by one that was ahead: the log says when it is over.
      if (row.pending === undefined && !row.isStale && expected.expiresAt > now)
        return { table, key, what: 'lost', value, isFirst };
      removedUntil = Math.max(removedUntil, expected.expiresAt);
      return undefined;
    };
    for (const from of [data, rows]) {
      const keys = from.keys();
      for (;;) {
        const slice = await keys.nextMany(SCAN_SLICE);
        if (slice.length === 0) break;
        // What is not there is found among the rows, everything else among the entries.
        const found = (await Promise.all(slice.map(check))).filter(
          (each) => each !== undefined && (each.value === null) === (from === rows),
        );
        if (found.length > 0) yield found as Found[];
      }
    }
  }
  return removedUntil;
}

/** Makes entries of what the log has of a collection that this program knows now. */
export async function materialize(
  tables: Tables,
  table: KnownTable,
  change: (
    work: (tx: Transaction, state: ReplicaState) => Promise<{ readonly state: ReplicaState; readonly result: void }>,
  ) => Promise<void>,
): Promise<void> {
  const keys = table.rows.keys();
  for (;;) {
    // As at the end of a rejoin: unique keys go from one entry to another.
    const slice = await keys.nextMany(table.unique.length > 0 ? 2 ** 32 - 1 : SCAN_SLICE);
    if (slice.length === 0) return;
    await change(async (tx, state) => {
      // While the log is read once more, its end does it.
      if (state.history !== state.settled) return { state, result: undefined };
      const model = new Model(tx, tables, state);
      await model.load(slice.map((key) => ({ table, key })));
      for (const key of slice) {
        const row = model.row(table, key);
        if (row.isStale) row.materialize();
      }
      return { state: await model.save(state), result: undefined };
    });
  }
}
