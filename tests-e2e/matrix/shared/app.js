// What every bundler has to build and a browser to run: opens a database, counts its own runs in it, reads back.
import { open } from 'mangrove-kv';

/** Its script is loaded only where the engine runs in the page's thread: one more file a bundler has to find. */
async function runsInPage() {
  const refuse = () => {
    throw new Error('refused');
  };
  try {
    await open('custom', { storage: { open: refuse, list: refuse, remove: refuse } });
    return 'opened';
  } catch (error) {
    return error.message.includes('refused') ? 'refused' : String(error);
  }
}

async function runs(openDatabase, name) {
  const db = await openDatabase(name);
  try {
    const count = (await db.get('runs') ?? 0) + 1;
    await db.set('runs', count);
    await db.setMany([['b', new Date(2)], ['a', { list: [1n] }]]);
    const keys = await db.keys().toArray();
    return { persistence: db.persistence, runs: await db.get('runs'), keys };
  } finally {
    await db.close();
  }
}

async function run() {
  if (!location.search.includes('inline')) return { ...await runs(open, 'matrix'), inPage: await runsInPage() };
  const inline = await import('mangrove-kv/inline');
  return runs(inline.open, 'inline');
}

export async function report() {
  globalThis.report = await run().catch((error) => ({ error: `${error.code} ${error.message}` }));
}
