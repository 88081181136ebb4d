// What happens when more than a message is lost: history of the log, a device's file, the log
// itself; and copies of files, snapshots, fences, large records.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keyCodecs, open, restore } from 'mangrove-kv';
import { MemoryLog, MemoryServer, MemorySnapshotStore } from '../../src/sync/memory-log.ts';
import { decodeRecord, encodeRecord } from '../../src/sync/record.ts';
import { decodeStamp } from '../../src/sync/rows.ts';
import { runStrict } from '../../src/sync/strict.ts';
import { Wire } from '../../src/sync/wire.ts';
import { chance, code, withPath } from '../support/kit.ts';
import { Device, converge } from './device.ts';
import type { DeviceOptions } from './device.ts';

const collections = { notes: {}, accounts: { mode: 'strict' } } as const;

async function equal(devices: readonly Device[]): Promise<void> {
  const digests = await Promise.all(devices.map((device) => device.digest()));
  for (const digest of digests) assert.equal(digest, digests[0]);
  for (const device of devices) {
    assert.equal(await device.replica.pending(), 0);
    for (const table of device.replica.tables.byName.values()) if (!table.modes.has('strict')) assert.equal(await table.overlay.size, 0);
  }
}

async function stopAll(devices: readonly Device[]): Promise<void> {
  await Promise.all(devices.map((device) => device.stop()));
}

/** Writes an entry and sends it, without reading it back. */
async function publish(device: Device, key: string): Promise<void> {
  await device.db.collection('notes').set(key, key);
  while (await device.replica.drain());
  while (await device.replica.publish());
}

/** What a connection that was interrupted does. */
async function reconnect(devices: readonly Device[]): Promise<void> {
  for (const device of devices) device.replica.reconnect();
  await converge(devices);
}

