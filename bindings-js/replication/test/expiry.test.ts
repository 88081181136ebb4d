// Entries that expire: until the log's time has passed their expiry they are data, whatever the clocks
// of devices say.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import { Device, converge } from './device.ts';
import type { DeviceOptions } from './device.ts';
import { equal, stopAll } from './helpers.ts';

const HOUR_MS = 3_600_000;

/** The engine in this thread asks `Date.now` when it purges and when it reads. */
async function at<T>(offsetMs: number, work: () => Promise<T>): Promise<T> {
  const real = Date.now;
  Date.now = () => real() + offsetMs;
  try {
    return await work();
  } finally {
    Date.now = real;
  }
}

const notes = ({ db }: Device) => db.collection<string, string>('notes');
const valueOf = async (device: Device): Promise<unknown> => notes(device).get('k');

for (const feed of [true, false]) {
  test(`an entry that arrives while the clock is two hours ahead is there when the clock is right${feed ? '' : ', without a feed'}`, async () => {
    const server = new MemoryServer();
    const snapshots = new MemorySnapshotStore();
    const options: DeviceOptions = { snapshots, feed };
    const a = await Device.start(server, options);
    await notes(a).set('k', 'for an hour', { expireIn: HOUR_MS });
    await a.exchange();
    const early = await at(2 * HOUR_MS, async () => {
      const device = await Device.start(server, options);
      await device.exchange();
      await device.db.purgeExpired();
      await device.exchange();
      return device;
    });
    assert.equal(await valueOf(a), 'for an hour');
    const b = await early.restart(server, options);
    await converge([b, a]);
    assert.equal(await valueOf(a), 'for an hour', 'nobody has deleted it');
    assert.equal(await valueOf(b), 'for an hour');
    await notes(a).set('k', 'for ever');
    await converge([a, b]);
    assert.equal(await valueOf(b), 'for ever', 'later writes arrive');
    await b.replica.compact();
    const fresh = await Device.start(server, options);
    await converge([fresh, a, b]);
    await equal([a, b, fresh]);
    await stopAll([a, b, fresh]);
  });

  test(`what a program purges while its clock is ahead and replication is not running is deleted nowhere${feed ? '' : ', without a feed'}`, async () => {
    const server = new MemoryServer();
    const options: DeviceOptions = { feed };
    const [a, b] = [await Device.start(server, options), await Device.start(server, options)];
    await notes(a).set('k', 'for an hour', { expireIn: HOUR_MS });
    await notes(a).set('own', 'for an hour', { expireIn: HOUR_MS });
    await converge([a, b]);
    const { length } = server.records;
    b.replica.stop();
    await at(2 * HOUR_MS, async () => {
      await b.db.purgeExpired();
      assert.equal(await notes(b).size, 0);
    });
    const later = await b.restart(server, options);
    await converge([later, a]);
    assert.equal(await valueOf(a), 'for an hour');
    assert.equal(await valueOf(later), 'for an hour');
    assert.equal(server.records.length, length, 'nothing was sent');
    await equal([a, later]);
    await stopAll([a, later]);
  });
}

test('what a clock that is ahead has purged, and replication has seen by it, is there when the clock is right', async () => {
  let offset = 0;
  const server = new MemoryServer();
  const [a, b] = [await Device.start(server), await Device.start(server, { clock: () => Date.now() + offset })];
  await notes(a).set('k', 'for an hour', { expireIn: HOUR_MS });
  await converge([a, b]);
  offset = 2 * HOUR_MS;
  await at(2 * HOUR_MS, () => b.db.purgeExpired());
  await notes(b).set('other', 'x');
  await b.exchange();
  while (await b.replica.drain());
  offset = 0;
  assert.ok(b.replica.isDrainDue, 'although nothing was committed');
  while (await b.replica.drain());
  assert.equal(await valueOf(b), 'for an hour');
  await converge([a, b]);
  assert.equal(await valueOf(a), 'for an hour');
  assert.equal(await valueOf(b), 'for an hour');
  await stopAll([a, b]);
});

for (const how of ['is deleted', 'is over by the log']) {
  test(`an entry that ${how} while the clock of a device is ahead of its expiry stays away when the clock is right`, async () => {
    let serverNow = Date.now();
    const server = new MemoryServer({ serverTime: () => serverNow });
    const [a, b] = [await Device.start(server), await Device.start(server)];
    await notes(a).set('k', 'for an hour', { expireIn: HOUR_MS });
    await converge([a, b]);
    if (how === 'is deleted') await notes(a).delete('k');
    else {
      serverNow += 2 * HOUR_MS;
      await notes(a).set('other', 'x');
    }
    await a.exchange();
    await at(2 * HOUR_MS, () => b.exchange());
    await converge([a, b]);
    assert.equal(await valueOf(a), undefined);
    assert.equal(await valueOf(b), undefined);
    await equal([a, b]);
    await stopAll([a, b]);
  });
}

