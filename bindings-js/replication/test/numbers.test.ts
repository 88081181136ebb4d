// Numbers of records: what a device does when its own record does not come back as it was sent.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryLog, MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import { decodeRecord } from '../src/record.ts';
import type { LoggedRecord, Position } from '../src/remote-log.ts';
import { runStrict } from '../src/strict.ts';
import { Device, converge } from './device.ts';
import { equal, publish, reconnect, stopAll } from './helpers.ts';

const accounts = { collections: { notes: {}, accounts: { mode: 'strict' } } } as const;

/** A log that fails when a device goes on reading and never settles. */
class BoundedLog extends MemoryLog {
  #left = 3000;

  override read(after: Position, limit: number): Promise<readonly LoggedRecord[]> {
    if (--this.#left < 0) throw new Error('the device does not settle');
    return super.read(after, limit);
  }
}

/** A log that never shows a record, or shows it damaged, and remembers repeated appends for ever. */
class DamagedLog extends BoundedLog {
  static positions = new Set<Position>();
  static isMissing = false;

  override async read(after: Position, limit: number): Promise<readonly LoggedRecord[]> {
    const records = await super.read(after, limit);
    const damage = ({ record }: LoggedRecord): Uint8Array =>
      record.map((byte, at) => (at === record.length - 8 ? byte ^ 1 : byte));
    return records
      .filter(({ position }) => !DamagedLog.isMissing || !DamagedLog.positions.has(position))
      .map((each) => (DamagedLog.positions.has(each.position) ? { ...each, record: damage(each) } : each));
  }
}

async function send(device: Device): Promise<void> {
  while (await device.replica.drain());
  while (await device.replica.publish());
}

for (const isMissing of [false, true]) {
  for (const isLast of [false, true]) {
    const what = `${isMissing ? 'is missing' : 'is damaged'} ${isLast ? 'at the end' : 'before others'}`;
    test(`a record that ${what} when its writer reads it is sent again under another number`, async () => {
      const server = new MemoryServer();
      DamagedLog.isMissing = isMissing;
      DamagedLog.positions = new Set();
      const devices = await Promise.all([1, 2].map(() => Device.start(server, { log: new DamagedLog(server) })));
      const [a, b] = devices as [Device, Device];
      await a.db.collection('notes').set('zero', 0);
      await converge(devices);
      await a.db.collection('notes').set('one', 'acknowledged');
      await send(a);
      DamagedLog.positions.add(server.records.at(-1)!.position);
      if (!isLast) {
        await a.db.collection('notes').set('two', 2);
        await send(a);
      }
      await converge(devices);
      await a.db.collection('notes').set('three', 3);
      await converge(devices);
      assert.equal(await b.db.collection('notes').get('one'), 'acknowledged');
      await equal(devices);
      // Nor after a restart.
      const disk = a.disk.copy();
      await a.stop();
      const again = await Device.start(server, { log: new DamagedLog(server) }, disk);
      await converge([again, b]);
      await equal([again, b]);
      await stopAll([again, b]);
    });
  }
}

test('a record whose append was acknowledged and had no effect is repeated under its number first', async () => {
  let isLost = false;
  const server = new MemoryServer();
  class LosingLog extends BoundedLog {
    override async append(record: Uint8Array, options: Parameters<MemoryLog['append']>[1]): Promise<Position> {
      if (!isLost) return super.append(record, options);
      isLost = false;
      return server.records.at(-1)!.position + 1;
    }
  }
  const device = await Device.start(server, { log: new LosingLog(server) });
  for (const key of ['zero', 'one']) {
    await device.db.collection('notes').set(key, 0);
    await device.exchange();
  }
  isLost = true;
  await device.db.collection('notes').set('two', 2);
  await device.exchange();
  assert.deepEqual(
    server.records.map(({ record }) => decodeRecord(record).header.seq),
    [1, 2, 3],
  );
  assert.deepEqual((await device.replica.state()).formers, [], 'it keeps its id');
  await device.stop();
});

test('a record that is under way while the device gets another id is sent again, from number 1', async () => {
  let hold: (() => void) | undefined;
  let isHeld = false;
  const server = new MemoryServer();
  class SlowLog extends BoundedLog {
    override async append(...given: Parameters<MemoryLog['append']>): Promise<Position> {
      const position = await super.append(...given);
      if (isHeld)
        await new Promise<void>((resolve) => {
          hold = resolve;
        });
      return position;
    }
  }
  const devices = await Promise.all([Device.start(server, { log: new SlowLog(server) }), Device.start(server)]);
  const [a, b] = devices as [Device, Device];
  await a.db.collection('notes').set('zero', 0);
  await converge(devices);
  await b.db.collection('notes').set('one', 1);
  await converge(devices);
  await a.db.collection('notes').set('under way', 'acknowledged');
  while (await a.replica.drain());
  isHeld = true;
  const sending = a.replica.publish();
  while (hold === undefined) await new Promise((resolve) => setTimeout(resolve, 1));
  server.loseHistory(1);
  a.replica.reconnect();
  while (await a.replica.pull());
  isHeld = false;
  hold();
  await sending;
  await a.db.collection('notes').set('later', 2);
  while (await a.replica.pull());
  await send(a);
  await reconnect(devices);
  for (const { record } of server.records) assert.ok(decodeRecord(record).header.seq > 0);
  assert.equal(await b.db.collection('notes').get('under way'), 'acknowledged');
  await equal(devices);
  await stopAll(devices);
});

for (const how of ['loses its history', 'has the records of a copy of the device'] as const) {
  for (const read of [1, 2]) {
    test(`a transaction of several records, ${read} of which came back before the log ${how}, is whole`, async () => {
      const server = new MemoryServer();
      const devices = await Promise.all([Device.start(server), Device.start(server)]);
      const [a, b] = devices as [Device, Device];
      await a.db.collection('notes').set('zero', 0);
      await converge(devices);
      const disk = how === 'loses its history' ? undefined : a.disk.copy();
      const copy = disk && (await Device.start(server, {}, disk));
      await copy?.exchange();
      const before = server.records.at(-1)!.position;
      const large = Array.from(
        { length: 30 },
        (_, index) =>
          [`large ${index}`, new Uint8Array(100_000).map((_byte, at) => (at * 31 + index * 7) ^ (at >> 5))] as const,
      );
      await a.db.collection('notes').setMany(large);
      while (await a.replica.drain());
      for (let sent = 0; sent < read; sent++) {
        assert.ok(await a.replica.publish());
        while (await a.replica.pull());
      }
      if (copy === undefined) server.loseHistory(before);
      else {
        // It uses the same numbers: its last one comes before the record that has it here.
        server.forgetKeys();
        const records = server.records.length;
        for (let count = 0; count <= read; count++) {
          await copy.db.collection('notes').set(`from the copy ${count}`, count);
          while (await copy.replica.drain());
          while (await copy.replica.publish());
        }
        assert.equal(server.records.length, records + read + 1);
      }
      const all = copy === undefined ? devices : [...devices, copy];
      await reconnect(all);
      await reconnect(all);
      for (const [key, value] of large) assert.deepEqual(await b.db.collection('notes').get(key), value, key);
      await equal(all);
      await stopAll(all);
    });
  }
}

test('records that are read again long after do not bring back what was deleted', async () => {
  const DAY_MS = 86_400_000;
  let now = 1000 * DAY_MS;
  const server = new MemoryServer({ serverTime: () => now });
  const start = (options: object, disk?: Device['disk']): Promise<Device> =>
    Device.start(server, { clock: () => now, snapshots, ...options }, disk);
  const snapshots = new MemorySnapshotStore();
  const [a, b] = [await start({}), await start({})];
  await a.db.collection('notes').set('k', 'first');
  await converge([a, b]);
  const offline = await start({});
  now += 3_600_000;
  await offline.db.collection('notes').set('k', 'older than the delete');
  while (await offline.replica.drain());
  now += 3_600_000;
  await a.db.collection('notes').delete('k');
  await converge([a, b]);
  now += 3_600_000;
  await converge([offline, a, b]);
  now += 100 * DAY_MS;
  await a.db.collection('notes').set('other', 1);
  await converge([a, b, offline]);
  const disk = b.disk.copy();
  await b.stop();
  const again = await start({ collections: { notes: {}, more: {} } }, disk);
  await converge([again, a, offline]);
  assert.equal(await a.db.collection('notes').get('k'), undefined);
  assert.equal(await again.db.collection('notes').get('k'), undefined);
  await stopAll([a, again, offline]);
});

test('parts of a transaction whose writer is gone are forgotten when nobody may be away for so long', async () => {
  const DAY_MS = 86_400_000;
  let serverNow = Date.now();
  const server = new MemoryServer({ serverTime: () => serverNow });
  const [writer, a] = [await Device.start(server), await Device.start(server)];
  await writer.db.transaction(async (tx) => {
    for (let at = 0; at < 30; at++)
      await tx.collection('notes').set(
        `large ${at}`,
        Uint8Array.from({ length: 100_000 }, (_, index) => Math.imul(index + at, 2_654_435_761) >>> 24),
      );
  });
  while (await writer.replica.pull());
  while (await writer.replica.drain());
  assert.ok((await writer.replica.pending()) > 2);
  // All of its parts but the last one.
  for (let left = await writer.replica.pending(); left > 1; left--) await writer.replica.publish();
  await a.exchange();
  assert.ok((await a.replica.tables.chunks.size) > 0);
  serverNow += 91 * DAY_MS;
  const other = await Device.start(server);
  await other.db.transaction(async (tx) => {
    for (let at = 0; at < 12; at++)
      await tx.collection('notes').set(
        `other ${at}`,
        Uint8Array.from({ length: 100_000 }, (_, index) => Math.imul(index + at, 2_654_435_761) >>> 24),
      );
  });
  await converge([other, a]);
  assert.equal(await a.replica.tables.chunks.size, 0);
  // The last part comes after all: without the others it has no effect, and its writer sends all of it again.
  while (await writer.replica.publish());
  await converge([writer, a, other]);
  await equal([writer, a, other]);
  assert.equal(await a.db.collection('notes').size, 42);
  await stopAll([writer, a, other]);
});

test('a transaction of several records is sent once, however late its parts come back', async () => {
  for (const large of [10, 30]) {
    const server = new MemoryServer({ delay: () => new Promise((resolve) => setTimeout(resolve, 2)) });
    const [a, b] = [await Device.start(server), await Device.start(server)];
    await a.db.transaction(async (tx) => {
      for (let at = 0; at < large; at++)
        await tx.collection('notes').set(
          `k ${at}`,
          Uint8Array.from({ length: 100_000 }, (_, index) => Math.imul(index + at, 2_654_435_761) >>> 24),
        );
    });
    while (await a.replica.pull());
    while (await a.replica.drain());
    const parts = await a.replica.pending();
    assert.ok(parts >= 2);
    // The log is read between any two parts, too, as by a device that replicates in the background.
    for (let turn = 0; turn < 500 && (await a.replica.pending()) > 0; turn++) {
      await a.replica.publish();
      await a.replica.pull();
      await a.replica.pull();
    }
    await converge([a, b]);
    await equal([a, b]);
    assert.equal(server.records.length, parts);
    assert.equal(await b.db.collection('notes').size, large);
    await stopAll([a, b]);
  }
});

test('a strict record that was acknowledged and is gone is offered again', async () => {
  const server = new MemoryServer();
  const log = new MemoryLog(server);
  const append = log.append.bind(log);
  let losses = 1;
  log.append = async (...args) => {
    const position = await append(...args);
    if (args[1].expect !== undefined && losses-- > 0) server.loseHistory(args[1].expect);
    return position;
  };
  const options = { collections: { notes: {}, accounts: { mode: 'strict' } } } as const;
  const [a, b] = [await Device.start(server, { ...options, log }), await Device.start(server, options)];
  await a.db.collection('notes').set('first', 1);
  await converge([a, b]);
  let runs = 0;
  await runStrict(
    a.replica,
    (tx) => {
      runs++;
      return tx.collection<string, number>('accounts').update('n', (old = 0) => old + 1);
    },
    {},
  );
  assert.equal(runs, 2);
  await a.db.collection('notes').set('behind it', 1);
  await converge([a, b]);
  await equal([a, b]);
  assert.equal(await b.db.collection('accounts').get('n'), 1);
  await stopAll([a, b]);
});

test('what was committed before is settled, whatever is committed meanwhile', async () => {
  const server = new MemoryServer({ delay: () => new Promise((resolve) => setTimeout(resolve, 1)) });
  const a = await Device.start(server);
  const notes = a.db.collection('notes');
  await notes.set('before', 1);
  let [isOver, count] = [false, 0];
  const writing = (async () => {
    while (!isOver && count < 5000) {
      await notes.set('meanwhile', ++count);
      await a.replica.drain();
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  })();
  await a.replica.settle();
  isOver = true;
  await writing;
  assert.ok(count < 5000, 'it did not wait for the end of the writing');
  assert.ok(server.records.length > 0);
  await a.exchange();
  await a.stop();
});

test('a device that gets many ids does not keep all of them', async () => {
  const server = new MemoryServer();
  const a = await Device.start(server);
  for (let round = 0; round < 20; round++) {
    await a.db.collection('notes').set('k', round);
    await a.exchange();
    server.loseHistory(0);
    await a.db.collection('notes').set('l', round);
    while (await a.replica.drain());
    while (await a.replica.publish());
    a.replica.reconnect();
    await a.exchange();
  }
  assert.ok((await a.replica.state()).formers.length <= 8);
  assert.deepEqual(await a.db.collection('notes').entries().toArray(), [
    ['k', 19],
    ['l', 19],
  ]);
  await a.stop();
});

for (const what of ['settles', 'runs a strict transaction'] as const) {
  test(`a device ${what}, although there is something new in the log whenever it reads`, async () => {
    const server = new MemoryServer();
    const other = await Device.start(server);
    let [isBusy, reads] = [false, 0];
    class BusyLog extends MemoryLog {
      override async read(after: Position, limit: number): Promise<readonly LoggedRecord[]> {
        if (isBusy) await publish(other, `${reads}`);
        assert.ok(++reads < 200, 'it goes on reading');
        return super.read(after, limit);
      }
    }
    const a = await Device.start(server, { ...accounts, log: new BusyLog(server) });
    await other.exchange();
    await a.db.collection('notes').set('mine', 1);
    isBusy = true;
    if (what === 'settles') await a.replica.settle();
    // Or finds out that it cannot.
    else
      await runStrict(a.replica, (tx) => tx.collection('accounts').set('n', 1), { maxRetries: 5 }).catch(
        (error: unknown) => assert.equal((error as { code?: string }).code, 'KV_CONFLICT'),
      );
    isBusy = false;
    await converge([other, a]);
    assert.equal(await other.db.collection('notes').get('mine'), 1);
    await stopAll([a, other]);
  });
}

test('a strict transaction takes effect once, although the record behind it cannot be read', async () => {
  const server = new MemoryServer();
  const log = new BoundedLog(server);
  const append = log.append.bind(log);
  let damaged = 0;
  log.append = async (...args) => {
    const position = await append(...args);
    damaged = server.append(new Uint8Array(40).fill(9), { idempotencyKey: `behind ${position}` });
    return position;
  };
  const a = await Device.start(server, { ...accounts, log });
  const sent = {};
  for (let count = 1; count <= 3; count++) {
    for (let attempt = 0; ; attempt++) {
      try {
        assert.equal(
          await runStrict(
            a.replica,
            (tx) => tx.collection<string, number>('accounts').update('n', (old = 0) => old + 1),
            {},
            sent,
          ),
          count,
        );
        break;
      } catch (error) {
        assert.ok((error as { code?: string }).code === 'KV_LOG_UNAVAILABLE' && attempt < 20, String(error));
      }
    }
  }
  await a.exchange();
  assert.equal(await a.db.collection('accounts').get('n'), 3);
  assert.equal(await a.replica.pending(), 0);
  assert.ok(damaged >= 6 && a.alarms.every(({ code }) => code === 'KV_CORRUPT'));
  await a.stop();
});

test('nothing is sent before the log was read', async () => {
  const server = new MemoryServer();
  const device = await Device.start(server);
  await device.db.collection('notes').set('k', 1);
  while (await device.replica.drain());
  assert.equal(await device.replica.publish(), false);
  assert.equal(server.records.length, 0);
  await device.exchange();
  device.replica.reconnect();
  await device.db.collection('notes').set('k', 2);
  while (await device.replica.drain());
  assert.equal(await device.replica.publish(), false);
  assert.equal(server.records.length, 1);
  await device.stop();
});

test('settling ends when what was sent again under other numbers has come back', async () => {
  const server = new MemoryServer();
  const device = await Device.start(server);
  await device.exchange();
  for (const key of ['k', 'l']) {
    await device.db.collection('notes').set(key, 1);
    while (await device.replica.drain());
    while (await device.replica.publish());
  }
  // The first one is lost before it was read.
  (server.records as unknown[]).splice(0, 1);
  await device.exchange();
  assert.equal(await device.replica.pending(), 0);
  assert.deepEqual(
    server.records.map(({ record }) => decodeRecord(record).header.seq),
    [2, 3],
  );
  await device.stop();
});

test('each id of a device is greater than the one before: of two writes at the same time the later one wins', async () => {
  const server = new MemoryServer();
  const device = await Device.start(server);
  const ids: bigint[] = [];
  for (let round = 0; round < 12; round++) {
    await device.db.collection('notes').set('k', round);
    await converge([device]);
    ids.push(BigInt(`0x${(await device.replica.state()).device}`));
    server.loseHistory(1);
    await reconnect([device]);
  }
  assert.ok(new Set(ids).size > 8);
  assert.deepEqual(
    ids,
    [...ids].sort((a, b) => (a < b ? -1 : Number(a > b))),
  );
  await device.stop();
});
