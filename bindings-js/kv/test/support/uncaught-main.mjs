// Fails in the way that its argument names, on the line whose comment has that name, and does not
// catch the error. Runs in a separate process.
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { open, openSync, restore } from 'mangrove-kv';

const [, , name, directory = '.'] = process.argv;
const path = join(directory, 'database');

async function opened(options) {
  const db = await open(path, options);
  await db.set('n', 1);
  return db;
}

async function checkIn(db) {
  await db.batch().check('n', 5).commit(); // check; check in a thread
}

async function readAll(db, range) {
  const keys = [];
  for await (const key of db.keys(range)) keys.push(key); // limit
  return keys;
}

const ways = {
  'an invalid key': async () => {
    const db = await opened();
    await db.set({ id: 1 }, 'x'); // an invalid key
  },
  'a nested invalid key': async () => {
    const db = await opened();
    await db.set([[[[[[[[[['a', { id: 1 }]]]]]]]]]], 'x'); // a nested invalid key
  },
  'an invalid value': async () => {
    const db = await opened();
    const values = [1, 2, () => 3];
    await db.setMany(values.map((value, index) => [index, value])); // an invalid value
  },
  'not awaited': async () => {
    const db = await opened();
    db.get(NaN); // not awaited
    await new Promise((resolve) => setTimeout(resolve, 1000));
  },
  'a name': async () => {
    await open('http://localhost/database'); // a name
  },
  'an option': async () => {
    await open(path, { durability: 'maybe' }); // an option
  },
  'an option of openSync': () => {
    openSync(path, { cacheBytes: -1 }); // an option of openSync
  },
  'sync': async () => {
    const { sync } = await opened();
    sync.set(Symbol('s'), 1); // sync
  },
  'restore': async () => {
    await restore('', new Blob([])); // restore
  },
  'limit': async () => {
    const db = await opened();
    await readAll(db, { limit: -1 });
  },
  'closed': async () => {
    const db = await opened();
    await db.close();
    await db.get('n'); // closed
  },
  'after the commit': async () => {
    const db = await opened();
    const tx = db.begin();
    await tx.commit();
    await tx.set('n', 2); // after the commit
  },
  'check': async () => checkIn(await opened()),
  'check in a thread': async () => checkIn(await opened({ thread: 'worker' })),
  'conflict': async () => {
    const db = await opened();
    const tx = db.begin();
    await tx.set('n', (await tx.get('n')) + 1);
    await db.set('n', 7);
    await tx.commit(); // conflict
  },
  'inside a transaction': async () => {
    const db = await opened();
    await db.transaction(async (tx) => {
      await tx.set(undefined, 1); // inside a transaction
    });
  },
  'too long': async () => {
    const db = await opened();
    await db.set('x'.repeat(20_000), 1); // too long
  },
  'missing': async () => {
    await open(join(directory, 'missing'), { create: false }); // missing
  },
  'a file': async () => {
    writeFileSync(join(directory, 'file'), '');
    await open(join(directory, 'file', 'database')); // a file
  },
  'no database': async () => {
    const other = mkdtempSync(join(tmpdir(), 'mangrove-'));
    writeFileSync(join(other, 'data'), 'something else '.repeat(2000));
    await open(other); // no database
  },
};

if (name === undefined) console.log(JSON.stringify(Object.keys(ways)));
else await ways[name]();
