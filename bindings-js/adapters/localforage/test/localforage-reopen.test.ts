// Instances on a database that ended, that cannot be opened, and whose files are on disk.
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { open } from 'mangrove-kv';
import localforage, { close } from '@mangrove-kv/localforage';
import { code } from '../../../kv/test/support/kit.ts';
import { runIn } from '../../../migrate/test/support/run.ts';

async function inDirectory(use: (directory: string) => Promise<void>): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'mangrove-'));
  try {
    await use(directory);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

test('after the database was closed: reads and writes, one and several', () =>
  inDirectory(async (directory) => {
    const items = localforage.createInstance({ name: 'Äpp', directory });
    await items.setItem('key', 'value1');
    assert.ok(existsSync(join(directory, '%c3%84pp')));
    const reopened = async (use: () => Promise<void>): Promise<void> => {
      await close(items);
      await use();
    };
    await reopened(async () => assert.equal(await items.getItem('key'), 'value1'));
    await reopened(async () =>
      assert.deepEqual(await Promise.all([items.getItem('key'), items.getItem('none')]), ['value1', null]),
    );
    await reopened(async () => assert.equal(await items.setItem('key', 'value2'), 'value2'));
    await reopened(async () => {
      await Promise.all([items.setItem('a', 1), items.setItem('b', 2)]);
      assert.deepEqual(await items.keys(), ['a', 'b', 'key']);
    });
    await close(items);
    // The data are those of a database, for the program that outgrows localForage.
    const db = await open(join(directory, '%c3%84pp'));
    assert.equal(await db.collection('keyvaluepairs').get('key'), 'value2');
    await db.close();
  }));

test('a database that cannot be opened is an error of each call, not an empty localStorage', () =>
  inDirectory(async (directory) => {
    Object.defineProperty(globalThis, 'localStorage', { value: {}, configurable: true });
    const name = 'taken';
    const holder = await open(join(directory, name), { share: false });
    const items = localforage.createInstance({ name, directory });
    await items.ready();
    assert.equal(items.driver(), items.INDEXEDDB);
    await assert.rejects(items.getItem('a'), code('KV_LOCKED'));
    await holder.close();
    assert.equal(await items.getItem('a'), null);
    await close(items);
  }));

test('calls after a drop wait for it, in all stores of the database', () =>
  inDirectory(async (directory) => {
    const name = 'dropped';
    const [used, other, unopened] = ['used', 'other', 'unopened'].map((storeName) =>
      localforage.createInstance({ name, storeName, directory }),
    ) as [LocalForage, LocalForage, LocalForage];
    for (const whole of [true, false]) {
      for (const items of [used, other]) await items.setItem('old', 1);
      const drop = used.dropInstance(whole ? { name } : { name, storeName: 'used' });
      const stores = whole ? [used, other, unopened] : [used];
      await Promise.all([drop, ...stores.map((items) => items.setItem('new', 2))]);
      for (const items of stores) assert.deepEqual(await items.keys(), ['new'], `${whole}`);
    }
    assert.deepEqual(await other.keys(), ['new', 'old']);
    await close(used);
  }));

test('a program without IndexedDB keeps its data in files, and ends by itself', () =>
  inDirectory(async (directory) => {
    const program = `
      import localforage from ${JSON.stringify(import.meta.resolve('@mangrove-kv/localforage'))};
      const before = await localforage.getItem('visits');
      await localforage.setItem('visits', (before ?? 0) + 1);
      console.log(before ?? 'none');
    `;
    for (const expected of ['none\n', '1\n', '2\n']) assert.equal(runIn(directory, program), expected);
    assert.ok(existsSync(join(directory, 'localforage', 'localforage')));
  }));

test('options that are wrong are refused', async () => {
  for (const options of [{ directory: '' }, { durability: 'quick' }, { keepSource: 1 }, { onUnmovable: 'skip' }]) {
    const items = localforage.createInstance({ storage: 'memory', ...options } as never);
    items.setDriver(items.INDEXEDDB).catch(() => undefined);
    await assert.rejects(items.getItem('a'), /directory|durability|keepSource|onUnmovable/);
  }
});
