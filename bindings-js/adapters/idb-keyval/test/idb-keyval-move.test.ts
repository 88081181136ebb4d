// Entries that idb-keyval stored move to the twin at its first call; and where its files are.
import 'fake-indexeddb/auto';
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import * as original from 'idb-keyval';
import { open } from 'mangrove-kv';
import * as twin from '@mangrove-kv/idb-keyval';
import { code } from '../../../kv/test/support/kit.ts';
import { databaseNames, isEmptied, until } from '../../../migrate/test/support/hooks.ts';
import { runIn } from '../../../migrate/test/support/run.ts';
import { same } from '../../../migrate/test/support/show.ts';

const directory = mkdtempSync(join(tmpdir(), 'mangrove-'));
after(() => rmSync(directory, { recursive: true, force: true }));
twin.configure({ directory });

/** Stores entries as an earlier visit of a page did, whose connection has ended. */
async function fill(name: string, store: string, entries: [IDBValidKey, unknown][]): Promise<void> {
  const use = original.createStore(name, store);
  await original.setMany(entries, use);
  await use('readonly', (objects) => objects.transaction.db.close());
}

const ENTRIES: [IDBValidKey, unknown][] = [
  [1, 'one'],
  [new Date(5), undefined],
  ['count', 41],
  ['gone', 1],
  [[1, ['a']], { blob: new Blob(['x']) }],
];

test('calls that are made before the move wait for it, and win', async () => {
  await fill('keyval-store', 'keyval', ENTRIES);
  const found = await Promise.all([
    twin.get(1),
    twin.set(1, 'newer'),
    twin.update('count', (old: number | undefined) => (old ?? 0) + 1),
    twin.del('gone'),
    twin.keys(),
  ]);
  await same(found, ['one', undefined, undefined, undefined, [1, new Date(5), 'count', [1, ['a']]]]);
  await until(() => isEmptied('keyval-store'));
  await twin.close();
  await same(await twin.entries(), [
    [1, 'newer'],
    [new Date(5), undefined],
    ['count', 42],
    [[1, ['a']], { blob: new Blob(['x']) }],
  ]);
  await twin.clear();
  await twin.close();
  await same(await twin.keys(), []);
  await twin.close();
});

test('a custom store moves from its own database, and one without old data creates none', async () => {
  await fill('My App', 'drafts', [['a', 1]]);
  const names = await databaseNames();
  const drafts = twin.createStore('My App', 'drafts', { directory, keepSource: true });
  const empty = twin.createStore('Other', 'drafts');
  await same([await twin.entries(drafts), await twin.entries(empty)], [[['a', 1]], []]);
  assert.deepEqual(await databaseNames(), names);
  await twin.close(drafts);
  await twin.close(empty);
  // The data are those of a database, for the program that outgrows idb-keyval.
  assert.ok(existsSync(join(directory, '%4dy%20%41pp')));
  const db = await open(join(directory, '%4dy%20%41pp'));
  assert.equal(await db.collection('drafts').get('a'), 1);
  await db.close();
});

test('a failed opening is tried again by the next call', async () => {
  const name = join(directory, 'taken');
  const holder = await open(name, { share: false });
  const store = twin.createStore('taken', 'kv');
  await assert.rejects(twin.get('a', store), code('KV_LOCKED'));
  await holder.close();
  assert.equal(await twin.get('a', store), undefined);
  await twin.close(store);
});

test('names that differ in case or in other characters are different databases', async () => {
  const names = ['a', 'A', 'a/b', 'a%2fb', '', '\u{1f333}', '\u{1f334}', '\ud83c', '\udf33', '..', '%'];
  for (const name of names) await twin.set('name', name, twin.createStore(name, 'kv'));
  for (const name of names) {
    const store = twin.createStore(name, 'kv');
    assert.equal(await twin.get('name', store), name);
    await twin.close(store);
  }
});

test('options that are wrong are refused', () => {
  for (const options of [5, { directroy: 'x' }, { directory: '' }, { durability: 'x' }, { onUnmovable: 'skip' }]) {
    assert.throws(() => twin.createStore('a', 'b', options as never), code('KV_INVALID_ARGUMENT'));
    assert.throws(() => twin.configure(options as never), code('KV_INVALID_ARGUMENT'));
  }
});

test('a program without IndexedDB keeps its data in files, and ends by itself', () => {
  const program = `
    import { get, update } from ${JSON.stringify(import.meta.resolve('@mangrove-kv/idb-keyval'))};
    await update('visits', (visits = 0) => visits + 1);
    console.log(await get('visits'));
  `;
  for (const expected of ['1\n', '2\n', '3\n']) assert.equal(runIn(directory, program), expected);
  assert.ok(existsSync(join(directory, 'idb-keyval', 'keyval-store')));
});
