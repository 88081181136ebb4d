// What one process does with one engine: a function of its options that gives figures, `[name, unit, value]`.
import { durableInserts, relaxedInserts } from './inserts.mjs';
import { indexes } from './indexes.mjs';
import { ints } from './ints.mjs';
import { opening } from './opening.mjs';
import { queue } from './queue.mjs';
import { gets, ranges } from './reads.mjs';
import { singles } from './singles.mjs';

export const STAGES = { durableInserts, relaxedInserts, singles, opening, gets, ranges, ints, indexes, queue };

/** Stages of one workload share a database; those that read it come after the one that fills it. */
export const WORKLOADS = {
  small: {
    records: 100_000,
    stages: ['durableInserts', 'relaxedInserts', 'singles'],
    title: '24-character random keys, 150-byte values',
  },
  large: {
    records: 1_000_000,
    stages: ['durableInserts', 'relaxedInserts', 'opening', 'gets', 'ranges'],
    title: '24-character random keys, 150-byte values',
  },
  ints: { records: 1_000_000, stages: ['ints'], title: 'ascending numbers to numbers' },
  queue: {
    records: 300_000,
    stages: ['queue'],
    title: 'a queue of URLs: the first by its key is taken, one commit each',
  },
  indexes: { records: 100_000, stages: ['indexes'], title: 'rows with three indexes' },
};

/** Makes the workload `indexes` one of so many rows, or several where there are several numbers; returns their names. */
export function setIndexedRows(counts) {
  if (counts.length === 1) {
    WORKLOADS.indexes.records = counts[0];
    return ['indexes'];
  }
  return counts.map((records) => {
    WORKLOADS[`indexes-${records}`] = { ...WORKLOADS.indexes, records };
    return `indexes-${records}`;
  });
}