test('an own write that a clock has removed before it was confirmed is there when the clock is right', async () => {
  let offset = 0;
  const server = new MemoryServer();
  const [a, b] = [await Device.start(server), await Device.start(server, { clock: () => Date.now() + offset })];
  await notes(b).set('k', 'for an hour', { expireIn: HOUR_MS });
  while (await b.replica.drain());
  offset = 2 * HOUR_MS;
  await at(2 * HOUR_MS, () => b.db.purgeExpired());
  while (await b.replica.drain());
  offset = 0;
  while (await b.replica.drain());
  await converge([b, a]);
  assert.equal(await valueOf(a), 'for an hour');
  assert.equal(await valueOf(b), 'for an hour');
  await equal([a, b]);
  await stopAll([a, b]);
});

test('by the log, and not by the clock of a device, an entry is over', async () => {
  let serverNow = Date.now();
  const server = new MemoryServer({ serverTime: () => serverNow });
  const snapshots = new MemorySnapshotStore();
  const [a, b] = [await Device.start(server, { snapshots }), await Device.start(server, { snapshots })];
  await notes(a).set('k', 'short', { expireAt: serverNow + HOUR_MS });
  await notes(a).set('l', 'long', { expireAt: serverNow + 4 * HOUR_MS });
  await converge([a, b]);
  serverNow += 2 * HOUR_MS;
  await notes(a).set('other', 'x');
  await converge([a, b]);
  // The clocks of both devices are two hours behind the log.
  for (const device of [a, b]) assert.deepEqual(await notes(device).keys().toArray(), ['l', 'other']);
  await a.replica.compact();
  const fresh = await Device.start(server, { snapshots });
  await converge([fresh, a, b]);
  await equal([a, b, fresh]);
  // A set that had expired when the log took it has no effect but to remove what was there.
  await notes(b).set('other', 'y', { expireAt: serverNow - HOUR_MS });
  await converge([b, a, fresh]);
  for (const device of [a, b, fresh]) assert.deepEqual(await notes(device).keys().toArray(), ['l']);
  await stopAll([a, b, fresh]);
});

test('an own write that expires before it is confirmed is confirmed, and then over everywhere', async () => {
  let serverNow = Date.now();
  const server = new MemoryServer({ serverTime: () => serverNow });
  const [a, b] = [await Device.start(server), await Device.start(server)];
  await notes(a).set('k', 'before');
  await converge([a, b]);
  await notes(a).set('k', 'short', { expireAt: Date.now() + 20 });
  while (await a.replica.drain());
  await new Promise((resolve) => setTimeout(resolve, 40));
  await a.db.purgeExpired();
  await converge([a, b]);
  serverNow += HOUR_MS;
  await notes(b).set('later', 'x');
  await converge([b, a]);
  await equal([a, b]);
  assert.deepEqual(await notes(a).keys().toArray(), ['later']);
  await stopAll([a, b]);
});

test('what is written over an entry that comes back stays', async () => {
  for (const write of ['set', 'delete'] as const) {
    const server = new MemoryServer();
    const [a, b] = [await Device.start(server), await Device.start(server)];
    await notes(a).set('k', 'for an hour', { expireIn: HOUR_MS });
    await converge([a, b]);
    // Removed by a clock that was ahead, and written again before replication has looked at that.
    await at(2 * HOUR_MS, () => a.db.purgeExpired());
    if (write === 'set') await notes(a).set('k', 'new');
    else {
      await notes(a).set('k', 'new');
      await notes(a).delete('k');
    }
    await converge([a, b]);
    await equal([a, b]);
    assert.equal(await valueOf(a), write === 'set' ? 'new' : undefined);
    await stopAll([a, b]);
  }
});

test('an expiry that an entry has got while replication did not run is sent, without a feed, too', async () => {
  const server = new MemoryServer();
  const options: DeviceOptions = { feed: false };
  const [a, b] = [await Device.start(server, options), await Device.start(server, options)];
  await notes(a).set('k', 'the same');
  await converge([a, b]);
  a.replica.stop();
  await notes(a).set('k', 'the same', { expireIn: HOUR_MS });
  const again = await a.restart(server, options);
  await converge([again, b]);
  await equal([again, b]);
  assert.ok((await notes(b).getEntry('k'))?.expiresAt !== undefined);
  await stopAll([again, b]);
});
