// What the documentation of unstorage requires of a driver, and what unstorage tests in its own
// drivers; the package publishes no tests.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open } from 'mangrove-kv';
import type { Collection } from 'mangrove-kv';
import { mangroveDriver } from '@mangrove-kv/unstorage';
import { createStorage, prefixStorage, restoreSnapshot, snapshot } from 'unstorage';
import type { Storage, StorageValue } from 'unstorage';

type Test = (storage: Storage, collection: Collection<string, unknown>) => Promise<void>;

function withStorage(name: string, run: Test): void {
  test(name, async () => {
    const db = await open('test', { storage: 'memory' });
    const collection = db.collection<string, unknown>('storage');
    const storage = createStorage({ driver: mangroveDriver({ collection }) });
    await run(storage, collection);
    await storage.dispose();
    await db.close();
  });
}

withStorage('items come back as they were stored', async (storage) => {
  const values = {
    text: 'text',
    number: 1.5,
    truth: true,
    nothing: null,
    list: [1, 'a'],
    object: { deep: { value: 42 } },
  };
  for (const [key, value] of Object.entries(values)) {
    await storage.setItem(`value:${key}`, value);
    assert.equal(await storage.hasItem(`value:${key}`), true);
    assert.deepEqual(await storage.getItem(`value:${key}`), value, key);
  }
  assert.equal(await storage.hasItem('missing'), false);
  assert.equal(await storage.getItem('missing'), null);
  await assert.rejects(async () => storage.setItem('value:function', (() => 1) as never));
});

withStorage('keys are normalized, listed and removed by their base', async (storage, collection) => {
  await storage.setItem('s1:a', 'test');
  await storage.setItem('s2:a', 'test');
  await storage.setItem('s3/a?q=1', 'test');
  await storage.setItem('s1x', 'test');
  assert.deepEqual(await storage.getKeys(), ['s1:a', 's1x', 's2:a', 's3:a']);
  assert.deepEqual(await storage.getKeys('s1'), ['s1:a']);
  assert.deepEqual(await storage.getKeys('missing'), []);
  assert.deepEqual(await storage.getKeys('', { maxDepth: 0 }), ['s1x']);
  await storage.removeItem('s3:a');
  // A storage clears whole mounts; the driver can also clear a part.
  await mangroveDriver({ collection }).clear('s1:');
  assert.deepEqual(await storage.getKeys(), ['s1x', 's2:a']);
  await storage.clear();
  assert.deepEqual(await storage.getKeys(), []);
});

withStorage('keys are listed down to a depth', async (storage) => {
  for (const key of ['top', 'a:middle', 'a:b:low', 'a:b:lower']) await storage.setItem(key, 1);
  const within = async (maxDepth: number): Promise<string[]> => (await storage.getKeys(undefined, { maxDepth })).sort();
  assert.deepEqual(await within(0), ['top']);
  assert.deepEqual(await within(1), ['a:middle', 'top']);
  assert.deepEqual(await within(2), ['a:b:low', 'a:b:lower', 'a:middle', 'top']);
  assert.deepEqual(await storage.getKeys('a:b'), ['a:b:low', 'a:b:lower']);
});

withStorage('falsy values are not missing, and objects are stored as JSON represents them', async (storage) => {
  for (const [key, value] of [
    ['zero', 0],
    ['no', false],
    ['empty', ''],
  ] as const) {
    await storage.setItem(key, value);
    assert.equal(await storage.hasItem(key), true);
    assert.equal(await storage.getItem(key), value, key);
  }
  await storage.setItem('/path/file.json', { toJSON: () => ({ written: 'otherwise' }) } as never);
  assert.deepEqual(await storage.getItem('path:file.json'), { written: 'otherwise' });
  await assert.rejects(async () => storage.setItem('instance', new (class Unknown {})() as never), /stringify/);
  await storage.clear();
  await storage.clear();
  assert.deepEqual(await storage.getKeys(), []);
});

withStorage('many items at once', async (storage) => {
  await storage.setItems<StorageValue>([
    { key: 'a', value: 1 },
    { key: 'b', value: { n: 2 } },
  ]);
  assert.deepEqual(await storage.getItems(['b', 'missing', { key: 'a' }]), [
    { key: 'b', value: { n: 2 } },
    { key: 'missing', value: null },
    { key: 'a', value: 1 },
  ]);
});

withStorage('raw items', async (storage) => {
  const bytes = new Uint8Array([1, 2, 3, 255]);
  await storage.setItemRaw('raw:bytes', bytes);
  assert.deepEqual(await storage.getItemRaw('raw:bytes'), bytes);
  const map = new Map([['when', new Date(0)]]);
  await storage.setItemRaw('raw:map', map);
  assert.deepEqual(await storage.getItemRaw('raw:map'), map);
  assert.equal(await storage.getItemRaw('raw:missing'), null);
});

withStorage('meta of the driver and of the user', async (storage) => {
  await storage.setItem('a', 1);
  await storage.setMeta('a', { owner: 'me' });
  const meta = (await storage.getMeta('a')) as { owner: string; version: number };
  assert.equal(meta.owner, 'me');
  assert.ok(meta.version > 0);
  await storage.removeItem('a', { removeMeta: true });
  assert.equal(((await storage.getMeta('a')) as { owner?: string }).owner, undefined);
});

withStorage('items expire', async (storage, collection) => {
  await storage.setItem('long', 1, { ttl: 100 });
  await storage.setItems(
    [
      { key: 'short', value: '1', options: { ttl: 0.0015 } },
      { key: 'common', value: '1' },
    ],
    { ttl: 200 },
  );
  assert.ok(((await collection.getEntry('long'))?.expiresAt ?? 0) > Date.now() + 50_000);
  assert.ok(((await storage.getMeta('common')) as { ttl: number }).ttl > 150);
  await new Promise((resolve) => setTimeout(resolve, 5));
  assert.equal(await storage.getItem('short'), null);
  assert.deepEqual(await storage.getKeys(), ['common', 'long']);
});

withStorage('a time to live of 0 or null is none, as for the drivers of unstorage', async (storage) => {
  for (const ttl of [0, null]) {
    await storage.setItem('a', 1, { ttl } as never);
    await storage.setItems([{ key: 'b', value: '1', options: { ttl } as never }], { ttl: 0.001 });
    await new Promise((resolve) => setTimeout(resolve, 5));
    assert.deepEqual(await storage.getKeys(), ['a', 'b']);
  }
});

withStorage('mounts, prefixes and snapshots', async (storage, collection) => {
  storage.mount('inner', mangroveDriver({ collection: collection as never }));
  await storage.setItem('inner:a', 1);
  assert.deepEqual(await collection.keys().toArray(), ['a']);
  await storage.unmount('inner');
  await prefixStorage(storage, 'pre').setItem('x', 'y');
  assert.equal(await storage.getItem('pre:x'), 'y');
  const state = await snapshot(storage, '');
  await storage.clear();
  await restoreSnapshot(storage, state);
  assert.equal(await storage.getItem('pre:x'), 'y');
});
