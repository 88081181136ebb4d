// What happens when more than a message is lost: history of the log, a database that a backup takes the
// place of, the log itself; and large records, fences, and collections that come later.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open, restore } from 'mangrove-kv';
import { MemoryLog, MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import { decodeRecord, encodeRecord } from '../src/record.ts';
import type { LoggedRecord } from '../src/remote-log.ts';
import { runStrict } from '../src/strict.ts';
import { Wire } from '../src/wire.ts';
import { chance, code, withPath } from '../../kv/test/support/kit.ts';
import { Device, converge } from './device.ts';
import type { DeviceOptions } from './device.ts';
import { collections, equal, publish, reconnect, stopAll } from './helpers.ts';

test('a record that was sent is known after a power cut', async () => {
  const server = new MemoryServer();
  const device = await Device.start(server);
  await device.db.collection('notes').set('one', 1);
  await device.exchange();
  await device.db.collection('notes').set('two', 2);
  while (await device.replica.drain());
  await device.replica.publish();
  assert.equal(server.records.length, 2);
  const disk = device.disk.afterPowerCut();
  await device.stop();
  const again = await Device.start(server, { clock: () => Date.now() + 5000 }, disk);
  await again.exchange();
  await again.db.collection('notes').set('three', 3);
  await again.exchange();
  assert.equal(server.records.length, 3);
  assert.equal((await again.replica.state()).formers.length, 0);
  await again.stop();
});

for (const [how, isDrained] of [
  ['clear', false],
  ['drop', false],
  ['drop', true],
] as const) {
  test(`a ${how} that had nothing to remove removes nothing after a restart${isDrained ? ', if it was looked at before' : ''}`, async () => {
    const server = new MemoryServer();
    const [a, b] = [await Device.start(server), await Device.start(server)];
    await b.db.collection('notes').set('k', 1);
    await b.db.collection('notes').delete('k');
    await b.exchange();
    const { length } = server.records;
    if (how === 'clear') await b.db.collection('notes').clear();
    else await b.db.dropCollection('notes');
    await a.db.collection('notes').set('l', 2);
    await a.exchange();
    while (isDrained && (await b.replica.drain()));
    await b.replica.pull();
    assert.equal(await b.db.collection('notes').get('l'), 2);
    const disk = b.disk.copy();
    await b.stop();
    const again = await Device.start(server, {}, disk);
    await converge([again, a]);
    await equal([again, a]);
    assert.equal(server.records.length, length + 1);
    assert.deepEqual(await a.db.collection('notes').entries().toArray(), [['l', 2]]);
    await stopAll([again, a]);
  });
}

test('a database that was restored from a backup goes on, beside the original', async () => {
  await withPath(async (path) => {
    const server = new MemoryServer();
    const original = await Device.start(server, { collections });
    const notes = original.db.collection('notes');
    await notes.setMany(Array.from({ length: 20 }, (_, index) => [`note ${index}`, index] as const));
    await runStrict(original.replica, (tx) => tx.collection('accounts').set('x', 1), {});
    await notes.delete('note 3');
    await original.exchange();
    await notes.set('note 1', 'pending');
    while (await original.replica.drain());
    await notes.set('note 2', 'nobody has read this yet');
    await notes.delete('note 4');
    const backup = await new Response(original.db.backup()).blob();
    await notes.set('note 5', 'after the backup');
    await original.exchange();
    await restore(path, backup);
    const db = await open(path, { feed: true });
    const restored = await Device.adopt(server, { collections }, db);
    assert.notEqual(
      (await restored.replica.state()).device,
      (await original.replica.state()).device,
      'before it reads the log',
    );
    await restored.db.collection('notes').set('new', 1);
    await converge([restored, original]);
    await equal([restored, original]);
    assert.equal(await notes.get('note 1'), 'pending');
    assert.equal(await notes.get('note 2'), 'nobody has read this yet');
    assert.equal(await notes.get('note 5'), 'after the backup');
    assert.deepEqual(
      [await notes.get('note 3'), await notes.get('note 4'), await notes.get('new')],
      [undefined, undefined, 1],
    );
    assert.deepEqual([...restored.alarms, ...original.alarms], []);
    assert.notEqual((await restored.replica.state()).device, (await original.replica.state()).device);
    await stopAll([restored, original]);
  });
});

test('what nobody had read when the backup was made is sent by the restored database', async () => {
  await withPath(async (path) => {
    const server = new MemoryServer();
    const [original, other] = [await Device.start(server), await Device.start(server)];
    await original.db.collection('notes').setMany([
      ['changed', 1],
      ['deleted', 1],
      ['same', 1],
    ]);
    await converge([original, other]);
    await original.db.collection('notes').set('changed', 2);
    await original.db.collection('notes').delete('deleted');
    const backup = await new Response(original.db.backup()).blob();
    await original.stop();
    await restore(path, backup);
    const restored = await Device.adopt(server, {}, await open(path, { feed: true }));
    await converge([restored, other]);
    await equal([restored, other]);
    assert.deepEqual(await other.db.collection('notes').entries().toArray(), [
      ['changed', 2],
      ['same', 1],
    ]);
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
    await c.exchange();
    await reconnect([a, b, c]);
    const late = await Device.start(server, options);
    await converge([a, b, c, late]);
    await equal([a, b, c, late]);
    assert.ok(a.repairs.length + b.repairs.length > 0, 'the application is told');
    assert.deepEqual(JSON.parse(before)[1], [
      'accounts',
      [
        ['x', 10],
        ['y', 20],
      ],
    ]);
    assert.deepEqual(await late.db.collection('accounts').entries().toArray(), [
      ['x', 10],
      ['y', 20],
    ]);
    assert.deepEqual(await late.db.collection('notes').entries().toArray(), [
      ['a1', 'b was here'],
      ['a2', 2],
      ['a3', 3],
      ['c1', 1],
    ]);
    assert.deepEqual(
      [a, b, c, late].flatMap(({ alarms }) => alarms),
      [],
    );
    await stopAll([a, b, c, late]);
  });
}

test('a record that was acknowledged and lost before anybody read it is sent again', async () => {
  const server = new MemoryServer();
  const [a, b] = [await Device.start(server), await Device.start(server)];
  await a.db.collection('notes').set('one', 1);
  await a.exchange();
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
  const [a, b, c, d] = [
    await Device.start(server),
    await Device.start(server),
    await Device.start(server),
    await Device.start(server),
  ];
  await a.db.collection('notes').set('first', 1);
  await converge([a, b, c, d]);
  await publish(a, 'lost');
  await publish(b, 'sent again');
  for (const device of [a, c]) await device.exchange();
  server.loseHistory(1);
  await publish(d, 'of the other history');
  await reconnect([b, a, c, d]);
  await reconnect([a, b, c, d]);
  await equal([a, b, c, d]);
  assert.deepEqual(await d.db.collection('notes').keys().toArray(), [
    'first',
    'lost',
    'of the other history',
    'sent again',
  ]);
  assert.deepEqual(
    [a, b, c, d].flatMap(({ alarms }) => alarms),
    [],
  );
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
  assert.deepEqual(await b.db.collection('notes').entries().toArray(), [
    ['three', 3],
    ['two', 2],
  ]);
  assert.equal(await b.db.collection('accounts').get('x'), 1);
  assert.ok(fresh.repairs.length > 0);
  await stopAll([b, fresh]);
});

test('a record that is missing in the middle raises an alarm and does not stop replication', async () => {
  const server = new MemoryServer();
  const [a, b] = [await Device.start(server), await Device.start(server)];
  for (const key of ['one', 'two', 'three']) {
    await a.db.collection('notes').set(key, key);
    await a.exchange();
  }
  // The middle one is gone.
  const records = server.records as unknown[];
  records.splice(1, 1);
  await b.exchange();
  assert.deepEqual(
    b.alarms.map(({ code }) => code),
    ['KV_REPLICATION_GAP'],
  );
  assert.deepEqual(await b.db.collection('notes').keys().toArray(), ['one', 'three']);
  await stopAll([a, b]);
});

test('a record that cannot be read raises an alarm and does not stop replication', async () => {
  const server = new MemoryServer();
  const [a, b] = [await Device.start(server), await Device.start(server)];
  await a.db.collection('notes').set('one', 1);
  await a.exchange();
  const damaged = await new Wire(undefined).pack(0, { device: 77n, seq: 1, back: 1 }, new Uint8Array([1, 2, 3]));
  damaged[12]! ^= 1;
  server.append(damaged, { idempotencyKey: 'x' });
  await a.db.collection('notes').set('two', 2);
  for (let attempt = 0; attempt < 10; attempt++)
    await converge([a, b]).catch((error: { code: string }) => assert.equal(error.code, 'KV_CORRUPT'));
  await converge([a, b]);
  await equal([a, b]);
  assert.equal(await b.db.collection('notes').get('two'), 2);
  assert.deepEqual(
    b.alarms.map(({ code }) => code),
    ['KV_CORRUPT'],
  );
  await stopAll([a, b]);
});

test('a forged record has no effect where records are sealed', async () => {
  const server = new MemoryServer();
  const key = await crypto.subtle.generateKey({ name: 'AES-GCM', length: 256 }, false, ['encrypt', 'decrypt']);
  const seal = { key, database: 'notes' };
  const [a, b] = [await Device.start(server, { seal }), await Device.start(server, { seal })];
  await a.db.collection('notes').set('secret', 'nobody knows');
  await a.exchange();
  const [first] = server.records;
  assert.ok(first !== undefined && !Buffer.from(first.record).includes('nobody knows'));
  // The same sealed bytes under the next number, and a plain record.
  const { header, body } = decodeRecord(first.record);
  server.append(encodeRecord({ ...header, seq: 2, back: 1 }, body), { idempotencyKey: 'forged' });
  server.append(await new Wire(undefined).pack(0, { device: 5n, seq: 1, back: 1 }, new Uint8Array([0])), {
    idempotencyKey: 'plain',
  });
  for (let attempt = 0; attempt < 12; attempt++) await b.exchange().catch(() => undefined);
  assert.equal(await b.db.collection('notes').get('secret'), 'nobody knows');
  assert.deepEqual(
    b.alarms.map(({ code }) => code),
    ['KV_CORRUPT', 'KV_CORRUPT'],
  );
  await a.exchange().catch(() => undefined);
  for (let attempt = 0; attempt < 12; attempt++) await a.exchange().catch(() => undefined);
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
  await a.db.collection('notes').setMany([
    ['large', large],
    ['large twin', large],
  ]);
  await a.exchange();
  assert.ok(server.records.length > 1);
  for (const { record } of server.records) assert.ok(record.length <= 1 << 20);
  assert.equal((await snapshots.list('blob/')).length, 1, 'the same contents are one object');
  assert.equal(await a.replica.tables.blobs.size, 0);
  await b.exchange();
  await equal([a, b]);
  assert.equal(await b.replica.tables.chunks.size, 0);
  assert.deepEqual(await b.db.collection('notes').get('large'), large);
  assert.deepEqual(await b.db.collection('notes').get('part 15'), many[15]?.[1]);
  await b.db.collection('notes').set('large', 'small now');
  await converge([b, a]);
  await equal([a, b]);
  const without = await Device.start(server);
  await assert.rejects(without.exchange(), code('KV_LOG_REFUSED'));
  await stopAll([a, b, without]);
});

test('parts of a transaction are applied together, across crashes', async () => {
  const server = new MemoryServer();
  const a = await Device.start(server);
  const random = chance(2);
  await a.db
    .collection('notes')
    .setMany(
      Array.from(
        { length: 30 },
        (_, index) => [index, Uint8Array.from({ length: 70_000 }, () => Math.floor(random() * 256))] as const,
      ),
    );
  let disk: Device['disk'] | undefined;
  let seen = 0;
  while (await a.replica.drain());
  while (await a.replica.pull());
  for (let isMore = true; isMore; ) {
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

test('a new only writer fences the old one off', async () => {
  const server = new MemoryServer();
  const old = await Device.start(server, { isExclusive: true });
  await old.replica.fence();
  await old.db.collection('notes').set('one', 1);
  await old.exchange();
  const next = await Device.start(server, { isExclusive: true });
  await next.replica.fence();
  assert.equal(await next.db.collection('notes').get('one'), 1);
  await old.db.collection('notes').set('too late', 1);
  // It does not know of the new one when it sends.
  while (await old.replica.drain());
  await old.replica.publish();
  await assert.rejects(old.exchange(), code('KV_REPLICATION_FENCED'));
  await next.db.collection('notes').set('two', 2);
  await next.exchange();
  await assert.rejects(old.exchange(), code('KV_REPLICATION_FENCED'));
  const reader = await Device.start(server);
  await reader.exchange();
  assert.deepEqual(await reader.db.collection('notes').entries().toArray(), [
    ['one', 1],
    ['two', 2],
  ]);
  // The old owner takes over again and sends its pending records.
  await old.stop();
  const again = await Device.start(server, { isExclusive: true }, old.disk.copy());
  await again.replica.fence();
  await again.exchange();
  assert.equal(await again.db.collection('notes').get('two'), 2);
  await reader.exchange();
  assert.equal(await reader.db.collection('notes').get('too late'), 1);
  await stopAll([next, reader, again]);
});

test('two owners that start at once: one of them is fenced off, and nothing is written twice', async () => {
  const server = new MemoryServer({ delay: () => new Promise((resolve) => setImmediate(resolve)) });
  const both = [await Device.start(server, { isExclusive: true }), await Device.start(server, { isExclusive: true })];
  await Promise.all(both.map((device) => device.replica.fence()));
  const outcomes = await Promise.allSettled(
    both.map(async (device, index) => {
      await device.db.collection('notes').set('owner', index);
      await device.exchange();
    }),
  );
  assert.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 1);
  await stopAll(both);
});

test('a collection that is added later gets what the log already had', async () => {
  const server = new MemoryServer();
  const a = await Device.start(server, { collections: { notes: {}, tasks: {} } });
  await a.db.collection('tasks').set('t', 1);
  await a.db.collection('notes').set('n', 1);
  await a.exchange();
  const b = await Device.start(server, { collections: { notes: {} } });
  await b.db.collection('tasks').set('local', 2);
  await b.db.collection('notes').set('b', 1);
  await b.exchange();
  await b.stop();
  const again = await Device.start(server, { collections: { notes: {}, tasks: {} } }, b.disk.copy());
  await converge([again, a]);
  await equal([again, a]);
  assert.deepEqual(await a.db.collection('tasks').entries().toArray(), [
    ['local', 2],
    ['t', 1],
  ]);
  assert.deepEqual(again.alarms, []);
  await stopAll([a, again]);
});

test('what was written while replication was not running meets what others wrote, although that is read first', async () => {
  const server = new MemoryServer();
  const a = await Device.start(server);
  let b = await Device.start(server);
  await a.db.collection('notes').setMany([
    ['set', 'old'],
    ['deleted', 'old'],
    ['untouched', 'old'],
  ]);
  await converge([a, b]);
  b.replica.stop();
  await b.db.collection('notes').set('set', 'b');
  await b.db.collection('notes').delete('deleted');
  await a.db.collection('notes').setMany([
    ['set', 'a'],
    ['deleted', 'a'],
    ['untouched', 'a'],
  ]);
  await a.exchange();
  b = await b.restart(server, {});
  while (await b.replica.pull());
  assert.deepEqual(
    await b.db.collection('notes').entries().toArray(),
    [
      ['set', 'b'],
      ['untouched', 'a'],
    ],
    'the application sees its writes',
  );
  await converge([b, a]);
  await equal([a, b]);
  // By the clock of its start, what it wrote is later.
  assert.deepEqual(await a.db.collection('notes').entries().toArray(), [
    ['set', 'b'],
    ['untouched', 'a'],
  ]);
  await stopAll([a, b]);
});

test('so is one that was captured while records were applied', async () => {
  const server = new MemoryServer();
  const [device, other] = [await Device.start(server), await Device.start(server)];
  await device.exchange();
  await publish(other, 'theirs');
  await other.exchange();
  await publish(other, 'theirs');
  await device.db.collection('notes').set('one', 1);
  while (await device.replica.pull());
  assert.equal(await device.replica.pending(), 1);
  while (await device.replica.publish());
  const disk = device.disk.afterPowerCut();
  await device.stop();
  const again = await Device.start(server, {}, disk);
  await converge([again, other]);
  assert.equal((await again.replica.state()).formers.length, 0, 'the record is its own');
  await equal([again, other]);
  await stopAll([again, other]);
});

for (const kept of [0, 2]) {
  test(`an only writer goes on when the log has lost what came after position ${kept}`, async () => {
    const server = new MemoryServer();
    const device = await Device.start(server, { isExclusive: true });
    await device.replica.fence();
    for (const key of ['k', 'l', 'm']) {
      await device.db.collection('notes').set(key, 1);
      await device.exchange();
    }
    server.loseHistory(kept);
    await reconnect([device]);
    await device.db.collection('notes').set('n', 1);
    await device.exchange();
    const reader = await Device.start(server);
    await reader.exchange();
    assert.deepEqual(await reader.db.collection('notes').keys().toArray(), ['k', 'l', 'm', 'n']);
    await stopAll([device, reader]);
  });
}

for (const [what, spoil] of [
  [
    'cannot be read',
    (records: readonly LoggedRecord[]) =>
      records.map((each, at) =>
        at === 1 ? { ...each, record: each.record.map((byte, index) => (index === 14 ? byte ^ 1 : byte)) } : each,
      ),
  ],
  ['is missing', (records: readonly LoggedRecord[]) => records.slice(1)],
] as const) {
  test(`a record that ${what} at first, as at a server that is behind, is applied when it is there`, async () => {
    const server = new MemoryServer();
    let left = 3;
    class Log extends MemoryLog {
      override async read(after: number, limit: number): Promise<readonly LoggedRecord[]> {
        const records = await super.read(after, limit);
        return records.length > 1 && left-- > 0 ? spoil(records) : records;
      }
    }
    const [a, b] = [await Device.start(server), await Device.start(server, { log: new Log(server) })];
    for (const key of ['k', 'l']) {
      await a.db.collection('notes').set(key, 1);
      await a.exchange();
    }
    await b.exchange();
    assert.deepEqual(await b.db.collection('notes').keys().toArray(), ['k', 'l']);
    assert.deepEqual(b.alarms, []);
    await stopAll([a, b]);
  });
}

test('what is pending is not found once more by a comparison', async () => {
  const server = new MemoryServer();
  const device = await Device.start(server, { feed: false });
  await device.exchange();
  await device.db.collection('notes').set('k', 1);
  while (await device.replica.drain());
  assert.equal(await device.replica.pending(), 1);
  const again = await device.restart(server, { feed: false });
  await again.exchange();
  assert.equal(server.records.length, 1);
  await again.stop();
});

test('a comparison while a loss is read takes no entries for new writes', async () => {
  const server = new MemoryServer();
  const device = await Device.start(server, { feed: false });
  await device.db.collection('notes').set('k', 1);
  await device.exchange();
  server.loseHistory(0);
  const fresh = await Device.start(server);
  await fresh.db.collection('notes').set('x', 1);
  await fresh.exchange();
  device.replica.reconnect();
  await device.replica.pull();
  assert.equal((await device.replica.state()).rejoin, 'lost');
  const again = await device.restart(server, { feed: false });
  while (await again.replica.drain());
  assert.equal(await again.replica.pending(), 0);
  await converge([again, fresh]);
  await equal([again, fresh]);
  await stopAll([again, fresh]);
});
