// Migrates from idb-keyval. Run this at each start of the new version, before it reads or writes.
// It copies nothing twice, and if the page is closed in between, the next start continues. Outside
// browsers: `node --import fake-indexeddb/auto`.
import { createStore, set, setMany } from 'idb-keyval';
import { keyCodecs, open } from 'mangrove-kv';
import { migrateIndexedDB } from '@mangrove-kv/migrate';

interface Note {
  readonly text: string;
  readonly changed: Date;
}

// Data of the old version.
await setMany([
  ['note:1', { text: 'Analytical Engine', changed: '1843-09-01' }],
  ['note:2', { text: 'Loom', changed: '1804-01-01' }],
]);
await set('theme', 'dark');
await set('draft', 'old', createStore('another', 'store'));

async function start(): Promise<number> {
  return migrateIndexedDB(db, {
    name: 'keyval-store',
    stores: ['keyval'],
    into: () => notes,
    transform: ({ key, value }) => {
      if (typeof key !== 'string' || !key.startsWith('note:')) return undefined;
      const { text, changed } = value as { text: string; changed: string };
      return [Number(key.slice('note:'.length)), { text, changed: new Date(changed) }];
    },
    onProgress: ({ done, total }) => console.log(`${done} of ${total}`),
  });
}

const db = await open(process.argv[2] ?? 'example-from-idb-keyval');
const notes = db.collection<number, Note>('notes', { key: keyCodecs.uint32 });
await start();
await notes.set(1, { text: 'Notes on the Analytical Engine', changed: new Date('1843-10-01') });
console.log('at the next start:', await start());
for await (const [number, { text, changed }] of notes) console.log(number, text, changed.getUTCFullYear());
// indexedDB.deleteDatabase('keyval-store'), once no user has the old version.
await db.close();
