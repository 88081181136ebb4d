// Both modes in one collection, by what keys begin with.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keyCodecs, valueCodecs } from 'mangrove-kv';
import type { Key, KeyCodec, KvError } from 'mangrove-kv';
import { MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import { Modes } from '../src/modes.ts';
import type { PrefixMode } from '../src/modes.ts';
import { runStrict } from '../src/strict.ts';
import type { ReplicatedCollectionOptions } from '../src/tables.ts';
import { code } from '../../kv/test/support/kit.ts';
import { Device, converge } from './device.ts';
import { stopAll } from './helpers.ts';

const options = { collections: { shop: { prefixModes: [{ prefix: ['stock'], mode: 'strict' }] } } } as const;
type Shop = readonly [string, string];

const shopOf = ({ db }: Device) => db.collection<Shop, number>('shop');
const contentOf = async (device: Device): Promise<string> =>
  (await shopOf(device).entries().toArray()).map(([key, value]) => `${key.join('/')}=${value}`).join(' ');

test('the longest prefix decides', () => {
  const isStrict = (codec: unknown, mode: 'merge' | 'strict', prefixes: readonly PrefixMode[], key: Key): boolean => {
    const { encode } = codec as KeyCodec<Key>;
    return Modes.of('c', codec as never, mode, prefixes).isStrict(encode(key));
  };
  const [strict, merge] = ['strict', 'merge'] as const;
  const nested = [
    { prefix: 'a', mode: strict },
    { prefix: 'abc', mode: strict },
    { prefix: 'ab', mode: merge },
  ];
  for (const prefixes of [nested, [...nested].reverse()]) {
    for (const codec of [keyCodecs.any, keyCodecs.string]) {
      for (const [key, expected] of [
        ['', false],
        ['a', true],
        ['aa', true],
        ['ab', false],
        ['abb', false],
        ['abc', true],
        ['abcd', true],
        ['b', false],
      ] as const) {
        assert.equal(isStrict(codec, 'merge', prefixes, key), expected, key);
      }
    }
  }
  const arrays = [
    { prefix: ['a'], mode: merge },
    { prefix: ['a', 1], mode: strict },
    { prefix: [], mode: merge },
  ];
  for (const [key, expected] of [
    [['a'], false],
    [['a', 1], true],
    [['a', 1, 'x'], true],
    [['a', 10], false],
    [['a\0', 1], false],
    [['b'], false],
    [[], false],
  ] as const) {
    assert.equal(isStrict(keyCodecs.tuple(), 'strict', arrays, key), expected, JSON.stringify(key));
    assert.equal(isStrict(keyCodecs.any, 'strict', arrays, key), expected, JSON.stringify(key));
  }
  assert.equal(isStrict(keyCodecs.any, 'strict', arrays, 'a'), true);
  const bytes = [{ prefix: new Uint8Array([255]), mode: strict }];
  assert.equal(isStrict(keyCodecs.bytes, 'merge', bytes, new Uint8Array([255, 1])), true);
  assert.equal(isStrict(keyCodecs.bytes, 'merge', bytes, new Uint8Array([254])), false);
});

test('prefixes that say nothing are refused', () => {
  const modes =
    (prefixModes: readonly unknown[], mode: unknown = 'merge'): (() => Modes) =>
    () =>
      Modes.of('c', keyCodecs.any as never, mode as 'merge', prefixModes as PrefixMode[]);
  const isInvalid = code('KV_INVALID_ARGUMENT');
  assert.throws(modes([{ prefix: 'a', mode: 'lax' }]), isInvalid);
  assert.throws(modes([{ prefix: 'a' }]), isInvalid);
  assert.throws(modes([{ prefix: 1, mode: 'strict' }]), isInvalid);
  assert.throws(
    modes([
      { prefix: 'a', mode: 'strict' },
      { prefix: 'b', mode: 'strict' },
      { prefix: 'a', mode: 'merge' },
    ]),
    isInvalid,
  );
  assert.throws(modes([], 'lax'), isInvalid);
});

test('keys of both modes in one collection keep to their modes', async () => {
  const server = new MemoryServer();
  const [a, b] = [await Device.start(server, options), await Device.start(server, options)];
  await shopOf(a).setMany([
    [['note', 'x'], 1],
    [['zone', 'y'], 2],
  ]);
  await runStrict(a.replica, (tx) => tx.collection<Shop, number>('shop').set(['stock', 'apple'], 3), {});
  await converge([a, b]);
  assert.equal(await contentOf(b), 'note/x=1 stock/apple=3 zone/y=2');
  await assert.rejects(
    runStrict(b.replica, (tx) => tx.collection<Shop, number>('shop').set(['note', 'x'], 5), {}),
    (error) => code('KV_REPLICATION_MODE')(error) && /\["note", ?"x"\]/.test(String(error)),
  );
  await assert.rejects(
    runStrict(b.replica, (tx) => tx.collection<Shop, number>('shop').clear(), {}),
    code('KV_REPLICATION_MODE'),
  );
  await runStrict(b.replica, (tx) => tx.collection<Shop, number>('shop').clear({ prefix: ['stock'] }), {});
  await runStrict(
    b.replica,
    (tx) =>
      tx.collection<Shop, number>('shop').setMany([
        [['stock', 'pear'], 4],
        [['stock', 'plum'], 5],
      ]),
    {},
  );
  await converge([a, b]);
  assert.equal(await contentOf(a), 'note/x=1 stock/pear=4 stock/plum=5 zone/y=2');
  assert.deepEqual([a.alarms, b.alarms], [[], []]);
  // A clear past replication deletes what it may, and no more.
  await shopOf(a).clear();
  await converge([a, b]);
  for (const device of [a, b]) assert.equal(await contentOf(device), 'stock/pear=4 stock/plum=5');
  assert.deepEqual(
    a.alarms.map(({ code: kind }) => kind),
    ['KV_REPLICATION_MODE'],
  );
  await shopOf(a).setMany([
    [['note', 'x'], 6],
    [['stock', 'plum'], 100],
  ]);
  await converge([a, b]);
  for (const device of [a, b]) assert.equal(await contentOf(device), 'note/x=6 stock/pear=4 stock/plum=5');
  assert.deepEqual(
    a.alarms.map(({ code: kind }) => kind),
    ['KV_REPLICATION_MODE', 'KV_REPLICATION_MODE'],
  );
  assert.deepEqual(b.alarms, []);
  // Where nothing is strict, a clear is no violation.
  await shopOf(a).clear({ prefix: ['note'] });
  await converge([a, b]);
  assert.equal(await contentOf(b), 'stock/pear=4 stock/plum=5');
  assert.equal(a.alarms.length, 2);
  // What is written after a clear stays, and a clear of nothing but strict keys is not sent.
  await shopOf(a).set(['note', 'x'], 7);
  await shopOf(a).clear();
  await shopOf(a).set(['note', 'x'], 8);
  await converge([a, b]);
  for (const device of [a, b]) assert.equal(await contentOf(device), 'note/x=8 stock/pear=4 stock/plum=5');
  await shopOf(a).delete(['note', 'x']);
  await converge([a, b]);
  const sent = server.records.length;
  await shopOf(a).clear();
  await converge([a, b]);
  assert.equal(server.records.length, sent);
  assert.equal(a.alarms.length, 4);
  await runStrict(b.replica, (tx) => tx.collection<Shop, number>('shop').clear(), {});
  await converge([a, b]);
  await shopOf(a).set(['note', 'x'], 9);
  await shopOf(a).clear();
  await converge([a, b]);
  assert.equal(a.alarms.length, 4, 'there was nothing strict any more');
  assert.equal(await a.digest(), await b.digest());
  await Promise.all([a.stop(), b.stop()]);
});

test('a device whose codecs or modes are not those of the log applies and sends nothing, and keeps what it has', async () => {
  const server = new MemoryServer();
  const good = await Device.start(server, options);
  await runStrict(good.replica, (tx) => tx.collection<Shop, number>('shop').set(['stock', 'apple'], 3), {});
  await shopOf(good).set(['note', 'x'], 1);
  await good.exchange();
  const others: readonly (readonly [string, ReplicatedCollectionOptions, string])[] = [
    ['lax', {}, 'KV_REPLICATION_MODE'],
    ['harsh', { mode: 'strict' }, 'KV_REPLICATION_MODE'],
    ['codec', { ...options.collections.shop, value: valueCodecs.json() }, 'KV_CODEC_MISMATCH'],
  ];
  for (const [name, shopOptions, expected] of others) {
    const other = await Device.start(server, { collections: { shop: shopOptions } });
    const shop = other.db.collection<Shop, number>(
      'shop',
      name === 'codec' ? { value: valueCodecs.json<number>() } : {},
    );
    if (name !== 'harsh')
      await shop.setMany([
        ...(name === 'lax' ? [[['stock', 'apple'], 100] as const] : []),
        [['note', 'y'], 2] as const,
      ]);
    await assert.rejects(
      other.exchange(),
      (error: KvError) => error.code === expected && error.message.includes('"shop"'),
      name,
    );
    assert.equal(await other.replica.pending(), name === 'harsh' ? 0 : 1);
    assert.equal(await shop.get(['note', 'y']), name === 'harsh' ? undefined : 2);
    await other.stop();
  }
  assert.equal(server.records.length, 2);
  await good.exchange();
  assert.equal(await contentOf(good), 'note/x=1 stock/apple=3');
  await good.stop();
});

test('of two devices that declare a collection at once, the first one decides for all', async () => {
  const server = new MemoryServer();
  const [first, second] = [
    await Device.start(server, options),
    await Device.start(server, { collections: { shop: {} } }),
  ];
  await shopOf(first).set(['note', 'x'], 1);
  await shopOf(second).set(['note', 'y'], 2);
  // Both have read the log while there was nothing in it.
  for (const device of [first, second]) {
    while (await device.replica.pull());
    while (await device.replica.drain());
  }
  for (const device of [first, second]) while (await device.replica.publish());
  await assert.rejects(second.exchange(), code('KV_REPLICATION_MODE'));
  assert.equal(await shopOf(second).get(['note', 'y']), 2);
  const third = await Device.start(server, options);
  await converge([first, third]);
  for (const device of [first, third]) {
    assert.equal(await contentOf(device), 'note/x=1');
    assert.deepEqual(
      device.alarms.map((alarm) => alarm.code),
      ['KV_REPLICATION_MODE'],
    );
  }
  await Promise.all([first, second, third].map((device) => device.stop()));
});

test('a snapshot has both modes, but no writes that the log has not confirmed', async () => {
  const server = new MemoryServer();
  const withSnapshots = { ...options, snapshots: new MemorySnapshotStore() };
  const a = await Device.start(server, withSnapshots);
  for (let round = 0; round < 3; round++) {
    await shopOf(a).set(['note', 'x'], round);
    await runStrict(a.replica, (tx) => tx.collection<Shop, number>('shop').set(['stock', 'apple'], 10 + round), {});
    await a.replica.compact();
  }
  assert.ok((server.records[0]?.position ?? 0) > 1, 'the log was cut off');
  const fresh = await Device.start(server, withSnapshots);
  await fresh.exchange();
  assert.equal(await contentOf(fresh), 'note/x=2 stock/apple=12');
  await runStrict(
    fresh.replica,
    (tx) => tx.collection<Shop, number>('shop').update(['stock', 'apple'], (old = 0) => old + 1),
    {},
  );
  await shopOf(fresh).set(['note', 'x'], 9);
  await converge([a, fresh]);
  assert.equal(await contentOf(a), 'note/x=9 stock/apple=13');
  assert.equal(await a.digest(), await fresh.digest());
  await Promise.all([a.stop(), fresh.stop()]);
});

test('no index is unique where keys are in merge mode', async () => {
  const server = new MemoryServer();
  const indexes = { byValue: { key: (value: number) => value, unique: true } } as never;
  await assert.rejects(
    Device.start(server, { collections: { shop: { ...options.collections.shop, indexes } } }),
    code('KV_INVALID_ARGUMENT'),
  );
  const device = await Device.start(server, {
    collections: { shop: { mode: 'strict', prefixModes: [{ prefix: ['stock'], mode: 'strict' }], indexes } },
  });
  await device.stop();
});

test('the name of a collection has at most 200 bytes', async () => {
  const server = new MemoryServer();
  const name = 'n'.repeat(200);
  const devices = [
    await Device.start(server, { collections: { [name]: {} } }),
    await Device.start(server, { collections: { [name]: {} } }),
  ] as const;
  await devices[0].db.collection(name).set('k', 1);
  await converge(devices);
  assert.equal(await devices[1].db.collection(name).get('k'), 1);
  await assert.rejects(Device.start(server, { collections: { [`${name}n`]: {} } }), code('KV_INVALID_ARGUMENT'));
  await stopAll(devices);
});
