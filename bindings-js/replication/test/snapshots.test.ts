// Snapshots, which take the place of the log before them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keyCodecs, open } from 'mangrove-kv';
import { MemoryLog, MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import { decodeRow } from '../src/row.ts';
import { runStrict } from '../src/strict.ts';
import { code } from '../../kv/test/support/kit.ts';
import { Device, converge } from './device.ts';
import type { DeviceOptions } from './device.ts';
import { collections, cutOff, equal, reconnect, stopAll } from './helpers.ts';
import { crc32c } from '../src/bytes.ts';
import { decodeBody, decodeRecord } from '../src/record.ts';
import { decodeOutbox } from '../src/state.ts';
import { collect, toStream } from '../src/wire.ts';

for (const compactions of [1, 2, 3]) {
  test(`a device that stayed before a loss has the same base as those that load a snapshot, after ${compactions} compactions`, async () => {
    const server = new MemoryServer();
    const snapshots = new MemorySnapshotStore();
    const [a, b, behind] = [
      await Device.start(server, { snapshots }),
      await Device.start(server, { snapshots }),
      await Device.start(server, { snapshots }),
    ];
    const notes = a.db.collection('notes');
    for (let round = 0; round < compactions; round++) {
      await notes.set('k', round);
      await notes.set(`l${round}`, round);
      await converge([a, b, behind]);
      await a.replica.compact();
    }
    await b.exchange();
    // The check of the compaction is lost, which one device has not read.
    server.loseHistory((await behind.replica.state()).cursor.position);
    await reconnect([behind, b, a]);
    const fresh = await Device.start(server, { snapshots });
    await converge([fresh, a, b, behind]);
    await equal([a, b, behind, fresh]);
    const digests = await Promise.all(
      [a, b, behind, fresh].map(async ({ replica }) => (await replica.state()).digests),
    );
    for (const digest of digests) assert.deepEqual(digest, digests[0]);
    await notes.set('more', 1);
    await a.replica.compact();
    await converge([a, b, behind, fresh]);
    assert.deepEqual(
      [a, b, behind, fresh].flatMap(({ alarms }) => alarms),
      [],
    );
    await stopAll([a, b, behind, fresh]);
  });
}

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
  await a.exchange();
  const fresh = await Device.start(server, options);
  await converge([fresh, sleeper, a]);
  await equal([a, sleeper, fresh]);
  assert.equal(await fresh.db.collection('notes').get('offline'), 'from the sleeper');
  assert.equal(await fresh.db.collection('notes').get(7), 'also from the sleeper');
  assert.equal(await sleeper.db.collection('notes').get(0), undefined);
  assert.equal(await fresh.db.collection('accounts').get('x'), 5);
  // What came from a snapshot can be changed like everything else.
  await fresh.db.collection('notes').set(500, 'by the fresh one');
  await runStrict(
    fresh.replica,
    (tx) => tx.collection<string, number>('accounts').update('x', (old = 0) => old + 1),
    {},
  );
  await converge([fresh, a, sleeper]);
  await equal([a, sleeper, fresh]);
  assert.deepEqual(
    [a, sleeper, fresh].flatMap(({ alarms }) => alarms),
    [],
  );
  const without = await Device.start(server, { collections });
  await assert.rejects(without.exchange(), code('KV_LOG_TRUNCATED'));
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
  await notes.setMany([
    ['a', 'kept'],
    ['c', 'deleted'],
    ['d', ''],
  ]);
  await notes.set('soon', 'gone', { expireAt: start + 60_000 });
  await notes.set('later', 'there', { expireAt: start + 600_000 });
  await runStrict(
    a.replica,
    (tx) => {
      tx.collection('accounts').set('a', 1);
      tx.collection('accounts').set('c', 1);
    },
    {},
  );
  await notes.delete('c');
  await a.replica.compact();
  await runStrict(a.replica, (tx) => tx.collection('accounts').delete('c'), {});
  await a.replica.compact();
  assert.ok((server.records[0]?.position ?? 0) > (await used.replica.state()).cursor.position, 'the log begins later');
  now = start + 120_000;
  const fresh = await Device.start(server, options);
  await reconnect([used, fresh]);
  for (const table of fresh.replica.tables.byName.values()) {
    const [mine, theirs] = await Promise.all(
      [fresh, used].map(async ({ db, replica }) => {
        const rows = replica.tables.byName.get(table.name) as typeof table;
        return {
          entries: (await db.collection(table.name).entries({ meta: true }).toArray()).map(
            ({ key, value, expiresAt }) => ({ key, value, expiresAt }),
          ),
          rows: (await rows.rows.entries().toArray()).map(([key, bytes]) => ({ key, ...decodeRow(bytes), history: 0 })),
        };
      }),
    );
    assert.deepEqual(mine, theirs, table.name);
  }
  // By the log's time nothing has expired.
  assert.deepEqual(await fresh.db.collection('notes').keys().toArray(), ['a', 'b', 'd', 'later', 'soon']);
  // A write past replication is undone by the copy.
  await fresh.db.collection('accounts').set('a', 2);
  await fresh.exchange();
  assert.equal(await fresh.db.collection('accounts').get('a'), 1);
  await stopAll([a, used, fresh]);
});

