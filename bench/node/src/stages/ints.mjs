import { rmSync } from 'node:fs';
import { diskBytes, rate } from '../measure.mjs';
import { batches, sample } from '../records.mjs';

const BATCH = 1000;
const GETS = 200_000;

export async function ints({ open, directory, records, scale, ...options }) {
  rmSync(directory, { recursive: true, force: true });
  const keys = Array.from({ length: records }, (_, number) => number);
  const entries = batches(keys, (number) => number, BATCH);
  const wanted = sample(keys, Math.round(GETS * scale), 9);
  const db = await open(directory, { ...options, ints: true, durable: false });
  const figures = [
    [
      'inserts, relaxed commits of 1,000',
      '/s',
      await rate(records, async () => {
        for (const batch of entries) await db.write(batch);
      }),
    ],
  ];
  figures.push([
    'random gets, awaited',
    '/s',
    await rate(wanted.length, async () => {
      for (const key of wanted) if ((await db.get(key)) !== key) throw new Error(`${key} has another value`);
    }),
  ]);
  figures.push([
    'scan forwards, records',
    '/s',
    await rate(records, async () => {
      if ((await db.scan(false)) !== records) throw new Error('entries are missing');
    }),
  ]);
  await db.close();
  figures.push(['size on the disk', 'MiB', diskBytes(directory) / 2 ** 20]);
  return figures;
}
