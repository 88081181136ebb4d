// The app that every bundler builds and a browser runs: it opens a database, counts its own runs in
// it, reads back and restores a backup.
import { open, restore } from 'mangrove-kv';

/**
 * Runs the engine in the page's thread, whose script is loaded only then: one more file that a
 * bundler has to find.
 */
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

/** Restores a backup, which loads three more files: a script, a worker and a module. */
async function restores(kv) {
  const db = await kv.open('source', { storage: 'memory' });
  await db.set('copied', 1n);
  await kv.restore('restored', db.backup(), { overwrite: true });
  await db.close();
  const restored = await kv.open('restored', { create: false });
  try {
    return await restored.keys().toArray();
  } finally {
    await restored.close();
  }
}

async function runs(openDatabase, name) {
  const db = await openDatabase(name);
  try {
    const count = ((await db.get('runs')) ?? 0) + 1;
    await db.set('runs', count);
    await db.setMany([
      ['b', new Date(2)],
      ['a', { list: [1n] }],
    ]);
    const keys = await db.keys().toArray();
    return { persistence: db.persistence, runs: await db.get('runs'), keys };
  } finally {
    await db.close();
  }
}

async function run() {
  if (!location.search.includes('inline')) {
    return { ...(await runs(open, 'matrix')), restored: await restores({ open, restore }), inPage: await runsInPage() };
  }
  const inline = await import('mangrove-kv/inline');
  return { ...(await runs(inline.open, 'inline')), restored: await restores(inline) };
}

export async function report() {
  globalThis.report = await run().catch((error) => ({ error: `${error.code} ${error.message}` }));
}
