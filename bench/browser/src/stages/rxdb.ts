// RxDB's own performance harness, on one of its storages.
import { Unsupported } from '../peers/peer.ts';
import type { Durability } from '../peers/peer.ts';
import type { Stage } from './stage.ts';

const DURABILITIES: readonly Durability[] = ['relaxed', 'strict'];

/** What the harness calls its figures, and what they are, all in milliseconds. */
export const HARNESS = {
  'time-to-first-insert': 'RxDB, time to the first insert',
  'insert-documents-500': 'RxDB, bulk insert of 500 documents',
  'find-by-ids-3000': 'RxDB, 3,000 documents by their ids',
  'serial-inserts-50': 'RxDB, 50 inserts one by one',
  'serial-find-by-id-50': 'RxDB, 50 documents one by one',
  'find-by-query': 'RxDB, query of all documents, sorted',
  'find-by-query-parallel-4': 'RxDB, 4 queries at once',
  '4x-count': 'RxDB, 4 counts',
} as const;

/** The harness makes a database of its own in each call, runs through all rows `passes` times, and removes it. */
export const rxdb: Stage = async ({ peer, sizes, meter }) => {
  if (peer.rxStorage === undefined) throw new Unsupported('it is no storage of RxDB');
  const { runPerformanceTests } = await import('rxdb/plugins/test-utils');
  for (const durability of DURABILITIES) {
    const found: object = await runPerformanceTests(peer.rxStorage(durability), durability, {
      runs: sizes.passes,
      log: false,
    });
    for (const [key, name] of Object.entries(HARNESS)) {
      const value = (found as Readonly<Record<string, unknown>>)[key];
      if (typeof value !== 'number') throw new Error(`the harness has no figure ${key}`);
      meter.figures.push({ name: `${name}, ${durability}`, unit: 'ms', value });
    }
  }
};
