// Copies of database files, and files that were put back from an old copy: several devices have one id.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import { Device, converge } from './device.ts';
import type { DeviceOptions } from './device.ts';
import { cutOff, equal, publish, reconnect, stopAll } from './helpers.ts';

test('a copied file takes another id, and everything is sent once', async () => {
  const server = new MemoryServer();
  const original = await Device.start(server);
  await original.db.collection('notes').set('shared', 1);
  await original.exchange();
  await original.db.collection('notes').set('pending', 'in both');
  while (await original.replica.drain());
  const copy = await Device.start(server, {}, original.disk.copy());
  await original.db.collection('notes').set('a', 'from the original');
  await copy.db.collection('notes').set('b', 'from the copy');
  await copy.db.collection('notes').set('shared', 'from the copy');
  // Both have a record with the next number now.
  while (await copy.replica.drain());
  const before = (await copy.replica.state()).device;
  assert.equal((await original.replica.state()).device, before);
  await original.exchange();
  await copy.exchange();
  await original.db.collection('notes').set('c', 3);
  await copy.db.collection('notes').set('d', 4);
  const fresh = await Device.start(server);
  await converge([original, copy, fresh]);
  await equal([original, copy, fresh]);
  assert.notEqual((await original.replica.state()).device, (await copy.replica.state()).device);
  assert.equal(await fresh.db.collection('notes').size, 6);
  assert.equal(await fresh.db.collection('notes').get('shared'), 'from the copy');
  assert.deepEqual([original.alarms, copy.alarms, fresh.alarms], [[], [], []]);
  await stopAll([original, copy, fresh]);
});

test("the later write of a copy wins, although its id is another one and the server's clock has gone back", async () => {
  let serverNow = 1_700_000_000_000;
  const server = new MemoryServer({ serverTime: () => serverNow });
  // So far ahead that the log's clock decides.
  const options: DeviceOptions = { clock: () => serverNow + 24 * 3_600_000 };
  const original = await Device.start(server, options);
  await original.db.collection('notes').set('k', 'in both');
  while (await original.replica.drain());
  const copy = await Device.start(server, options, original.disk.copy());
  await copy.db.collection('notes').delete('k');
  while (await copy.replica.drain());
  await original.db.collection('notes').set('other', 1);
  await original.exchange();
  // Under its new id the copy did not know the value that the log has of its old one.
  serverNow -= 30_000;
  await converge([copy, original]);
  await equal([copy, original]);
  assert.equal(await copy.db.collection('notes').get('k'), undefined);
  await stopAll([copy, original]);
});

test('a file that was put back from an old copy loses nothing that the log has', async () => {
  const server = new MemoryServer();
  const device = await Device.start(server);
  await device.db.collection('notes').set('one', 1);
  await device.exchange();
  const old = device.disk.copy();
  await device.db.collection('notes').setMany([
    ['two', 2],
    ['one', 'changed'],
  ]);
  await device.exchange();
  await device.stop();
  const again = await Device.start(server, {}, old);
  await again.db.collection('notes').set('three', 3);
  const other = await Device.start(server);
  await converge([again, other]);
  await equal([again, other]);
  assert.deepEqual(await other.db.collection('notes').entries().toArray(), [
    ['one', 'changed'],
    ['three', 3],
    ['two', 2],
  ]);
  await stopAll([again, other]);
});

// What two copies of a file have in their outboxes when one of them has sent its records, and a
// snapshot has taken their place in the log.
for (const [name, { sent = 0, before, mine, theirs }] of Object.entries<{
  sent?: number;
  before: number;
  mine: number;
  theirs: number;
}>({
  'and neither had sent any': { before: 0, mine: 1, theirs: 1 },
  'and both had a record when the file was copied': { before: 1, mine: 1, theirs: 1 },
  'that had sent some, with the same number': { sent: 2, before: 0, mine: 1, theirs: 1 },
  'that had sent some, with more numbers': { sent: 2, before: 1, mine: 3, theirs: 1 },
  'that had sent some, with fewer numbers': { sent: 2, before: 1, mine: 1, theirs: 3 },
  'that has none of its own yet': { sent: 1, before: 0, mine: 0, theirs: 2 },
})) {
  test(`a copied file, ${name}: what is in no snapshot is sent under another id`, async () => {
    const server = new MemoryServer();
    const options: DeviceOptions = { snapshots: new MemorySnapshotStore() };
    const original = await Device.start(server, options);
    const write = async (device: Device, prefix: string, count: number): Promise<void> => {
      for (let index = 0; index < count; index++) {
        await device.db.collection('notes').set(`${prefix} ${index}`, prefix);
        while (await device.replica.drain());
      }
    };
    await write(original, 'sent', sent);
    if (sent > 0) await original.exchange();
    await write(original, 'before', before);
    const copy = await Device.start(server, options, original.disk.copy());
    await write(original, 'theirs', theirs);
    await write(copy, 'mine', mine);
    const id = (await copy.replica.state()).device;
    await cutOff(server, original);
    copy.replica.reconnect();
    await copy.exchange();
    assert.notEqual((await copy.replica.state()).device, id);
    // Both go on.
    await write(copy, 'later', 1);
    await write(original, 'also later', 1);
    await converge([copy, original]);
    await equal([copy, original]);
    assert.equal(await original.db.collection('notes').count({ prefix: 'mine' }), mine);
    assert.equal(await original.db.collection('notes').size, sent + before + mine + theirs + 3);
    assert.deepEqual([copy.conflicts, copy.alarms, original.alarms], [[], [], []]);
    await stopAll([copy, original]);
  });
}

test('a record whose number a copy of the file used is sent again, although later ones came into the log', async () => {
  const server = new MemoryServer();
  const options: DeviceOptions = { snapshots: new MemorySnapshotStore() };
  const [original, other] = [await Device.start(server, options), await Device.start(server, options)];
  await original.db.collection('notes').set('first', 1);
  await converge([original, other]);
  const copy = await Device.start(server, options, original.disk.copy());
  // Caught up, so that they may send.
  for (const device of [original, copy]) while (await device.replica.pull());
  await publish(copy, 'of the copy');
  // The log takes it for a repetition of the copy's record.
  await publish(original, 'lost');
  await publish(original, 'not lost');
  assert.equal(server.records.length, 3);
  await cutOff(server, other);
  await reconnect([original, copy, other]);
  await equal([original, copy, other]);
  assert.deepEqual(await other.db.collection('notes').keys().toArray(), [
    'first',
    'lost',
    'not lost',
    'of the copy',
    'round',
  ]);
  await stopAll([original, copy, other]);
});

test('a file that was put back from an old copy goes on from a snapshot', async () => {
  const server = new MemoryServer();
  const options: DeviceOptions = { snapshots: new MemorySnapshotStore() };
  const [device, other] = [await Device.start(server, options), await Device.start(server, options)];
  await device.db.collection('notes').set('old', 1);
  await converge([device, other]);
  const old = device.disk.copy();
  for (let index = 0; index < 3; index++) {
    await device.db.collection('notes').set(`since ${index}`, index);
    await device.exchange();
  }
  await device.stop();
  await other.exchange();
  await cutOff(server, other);
  const again = await Device.start(server, options, old);
  await again.db.collection('notes').set('anew', 1);
  await converge([again, other]);
  await equal([again, other]);
  assert.equal(await other.db.collection('notes').get('anew'), 1);
  assert.equal(await again.db.collection('notes').size, 6);
  await stopAll([again, other]);
});
