import { rate, watchMemory } from '../measure.mjs';
import { chunks, randomKeys, sample } from '../records.mjs';

const GETS = 200_000;
const GET_MANY = 100;
const RANGES = 10_000;
const RANGE = 100;

function expect(found, wanted) {
  if (found !== wanted) throw new Error(`${found} entries were read, not ${wanted}`);
}

export async function gets({ open, directory, records, scale, ...options }) {
  const all = randomKeys(records, 1);
  const count = Math.round(GETS * scale);
  const keys = [3, 4, 5, 6].map((seed) => sample(all, count, seed));
  const many = chunks(keys[3], GET_MANY);
  const memory = watchMemory();
  const db = await open(directory, { ...options, durable: true });
  const figures = [];
  // Fills the caches and has the compiler see what comes.
  for (const key of keys[0]) {
    expect((await db.get(key))?.length, 150);
    db.getSync?.(key);
  }
  if (db.getSync) {
    figures.push([
      'random gets, synchronous',
      '/s',
      await rate(count, () => {
        for (const key of keys[1]) expect(db.getSync(key)?.length, 150);
      }),
    ]);
  }
  figures.push([
    'random gets, awaited',
    '/s',
    await rate(count, async () => {
      for (const key of keys[2]) expect((await db.get(key))?.length, 150);
    }),
  ]);
  figures.push([
    `getMany of ${GET_MANY}, records`,
    '/s',
    await rate(count, async () => {
      for (const group of many) for (const value of await db.getMany(group)) expect(value?.length, 150);
    }),
  ]);
  figures.push(['memory taken by the gets', 'MiB', memory()]);
  await db.close();
  return figures;
}

export async function ranges({ open, directory, records, scale, ...options }) {
  const count = Math.round(RANGES * scale);
  const all = randomKeys(records, 1);
  const starts = sample(all, count, 8);
  // Of the last keys there are fewer than a range wants.
  const last = [...all].sort().at(-RANGE);
  const from = starts.map((key) => (key > last ? last : key));
  const db = await open(directory, { ...options, durable: true });
  const scan = (reverse) => rate(records, async () => expect(await db.scan(reverse), records));
  const figures = [];
  figures.push([
    `ranges of ${RANGE}`,
    '/s',
    await rate(count, async () => {
      for (const key of from) expect((await db.range(key, RANGE)).length, RANGE);
    }),
  ]);
  figures.push(['scan forwards, records', '/s', await scan(false)]);
  figures.push(['scan backwards, records', '/s', await scan(true)]);
  await db.close();
  return figures;
}
