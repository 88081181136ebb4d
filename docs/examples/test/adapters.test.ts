// Runs the examples of docs/ADAPTERS.md verbatim.
import 'fake-indexeddb/auto';
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Dexie } from 'dexie';
import * as idbKeyval from 'idb-keyval';

const PAGE = fileURLToPath(new URL('../../ADAPTERS.md', import.meta.url));
/** Inside the package, so that the examples can import it by name. */
const DIRECTORY = fileURLToPath(new URL('../build/adapters', import.meta.url));

mkdirSync(DIRECTORY, { recursive: true });
after(() => rmSync(DIRECTORY, { recursive: true, force: true }));

// Data that the migration example finds in its page.
await idbKeyval.setMany(
  [
    ['note', 'text'],
    ['tmp:note', 'text'],
  ],
  idbKeyval.createStore('localforage', 'keyvaluepairs'),
);
// Bun loads Dexie before there is an IndexedDB.
Object.assign(Dexie.dependencies, { indexedDB, IDBKeyRange });
const dexie = new Dexie('friends');
dexie.version(1).stores({ friends: '++id, name, [last+first], *tags, &email' });
await dexie
  .table('friends')
  .add({ name: 'Ada', last: 'Lovelace', first: 'Ada', tags: ['math'], email: 'ada@example.com' });
dexie.close();
const localStorage = { length: 1, key: () => 'settings:theme', getItem: () => '"dark"' };
Object.defineProperty(globalThis, 'localStorage', { configurable: true, value: localStorage });

const examples = [...readFileSync(PAGE, 'utf8').matchAll(/^## (.+)$|^```js\n([^]*?)^```$/gm)];
let section = '';
for (const [index, [, title, code]] of examples.entries()) {
  if (title !== undefined) section = title;
  if (code === undefined) continue;
  test(`the example of ${section}`, async (t) => {
    t.mock.method(console, 'log', () => undefined);
    const file = join(DIRECTORY, `${index}.mjs`);
    writeFileSync(file, code);
    assert.ok(await import(pathToFileURL(file).href));
  });
}
