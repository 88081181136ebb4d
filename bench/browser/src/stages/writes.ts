import type { Durability, Peer } from '../peers/peer.ts';
import { nextTask } from '../meter.ts';
import { entries, keyOf, rowOf, sample, shuffled } from '../records.ts';
import { expect } from './stage.ts';
import type { Stage, StageContext } from './stage.ts';

const LOAD = 10_000;
const MIB = 2 ** 20;

async function usage(): Promise<number> {
  return (await navigator.storage.estimate()).usage ?? 0;
}

/** Fills the store that later stages read. */
export const load: Stage = async ({ peer, name, sizes: { records }, meter }) => {
  await peer.destroy(name);
  const before = await usage();
  await meter.figure(`inserts in order, transactions of ${LOAD.toLocaleString('en-US')}`, '/s', async () => {
    const db = await peer.open(name, 'strict');
    let time = 0;
    for (let from = 0; from < records; from += LOAD) {
      const batch = entries(from, Math.min(records, from + LOAD));
      time += await meter.time(() => db.putMany(batch));
    }
    expect((await db.get(keyOf(records - 1)))?.id === records - 1, 'the last row');
    await db.close();
    return records / (time / 1000);
  });
  // What is written after the last transaction counts too.
  await new Promise((resolve) => setTimeout(resolve, 500));
  await meter.figure('size on the disk, all rows', 'MiB', async () => ((await usage()) - before) / MIB);
};

async function withNew(
  peer: Peer,
  name: string,
  durability: Durability,
  use: (db: Awaited<ReturnType<Peer['open']>>) => Promise<number>,
): Promise<number> {
  await peer.destroy(name);
  const db = await peer.open(name, durability);
  try {
    return await use(db);
  } finally {
    await db.close();
    await peer.destroy(name);
  }
}

async function write(
  { peer, name, sizes: { puts, batch }, meter }: StageContext,
  durability: Durability,
): Promise<void> {
  const word = durability === 'strict' ? 'durable' : 'relaxed';
  await meter.figure(`${word} puts, one by one`, '/s', () =>
    withNew(peer, `${name}-puts`, durability, async (db) => {
      const list = shuffled(entries(0, puts), 1);
      // The first creates what there is to create.
      await db.put(keyOf(puts), rowOf(puts));
      const rate = await meter.rate(puts, async () => {
        for (const [key, value] of list) await db.put(key, value);
      });
      expect(
        (await db.getMany(list.map(([key]) => key))).every((row, at) => row?.id === list[at]?.[1].id),
        'a put is missing',
      );
      return rate;
    }),
  );
  await meter.figure(`${word} puts, ${batch.toLocaleString('en-US')} in one transaction`, '/s', () =>
    withNew(peer, `${name}-batch`, durability, async (db) => {
      const list = shuffled(entries(0, batch), 2);
      await db.put(keyOf(batch), rowOf(batch));
      await nextTask();
      const rate = await meter.rate(batch, () => db.putMany(list));
      for (const number of sample(batch, 10, 3))
        expect((await db.get(keyOf(number)))?.id === number, 'a put is missing');
      return rate;
    }),
  );
}

export const durablePuts: Stage = (context) => write(context, 'strict');
export const relaxedPuts: Stage = (context) => write(context, 'relaxed');
