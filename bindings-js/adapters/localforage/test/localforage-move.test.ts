// Items that localForage stored in IndexedDB move to the twin.
import 'fake-indexeddb/auto';
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import localforage, { close } from '@mangrove-kv/localforage';
import { databaseNames, isEmptied, until } from '../../../migrate/test/support/hooks.ts';
import { same } from '../../../migrate/test/support/show.ts';

const original = createRequire(import.meta.url)('localforage') as LocalForage;
const directory = mkdtempSync(join(tmpdir(), 'mangrove-'));
after(() => rmSync(directory, { recursive: true, force: true }));
const ITEMS: Record<string, unknown> = {
  '': 'empty key',
  bytes: new Uint8Array([1, 2, 3]),
  list: [1, { deep: new Map([[1n, new Date(5)]]) }],
  nothing: null,
  text: 'x'.repeat(100_000),
};
/** As versions of localForage stored a Blob in browsers whose IndexedDB takes none. */
const ENCODED = { __local_forage_encoded_blob: true, data: btoa('old blob'), type: 'text/plain' };

async function fill(options: LocalForageOptions): Promise<void> {
  const items = original.createInstance(options);
  for (const [key, value] of Object.entries(ITEMS)) await items.setItem(key, value);
  await items.setItem('photo', ENCODED);
}

const read = async (items: LocalForage): Promise<unknown[]> => {
  const seen: unknown[] = [];
  await items.iterate((value, key) => void seen.push([key, value]));
  return seen;
};

test('the items of the default store, and those of a database with several', async () => {
  await fill({});
  await fill({ name: 'app', storeName: 'one' });
  await original.createInstance({ name: 'app', storeName: 'two' }).setItem('only', 'in two');
  localforage.config({ directory });
  const found = await Promise.all(Object.keys(ITEMS).map((key) => localforage.getItem(key)));
  await same(found, Object.values(ITEMS));
  const photo = await localforage.getItem<Blob>('photo');
  assert.deepEqual([await photo?.text(), photo?.type], ['old blob', 'text/plain']);
  assert.equal(await localforage.length(), 6);
  await until(() => isEmptied('localforage'));

  const one = localforage.createInstance({ name: 'app', storeName: 'one', directory });
  await same(
    await read(one),
    [...Object.entries(ITEMS), ['photo', new Blob(['old blob'], { type: 'text/plain' })] as const]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, value]) => [key, value ?? undefined]),
  );
  assert.equal(await isEmptied('app'), false);
  const two = localforage.createInstance({ name: 'app', storeName: 'two', directory });
  assert.equal(await two.getItem('only'), 'in two');
  await until(() => isEmptied('app'));
});

test('writes and deletions that are called while the items move win', async () => {
  await fill({ name: 'busy' });
  const items = localforage.createInstance({ name: 'busy', directory });
  const [, , , old] = await Promise.all([
    items.setItem('bytes', 'newer'),
    items.removeItem('list'),
    items.setItem('added', 1),
    items.getItem('text'),
  ]);
  assert.equal(old, ITEMS['text']);
  await until(() => isEmptied('busy'));
  assert.deepEqual(await items.keys(), ['', 'added', 'bytes', 'nothing', 'photo', 'text']);
  assert.equal(await items.getItem('bytes'), 'newer');
  await close(items);
});

test('nothing is created in IndexedDB', async () => {
  const before = await databaseNames();
  const items = localforage.createInstance({ name: 'not in IndexedDB', directory });
  await items.setItem('a', 1);
  await items.dropInstance();
  assert.deepEqual(await databaseNames(), before);
});

test('with keepSource the old items stay', async () => {
  await fill({ name: 'kept' });
  const items = localforage.createInstance({ name: 'kept', directory, keepSource: true });
  assert.equal(await items.length(), 6);
  await items.clear();
  assert.equal(await original.createInstance({ name: 'kept' }).length(), 6);
  assert.equal(await items.length(), 0);
});

test('in memory only the old items stay, also when the copy is dropped', async () => {
  await fill({ name: 'in memory' });
  const items = localforage.createInstance({ name: 'in memory', storage: 'memory', keepSource: false });
  assert.equal(await items.length(), 6);
  // The first to use a database decides on its storage.
  await fill({ name: 'in memory', storeName: 'other' });
  assert.equal(await localforage.createInstance({ name: 'in memory', storeName: 'other' }).length(), 6);
  // Emptying is in the background.
  await new Promise((resolve) => {
    setTimeout(resolve, 50);
  });
  assert.equal(await original.createInstance({ name: 'in memory' }).length(), 6);
  assert.equal(await original.createInstance({ name: 'in memory', storeName: 'other' }).length(), 6);
  await items.dropInstance({ name: 'in memory' });
  assert.equal(await items.length(), 0);
  assert.equal(await original.createInstance({ name: 'in memory' }).length(), 6);
});

test('dropInstance drops what was not moved yet', async () => {
  await fill({ name: 'dropped', storeName: 'one' });
  await original.createInstance({ name: 'dropped', storeName: 'two' }).setItem('a', 'in two');
  const base = { name: 'dropped', directory } as const;
  await localforage.createInstance({ ...base, storeName: 'other' }).dropInstance({ name: 'dropped', storeName: 'one' });
  assert.equal(await localforage.createInstance({ ...base, storeName: 'one' }).length(), 0);
  assert.equal(await localforage.createInstance({ ...base, storeName: 'two' }).getItem('a'), 'in two');
  await fill({ name: 'dropped too', storeName: 'one' });
  await localforage.dropInstance({ name: 'dropped too' });
  assert.ok((await isEmptied('dropped')) && (await isEmptied('dropped too')));
  assert.equal(await localforage.createInstance({ name: 'dropped too', storeName: 'one', directory }).length(), 0);
});

test('dropInstance without a name or storeName in its options drops the own store only', async () => {
  for (const [index, options] of [{ storeName: undefined }, { storeName: '' }, { name: '' }].entries()) {
    const base = { name: `own ${index}`, directory } as const;
    const [one, two] = ['one', 'two'].map((storeName) => localforage.createInstance({ ...base, storeName }));
    await one?.setItem('a', 1);
    await two?.setItem('a', 2);
    await one?.dropInstance(options as LocalForageDbInstanceOptions);
    assert.deepEqual([await one?.getItem('a'), await two?.getItem('a')], [null, 2]);
  }
});
