// Checks: a device that compacts says what its base is, and every other one compares its own.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keyCodecs } from 'mangrove-kv';
import { MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import { code } from '../../kv/test/support/kit.ts';
import { Device, converge } from './device.ts';
import { collections, equal, stopAll, withhold } from './helpers.ts';

async function start(count: number) {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const make = (): Promise<Device> => Device.start(server, { snapshots, collections });
  const devices: Device[] = [];
  for (let index = 0; index < count; index++) devices.push(await make());
  const notes = devices[0]!.db.collection('notes');
  await notes.setMany(Array.from({ length: 30 }, (_, at) => [`k${String(at).padStart(2, '0')}`, at] as const));
  await notes.set('soon', 1, { expireIn: 3_600_000 });
  await notes.clear({ gte: 'k25' as never, lt: 'k28' as never });
  await converge(devices);
  return { server, make, devices, notes };
}

test('devices that have read the same records have the same digests', async () => {
  const { make, devices } = await start(3);
  for (let round = 0; round < 4; round++) {
    await devices[round % 3]!.db.collection('notes').set('round', round);
    await devices[(round + 1) % 3]!.replica.compact();
    await converge(devices);
  }
  devices.push(await make());
  await converge(devices);
  await equal(devices);
  const digests = await Promise.all(devices.map(async ({ replica }) => (await replica.state()).digests));
  assert.deepEqual(digests[0]!['notes']![0], 29);
  for (const digest of digests) assert.deepEqual(digest, digests[0]);
  for (const device of devices) {
    assert.deepEqual(device.alarms, []);
    assert.deepEqual(device.divergences, []);
  }
  await stopAll(devices);
});

test('a device that is not what the log says tells which keys, and mends itself', async () => {
  const { devices } = await start(3);
  const [a, b, c] = devices as [Device, Device, Device];
  await withhold(b, 'k07');
  await withhold(b, 'k11');
  await a.replica.compact();
  await converge(devices);
  await equal(devices);
  assert.equal(await b.db.collection('notes').get('k07'), 7);
  assert.deepEqual(
    b.alarms.map((alarm) => alarm.code),
    ['KV_REPLICATION_DIVERGED'],
  );
  assert.deepEqual(
    b.divergences.map(({ collection, entries, from, to }) => [
      collection,
      entries,
      keyCodecs.any.decode(from),
      keyCodecs.any.decode(to),
    ]),
    [['notes', 2, 'k07', 'k11']],
  );
  assert.deepEqual([...a.alarms, ...c.alarms, ...a.divergences, ...c.divergences], []);
  await b.db.collection('notes').set('again', 1);
  await b.replica.compact();
  await converge(devices);
  await equal(devices);
  assert.deepEqual([...a.alarms, ...c.alarms], []);
  await stopAll(devices);
});

test('what a device has pending survives the mending', async () => {
  const { devices } = await start(2);
  const [a, b] = devices as [Device, Device];
  await withhold(b, 'k07');
  await b.db.collection('notes').setMany([
    ['k07', 'mine'],
    ['new', 'mine'],
  ]);
  await b.db.collection('notes').delete('k08');
  while (await b.replica.drain());
  await a.replica.compact();
  await converge(devices);
  await equal(devices);
  assert.deepEqual(await Promise.all(['k07', 'new', 'k08'].map((key) => a.db.collection('notes').get(key))), [
    'mine',
    'mine',
    undefined,
  ]);
  await stopAll(devices);
});

test('if the one that compacts is wrong, the others keep what the log says and do not compact', async () => {
  const { server, devices } = await start(2);
  const [a, b] = devices as [Device, Device];
  await withhold(a, 'k07');
  await a.replica.compact();
  const { length } = server.records;
  for (let round = 0; round < 3; round++) await b.exchange();
  // Once when it read the check, and once more after it had read the log again.
  assert.deepEqual(
    b.alarms.map((alarm) => alarm.code),
    ['KV_REPLICATION_DIVERGED', 'KV_REPLICATION_DIVERGED'],
  );
  assert.deepEqual(b.divergences, []);
  assert.equal(await b.db.collection('notes').get('k07'), 7);
  await b.db.collection('notes').set('more', 1);
  await assert.rejects(b.replica.compact(), code('KV_REPLICATION_DIVERGED'));
  assert.equal(server.records.length, length + 1, 'and no check either');
  await stopAll(devices);
});

test('the log is read again once for each of several wrong checks', async () => {
  const { server, devices } = await start(2);
  const [a, b] = devices as [Device, Device];
  await withhold(a, 'k07');
  await a.stop();
  class Full extends MemorySnapshotStore {
    override async put(): Promise<void> {
      throw new Error('there is no room');
    }
  }
  const wrong = await Device.start(server, { snapshots: new Full() }, a.disk);
  await assert.rejects(wrong.replica.compact());
  // More than are applied at once.
  for (let at = 0; at < 300; at++) {
    await wrong.db.collection('notes').set('many', at);
    await wrong.exchange();
  }
  await assert.rejects(wrong.replica.compact());
  for (let round = 0; round < 3; round++) await b.exchange();
  assert.ok(b.alarms.length <= 4, `${b.alarms.length} alarms`);
  assert.equal(await b.db.collection('notes').get('k07'), 7);
  assert.equal(await b.db.collection('notes').get('many'), 299);
  await stopAll([wrong, b]);
});
