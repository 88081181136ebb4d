// What Mangrove aims at in each row, and whether it is there.
import { RXDB_STAGE } from '../peers/index.ts';
import { HARNESS as ROWS } from '../stages/rxdb.ts';
import { best, isTaskRow, LONG_TASK, short, times } from './numbers.ts';
import { isOurs, titleOf } from './report.ts';
import type { Report, Row } from './report.ts';

export interface Verdict {
  readonly row: Row;
  readonly goal: string;
  readonly met: boolean;
  readonly found: string;
}

const TAKE_OVER = 500;
/** Milliseconds that a call may wait while another tab builds an index. */
const BUILD_WAIT = 20;
const isBuildWait = (name: string): boolean => name.endsWith('during a build');
/** A median that is no further behind, from rounds that overlap, is not behind. */
const NOISE = 0.9;

/** How many times IndexedDB's. */
function factor(name: string): number | undefined {
  if (/^durable puts, [\d,]+ in one/.test(name) || name.startsWith('inserts in order') || name.startsWith('scan '))
    return 10;
  if (name === 'durable puts, one by one' || name.startsWith('random gets')) return 3;
  return undefined;
}

/** How many times IndexedDB's and SQLite's, by the beginning of a row with indexes. */
const INDEXED: readonly { readonly start: string; readonly indexeddb: number; readonly 'sqlite-wasm'?: number }[] = [
  { start: 'indexed rows, transactions', indexeddb: 3, 'sqlite-wasm': 1 },
  { start: 'durable updates of an indexed property', indexeddb: 1.5, 'sqlite-wasm': 1 },
  { start: 'queries of', indexeddb: 3, 'sqlite-wasm': 1.2 },
  { start: 'counts of a range', indexeddb: 50 },
  { start: 'building an index', indexeddb: 5, 'sqlite-wasm': 1 },
];

/**
 * How many times RxDB's storage on Dexie, by the beginning of a row of RxDB's harness: what RxDB publishes of its paid
 * storage on OPFS, in a worker.
 */
const HARNESS: readonly (readonly [start: string, factor: number])[] = [
  [ROWS['time-to-first-insert'], 0.21],
  [ROWS['insert-documents-500'], 7.2],
  [ROWS['find-by-ids-3000'], 3.1],
  [ROWS['serial-inserts-50'], 5.4],
  [ROWS['serial-find-by-id-50'], 1.7],
  [ROWS['find-by-query'], 5.3],
  [ROWS['find-by-query-parallel-4'], 1.7],
  [ROWS['4x-count'], 8.1],
];

function overlap(some: readonly number[], others: readonly number[]): boolean {
  return Math.max(...some) >= Math.min(...others) && Math.min(...some) <= Math.max(...others);
}

export function verdicts(report: Report): Verdict[] {
  const { peers } = report;
  const idb = peers.indexOf('indexeddb');
  return report.rows.flatMap((row) => {
    const { name, unit, values, rounds } = row;
    const ours = row.stage === RXDB_STAGE ? peers.indexOf('rxdb-mangrove') : peers.findIndex(isOurs);
    const own = values[ours];
    const list: Verdict[] = [];
    const add = (goal: string, met: boolean, found: string): void => {
      list.push({ row, goal, met, found });
    };
    if (isTaskRow(name)) {
      if (own !== undefined)
        add(`at most ${LONG_TASK} ms`, own <= LONG_TASK, own === 0 ? `< ${LONG_TASK} ms` : `${short(own)} ms`);
      return list;
    }
    const published = HARNESS.find(([start]) => name.startsWith(start));
    if (published !== undefined) {
      const other = values[peers.indexOf('rxdb')];
      if (own === undefined || other === undefined) return list;
      const ratio = times(unit, own, other);
      add(`${published[1]} times RxDB (Dexie)`, ratio >= published[1], `${short(ratio)} times`);
      return list;
    }
    if (isBuildWait(name)) {
      add(
        `at most ${BUILD_WAIT} ms`,
        own !== undefined && own <= BUILD_WAIT,
        own === undefined ? 'no value' : `${short(own)} ms`,
      );
      return list;
    }
    const indexed = INDEXED.find(({ start }) => name.startsWith(start));
    if (indexed !== undefined) {
      for (const peer of ['indexeddb', 'sqlite-wasm'] as const) {
        const wanted = indexed[peer];
        const other = values[peers.indexOf(peer)];
        if (wanted === undefined || other === undefined) continue;
        const ratio = own === undefined ? 0 : times(unit, own, other);
        add(
          `${wanted} times ${titleOf(peer)}`,
          ratio >= wanted,
          own === undefined ? 'no value' : `${short(ratio)} times`,
        );
      }
      return list;
    }
    if (name.startsWith('longest wait'))
      add(
        `under ${TAKE_OVER} ms`,
        own !== undefined && own < TAKE_OVER,
        own === undefined ? 'no value' : `${short(own)} ms`,
      );
    const bestOther = best(
      unit,
      values.filter((_, at) => at !== ours),
    );
    if (bestOther !== undefined) {
      const at = values.findIndex((value, index) => index !== ours && value === bestOther);
      const ratio = own === undefined ? 0 : times(unit, own, bestOther);
      const near = ratio >= NOISE && overlap(rounds[ours] ?? [], rounds[at] ?? []);
      const found = own === undefined ? 'no value' : `${short(ratio)} times ${titleOf(peers[at] as string)}`;
      add(
        'first, or not behind by more than noise',
        ratio >= 1 || near,
        found + (ratio < 1 && near ? ', within noise' : ''),
      );
    }
    const wanted = factor(name);
    const other = values[idb];
    if (wanted !== undefined && other !== undefined) {
      const ratio = own === undefined ? 0 : times(unit, own, other);
      add(`${wanted} times IndexedDB`, ratio >= wanted, own === undefined ? 'no value' : `${short(ratio)} times`);
    }
    return list;
  });
}