for (const key of [undefined, keyCodecs.string, keyCodecs.tuple<readonly string[]>()] as const) {
  test(`what was written before replication began is not lost to a snapshot (keys: ${key?.id ?? 'default'})`, async () => {
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
    for (const notes of [mine, theirs])
      assert.deepEqual(await notes.values().toArray(), ['theirs', 'mine', 'theirs', 'mine', 'theirs']);
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
  const { nextTicket } = await sleeper.replica.state();
  await reconnect([sleeper, a]);
  assert.equal((await sleeper.replica.state()).nextTicket, nextTicket, 'it is not sent again');
  await equal([sleeper, a]);
  assert.equal(await a.db.collection('notes').get('not sent'), 2);
  assert.deepEqual(sleeper.conflicts, []);
  await stopAll([a, sleeper]);
});

test('a check that was sent before a snapshot and never came back is confirmed by it', async () => {
  let [isArmed, isDown] = [false, false];
  const server = new MemoryServer({
    isUnreachable: () => isDown,
    isReplyLost: (call) => (isArmed && call === 'append' ? (isDown = true) : false),
  });
  const snapshots = new MemorySnapshotStore();
  const [a, b] = [await Device.start(server, { snapshots }), await Device.start(server, { snapshots })];
  await a.db.collection('notes').set('k', 1);
  await converge([a, b]);
  isArmed = true;
  await assert.rejects(b.replica.compact(), code('KV_LOG_UNAVAILABLE'));
  [isArmed, isDown] = [false, false];
  assert.equal(await b.replica.pending(), 1, 'the check');
  await cutOff(server, a);
  b.replica.reconnect();
  await converge([b, a]);
  await equal([a, b]);
  assert.deepEqual([...a.alarms, ...b.alarms], []);
  await stopAll([a, b]);
});

test('a device that slept while a tombstone was forgotten deletes the entry', async () => {
  let now = 1000 * 86_400_000;
  const server = new MemoryServer({ serverTime: () => now });
  const options: DeviceOptions = { snapshots: new MemorySnapshotStore(), clock: () => now };
  const [a, sleeper] = [await Device.start(server, options), await Device.start(server, options)];
  await a.db.collection('notes').setMany([
    ['gone', 1],
    ['kept', 2],
  ]);
  await converge([a, sleeper]);
  await a.db.collection('notes').delete('gone');
  await a.exchange();
  now += 100 * 86_400_000;
  for (let round = 0; round < 3; round++) {
    await a.db.collection('notes').set('round', round);
    await a.replica.compact();
  }
  const fresh = await Device.start(server, options);
  await converge([sleeper, a, fresh]);
  await equal([a, sleeper, fresh]);
  assert.deepEqual(await sleeper.db.collection('notes').keys().toArray(), ['kept', 'round']);
  assert.equal(await fresh.replica.tables.byName.get('notes')?.rows.size, 2, 'the tombstone is forgotten');
  await stopAll([a, sleeper, fresh]);
});

for (const heard of [0, 1, 2]) {
  test(`a manifest that lags behind, of ${heard} snapshots out of three, is no lost history: what was deleted stays deleted`, async () => {
    let now = 1000 * 86_400_000;
    const server = new MemoryServer({ serverTime: () => now });
    const options: DeviceOptions = { snapshots: new MemorySnapshotStore(), clock: () => now };
    const log = new MemoryLog(server);
    const [a, sleeper] = [await Device.start(server, options), await Device.start(server, { ...options, log })];
    await a.db.collection('notes').setMany([
      ['gone', 1],
      ['kept', 2],
    ]);
    await converge([a, sleeper]);
    await a.db.collection('notes').delete('gone');
    await a.exchange();
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
    if (heard < 2) await assert.rejects(sleeper.exchange(), { code: 'KV_LOG_UNAVAILABLE', retryable: true });
    else await sleeper.exchange();
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
    isDone = await first.exchange().then(
      () => true,
      () => false,
    );
    first.replica.stop();
    const disk = first.disk.afterPowerCut();
    await first.stop();
    const again = await Device.start(server, { snapshots }, disk);
    await again.exchange();
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
  const bytes = new Uint8Array(
    await new Response((await snapshots.get(name)) as ReadableStream<Uint8Array<ArrayBuffer>>).arrayBuffer(),
  );
  const put = async (changed: Uint8Array): Promise<void> => {
    await snapshots.delete(name);
    await snapshots.put(name, new Blob([changed as Uint8Array<ArrayBuffer>]).stream());
  };
  const header = 8 + new DataView(bytes.buffer).getUint32(0);
  for (const changed of [
    bytes.subarray(0, bytes.length - 5),
    bytes.subarray(0, 0),
    bytes.subarray(0, header),
    bytes.map((byte, index) => (index === 700 ? byte ^ 1 : byte)),
  ]) {
    await put(changed);
    const b = await Device.start(server, { snapshots });
    await assert.rejects(b.exchange(), code('KV_CORRUPT'));
    await b.stop();
  }
  await put(bytes);
  const b = await Device.start(server, { snapshots });
  await converge([a, b]);
  await equal([a, b]);
  await stopAll([a, b]);
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
    await late.exchange();
    assert.equal(await late.digest(), await (devices[at] as Device).digest());
    await late.stop();
  }
  await Promise.all(devices.map((device) => device.stop()));
});

test('a unique key that another entry has got meanwhile stops no device that comes back by a snapshot', async () => {
  const server = new MemoryServer();
  const indexes = { byEmail: { key: (user: { email: string }) => user.email, unique: true } };
  const options = {
    snapshots: new MemorySnapshotStore(),
    collections: { users: { mode: 'strict', indexes: indexes as never }, notes: {} },
  } as const;
  const [a, b] = [await Device.start(server, options), await Device.start(server, options)];
  const users = ({ db }: Device) => db.collection<string, { email: string }>('users', { indexes });
  const write = (emails: readonly (readonly [key: string, email: string])[]): Promise<unknown> =>
    runStrict(
      a.replica,
      async (tx) => {
        for (const [key, email] of emails) await tx.collection(users(a) as never).set(key as never, { email } as never);
      },
      {},
    );
  const between = Array.from({ length: 600 }, (_, at) => [`m${at}`, `m${at}`] as const);
  await write([['z', 'x'], ...between]);
  await converge([a, b]);
  await write([
    ['z', 'y'],
    ['a', 'x'],
  ]);
  await cutOff(server, a);
  b.replica.reconnect();
  await converge([b, a]);
  assert.deepEqual(await Promise.all(['a', 'z'].map(async (key) => (await users(b).get(key))?.email)), ['x', 'y']);
  await stopAll([a, b]);
});

test('nothing is sent before what follows a snapshot was read', async () => {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const [a, b] = [await Device.start(server, { snapshots }), await Device.start(server, { snapshots })];
  await b.db.collection('notes').set('k', 1);
  await converge([a, b]);
  await cutOff(server, b);
  await a.db.collection('notes').set('mine', 1);
  while (await a.replica.drain());
  await a.replica.pull();
  assert.equal((await a.replica.state()).rejoin, 'reread');
  const { length } = server.records;
  assert.equal(await a.replica.publish(), false);
  assert.equal(server.records.length, length);
  await converge([a, b]);
  await equal([a, b]);
  await stopAll([a, b]);
});

const START = 1_600_000_000_000;

/** A store, and devices with a clock years ago: whatever this machine's clock says counts nowhere. */
function longAgo(): {
  readonly clock: { now: number };
  readonly server: MemoryServer;
  readonly options: DeviceOptions;
} {
  const clock = { now: START };
  return {
    clock,
    server: new MemoryServer({ serverTime: () => clock.now }),
    options: { snapshots: new MemorySnapshotStore(), clock: () => clock.now },
  };
}

const rowOf = async ({ replica }: Device, key: string) => {
  const row = await replica.tables.byName.get('notes')!.rows.get(keyCodecs.any.encode(key).slice());
  return row && decodeRow(row);
};

test("a snapshot has the tombstones that a device may not know yet, the log's time, and what that will end", async () => {
  const { clock, server, options } = longAgo();
  const a = await Device.start(server, { ...options, clock: () => clock.now + 30_000 });
  const notes = a.db.collection('notes');
  await notes.setMany([
    ['gone', 1],
    ['kept', 2],
  ]);
  await notes.set('short', 3, { expireAt: START + 200 * 365 * 86_400_000 });
  await a.exchange();
  await notes.delete('gone');
  await a.exchange();
  await cutOff(server, a);
  const fresh = await Device.start(server, options);
  await fresh.exchange();
  assert.deepEqual((await rowOf(fresh, 'gone'))?.base, (await rowOf(a, 'gone'))?.base);
  assert.equal((await rowOf(fresh, 'gone'))?.base?.stamp.isDead, true);
  assert.equal((await fresh.replica.state()).time, (await a.replica.state()).time);
  assert.equal(await fresh.replica.tables.expiring.size, 1);
  // What it writes is later than what it has got.
  await fresh.db.collection('notes').set('more', 1);
  while (await fresh.replica.drain());
  const [, bytes] = (await fresh.replica.tables.outbox.last()) ?? [];
  const { transactions } = decodeBody(decodeOutbox(bytes as Uint8Array).body);
  assert.ok(transactions[0]!.hlc > (await rowOf(fresh, 'round'))!.base!.stamp.h);
  await stopAll([a, fresh]);
});

test('a transaction of which a snapshot has some parts becomes whole', async () => {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const [a, b] = [
    await Device.start(server, { snapshots, isInMemory: true }),
    await Device.start(server, { snapshots, isInMemory: true }),
  ];
  await converge([a, b]);
  await a.db.transaction(async (tx) => {
    for (let key = 0; key < 18; key++)
      await tx.collection(a.db.collection('notes')).set(
        `k${key}`,
        Array.from({ length: 20_000 }, () => Math.random()),
      );
  });
  while (await a.replica.drain());
  assert.ok((await a.replica.pending()) > 2);
  const { nextTicket } = await a.replica.state();
  // Not the last ones.
  await a.replica.publish();
  await a.replica.publish();
  await b.exchange();
  await cutOff(server, b);
  const fresh = await Device.start(server, { snapshots, isInMemory: true });
  await fresh.exchange();
  await converge([a, b, fresh]);
  assert.equal(await fresh.db.collection('notes').size, 19);
  await equal([a, b, fresh]);
  assert.equal((await a.replica.state()).nextTicket, nextTicket, 'nothing is sent again');
  assert.deepEqual(
    [a, b, fresh].flatMap(({ alarms }) => alarms),
    [],
  );
  await stopAll([a, b, fresh]);
});

test('a write that is made while a snapshot is begun is not in it', async () => {
  const server = new MemoryServer();
  const log = new MemoryLog(server);
  const snapshots = new MemorySnapshotStore();
  const a = await Device.start(server, { snapshots, log });
  await a.db.collection('notes').set('k', 'confirmed');
  await a.exchange();
  const manifest = log.manifest.bind(log);
  log.manifest = async () => {
    // The check is the newest record then: nothing settles any more.
    if (server.records.length === 2) await a.db.collection('notes').set('k', 'not confirmed');
    return manifest();
  };
  await assert.rejects(a.replica.compact(), { code: 'KV_LOG_UNAVAILABLE', retryable: true });
  assert.equal(await manifest(), undefined);
  log.manifest = manifest;
  await a.replica.compact();
  const fresh = await Device.start(server, { snapshots });
  await fresh.exchange();
  assert.equal(await fresh.db.collection('notes').get('k'), 'not confirmed');
  await stopAll([a, fresh]);
});

test('a snapshot whose parts do not agree is refused', async () => {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const a = await Device.start(server, { snapshots });
  await a.db.collection('notes').setMany([
    ['k', 1],
    ['l', 2],
  ]);
  await a.replica.compact();
  await cutOff(server, a);
  const key = (await snapshots.list('snapshot/')).at(-1) as string;
  const whole = await collect((await snapshots.get(key))!);
  const blocks: Uint8Array[] = [];
  for (let at = 0; at < whole.length; ) {
    const length = new DataView(whole.buffer, at).getUint32(0);
    blocks.push(whole.slice(at + 8, at + 8 + length));
    at += 8 + length;
  }
  const frame = (bytes: Uint8Array): Uint8Array => {
    const head = new DataView(new ArrayBuffer(8));
    head.setUint32(0, bytes.length);
    head.setUint32(4, crc32c(bytes));
    return Buffer.concat([new Uint8Array(head.buffer), bytes]);
  };
  const [header, last] = [
    JSON.parse(new TextDecoder().decode(blocks[0])) as { digests: { notes: [number, number] } },
    blocks.at(-1) as Uint8Array,
  ];
  // It ends with the kind of the end, and the number of rows.
  assert.deepEqual([...last.slice(-2)], [4, 3]);
  const digests = { ...header, digests: { notes: [header.digests.notes[0], header.digests.notes[1] + 1] } };
  const damaged: readonly (readonly [string, readonly Uint8Array[]])[] = [
    ['without its end', [...blocks.slice(0, -1), last.slice(0, -2)]],
    ['with another number of rows', [...blocks.slice(0, -1), Uint8Array.from([...last.slice(0, -1), 4])]],
    ['with another digest', [new TextEncoder().encode(JSON.stringify(digests)), ...blocks.slice(1)]],
  ];
  for (const [what, given] of [...damaged, ['as it was', blocks] as const]) {
    await snapshots.delete(key);
    await snapshots.put(key, toStream(Buffer.concat(given.map(frame))));
    const fresh = await Device.start(server, { snapshots });
    if (what === 'as it was') await fresh.exchange();
    else await assert.rejects(fresh.replica.pull(), code('KV_CORRUPT'), what);
    await fresh.stop();
  }
  await a.stop();
});

test('a manifest of a newer version is not taken for one of this', async () => {
  const server = new MemoryServer();
  const log = new MemoryLog(server);
  await log.replaceManifest(
    0,
    new TextEncoder().encode(JSON.stringify({ version: 2, position: 1, key: 'snapshot/x/1', purged: 0 })),
  );
  const device = await Device.start(server, { snapshots: new MemorySnapshotStore() });
  await assert.rejects(device.replica.pull(), code('KV_VERSION_UNSUPPORTED'));
  await device.stop();
});

test('a log that lost what both snapshots have gets all of it back, and devices that stayed have the same base', async () => {
  const server = new MemoryServer();
  const known: DeviceOptions = { collections: { notes: {}, tasks: {} }, snapshots: new MemorySnapshotStore() };
  const a = await Device.start(server, known);
  await a.db.collection('notes').set('k', 1);
  await a.db.collection('tasks').set('t', 1);
  const first = await a.replica.compact();
  await a.db.collection('notes').set('l', 1);
  await a.replica.compact();
  server.loseHistory((first?.position ?? 0) - 1);
  // It does not name all collections of the snapshots.
  const old = await Device.start(server, { snapshots: known.snapshots! });
  await old.exchange();
  const back = server.records
    .flatMap(({ record }) => decodeBody(decodeRecord(record).body).transactions)
    .flatMap(({ ops }) =>
      ops.map((op) => `${op.collection} ${op.type === 'clear' ? '' : String(keyCodecs.any.decode(op.key))}`),
    );
  assert.deepEqual(back.sort(), ['notes k', 'notes l', 'tasks t']);
  await reconnect([a]);
  const fresh = await Device.start(server, known);
  await converge([fresh, old, a]);
  for (const device of [a, fresh]) {
    assert.deepEqual(await device.db.collection('notes').keys().toArray(), ['k', 'l']);
    assert.deepEqual(await device.db.collection('tasks').keys().toArray(), ['t']);
  }
  const digests = await Promise.all([a, old, fresh].map(async ({ replica }) => (await replica.state()).digests));
  for (const digest of digests) assert.deepEqual(digest, digests[0]);
  await stopAll([a, old, fresh]);
});
