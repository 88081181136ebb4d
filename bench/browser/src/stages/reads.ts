import type { Peer, Store } from '../peers/peer.ts';
import { GROUP, keyOf, prefixOf, random, rowOf, sample } from '../records.ts';
import { expect } from './stage.ts';
import type { Stage } from './stage.ts';

const MANY = 100;
const PAGE = 50;
const WARM_UP = 200;

async function withOpen(peer: Peer, name: string, use: (db: Store) => Promise<void>): Promise<void> {
  const db = await peer.open(name, 'strict');
  try {
    await use(db);
  } finally {
    await db.close();
  }
}

/** For a page of its own: the code is loaded, too. */
export const opening: Stage = ({ peer, name, sizes: { records }, meter, loading }) => {
  let db: Store | undefined;
  return meter
    .figure('open to the first read', 'ms', async () => {
      const start = performance.now();
      db = await peer.open(name, 'strict');
      const row = await db.get(keyOf(records >> 1));
      const time = loading + performance.now() - start;
      expect(row?.id === records >> 1, 'the first read');
      return time;
    })
    .finally(() => db?.close());
};

export const gets: Stage = ({ peer, name, sizes: { records, gets: count }, meter }) =>
  withOpen(peer, name, async (db) => {
    // The code that a new tab runs first is not compiled yet.
    const warm = sample(records, WARM_UP * 10, 4).map(keyOf);
    for (const key of warm.slice(0, WARM_UP)) await db.get(key);
    for (let at = 0; at < warm.length; at += MANY) await db.getMany(warm.slice(at, at + MANY));
    const wanted = sample(records, count, 5);
    const keys = wanted.map(keyOf);
    await meter.figure('random gets, one by one', '/s', () =>
      meter.rate(count, async () => {
        for (let at = 0; at < count; at++) expect((await db.get(keys[at] as string))?.id === wanted[at], 'a get');
      }),
    );
    const others = sample(records, count, 6);
    const groups = Array.from({ length: Math.ceil(count / MANY) }, (_, at) =>
      others.slice(at * MANY, (at + 1) * MANY).map(keyOf),
    );
    await meter.figure(`random gets, ${MANY} at a time`, '/s', () =>
      meter.rate(count, async () => {
        for (let at = 0; at < groups.length; at++) {
          const rows = await db.getMany(groups[at] as string[]);
          expect(
            rows.every((row, index) => row?.id === others[at * MANY + index]),
            'a get of many',
          );
        }
      }),
    );
  });

export const scans: Stage = ({ peer, name, sizes: { records, scan }, meter }) =>
  withOpen(peer, name, async (db) => {
    for (const reverse of [false, true]) {
      await db.scan({ reverse, limit: Math.min(scan, WARM_UP * 20) }, () => undefined).catch(() => undefined);
      await meter.figure(`scan ${reverse ? 'backwards' : 'forwards'}, rows`, '/s', async () => {
        let count = 0;
        let sum = 0;
        const rate = await meter.rate(scan, () =>
          db.scan({ reverse, limit: scan }, (list) => {
            count += list.length;
            for (const [, { id }] of list) sum += id;
          }),
        );
        const ends = reverse ? records - scan + records - 1 : scan - 1;
        expect(count === scan && sum === (ends * scan) / 2, `${count} rows scanned`);
        return rate;
      });
    }
  });

export const pages: Stage = ({ peer, name, sizes: { records, pages: count }, meter }) =>
  withOpen(peer, name, async (db) => {
    for (const group of sample(Math.floor(records / GROUP), count / 10, 9))
      await db.page(prefixOf(group), PAGE).catch(() => undefined);
    const groups = sample(Math.floor(records / GROUP), count, 7);
    await meter.figure(`prefix pages of ${PAGE}`, '/s', () =>
      meter.rate(count, async () => {
        for (const group of groups) {
          const list = await db.page(prefixOf(group), PAGE);
          expect(list.length === PAGE && list[0]?.[0] === keyOf(group * GROUP), 'a page');
        }
      }),
    );
  });

export const mixes: Stage = ({ peer, name, sizes: { records, mixed }, meter }) =>
  withOpen(peer, name, async (db) => {
    for (const puts of [5, 50]) {
      const next = random(puts);
      const numbers = sample(records, mixed, puts + 1);
      const rows = numbers.map((number) => (next() % 100 < puts ? rowOf(number, 1) : undefined));
      await meter.figure(`${100 - puts} % gets, ${puts} % durable puts, one by one`, '/s', () =>
        meter.rate(mixed, async () => {
          for (let at = 0; at < mixed; at++) {
            const number = numbers[at] as number;
            const row = rows[at];
            if (row === undefined) expect((await db.get(keyOf(number)))?.id === number, 'a get of the mix');
            else await db.put(keyOf(number), row);
          }
        }),
      );
    }
  });

export const memory: Stage = async ({ peer, name, sizes: { records, gets: count, scan }, meter, memory: measure }) => {
  if (measure === undefined) return;
  const before = await measure();
  await withOpen(peer, name, async (db) => {
    await meter.figure('memory taken: gets and a scan', 'MiB', async () => {
      for (const number of sample(records, count, 8)) await db.get(keyOf(number));
      await db.scan({ reverse: false, limit: scan }, () => undefined).catch(() => undefined);
      return (await measure()) - before;
    });
  });
};
