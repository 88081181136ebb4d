// Runs docs/FROM-DEXIE.md: its blocks, and both columns of each row that reads or writes, which must
// have the same result or leave the same entries.
import 'fake-indexeddb/auto';
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Dexie } from 'dexie';
import type { Table } from 'dexie';
import { DELETE, KEEP } from 'mangrove-kv';
import type { Collection, Database } from 'mangrove-kv';
import { withPath } from '../../kv/test/support/kit.ts';

/** Inside the package, so that the examples can import it by name. */
const DIRECTORY = fileURLToPath(new URL('../../kv/build/from-dexie', import.meta.url));
const PAGE = readFileSync(new URL('../../../docs/FROM-DEXIE.md', import.meta.url), 'utf8');
const [head = '', ...blocks] = [...PAGE.matchAll(/^```js\n([^]*?)^```$/gm)].map(([, code]) => code as string);

// Bun loads Dexie before there is an IndexedDB.
Object.assign(Dexie.dependencies, { indexedDB, IDBKeyRange });
mkdirSync(DIRECTORY, { recursive: true });
after(() => rmSync(DIRECTORY, { recursive: true, force: true }));

const FRIENDS = [
  { name: 'Ada', last: 'Lovelace', first: 'Ada', age: 36, tags: ['math', 'engine'], email: 'ada@example.com' },
  { name: 'Charles', last: 'Babbage', first: 'Charles', age: 79, tags: ['engine'] },
  { name: 'Grace', last: 'Hopper', first: 'Grace', age: 85, tags: ['navy', 'chess'] },
  { name: 'Alan', last: 'Turing', first: 'Alan', age: 41, tags: ['chess'], email: null },
  { name: 'Ada', last: 'Lovelace', first: 'Junior', age: 12 },
  { name: 'Blaise', last: 'Pascal', first: 'Blaise', age: 36, tags: 'roulette' },
];

interface Opened {
  readonly dexie: Dexie;
  readonly db: Database;
  readonly friends: Collection<number, unknown>;
}

let runs = 0;

/** Runs the first block and then `code`, over Dexie's database with six friends. */
async function run(code: string, use: (opened: Opened) => Promise<void> = async () => undefined): Promise<void> {
  await withPath(async (path) => {
    const name = `app ${runs++}`;
    const source = new Dexie(name);
    source.version(1).stores({ friends: '++id, name, age, [last+first], *tags, &email' });
    await source.table('friends').bulkAdd(FRIENDS);
    source.close();
    const file = join(DIRECTORY, `${runs}.mjs`);
    const quoted = JSON.stringify(name);
    const start = head
      .replace("open('app')", `open(${JSON.stringify(path)})`)
      .replace("Dexie('app')", `Dexie(${quoted})`)
      .replace("name: 'app'", `name: ${quoted}`);
    writeFileSync(file, `${start}\nexport { db, dexie, friends };\n${code}`);
    const opened = (await import(pathToFileURL(file).href)) as Opened;
    await use(opened);
    opened.dexie.close();
    await opened.db.close();
  });
}

/** The rows of a section's first table whose cells are both code. */
function rowsOf(section: string): (readonly [string, string])[] {
  const text = PAGE.split(`\n## ${section}\n`)[1]?.split('\n## ')[0] ?? '';
  return [...text.matchAll(/^\| `([^`]+)` \| `([^`]+)` \|$/gm)].map(
    ([, theirs, mine]) => [theirs as string, mine as string] as const,
  );
}

/** Evaluates the code of a cell. */
function evaluate(
  code: string,
  { db, friends }: { db?: Database; friends: Table | Collection<number, unknown> },
): unknown {
  return (
    new Function('friends', 'db', 'Dexie', 'KEEP', 'DELETE', `return (${code})`) as (...args: unknown[]) => unknown
  )(friends, db, Dexie, KEEP, DELETE);
}

test('the page has the rows and blocks that are run', () => {
  assert.match(head, /migrateIndexedDB\(db/);
  assert.ok(blocks.length >= 7);
  assert.ok(rowsOf('Read').length >= 12 && rowsOf('Indexes').length >= 18 && rowsOf('Write').length >= 9);
});

for (const section of ['Read', 'Indexes']) {
  test(`both columns of "${section}" have the same results`, () =>
    run('', async ({ dexie, friends }) => {
      for (const [theirs, mine] of rowsOf(section)) {
        const expected = await evaluate(theirs, { friends: dexie.table('friends') });
        assert.deepEqual(await evaluate(mine, { friends }), expected, mine);
        const isMissing = mine.includes('nobody');
        assert.ok(
          isMissing
            ? expected === undefined
            : typeof expected === 'object'
              ? Object.keys(expected as object).length > 0
              : expected,
          theirs,
        );
      }
    }));
}

for (const [theirs, mine] of rowsOf('Write')) {
  test(`the same entries are there after ${mine}`, () =>
    run('', async ({ dexie, db, friends }) => {
      const table = dexie.table('friends');
      const before = (await table.toArray()) as unknown[];
      await evaluate(theirs, { friends: table });
      await evaluate(mine, { db, friends });
      const expected = (await table.toArray()) as unknown[];
      assert.notDeepEqual(expected, before);
      assert.deepEqual(await friends.values().toArray(), expected);
      assert.deepEqual(await friends.keys().toArray(), await table.toCollection().primaryKeys());
    }));
}

for (const block of blocks) {
  test(`block of the page: ${block.split('\n')[0]}`, () => run(block));
}
