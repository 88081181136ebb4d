// Adapters while another tab takes the database over, which ends iterators: what an adapter reads as a
// whole, it reads again.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KvError, keyCodecs, open, valueCodecs } from 'mangrove-kv';
import type { Collection, KvIterator } from 'mangrove-kv';
import { MangroveStorageAdapter } from '@mangrove-kv/automerge';
import { mangroveDriver } from '@mangrove-kv/unstorage';
import { code, overriding } from '../../../kv/test/support/kit.ts';

/** A collection whose next iterators end after their first entry. */
class Losing<K, V, I> {
  losses = 0;
  readonly collection: Collection<K, V, I>;

  constructor(collection: Collection<K, V, I>) {
    this.collection = overriding(collection, (name) => {
      if ((name !== 'keys' && name !== 'prefix') || this.losses === 0) return undefined;
      this.losses--;
      const list = collection[name].bind(collection) as (...args: unknown[]) => KvIterator<unknown>;
      return (...args: unknown[]) =>
        list(...args).map((item, index) => {
          if (index > 0) throw new KvError('KV_SNAPSHOT_LOST', 'the tab is gone', { retryable: true });
          return item;
        });
    });
  }
}

test('unstorage lists keys', async () => {
  const db = await open('test', { storage: 'memory' });
  const shared = new Losing(db.collection<string, unknown>('storage'));
  const driver = mangroveDriver({ collection: shared.collection });
  for (const key of ['a', 'b', 'c']) await shared.collection.set(key, 1);
  shared.losses = 3;
  assert.deepEqual(await driver.getKeys(''), ['a', 'b', 'c']);
  assert.equal(shared.losses, 0);
  shared.losses = Infinity;
  await assert.rejects(driver.getKeys(''), code('KV_SNAPSHOT_LOST'));
  await db.close();
});

test('automerge loads a range', async () => {
  const db = await open('test', { storage: 'memory' });
  const shared = new Losing(
    db.collection('automerge', { key: keyCodecs.tuple<readonly string[]>(), value: valueCodecs.bytes }),
  );
  const adapter = new MangroveStorageAdapter(shared.collection);
  for (const at of [1, 2, 3]) await adapter.save(['document', String(at)], Uint8Array.of(at));
  shared.losses = 3;
  assert.deepEqual(
    (await adapter.loadRange(['document'])).map(({ data }) => data?.[0]),
    [1, 2, 3],
  );
  assert.equal(shared.losses, 0);
  await db.close();
});
