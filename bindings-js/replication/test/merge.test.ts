// Merge mode: what devices exchange, who wins, and what the loser learns.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keyCodecs, valueCodecs } from 'mangrove-kv';
import { MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import { toHlc } from '../src/clock.ts';
import { REPAIR, encodeBody, encodeRecord } from '../src/record.ts';
import { Device, converge } from './device.ts';
import type { DeviceOptions } from './device.ts';
import { cutOff, stopAll } from './helpers.ts';

async function withDevices(
  count: number,
  use: (devices: Device[], server: MemoryServer) => Promise<void>,
  options: DeviceOptions = {},
): Promise<void> {
  const server = new MemoryServer();
  const devices = await Promise.all(Array.from({ length: count }, () => Device.start(server, options)));
  try {
    await use(devices, server);
  } finally {
    await Promise.all(devices.map((device) => device.stop()));
  }
}

async function equal(devices: readonly Device[]): Promise<void> {
  const digests = await Promise.all(devices.map((device) => device.digest()));
  for (const digest of digests) assert.equal(digest, digests[0]);
}

test('what one device writes arrives at the others', async () => {
  await withDevices(2, async ([a, b]) => {
    const notes = a!.db.collection('notes');
    await notes.set('one', { text: 'eins' });
    await notes.setMany([
      ['two', 2],
      ['three', 3],
    ]);
    await notes.delete('two');
    await a!.exchange();
    await b!.exchange();
    assert.deepEqual(await b!.db.collection('notes').entries().toArray(), [
      ['one', { text: 'eins' }],
      ['three', 3],
    ]);
    assert.deepEqual(await b!.db.collections(), ['notes']);
    await b!.db.collection('notes').set('one', 'changed');
    await b!.db.collection('notes').delete('three');
    await converge([a!, b!]);
    assert.deepEqual(await notes.entries().toArray(), [['one', 'changed']]);
    assert.deepEqual([a!.conflicts, b!.conflicts, a!.alarms, b!.alarms], [[], [], [], []]);
  });
});

test('the later of two concurrent writes wins everywhere, and the loser learns of it', async () => {
  let now = 1_000_000;
  await withDevices(
    3,
    async (devices) => {
      const [a, b] = devices as [Device, Device, Device];
      await a.db.collection('notes').set('k', 'first');
      now += 10;
      while (await a.replica.drain());
      await b.db.collection('notes').set('k', 'second');
      now += 10;
      while (await b.replica.drain());
      await converge([b, a, ...devices]);
      await equal(devices);
      assert.equal(await a.db.collection('notes').get('k'), 'second');
      assert.equal(a.conflicts.length, 1);
      const [conflict] = a.conflicts;
      assert.ok(conflict?.mine && conflict.theirs);
      assert.equal(new TextDecoder().decode(conflict.mine.value.slice(1)), 'first');
      assert.equal(new TextDecoder().decode(conflict.theirs.value.slice(1)), 'second');
      assert.deepEqual(b.conflicts, []);
    },
    { clock: () => now },
  );
});

test('a local write that nobody has read yet is not overwritten', async () => {
  await withDevices(2, async ([a, b]) => {
    await a!.db.collection('notes').set('k', 'theirs');
    await a!.exchange();
    await b!.db.collection('notes').set('k', 'mine');
    // The record is applied before the commit is read from the feed.
    while (await b!.replica.pull());
    assert.equal(await b!.db.collection('notes').get('k'), 'mine');
    await converge([b!, a!]);
    await equal([a!, b!]);
    assert.equal(await a!.db.collection('notes').get('k'), 'mine');
  });
});

test('an entry that was written again stays while the record before it comes back and loses', async () => {
  let now = 1_000_000;
  await withDevices(
    2,
    async ([a, b]) => {
      await a!.db.collection('notes').set('k', 'one');
      while (await a!.replica.drain());
      now += 1000;
      await b!.db.collection('notes').set('k', 'theirs');
      await b!.exchange();
      await a!.replica.pull();
      await a!.replica.pull();
      await a!.replica.publish();
      await a!.db.collection('notes').set('k', 'two');
      while (await a!.replica.pull());
      assert.equal(await a!.db.collection('notes').get('k'), 'two');
      now += 1000;
      await converge([a!, b!]);
      await equal([a!, b!]);
      assert.equal(await b!.db.collection('notes').get('k'), 'two');
    },
    { clock: () => now },
  );
});

test('a record that is delivered again later has no effect', async () => {
  await withDevices(2, async ([a, b], server) => {
    for (const value of ['one', 'two', 'three']) {
      await a!.db.collection('notes').set('k', value);
      await a!.exchange();
    }
    const [first] = server.records;
    server.append(first!.record, { idempotencyKey: 'late' });
    await converge([b!, a!]);
    await equal([a!, b!]);
    assert.equal(await b!.db.collection('notes').get('k'), 'three');
    await a!.db.collection('notes').set('k', 'four');
    await converge([a!, b!]);
    assert.equal(await b!.db.collection('notes').get('k'), 'four');
    assert.deepEqual([a!.alarms, b!.alarms], [[], []]);
  });
});

test('a delete that nobody has read yet stays a delete', async () => {
  let now = Date.now();
  await withDevices(
    2,
    async ([a, b]) => {
      await a!.db.collection('notes').set('k', 1);
      await converge([a!, b!]);
      await a!.db.collection('notes').set('k', 2);
      await a!.exchange();
      now += 1;
      await b!.db.collection('notes').delete('k');
      while (await b!.replica.pull());
      assert.equal(await b!.db.collection('notes').get('k'), undefined);
      await converge([b!, a!]);
      await equal([a!, b!]);
      assert.equal(await a!.db.collection('notes').get('k'), undefined);
    },
    { clock: () => now },
  );
});

test('a clear removes what was there, and leaves what comes later', async () => {
  await withDevices(2, async ([a, b]) => {
    const notes = a!.db.collection<string, number>('notes');
    await notes.setMany([
      ['a', 1],
      ['b', 2],
      ['c', 3],
    ]);
    await converge([a!, b!]);
    await notes.clear({ gte: 'b' });
    await notes.set('c', 4);
    await b!.db.collection('notes').set('d', 5);
    await converge([b!, a!]);
    await equal([a!, b!]);
    assert.equal(await notes.get('b'), undefined);
    assert.equal(await notes.get('c'), 4);
    await b!.db.dropCollection('notes');
    await converge([b!, a!]);
    await equal([a!, b!]);
    assert.equal(await notes.size, 0);
  });
});

test('entries from before replication was started are sent, and so are those that no feed has', async () => {
  const server = new MemoryServer();
  const first = await Device.start(server);
  await first.db.collection('notes').set('early', 1);
  await first.exchange();
  // Without replication, and with a feed that forgets.
  const disk = first.disk.copy();
  await first.stop();
  const { open } = await import('mangrove-kv');
  const alone = await open('device', {
    storage: disk,
    feed: { retainCommits: 2 },
    advanced: { unitBytes: 512, nodeBytes: 2048 },
  });
  for (let index = 0; index < 20; index++) await alone.collection('notes').set(`late ${index}`, index);
  await alone.collection('notes').delete('early');
  await alone.collection('notes').delete('late 3');
  await alone.close();
  const [again, other] = [await Device.start(server, {}, disk), await Device.start(server)];
  await converge([again, other]);
  await equal([again, other]);
  assert.equal(await other.db.collection('notes').size, 19);
  await Promise.all([again.stop(), other.stop()]);
});

test('what arrives is not sent again', async () => {
  await withDevices(2, async ([a, b], server) => {
    await a!.db.collection('notes').set('k', 1);
    await converge([a!, b!]);
    await converge([a!, b!]);
    assert.equal(server.records.length, 1);
  });
});

test('entries keep their expiry, and the removal of an expired one is no delete', async () => {
  await withDevices(2, async ([a, b], server) => {
    const [soon, late] = [Date.now() + 50, Date.now() + 1e9];
    await a!.db.batch().collection('notes').set('k', 1, { expireAt: soon }).set('l', 1, { expireAt: late }).commit();
    await converge([a!, b!]);
    assert.equal((await b!.db.collection('notes').getEntry('l'))?.expiresAt, late);
    while (Date.now() <= soon) await new Promise((resolve) => setTimeout(resolve, 10));
    await a!.db.purgeExpired();
    await b!.db.purgeExpired();
    await converge([a!, b!]);
    assert.equal(server.records.length, 1);
    await equal([a!, b!]);
    await b!.db.collection('notes').set('k', 2);
    await converge([a!, b!]);
    await equal([a!, b!]);
    assert.equal(await a!.db.collection('notes').get('k'), 2);
  });
});

test('indexes follow on each device', async () => {
  const indexes = { byAuthor: { key: (note: { author: string }) => note.author } };
  await withDevices(
    2,
    async ([a, b]) => {
      await a!.db.collection<string, { author: string }>('notes', { indexes }).set('k', { author: 'ada' });
      await converge([a!, b!]);
      const notes = b!.db.collection<string, { author: string }>('notes', { indexes });
      assert.deepEqual(
        await notes
          .index('byAuthor')
          .keys({ eq: 'ada' } as never)
          .toArray(),
        ['k'],
      );
      await b!.db.collection<string, { author: string }>('notes', { indexes }).set('k', { author: 'eve' });
      await converge([a!, b!]);
      assert.deepEqual(
        await a!.db
          .collection<string, { author: string }>('notes', { indexes })
          .index('byAuthor')
          .keys({ eq: 'eve' } as never)
          .toArray(),
        ['k'],
      );
    },
    { collections: { notes: { indexes: indexes as never } } },
  );
});

test('a renamed collection is compared as a whole', async () => {
  await withDevices(2, async ([a, b]) => {
    await a!.db.collection('drafts').set('k', 1);
    await a!.db.collection('drafts').set('l', 2);
    await a!.exchange();
    await a!.db.renameCollection('drafts', 'notes');
    await a!.exchange();
    await b!.exchange();
    assert.deepEqual(await b!.db.collection('notes').entries().toArray(), [
      ['k', 1],
      ['l', 2],
    ]);
    await a!.db.renameCollection('notes', 'old');
    await converge([a!, b!]);
    assert.equal(await b!.db.collection('notes').size, 0);
  });
});

test('a clock that is days ahead does not win for days', async () => {
  let [now, ahead] = [10 * 86_400_000, 3 * 86_400_000];
  const server = new MemoryServer({ serverTime: () => now });
  const fast = await Device.start(server, { clock: () => now + ahead });
  const right = await Device.start(server, { clock: () => now });
  await fast.db.collection('notes').set('k', 'from the future');
  await fast.exchange();
  now += 120_000;
  // It has not seen the other write, and comes two minutes later.
  await right.db.collection('notes').set('k', 'now');
  while (await right.replica.drain());
  await converge([right, fast]);
  await equal([fast, right]);
  assert.equal(await right.db.collection('notes').get('k'), 'now');
  ahead = -3 * 86_400_000;
  // A device with a slow clock can replace a value that it has seen.
  await fast.db.collection('notes').set('k', 'seen and replaced');
  await converge([fast, right]);
  await equal([fast, right]);
  assert.equal(await right.db.collection('notes').get('k'), 'seen and replaced');
  await Promise.all([fast.stop(), right.stop()]);
});

const MANY = Array.from({ length: 300 }, (_, index) => [`x${index}`, index] as const);
const REMOVALS: readonly (readonly [string, (device: Device) => Promise<unknown>])[] = [
  ['delete', (device) => device.db.collection('notes').delete('k')],
  ['clear', (device) => device.db.collection('notes').clear({ prefix: 'k' })],
  ['clear of everything', (device) => device.db.collection('notes').clear()],
  ['drop', (device) => device.db.dropCollection('notes')],
];

for (const [name, remove] of REMOVALS) {
  for (const where of ['a record', 'a snapshot', 'a record behind one of its own']) {
    test(`a key that was set and removed (${name}) stays removed where ${where} arrives before both are read`, async () => {
      let now = 1_000_000;
      const snapshots = new MemorySnapshotStore();
      await withDevices(
        2,
        async (devices, server) => {
          const [a, b] = devices as [Device, Device];
          for (const device of devices) while (await device.replica.drain());
          if (where === 'a record behind one of its own') {
            await b.db.collection('notes').set('k', 'own');
            while (await b.replica.drain());
            while (await b.replica.publish());
          }
          await a.db.collection('notes').set('k', 'theirs');
          await a.exchange();
          if (where === 'a snapshot') {
            await cutOff(server, a);
            await a.replica.compact();
          }
          now += 10;
          // More than one record takes: set and removal are read in different commits.
          await b.db.collection('notes').setMany([...MANY, ['k', 'mine']]);
          await remove(b);
          while (await b.replica.pull());
          assert.equal(await b.db.collection('notes').get('k'), undefined, 'the application has removed it');
          while (await b.replica.drain());
          assert.equal(await b.db.collection('notes').get('k'), undefined, 'nothing brings it back');
          await converge(devices);
          assert.equal(await b.db.collection('notes').get('k'), undefined);
          await equal(devices);
        },
        { clock: () => now, snapshots },
      );
    });
  }
}

test('a repair whose stamp is years ahead counts as written now', async () => {
  let now = 1_700_000_000_000;
  const server = new MemoryServer({ serverTime: () => now });
  const devices = [
    await Device.start(server, { clock: () => now }),
    await Device.start(server, { clock: () => now }),
  ] as const;
  const [a] = devices;
  const forged = (h: bigint, seq: number): Uint8Array =>
    encodeRecord(
      { flags: REPAIR, device: 7n, seq, back: 1 },
      encodeBody({
        n: seq,
        declared: new Map([['notes', '{"key":"any","value":"structured","mode":"merge"}']]),
        transactions: [
          {
            base: 0,
            hlc: 0n,
            ops: [
              {
                type: 'set',
                collection: 'notes',
                key: keyCodecs.any.encode('k').slice(),
                value: valueCodecs.structured().encode('forged').slice(),
                expiresAt: 0,
                stamp: { h, device: 7n, n: seq, isStrict: false },
              },
            ],
          },
        ],
      }),
    );
  server.append(forged(toHlc(now + 50 * 365 * 86_400_000), 1), { idempotencyKey: '1' });
  server.append(forged(2n ** 64n - 1n, 2), { idempotencyKey: '2' });
  const offline = await Device.start(server, { clock: () => now });
  now += 120_000;
  // It does not know the repairs.
  await offline.db.collection('notes').set('k', 'two minutes later');
  while (await offline.replica.drain());
  await converge([a, offline, ...devices]);
  await equal([...devices, offline]);
  assert.equal(await a.db.collection('notes').get('k'), 'two minutes later');
  await Promise.all([...devices, offline].map((device) => device.stop()));
});

test('a clear beside what arrives leaves or removes it on all devices alike', async () => {
  for (const range of [undefined, { gte: 'b' }, { gte: 'k', lt: 'l' }]) {
    await withDevices(2, async ([a, b]) => {
      const [theirs, mine] = [a!.db.collection<string, string>('notes'), b!.db.collection<string, string>('notes')];
      await theirs.setMany([
        ['c', 'before'],
        ['k0', 'before'],
      ]);
      await converge([a!, b!]);
      await theirs.setMany([
        ['k1', 'arrives'],
        ['k0', 'arrives'],
      ]);
      await a!.exchange();
      // The commit that applies it has its snapshot before the clear, and comes behind it.
      const { pace } = b!.replica.tables;
      const rest = pace.rest.bind(pace);
      let isCleared = false;
      pace.rest = async () => {
        if (!isCleared) {
          isCleared = true;
          await (range === undefined ? mine.clear() : mine.clear(range as never));
        }
        return rest();
      };
      while (await b!.replica.pull());
      assert.ok(isCleared);
      await converge([b!, a!]);
      await equal([a!, b!]);
    });
  }
});

test('a removal that had no effect has none after a restart either', async () => {
  for (const remove of [
    (device: Device) => device.db.dropCollection('notes'),
    (device: Device) => device.db.collection('notes').clear(),
    (device: Device) => device.db.collection('notes').delete('k'),
  ]) {
    const server = new MemoryServer();
    const [a, b] = [await Device.start(server), await Device.start(server)];
    await a.db.collection('other').set('x', 1);
    await converge([a, b]);
    await remove(b);
    await b.exchange();
    await a.db.collection('notes').set('k', 'written since');
    await converge([a, b]);
    const again = await b.restart(server, {});
    await converge([again, a]);
    await equal([again, a]);
    assert.equal(await a.db.collection('notes').get('k'), 'written since');
    await stopAll([again, a]);
  }
});
