import { rmSync } from 'node:fs';
import { chunks, random, randomKeys, sample } from '../records.mjs';
import { longestWait, rate } from '../measure.mjs';

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
    id,
    author: `author ${next() % AUTHORS}`,
    done: next() % 4 === 0,
    due: next() % DUE,
    score: next(),
    body: `${id} ${id} ${id}`,
  }));
}

function expect(isRight, what) {
  if (!isRight) throw new Error(`wrong answer: ${what}`);
}

/** Position of the first row that is due at `due` or later. */
function firstAt(ordered, due) {
  let [low, high] = [0, ordered.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ordered[middle].due < due) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The rows that are not done, in the order of the compound index. */
const inOrder = (rows) => rows.filter(({ done }) => !done).sort((a, b) => a.due - b.due || (a.id < b.id ? -1 : 1));

/** A table with three indexes: load, update, query and count, then two more indexes over the full table. */
export async function indexes({ openIndexed, records, scale, cacheBytes, directory }) {
  if (openIndexed === undefined) return [];
  rmSync(directory, { recursive: true, force: true });
  const rows = makeRows(records);
  const next = random(13);
  const count = (whole) => Math.max(20, Math.round(whole * scale));
  const figures = [];
  const db = await openIndexed(directory, { cacheBytes });
  const parts = chunks(rows, BATCH);
  figures.push([
    `load, transactions of ${BATCH.toLocaleString('en-US')} rows`,
    '/s',
    await rate(rows.length, async () => {
      for (const part of parts) await db.load(part);
    }),
  ]);

  const changes = sample(rows, count(UPDATES), 14).map((row) => [row, next() % DUE]);
  figures.push([
    'durable updates of an indexed property, one by one',
    '/s',
    await rate(changes.length, async () => {
      for (const [{ id }, due] of changes) await db.update(id, due);
    }),
  ]);
  for (const [row, due] of changes) row.due = due;

  if (db.query !== undefined) figures.push(...(await readIndex(db, inOrder(rows), count(QUERIES), next)));
  if (db.build !== undefined) figures.push(...(await buildIndexes(db, rows)));
  await db.close();
  return figures;
}

async function readIndex(db, ordered, count, next) {
  const dues = Array.from({ length: count }, () => next() % (DUE / 2));
  const starts = dues.map((due) => firstAt(ordered, due));
  const queried = await rate(count, async () => {
    for (let nth = 0; nth < count; nth++) {
      const found = await db.query(dues[nth], QUERY_ROWS);
      const start = starts[nth];
      const wanted = Math.min(QUERY_ROWS, ordered.length - start);
      expect(found.length === wanted, `${found.length} rows, not ${wanted}`);
      for (let at = 0; at < wanted; at++) {
        const { id, body } = ordered[start + at];
        expect(found[at].id === id && found[at].body === body, `row ${at} of a query`);
      }
    }
  });
  const sizes = dues.map((due, nth) => firstAt(ordered, due + DUE / 4) - starts[nth]);
  const counted = await rate(count, async () => {
    for (let nth = 0; nth < count; nth++)
      expect((await db.count(dues[nth], dues[nth] + DUE / 4)) === sizes[nth], 'a count');
  });
  return [
    [`queries of ${QUERY_ROWS} rows by a compound index`, '/s', queried],
    ['counts of a range of a compound index', '/s', counted],
  ];
}

/** One index with nothing else to do, one beside another caller, which reads and changes rows. */
async function buildIndexes(db, rows) {
  const built = await rate(rows.length, () => db.build());
  expect((await db.countBuilt()) === rows.length, 'the rows of the index');
  const next = random(15);
  const waited = await longestWait(
    () => db.buildBeside(),
    [
      async () => {
        const row = rows[next() % rows.length];
        expect((await db.get(row.id))?.body === row.body, 'a row read during a build');
      },
      async () => {
        const row = rows[next() % rows.length];
        row.due = next() % DUE;
        await db.update(row.id, row.due);
      },
    ],
  );
  expect((await db.countBuiltBeside()) === rows.length, 'the rows of the index built beside another caller');
  const ordered = inOrder(rows);
  expect((await db.count(0, DUE)) === ordered.length, 'the rows not done, after the builds');
  const found = await db.query(0, QUERY_ROWS);
  expect(
    found.every(({ id, due }, at) => id === ordered[at].id && due === ordered[at].due),
    'a query after the builds',
  );
  return [
    ['building an index over the full table', '/s', built],
    ['longest wait of another caller during a build', 'ms', waited],
  ];
}
