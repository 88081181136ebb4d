import { randomKeys, random, chunks } from '../records.mjs';
import { rate } from '../measure.mjs';

const AUTHORS = 1000;
const DUE = 100_000;
const BATCH = 10_000;
const UPDATES = 500;
const QUERIES = 5000;
const QUERY_ROWS = 50;

/** Rows of about 150 bytes with an author, a flag, a number and a score. */
function makeRows(count) {
  const next = random(11);
  return randomKeys(count, 12).map((id) => ({
    id, author: `author ${next() % AUTHORS}`, done: next() % 4 === 0, due: next() % DUE, score: next(), body: `${id} ${id} ${id}`,
  }));
}

/** A table with three indexes: load, update, query and count, then a fourth index over the full table. */
export async function indexes({ openIndexed, records, cacheBytes, directory }) {
  if (openIndexed === undefined) return [];
  const rows = makeRows(records);
  const next = random(13);
  const db = await openIndexed(directory, { cacheBytes });
  const loaded = await rate(rows.length, async () => {
    for (const part of chunks(rows, BATCH)) await db.load(part);
  });
  const updated = await rate(UPDATES, async () => {
    for (let at = 0; at < UPDATES; at++) await db.update(rows[next() % rows.length].id, next() % DUE);
  });
  const queried = await rate(QUERIES, async () => {
    for (let at = 0; at < QUERIES; at++) {
      const found = await db.query(next() % (DUE / 2), QUERY_ROWS);
      if (found.length !== QUERY_ROWS || found[0].body === undefined) throw new Error(`a query has ${found.length} rows`);
    }
  });
  const counted = await rate(QUERIES, async () => {
    for (let at = 0; at < QUERIES; at++) {
      const from = next() % (DUE / 2);
      if (await db.count(from, from + DUE / 4) === 0) throw new Error('a count is 0');
    }
  });
  const built = await rate(rows.length, () => db.build());
  await db.close();
  return [
    [`load, transactions of ${BATCH} rows`, '/s', loaded],
    ['durable updates of an indexed property, one by one', '/s', updated],
    [`queries of ${QUERY_ROWS} rows by a compound index`, '/s', queried],
    ['counts of a range of a compound index', '/s', counted],
    ['building an index over the full table', '/s', built],
  ];
}