test('a copied file takes another id, and everything is sent once', async () => {
  const server = new MemoryServer();
  const original = await Device.start(server);
  await original.db.collection('notes').set('shared', 1);
  await original.sync();
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
  await original.sync();
  await copy.sync();
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

test('a record that was sent is known after a power cut', async () => {
  const server = new MemoryServer();
  const device = await Device.start(server);
  await device.db.collection('notes').set('one', 1);
  await device.sync();
  await device.db.collection('notes').set('two', 2);
  while (await device.replica.drain());
  await device.replica.publish();
  assert.equal(server.records.length, 2);
  const disk = device.disk.afterPowerCut();
  await device.stop();
  const again = await Device.start(server, { clock: () => Date.now() + 5000 }, disk);
  await again.sync();
  await again.db.collection('notes').set('three', 3);
  await again.sync();
  assert.equal(server.records.length, 3);
  assert.equal((await again.replica.state()).formers.length, 0);
  await again.stop();
});

test('a file that was put back from an old copy loses nothing that the log has', async () => {
  const server = new MemoryServer();
  const device = await Device.start(server);
  await device.db.collection('notes').set('one', 1);
  await device.sync();
  const old = device.disk.copy();
  await device.db.collection('notes').setMany([['two', 2], ['one', 'changed']]);
  await device.sync();
  await device.stop();
  const again = await Device.start(server, {}, old);
  await again.db.collection('notes').set('three', 3);
  const other = await Device.start(server);
  await converge([again, other]);
  await equal([again, other]);
  assert.deepEqual(await other.db.collection('notes').entries().toArray(), [['one', 'changed'], ['three', 3], ['two', 2]]);
  await stopAll([again, other]);
});

test('a database that was restored from a backup goes on, beside the original', async () => {
  await withPath(async (path) => {
    const server = new MemoryServer();
    const original = await Device.start(server, { collections });
    const notes = original.db.collection('notes');
    await notes.setMany(Array.from({ length: 20 }, (_, index) => [`note ${index}`, index] as const));
    await runStrict(original.replica, (tx) => tx.collection('accounts').set('x', 1), {});
    await notes.delete('note 3');
    await original.sync();
    await notes.set('note 1', 'pending');
    while (await original.replica.drain());
    await notes.set('note 2', 'nobody has read this yet');
    await notes.delete('note 4');
    const backup = await new Response(original.db.backup()).blob();
    await notes.set('note 5', 'after the backup');
    await original.sync();
    await restore(path, backup);
    const db = await open(path, { feed: true });
    const restored = await Device.adopt(server, { collections }, db);
    await restored.db.collection('notes').set('new', 1);
    await converge([restored, original]);
    await equal([restored, original]);
    assert.equal(await notes.get('note 1'), 'pending');
    assert.equal(await notes.get('note 2'), 'nobody has read this yet');
    assert.equal(await notes.get('note 5'), 'after the backup');
    assert.deepEqual([await notes.get('note 3'), await notes.get('note 4'), await notes.get('new')], [undefined, undefined, 1]);
    assert.deepEqual([...restored.alarms, ...original.alarms], []);
    assert.notEqual((await restored.replica.state()).device, (await original.replica.state()).device);
    await stopAll([restored, original]);
  });
});

test('what nobody had read when the backup was made is sent by the restored database', async () => {
  await withPath(async (path) => {
    const server = new MemoryServer();
    const [original, other] = [await Device.start(server), await Device.start(server)];
    await original.db.collection('notes').setMany([['changed', 1], ['deleted', 1], ['same', 1]]);
    await converge([original, other]);
    await original.db.collection('notes').set('changed', 2);
    await original.db.collection('notes').delete('deleted');
    const backup = await new Response(original.db.backup()).blob();
    await original.stop();
    await restore(path, backup);
    const restored = await Device.adopt(server, {}, await open(path, { feed: true }));
    await converge([restored, other]);
    await equal([restored, other]);
    assert.deepEqual(await other.db.collection('notes').entries().toArray(), [['changed', 2], ['same', 1]]);
    // One for what was changed, and one for what was deleted.
    assert.equal(server.records.length, 3);
    await stopAll([restored, other]);
  });
});

for (const kept of [0, 2, 4]) {
  test(`history that the servers lost after position ${kept} is put back by the devices`, async () => {
    const server = new MemoryServer();
    const options: DeviceOptions = { collections };
    const [a, b] = [await Device.start(server, options), await Device.start(server, options)];
    const ofA = a.db.collection('notes');
    await ofA.set('a1', 1);
    await converge([a, b]);
    await b.db.collection('notes').set('b1', 1);
    await converge([b, a]);
    await runStrict(a.replica, (tx) => tx.collection('accounts').set('x', 10), {});
    await ofA.set('a2', 2);
    await ofA.delete('b1');
    await converge([a, b]);
    await runStrict(b.replica, (tx) => tx.collection('accounts').set('y', 20), {});
    await b.db.collection('notes').set('a1', 'b was here');
    await converge([b, a]);
    const before = await a.digest();
    server.loseHistory(kept);
    await ofA.set('a3', 3);
    // Somebody new writes to what is left before the others notice.
    const c = await Device.start(server, options);
    await c.db.collection('notes').set('c1', 1);
    await c.sync();
    await reconnect([a, b, c]);
    const late = await Device.start(server, options);
    await converge([a, b, c, late]);
    await equal([a, b, c, late]);
    assert.ok(a.repairs.length + b.repairs.length > 0, 'the application is told');
    assert.deepEqual(JSON.parse(before)[1], ['accounts', [['x', 10], ['y', 20]]]);
    assert.deepEqual(await late.db.collection('accounts').entries().toArray(), [['x', 10], ['y', 20]]);
    assert.deepEqual(await late.db.collection('notes').entries().toArray(), [['a1', 'b was here'], ['a2', 2], ['a3', 3], ['c1', 1]]);
    assert.deepEqual([a, b, c, late].flatMap(({ alarms }) => alarms), []);
    await stopAll([a, b, c, late]);
  });
}

test('a record that was acknowledged and lost before anybody read it is sent again', async () => {
  const server = new MemoryServer();
  const [a, b] = [await Device.start(server), await Device.start(server)];
  await a.db.collection('notes').set('one', 1);
  await a.sync();
  await a.db.collection('notes').set('two', 2);
  while (await a.replica.drain());
  await a.replica.publish();
  server.loseHistory(1);
  await converge([a, b]);
  await equal([a, b]);
  assert.equal(await b.db.collection('notes').get('two'), 2);
  await stopAll([a, b]);
});

test('another history is noticed, although its newest record is the same one at the same position', async () => {
  let now = 1000 * 86_400_000;
  const server = new MemoryServer({ serverTime: () => now++ });
  const [a, b, c, d] = [await Device.start(server), await Device.start(server), await Device.start(server), await Device.start(server)];
  await a.db.collection('notes').set('first', 1);
  await converge([a, b, c, d]);
  await publish(a, 'lost');
  await publish(b, 'sent again');
  for (const device of [a, c]) await device.sync();
  server.loseHistory(1);
  await publish(d, 'of the other history');
  await reconnect([b, a, c, d]);
  await reconnect([a, b, c, d]);
  await equal([a, b, c, d]);
  assert.deepEqual(await d.db.collection('notes').keys().toArray(), ['first', 'lost', 'of the other history', 'sent again']);
  assert.deepEqual([a, b, c, d].flatMap(({ alarms }) => alarms), []);
  await stopAll([a, b, c, d]);
});

test('a log that lost what a snapshot has gets it back', async () => {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const options: DeviceOptions = { collections, snapshots };
  const [a, b] = [await Device.start(server, options), await Device.start(server, options)];
  await a.db.collection('notes').set('one', 1);
  await converge([a, b]);
  await a.db.collection('notes').set('two', 2);
  await runStrict(a.replica, (tx) => tx.collection('accounts').set('x', 1), {});
  await a.db.collection('notes').delete('one');
  await a.replica.compact();
  server.loseHistory(1);
  await a.stop();
  // Nobody but the snapshot has it now.
  await b.db.collection('notes').set('three', 3);
  const fresh = await Device.start(server, options);
  await reconnect([b, fresh]);
  await reconnect([b, fresh]);
  await equal([b, fresh]);
  assert.deepEqual(await b.db.collection('notes').entries().toArray(), [['three', 3], ['two', 2]]);
  assert.equal(await b.db.collection('accounts').get('x'), 1);
  assert.ok(fresh.repairs.length > 0);
  await stopAll([b, fresh]);
});

test('a record that is missing in the middle raises an alarm and does not stop sync', async () => {
  const server = new MemoryServer();
  const [a, b] = [await Device.start(server), await Device.start(server)];
  for (const key of ['one', 'two', 'three']) {
    await a.db.collection('notes').set(key, key);
    await a.sync();
  }
  // The middle one is gone.
  const records = server.records as unknown[];
  records.splice(1, 1);
  await b.sync();
  assert.deepEqual(b.alarms.map(({ code }) => code), ['KV_SYNC_GAP']);
  assert.deepEqual(await b.db.collection('notes').keys().toArray(), ['one', 'three']);
  await stopAll([a, b]);
});

test('a record that cannot be read raises an alarm and does not stop sync', async () => {
  const server = new MemoryServer();
  const [a, b] = [await Device.start(server), await Device.start(server)];
  await a.db.collection('notes').set('one', 1);
  await a.sync();
  const damaged = await new Wire(undefined).pack(0, 77n, 1, new Uint8Array([1, 2, 3]));
  damaged[12]! ^= 1;
  server.append(damaged, { idempotencyKey: 'x' });
  await a.db.collection('notes').set('two', 2);
  for (let attempt = 0; attempt < 10; attempt++) await converge([a, b]).catch((error: { code: string }) => assert.equal(error.code, 'KV_CORRUPT'));
  await converge([a, b]);
  await equal([a, b]);
  assert.equal(await b.db.collection('notes').get('two'), 2);
  assert.deepEqual(b.alarms.map(({ code }) => code), ['KV_CORRUPT']);
  await stopAll([a, b]);
});

test('a forged record has no effect where records are sealed', async () => {
  const server = new MemoryServer();
  const key = await crypto.subtle.generateKey({ name: 'AES-GCM', length: 256 }, false, ['encrypt', 'decrypt']);
  const seal = { key, database: 'notes' };
  const [a, b] = [await Device.start(server, { seal }), await Device.start(server, { seal })];
  await a.db.collection('notes').set('secret', 'nobody knows');
  await a.sync();
  const [first] = server.records;
  assert.ok(first !== undefined && !Buffer.from(first.record).includes('nobody knows'));
  // The same sealed bytes under the next number, and a plain record.
  const { header, body } = decodeRecord(first.record);
  server.append(encodeRecord({ ...header, seq: 2 }, body), { idempotencyKey: 'forged' });
  server.append(await new Wire(undefined).pack(0, 5n, 1, new Uint8Array([0])), { idempotencyKey: 'plain' });
  for (let attempt = 0; attempt < 12; attempt++) await b.sync().catch(() => undefined);
  assert.equal(await b.db.collection('notes').get('secret'), 'nobody knows');
  assert.deepEqual(b.alarms.map(({ code }) => code), ['KV_CORRUPT', 'KV_CORRUPT']);
  await a.sync().catch(() => undefined);
  for (let attempt = 0; attempt < 12; attempt++) await a.sync().catch(() => undefined);
  await a.db.collection('notes').set('more', 1);
  await converge([a, b]);
  await equal([a, b]);
  await stopAll([a, b]);
});

test('a transaction of many megabytes arrives whole, and large values are objects of their own', async () => {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const [a, b] = [await Device.start(server, { snapshots }), await Device.start(server, { snapshots })];
  const random = chance(1);
  const noise = (length: number): Uint8Array => Uint8Array.from({ length }, () => Math.floor(random() * 256));
  const many = Array.from({ length: 16 }, (_, index) => [`part ${index}`, noise(100_000)] as const);
  await a.db.collection('notes').setMany(many);
  const large = noise(600_000);
  await a.db.collection('notes').setMany([['large', large], ['large twin', large]]);
  await a.sync();
  assert.ok(server.records.length > 1);
  for (const { record } of server.records) assert.ok(record.length <= 1 << 20);
  assert.equal((await snapshots.list('blob/')).length, 1, 'the same contents are one object');
  assert.equal(await a.replica.tables.blobs.size, 0);
  await b.sync();
  await equal([a, b]);
  assert.equal(await b.replica.tables.chunks.size, 0);
  assert.deepEqual(await b.db.collection('notes').get('large'), large);
  assert.deepEqual(await b.db.collection('notes').get('part 15'), many[15]?.[1]);
  await b.db.collection('notes').set('large', 'small now');
  await converge([b, a]);
  await equal([a, b]);
  const without = await Device.start(server);
  await assert.rejects(without.sync(), code('KV_LOG_REFUSED'));
  await stopAll([a, b, without]);
});

test('parts of a transaction are applied together, across crashes', async () => {
  const server = new MemoryServer();
  const a = await Device.start(server);
  const random = chance(2);
  await a.db.collection('notes').setMany(Array.from({ length: 30 }, (_, index) => [index, Uint8Array.from({ length: 70_000 }, () => Math.floor(random() * 256))] as const));
  let disk: Device['disk'] | undefined;
  let seen = 0;
  while (await a.replica.drain());
  while (await a.replica.pull());
  for (let isMore = true; isMore;) {
    isMore = await a.replica.publish();
    const b: Device = await Device.start(server, {}, disk);
    while (await b.replica.pull());
    const size = await b.db.collection('notes').size;
    assert.ok(size === 0 || size === 30, `${size} of 30 entries`);
    seen = size;
    disk = b.disk.copy();
    await b.stop();
  }
  assert.equal(seen, 30);
  await a.stop();
});

test('a snapshot takes the place of the log before it', async () => {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const options: DeviceOptions = { collections, snapshots };
  const [a, sleeper] = [await Device.start(server, options), await Device.start(server, options)];
  const notes = a.db.collection('notes');
  await notes.setMany(Array.from({ length: 700 }, (_, index) => [index, `note ${index}`] as const));
  await runStrict(a.replica, (tx) => tx.collection('accounts').set('x', 1), {});
  await converge([a, sleeper]);
  // It goes on without the log.
  await sleeper.db.collection('notes').set('offline', 'from the sleeper');
  await sleeper.db.collection('notes').set(7, 'also from the sleeper');
  while (await sleeper.replica.drain());
  for (let round = 0; round < 4; round++) {
    await notes.delete(round);
    await notes.set(100 + round, 'changed');
    await notes.set('expiring', round, { expireAt: Date.now() + 1e6 });
    await runStrict(a.replica, (tx) => tx.collection('accounts').set('x', round + 2), {});
    const made = await a.replica.compact();
    assert.ok(made !== undefined && made.position > 0);
  }
  assert.equal((await snapshots.list('snapshot/')).length, 2);
  assert.ok((server.records[0]?.position ?? 0) > 1, 'the log was cut off');
  assert.equal(await a.replica.compact(), undefined, 'nothing new');
  await notes.set('after the snapshot', 1);
  await a.sync();
  const fresh = await Device.start(server, options);
  await converge([fresh, sleeper, a]);
  await equal([a, sleeper, fresh]);
  assert.equal(await fresh.db.collection('notes').get('offline'), 'from the sleeper');
  assert.equal(await fresh.db.collection('notes').get(7), 'also from the sleeper');
  assert.equal(await sleeper.db.collection('notes').get(0), undefined);
  assert.equal(await fresh.db.collection('accounts').get('x'), 5);
  // What came from a snapshot can be changed like everything else.
  await fresh.db.collection('notes').set(500, 'by the fresh one');
  await runStrict(fresh.replica, (tx) => tx.collection<string, number>('accounts').update('x', (old = 0) => old + 1), {});
  await converge([fresh, a, sleeper]);
  await equal([a, sleeper, fresh]);
  assert.deepEqual([a, sleeper, fresh].flatMap(({ alarms }) => alarms), []);
  const without = await Device.start(server, { collections });
  await assert.rejects(without.sync(), code('KV_LOG_TRUNCATED'));
  await stopAll([a, sleeper, fresh, without]);
});

test('rows of a snapshot are the same in an empty database and in one that has others', async () => {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const start = Date.now();
  let now = start;
  const options: DeviceOptions = { collections, snapshots, clock: () => now };
  const [a, used] = [await Device.start(server, options), await Device.start(server, options)];
  const notes = a.db.collection<string, string>('notes');
  await notes.set('b', 'first');
  await runStrict(a.replica, (tx) => tx.collection('accounts').set('b', 1), {});
  await converge([a, used]);
  await notes.setMany([['a', 'kept'], ['c', 'deleted'], ['d', '']]);
  await notes.set('soon', 'gone', { expireAt: start + 60_000 });
  await notes.set('later', 'there', { expireAt: start + 600_000 });
  await runStrict(a.replica, (tx) => {
    tx.collection('accounts').set('a', 1);
    tx.collection('accounts').set('c', 1);
  }, {});
  await notes.delete('c');
  await a.replica.compact();
  await runStrict(a.replica, (tx) => tx.collection('accounts').delete('c'), {});
  await a.replica.compact();
  assert.ok((server.records[0]?.position ?? 0) > (await used.replica.state()).cursor.position, 'the log begins later');
  now = start + 120_000;
  const fresh = await Device.start(server, options);
  await reconnect([used, fresh]);
  for (const table of fresh.replica.tables.byName.values()) {
    const [mine, theirs] = await Promise.all([fresh, used].map(async ({ db, replica }) => {
      const rows = replica.tables.byName.get(table.name) as typeof table;
      const stamps = await rows.stamps.entries().toArray();
      return {
        entries: (await db.collection(table.name).entries({ meta: true }).toArray()).map(({ key, value, expiresAt }) => ({ key, value, expiresAt })),
        stamps: stamps.map(([key, bytes]) => ({ key, ...decodeStamp(bytes), dataVersion: 0 })),
        overlay: await rows.overlay.entries().toArray(),
      };
    }));
    assert.deepEqual(mine, theirs, table.name);
  }
  assert.deepEqual(await fresh.db.collection('notes').keys().toArray(), ['a', 'b', 'd', 'later']);
  // A write past sync is undone by the copy.
  await fresh.db.collection('accounts').set('a', 2);
  await fresh.sync();
  assert.equal(await fresh.db.collection('accounts').get('a'), 1);
  await stopAll([a, used, fresh]);
});

for (const key of [undefined, keyCodecs.string, keyCodecs.tuple<readonly string[]>()] as const) {
  test(`what was written before sync began is not lost to a snapshot (keys: ${key?.id ?? 'default'})`, async () => {
    const server = new MemoryServer();
    const snapshots = new MemorySnapshotStore();
    const options = { snapshots, collections: { notes: { key } } } as DeviceOptions;
    const named = (text: string): unknown => (key?.id === 'tuple' ? [text] : text);
    const a = await Device.start(server, options);
    const theirs = a.db.collection<unknown, string>('notes', { key: key as never });
    for (const text of ['a', 'k', 'z']) await theirs.set(named(text), 'theirs');
    await a.replica.compact();
    await theirs.set(named('last'), 'theirs');
    await a.replica.compact();
    const db = await open('device', { storage: 'memory', feed: true });
    const mine = db.collection<unknown, string>('notes', { key: key as never });
    for (const text of ['k', 'm']) await mine.set(named(text), 'mine');
    const b = await Device.adopt(server, options, db);
    // The snapshot arrives before the scan has captured the local entries.
    while (await b.replica.pull());
    assert.equal(await mine.get(named('k')), 'mine');
    await converge([b, a]);
    for (const notes of [mine, theirs]) assert.deepEqual(await notes.values().toArray(), ['theirs', 'mine', 'theirs', 'mine', 'theirs']);
    await stopAll([a, b]);
  });
}

test('a record that was sent before a snapshot and never came back is confirmed by it', async () => {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const [a, sleeper] = [await Device.start(server, { snapshots }), await Device.start(server, { snapshots })];
  await converge([a, sleeper]);
  await sleeper.db.collection('notes').set('sent', 1);
  while (await sleeper.replica.drain());
  await sleeper.replica.publish();
  await sleeper.db.collection('notes').set('not sent', 2);
  while (await sleeper.replica.drain());
  for (let round = 0; round < 3; round++) {
    await a.db.collection('notes').set('round', round);
    await a.replica.compact();
  }
  assert.ok((server.records[0]?.position ?? 0) > 2);
  await reconnect([sleeper, a]);
  await equal([sleeper, a]);
  assert.equal(await a.db.collection('notes').get('not sent'), 2);
  assert.deepEqual(sleeper.conflicts, []);
  await stopAll([a, sleeper]);
});

/** Writes as long as a device's first records are in the log, which only its snapshot has afterwards. */
async function cutOff(server: MemoryServer, device: Device): Promise<void> {
  const end = server.records.at(-1)?.position ?? 0;
  for (let round = 0; (server.records[0]?.position ?? 0) <= end; round++) {
    assert.ok(round < 5);
    await device.db.collection('notes').set('round', round);
    await device.replica.compact();
  }
}

// What two copies of a file have in their outboxes when one of them has sent its records, and a
// snapshot has taken their place in the log.
for (const [name, { sent = 0, before, mine, theirs }] of Object.entries<{ sent?: number; before: number; mine: number; theirs: number }>({
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
    if (sent > 0) await original.sync();
    await write(original, 'before', before);
    const copy = await Device.start(server, options, original.disk.copy());
    await write(original, 'theirs', theirs);
    await write(copy, 'mine', mine);
    const id = (await copy.replica.state()).device;
    await cutOff(server, original);
    copy.replica.reconnect();
    await copy.sync();
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
  assert.deepEqual(await other.db.collection('notes').keys().toArray(), ['first', 'lost', 'not lost', 'of the copy', 'round']);
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
    await device.sync();
  }
  await device.stop();
  await other.sync();
  await cutOff(server, other);
  const again = await Device.start(server, options, old);
  await again.db.collection('notes').set('anew', 1);
  await converge([again, other]);
  await equal([again, other]);
  assert.equal(await other.db.collection('notes').get('anew'), 1);
  assert.equal(await again.db.collection('notes').size, 6);
  await stopAll([again, other]);
});

test('a device that slept while a tombstone was forgotten deletes the entry', async () => {
  let now = 1000 * 86_400_000;
  const server = new MemoryServer({ serverTime: () => now });
  const options: DeviceOptions = { snapshots: new MemorySnapshotStore(), clock: () => now };
  const [a, sleeper] = [await Device.start(server, options), await Device.start(server, options)];
  await a.db.collection('notes').setMany([['gone', 1], ['kept', 2]]);
  await converge([a, sleeper]);
  await a.db.collection('notes').delete('gone');
  await a.sync();
  now += 100 * 86_400_000;
  for (let round = 0; round < 3; round++) {
    await a.db.collection('notes').set('round', round);
    await a.replica.compact();
  }
  const fresh = await Device.start(server, options);
  await converge([sleeper, a, fresh]);
  await equal([a, sleeper, fresh]);
  assert.deepEqual(await sleeper.db.collection('notes').keys().toArray(), ['kept', 'round']);
  assert.equal(await fresh.replica.tables.byName.get('notes')?.stamps.size, 2, 'the tombstone is forgotten');
  await stopAll([a, sleeper, fresh]);
});

for (const heard of [0, 1, 2]) {
  test(`a manifest that lags behind, of ${heard} snapshots out of three, is no lost history: what was deleted stays deleted`, async () => {
    let now = 1000 * 86_400_000;
    const server = new MemoryServer({ serverTime: () => now });
    const options: DeviceOptions = { snapshots: new MemorySnapshotStore(), clock: () => now };
    const log = new MemoryLog(server);
    const [a, sleeper] = [await Device.start(server, options), await Device.start(server, { ...options, log })];
    await a.db.collection('notes').setMany([['gone', 1], ['kept', 2]]);
    await converge([a, sleeper]);
    await a.db.collection('notes').delete('gone');
    await a.sync();
    now += 100 * 86_400_000;
    let stale = await log.manifest();
    for (let round = 1; round <= 3; round++) {
      await a.db.collection('notes').set('round', round);
      await a.replica.compact();
      if (round === heard) stale = await log.manifest();
    }
    log.manifest = async () => stale;
    sleeper.replica.reconnect();
    // The snapshot before the newest one still does.
    if (heard < 2) await assert.rejects(sleeper.sync(), { code: 'KV_LOG_UNAVAILABLE', retryable: true });
    else await sleeper.sync();
    delete (log as Partial<MemoryLog>).manifest;
    await converge([sleeper, a]);
    await equal([a, sleeper]);
    assert.deepEqual(await sleeper.db.collection('notes').keys().toArray(), ['kept', 'round']);
    assert.deepEqual([sleeper.repairs, sleeper.alarms], [[], []]);
    await stopAll([a, sleeper]);
  });
}

test('loading a snapshot can be interrupted at every operation of the disk', async () => {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const a = await Device.start(server, { snapshots });
  await a.db.collection('notes').setMany(Array.from({ length: 50 }, (_, index) => [index, index] as const));
  for (let round = 0; round < 3; round++) {
    await a.db.collection('notes').set('round', round);
    await a.replica.compact();
  }
  let isDone = false;
  for (let operations = 0; !isDone; operations++) {
    const first = await Device.start(server, { snapshots });
    first.disk.left = operations;
    isDone = await first.sync().then(() => true, () => false);
    first.replica.stop();
    const disk = first.disk.afterPowerCut();
    await first.stop();
    const again = await Device.start(server, { snapshots }, disk);
    await again.sync();
    await equal([a, again]);
    await again.stop();
  }
  await a.stop();
});

test('a damaged snapshot is refused', async () => {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const a = await Device.start(server, { snapshots });
  await a.db.collection('notes').setMany(Array.from({ length: 200 }, (_, index) => [index, 'x'.repeat(100)] as const));
  await a.replica.compact();
  const [name = ''] = await snapshots.list('snapshot/');
  const bytes = new Uint8Array(await new Response(await snapshots.get(name) as ReadableStream<Uint8Array<ArrayBuffer>>).arrayBuffer());
  const put = async (changed: Uint8Array): Promise<void> => {
    await snapshots.delete(name);
    await snapshots.put(name, new Blob([changed as Uint8Array<ArrayBuffer>]).stream());
  };
  const header = 8 + new DataView(bytes.buffer).getUint32(0);
  for (const changed of [bytes.subarray(0, bytes.length - 5), bytes.subarray(0, 0), bytes.subarray(0, header), bytes.map((byte, index) => (index === 700 ? byte ^ 1 : byte))]) {
    await put(changed);
    const b = await Device.start(server, { snapshots });
    await assert.rejects(b.sync(), code('KV_CORRUPT'));
    await b.stop();
  }
  await put(bytes);
  const b = await Device.start(server, { snapshots });
  await converge([a, b]);
  await equal([a, b]);
  await stopAll([a, b]);
});

test('a new only writer fences the old one off', async () => {
  const server = new MemoryServer();
  const old = await Device.start(server, { isExclusive: true });
  await old.replica.fence();
  await old.db.collection('notes').set('one', 1);
  await old.sync();
  const next = await Device.start(server, { isExclusive: true });
  await next.replica.fence();
  assert.equal(await next.db.collection('notes').get('one'), 1);
  await old.db.collection('notes').set('too late', 1);
  // It does not know of the new one when it sends.
  while (await old.replica.drain());
  await old.replica.publish();
  await assert.rejects(old.sync(), code('KV_SYNC_FENCED'));
  await next.db.collection('notes').set('two', 2);
  await next.sync();
  await assert.rejects(old.sync(), code('KV_SYNC_FENCED'));
  const reader = await Device.start(server);
  await reader.sync();
  assert.deepEqual(await reader.db.collection('notes').entries().toArray(), [['one', 1], ['two', 2]]);
  // The old owner takes over again and sends its pending records.
  await old.stop();
  const again = await Device.start(server, { isExclusive: true }, old.disk.copy());
  await again.replica.fence();
  await again.sync();
  assert.equal(await again.db.collection('notes').get('two'), 2);
  await reader.sync();
  assert.equal(await reader.db.collection('notes').get('too late'), 1);
  await stopAll([next, reader, again]);
});

test('two owners that start at once: one of them is fenced off, and nothing is written twice', async () => {
  const server = new MemoryServer({ delay: () => new Promise((resolve) => setImmediate(resolve)) });
  const both = [await Device.start(server, { isExclusive: true }), await Device.start(server, { isExclusive: true })];
  await Promise.all(both.map((device) => device.replica.fence()));
  const outcomes = await Promise.allSettled(both.map(async (device, index) => {
    await device.db.collection('notes').set('owner', index);
    await device.sync();
  }));
  assert.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 1);
  await stopAll(both);
});

test('a collection that is added later gets what the log already had', async () => {
  const server = new MemoryServer();
  const a = await Device.start(server, { collections: { notes: {}, tasks: {} } });
  await a.db.collection('tasks').set('t', 1);
  await a.db.collection('notes').set('n', 1);
  await a.sync();
  const b = await Device.start(server, { collections: { notes: {} } });
  await b.db.collection('tasks').set('local', 2);
  await b.db.collection('notes').set('b', 1);
  await b.sync();
  await b.stop();
  const again = await Device.start(server, { collections: { notes: {}, tasks: {} } }, b.disk.copy());
  await converge([again, a]);
  await equal([again, a]);
  assert.deepEqual(await a.db.collection('tasks').entries().toArray(), [['local', 2], ['t', 1]]);
  assert.deepEqual(again.alarms, []);
  await stopAll([a, again]);
});


test('databases that share an object store keep their snapshots', async () => {
  const snapshots = new MemorySnapshotStore();
  const servers = [new MemoryServer(), new MemoryServer()];
  const devices = await Promise.all(servers.map((server) => Device.start(server, { snapshots })));
  for (let round = 0; round < 4; round++) {
    for (const [at, device] of devices.entries()) {
      await device.db.collection('notes').set(`of ${at}`, round);
      await device.replica.compact();
    }
    // The newest of each and the one before it.
    assert.equal((await snapshots.list('snapshot/')).length, 2 * Math.min(round + 1, 2));
  }
  for (const [at, server] of servers.entries()) {
    const late = await Device.start(server, { snapshots });
    await late.sync();
    assert.equal(await late.digest(), await (devices[at] as Device).digest());
    await late.stop();
  }
  await Promise.all(devices.map((device) => device.stop()));
});
