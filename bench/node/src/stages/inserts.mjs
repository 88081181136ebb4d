import { rmSync } from 'node:fs';
import { diskBytes, rate, watchMemory } from '../measure.mjs';
import { batches, makeValues, randomKeys } from '../records.mjs';

const BATCH = 1000;

async function insert({ open, directory, records, values, ...options }, durable) {
  const entries = batches(randomKeys(records, 1), makeValues(values), BATCH);
  rmSync(directory, { recursive: true, force: true });
  const memory = watchMemory();
  const db = await open(directory, { ...options, values, durable });
  const perSecond = await rate(records, async () => {
    for (const batch of entries) await db.write(batch);
  });
  const peak = memory();
  await db.close();
  return { perSecond, peak, bytes: diskBytes(directory) };
}

export async function durableInserts(options) {
  const { perSecond } = await insert(options, true);
  return [['inserts, durable commits of 1,000', '/s', perSecond]];
}

export async function relaxedInserts(options) {
  const { perSecond, peak, bytes } = await insert(options, false);
  return [
    ['inserts, relaxed commits of 1,000', '/s', perSecond],
    ['memory taken by the inserts', 'MiB', peak],
    ['size on the disk', 'MiB', bytes / 2 ** 20],
  ];
}
