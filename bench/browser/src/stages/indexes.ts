import { DUE, firstAt, indexedRows, inOrder, isSame } from '../indexed-rows.ts';
import type { IndexedRow, IndexedStore } from '../peers/indexed.ts';
import { Unsupported } from '../peers/peer.ts';
import { random, sample } from '../records.ts';
import { expect } from './stage.ts';
import type { Stage, StageContext } from './stage.ts';

const LOAD = 10_000;
const QUERY_ROWS = 50;
const WARM_UP = 50;

/** Loads, changes, reads and counts rows with three indexes, and builds a fourth. */
export const indexes: Stage = async (context) => {
  const {
    peer,
    name,
    sizes: { indexed, updates },
    meter,
  } = context;
  if (peer.openIndexed === undefined) throw new Unsupported('it has no indexes');
  const place = `${name}-indexed`;
  await peer.destroy(place);
  const db = await peer.openIndexed(place);
  try {
    let rows = indexedRows(indexed);
    await meter.figure(`indexed rows, transactions of ${LOAD.toLocaleString('en-US')}`, '/s', async () => {
      let time = 0;
      for (let from = 0; from < rows.length; from += LOAD) {
        const part = rows.slice(from, from + LOAD);
        time += await meter.time(() => db.load(part));
      }
      const last = rows.at(-1) as IndexedRow;
      expect(isSame(await db.get(last.id), last), 'the last row');
      return rows.length / (time / 1000);
    });
    await meter.figure('durable updates of an indexed property, one by one', '/s', async () => {
      const next = random(13);
      const changes = new Map(sample(indexed, updates, 14).map((at) => [at, next() % DUE]));
      const list = [...changes].map(([at, due]) => [(rows[at] as IndexedRow).id, due] as const);
      const rate = await meter.rate(list.length, async () => {
        for (const [id, due] of list) await db.update(id, due);
      });
      rows = rows.map((row, at) => ({ ...row, due: changes.get(at) ?? row.due }));
      for (const at of changes.keys())
        expect(isSame(await db.get((rows[at] as IndexedRow).id), rows[at]), 'a changed row');
      return rate;
    });
    await read(context, db, inOrder(rows));
    await meter.figure('building an index over all rows, rows', '/s', async () => {
      const rate = await meter.rate(indexed, () => db.build());
      expect((await db.countBuilt()) === indexed, 'the entries of the new index');
      return rate;
    });
  } finally {
    await db.close();
    await peer.destroy(place);
  }
};

async function read(
  { sizes: { queries, counts }, meter }: StageContext,
  db: IndexedStore,
  ordered: readonly IndexedRow[],
): Promise<void> {
  const dues = sample(DUE / 2, queries, 15);
  const starts = dues.map((due) => firstAt(ordered, due));
  for (const [nth, due] of sample(DUE / 2, WARM_UP, 16).entries()) {
    await db.query(due, QUERY_ROWS);
    if (nth % 10 === 0) await db.count(due, due + DUE / 4);
  }
  await meter.figure(`queries of ${QUERY_ROWS} rows by a compound index`, '/s', () =>
    meter.rate(queries, async () => {
      for (const [nth, due] of dues.entries()) {
        const found = await db.query(due, QUERY_ROWS);
        const start = starts[nth] as number;
        expect(found.length === Math.min(QUERY_ROWS, ordered.length - start), `${found.length} rows of a query`);
        expect(
          found.every((row, at) => isSame(row, ordered[start + at])),
          'the rows of a query',
        );
      }
    }),
  );
  const ranges = dues
    .slice(0, counts)
    .map((due, nth) => ({ due, rows: firstAt(ordered, due + DUE / 4) - (starts[nth] as number) }));
  await meter.figure('counts of a range of a compound index', '/s', () =>
    meter.rate(ranges.length, async () => {
      for (const { due, rows } of ranges) expect((await db.count(due, due + DUE / 4)) === rows, 'a count');
    }),
  );
}
