// Strict mode: transactions of all devices take effect one after another, as a checker of histories
// sees it; and what goes past them is undone.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inflateRawSync } from 'node:zlib';
import { valueCodecs } from 'mangrove-kv';
import type { Collection, Database, KvError } from 'mangrove-kv';
import { MemoryLog, MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import type { MemoryFaults } from '../src/memory-log.ts';
import { COMPRESSED, STRICT, decodeBody, decodeRecord } from '../src/record.ts';
import { logUnavailable } from '../src/remote-log.ts';
import type { StrictRecord } from '../src/strict-records.ts';
import { runStrict } from '../src/strict.ts';
import type { Sent, StrictTransaction } from '../src/strict.ts';
import { chance, code } from '../../kv/test/support/kit.ts';
import { Device, converge } from './device.ts';
import type { DeviceOptions } from './device.ts';
import { cutOff, equal, stopAll } from './helpers.ts';

const collections = { accounts: { mode: 'strict' }, notes: {} } as const;
const NAMES = ['a', 'b', 'c', 'd'];

/** What a transaction saw and did. */
interface Run {
  readonly began: number;
  readonly ended: number;
  readonly reads: ReadonlyMap<string, string | undefined>;
  readonly writes: ReadonlyMap<string, string>;
  /** Unknown if the process died in the middle. */
  readonly isAcknowledged: boolean;
}

/** The strict writes in the log's order, each with the writes of its transaction. */
function logOf(server: MemoryServer): Map<string, string>[] {
  const seen = new Set<string>();
  const list: Map<string, string>[] = [];
  for (const { record } of server.records) {
    const { header, body } = decodeRecord(record);
    if ((header.flags & STRICT) === 0 || seen.has(`${header.device}:${header.seq}`)) continue;
    seen.add(`${header.device}:${header.seq}`);
    const plain = header.flags & COMPRESSED ? new Uint8Array(inflateRawSync(body)) : body;
    for (const { ops } of decodeBody(plain).transactions) {
      const writes = new Map<string, string>();
      for (const op of ops)
        if (op.type === 'set')
          writes.set(
            String(new TextDecoder().decode(op.key.slice(1))),
            String(valueCodecs.structured().decode(op.value)),
          );
      list.push(writes);
    }
  }
  return list;
}

const same = (a: ReadonlyMap<string, string>, b: ReadonlyMap<string, string>): boolean =>
  a.size === b.size && [...a].every(([key, value]) => b.get(key) === value);

/** Fails unless the runs are strictly serializable in the order of the log. */
function checkHistory(server: MemoryServer, runs: readonly Run[]): void {
  const log = logOf(server);
  const states: Map<string, string>[] = [new Map()];
  for (const writes of log) states.push(new Map([...(states.at(-1) as Map<string, string>), ...writes]));
  const placed: { run: Run; at: number }[] = [];
  let place = 0;
  for (const run of [...runs].sort((a, b) => a.ended - b.ended)) {
    const agrees = (at: number): boolean => [...run.reads].every(([key, value]) => states[at]?.get(key) === value);
    // Real time: everything that ended before this began comes before it.
    const least = Math.max(
      0,
      ...placed.filter((other) => other.run.isAcknowledged && other.run.ended < run.began).map((other) => other.at),
    );
    if (run.writes.size > 0) {
      const at = log.findIndex((writes) => same(writes, run.writes)) + 1;
      if (at === 0) {
        assert.ok(!run.isAcknowledged, 'an acknowledged transaction is in the log');
        continue;
      }
      assert.equal(log.filter((writes) => same(writes, run.writes)).length, 1, 'it took effect once');
      assert.ok(at > least, 'it comes after what ended before it began');
      assert.ok(
        agrees(at - 1),
        `it read the state before its place: ${JSON.stringify([...run.reads])}, not ${JSON.stringify([...(states[at - 1] as Map<string, string>)])}`,
      );
      placed.push({ run, at });
    } else {
      place = states.findIndex((_, at) => at >= least && agrees(at));
      assert.notEqual(place, -1, 'what was read was the state at some moment during the transaction');
      placed.push({ run, at: place });
    }
  }
}

/** Runs transactions on a device until it has done so many. */
class Client {
  readonly #chance: () => number;
  readonly runs: Run[] = [];
  readonly device: Device;

  constructor(device: Device, seed: number) {
    this.device = device;
    this.#chance = chance(seed);
  }

  async transact(ticks: { now: number }, name: string): Promise<void> {
    const began = ticks.now++;
    let reads = new Map<string, string | undefined>();
    let writes = new Map<string, string>();
    const pick = (): string => NAMES[Math.floor(this.#chance() * NAMES.length)] as string;
    const [wanted, written] = [[pick(), pick()], this.#chance() < 0.8 ? [pick(), pick()] : []];
    try {
      for (let attempt = 0; ; attempt++) {
        try {
          await runStrict(
            this.device.replica,
            async (tx) => {
              const accounts = tx.collection<string, string>('accounts');
              [reads, writes] = [new Map(), new Map()];
              for (const key of wanted) reads.set(key, await accounts.get(key));
              for (const key of written) {
                writes.set(key, name);
                await accounts.set(key, name);
              }
            },
            {},
          );
          break;
        } catch (error) {
          const { code } = error as KvError;
          if ((code !== 'KV_LOG_UNAVAILABLE' && code !== 'KV_REPLICATION_GAP') || attempt > 300) throw error;
          // The outcome is unknown; the transaction must not run again under the same name.
          if (
            (await this.device.replica.pending()) > 0 ||
            logOf(serverOf.get(this.device) as MemoryServer).some((each) => same(each, writes))
          ) {
            while ((await this.device.replica.pending()) > 0) await this.device.exchange();
            if (writes.size > 0) this.runs.push({ began, ended: ticks.now++, reads, writes, isAcknowledged: false });
            return;
          }
          this.device.replica.reconnect();
        }
      }
      this.runs.push({ began, ended: ticks.now++, reads, writes, isAcknowledged: true });
    } catch (error) {
      this.runs.push({ began, ended: ticks.now++, reads, writes, isAcknowledged: false });
      throw error;
    }
  }
}

const serverOf = new WeakMap<Device, MemoryServer>();

async function world(
  faults: MemoryFaults,
  given: NonNullable<DeviceOptions['collections']>,
  use: (devices: Device[], server: MemoryServer) => Promise<void>,
): Promise<void> {
  const server = new MemoryServer(faults);
  const devices = await Promise.all([0, 1, 2].map(() => Device.start(server, { collections: given })));
  for (const device of devices) serverOf.set(device, server);
  try {
    await use(devices, server);
  } finally {
    await Promise.all(devices.map((device) => device.stop()));
  }
}

/** Both modes in one collection: names are strict, numbers are not. */
const mixed = { accounts: { prefixModes: [{ prefix: '', mode: 'strict' }] } } as const;

for (const seed of [1, 2, 3, 4, 5, 6, 7, 8, 9]) {
  const isMixed = seed > 6;
  test(`concurrent strict transactions have an order that explains what they read, seed ${seed}${isMixed ? ', by prefix' : ''}`, async () => {
    const random = chance(seed);
    let isFailing = true;
    const happens = (probability: number) => (): boolean => isFailing && random() < probability;
    const faults: MemoryFaults = {
      isUnreachable: happens(0.05),
      isReplyLost: happens(0.1),
      isDuplicated: happens(0.1),
      delay: async () => {
        for (let turns = Math.floor(random() * 4); turns > 0; turns--)
          await new Promise((resolve) => setImmediate(resolve));
      },
    };
    await world(faults, isMixed ? mixed : collections, async (devices, server) => {
      const notesOf = ({ db }: Device): Collection<string | number, number> =>
        db.collection(isMixed ? 'accounts' : 'notes');
      const ticks = { now: 1 };
      const clients = devices.map((device, index) => new Client(device, seed * 10 + index));
      await Promise.all(
        clients.map(async (client, index) => {
          for (let count = 0; count < 12; count++) {
            await client.transact(ticks, `${index}/${count}`);
            // Merge mode goes on beside it.
            await notesOf(client.device).set(isMixed ? index * 100 + count : `${index}/${count}`, count);
            if (count % 4 === 0) server.forgetKeys();
          }
        }),
      );
      isFailing = false;
      await converge(devices);
      checkHistory(
        server,
        clients.flatMap(({ runs }) => runs),
      );
      const digests = await Promise.all(devices.map((device) => device.digest()));
      for (const digest of digests) assert.equal(digest, digests[0]);
      assert.equal(await notesOf(devices[0] as Device).count(isMixed ? { lt: '' } : {}), 36);
      for (const device of devices) assert.deepEqual(device.alarms, []);
    });
  });
}

test('a process that dies while a strict transaction is under way leaves it whole or not at all', async () => {
  for (let operations = 0; operations < 40; operations++) {
    const server = new MemoryServer({ isReplyLost: (call) => call === 'append' && operations % 2 === 1 });
    const first = await Device.start(server, { collections });
    await runStrict(
      first.replica,
      (tx) =>
        tx.collection<string, number>('accounts').setMany([
          ['a', 1],
          ['b', 1],
        ]),
      {},
    ).catch(() => first.exchange());
    first.disk.left = operations;
    let isAcknowledged = false;
    try {
      await runStrict(
        first.replica,
        async (tx) => {
          const accounts = tx.collection<string, number>('accounts');
          for (const name of ['a', 'b']) await accounts.update(name, (old) => (old ?? 0) + 1);
        },
        {},
      );
      isAcknowledged = true;
    } catch {
      // The disk, or the reply, is lost.
    }
    first.replica.stop();
    const disk = first.disk.afterPowerCut();
    await first.stop();
    const again = await Device.start(server, { collections }, disk);
    const other = await Device.start(server, { collections });
    await converge([again, other]);
    const [a, b] = await again.db.collection('accounts').getMany(['a', 'b']);
    assert.equal(a, b, `after ${operations} operations`);
    if (isAcknowledged) assert.equal(a, 2);
    assert.equal(await again.digest(), await other.digest());
    // The number of the lost one can be used again.
    await runStrict(again.replica, (tx) => tx.collection('accounts').set('c', 3), {}).catch(() => again.exchange());
    await converge([again, other]);
    assert.equal(await other.db.collection('accounts').get('c'), 3);
    assert.deepEqual([...again.alarms, ...other.alarms], []);
    await Promise.all([again.stop(), other.stop()]);
  }
});

test('writes that go past replication.transaction are undone, and the transaction that saw them runs again', async () => {
  const server = new MemoryServer();
  const [a, b] = [await Device.start(server, { collections }), await Device.start(server, { collections })];
  await runStrict(
    a.replica,
    (tx) =>
      tx.collection<string, number>('accounts').setMany([
        ['a', 1],
        ['b', 2],
      ]),
    {},
  );
  await a.db.collection('accounts').set('a', 100);
  await a.db.collection('accounts').delete('b');
  await a.db.collection('notes').set('n', 1);
  await converge([a, b]);
  assert.deepEqual(await a.db.collection('accounts').entries().toArray(), [
    ['a', 1],
    ['b', 2],
  ]);
  assert.deepEqual(
    a.alarms.map(({ code }) => code),
    ['KV_REPLICATION_MODE', 'KV_REPLICATION_MODE'],
  );
  assert.match(a.alarms[0]?.message ?? '', /"a" of collection "accounts"/);
  await a.db.collection('accounts').clear();
  await a.db.dropCollection('accounts');
  await converge([a, b]);
  assert.deepEqual(await a.db.collection('accounts').entries().toArray(), [
    ['a', 1],
    ['b', 2],
  ]);
  let runs = 0;
  const seen: unknown[] = [];
  await runStrict(
    a.replica,
    async (tx) => {
      if (runs++ === 0) await a.db.collection('accounts').set('a', 666);
      const accounts = tx.collection<string, number>('accounts');
      const amount = await accounts.get('a');
      seen.push(amount);
      await accounts.set('b', (amount ?? 0) + 10);
    },
    {},
  );
  await converge([a, b]);
  assert.deepEqual(await b.db.collection('accounts').entries().toArray(), [
    ['a', 1],
    ['b', 11],
  ]);
  assert.equal(await a.digest(), await b.digest());
  await Promise.all([a.stop(), b.stop()]);
});

test('a strict transaction passes on everything that it can write, and nothing else', async () => {
  const server = new MemoryServer();
  const [a, b] = [await Device.start(server, { collections }), await Device.start(server, { collections })];
  const expireAt = Date.now() + 1e6;
  await runStrict(
    a.replica,
    async (tx) => {
      const accounts = tx.collection<string, number>('accounts');
      await accounts.setMany(
        new Map([
          ['a', 1],
          ['b', 2],
          ['c', 3],
          ['d', 4],
        ]),
      );
      await accounts.set('e', 5, { expireAt });
      await accounts.getOrInsert('f', 6);
      await accounts.update('a', (old = 0) => old + 10);
      assert.equal(await accounts.count(), 6);
      await accounts.delete('b');
      await accounts.deleteMany(['c', 'nothing']);
    },
    {},
  );
  await converge([b, a]);
  assert.deepEqual(await b.db.collection('accounts').entries().toArray(), [
    ['a', 11],
    ['d', 4],
    ['e', 5],
    ['f', 6],
  ]);
  assert.equal((await b.db.collection('accounts').getEntry('e'))?.expiresAt, expireAt);
  await runStrict(b.replica, (tx) => tx.collection<string, number>('accounts').clear({ gte: 'd', lt: 'f' }), {});
  await converge([a, b]);
  assert.deepEqual(await a.db.collection('accounts').entries().toArray(), [
    ['a', 11],
    ['f', 6],
  ]);
  await assert.rejects(
    runStrict(a.replica, (tx) => tx.collection('notes').set('n', 1), {}),
    code('KV_REPLICATION_MODE'),
  );
  await assert.rejects(
    runStrict(a.replica, (tx) => tx.collection('other').set('n', 1), {}),
    code('KV_REPLICATION_MODE'),
  );
  await assert.rejects(
    runStrict(a.replica, (tx) => tx.collection('accounts').set('big', new Uint8Array(1 << 20)), {}),
    code('KV_VALUE_TOO_LARGE'),
  );
  await assert.rejects(
    runStrict(
      a.replica,
      () => {
        throw new Error('no');
      },
      {},
    ),
    /no/,
  );
  assert.equal(await a.db.collection('notes').get('n'), undefined);
  assert.equal(await a.replica.pending(), 0);
  await Promise.all([a.stop(), b.stop()]);
});

test('a unique index holds across devices in strict mode, and is refused in merge mode', async () => {
  const server = new MemoryServer();
  const indexes = { byEmail: { key: (user: { email: string }) => user.email, unique: true } };
  const strict = { collections: { users: { mode: 'strict' as const, indexes: indexes as never } } };
  const [a, b] = [await Device.start(server, strict), await Device.start(server, strict)];
  const users = (db: Database) => db.collection<string, { email: string }>('users', { indexes });
  await runStrict(
    a.replica,
    (tx) => tx.collection(users(a.db) as never).set('ada' as never, { email: 'x' } as never),
    {},
  );
  await assert.rejects(
    runStrict(b.replica, (tx) => tx.collection(users(b.db) as never).set('eve' as never, { email: 'x' } as never), {}),
    code('KV_UNIQUE'),
  );
  await converge([a, b]);
  assert.deepEqual(await users(b.db).keys().toArray(), ['ada']);
  await Promise.all([a.stop(), b.stop()]);
  await assert.rejects(
    Device.start(server, { collections: { users: { indexes: indexes as never } } }),
    code('KV_INVALID_ARGUMENT'),
  );
});

test('entries from before a collection became strict are not lost', async () => {
  const server = new MemoryServer();
  const device = await Device.start(server, { collections });
  await device.db.collection('accounts').set('a', 1);
  await assert.rejects(device.exchange(), code('KV_REPLICATION_MODE'));
  assert.equal(await device.db.collection('accounts').get('a'), 1);
  await device.stop();
});

test('a write past replication that is undone while a transaction runs does not get into its result', async () => {
  const server = new MemoryServer();
  const a = await Device.start(server, { collections });
  await runStrict(a.replica, (tx) => tx.collection('accounts').set('a', 1), {});
  const seen: unknown[] = [];
  let isFirst = true;
  const { replica } = a;
  const settle = replica.settle.bind(replica);
  replica.settle = async (signal) => {
    await settle(signal);
    if (isFirst) await a.db.collection('accounts').set('a', 100);
  };
  await runStrict(
    replica,
    async (tx) => {
      const old = (await tx.collection<string, number>('accounts').get('a')) as number;
      seen.push(old);
      // As replication in the background does at any time.
      if (isFirst) while (await replica.drain());
      isFirst = false;
      await tx.collection<string, number>('accounts').set('a', old + 1);
    },
    {},
  );
  assert.deepEqual(seen, [100, 1]);
  assert.equal(await a.db.collection('accounts').get('a'), 2);
  assert.deepEqual(
    a.alarms.map(({ code: kind }) => kind),
    ['KV_REPLICATION_MODE'],
  );
  await a.stop();
});

for (const feed of [true, false]) {
  test(`a write past replication that takes a unique key from another device's transaction is undone${feed ? '' : ', without a feed'}`, async () => {
    const server = new MemoryServer();
    const indexes = { byEmail: { key: (user: { email: string }) => user.email, unique: true } };
    const options = { feed, collections: { users: { mode: 'strict', indexes: indexes as never } } } as const;
    const [a, b] = [await Device.start(server, options), await Device.start(server, options)];
    const users = ({ db }: Device) => db.collection<string, { email: string }>('users', { indexes });
    const write = (key: string, email: string): Promise<unknown> =>
      runStrict(a.replica, (tx) => tx.collection(users(a) as never).set(key as never, { email } as never), {});
    await write('zero', 'z');
    await converge([a, b]);
    await users(b).set('past', { email: 'x' });
    await write('ada', 'x');
    await converge([b, a]);
    for (const each of [a, b]) assert.deepEqual(await users(each).keys().toArray(), ['ada', 'zero']);
    assert.deepEqual(
      b.alarms.map(({ code: kind }) => kind),
      ['KV_REPLICATION_MODE'],
    );
    await Promise.all([a.stop(), b.stop()]);
  });
}

test('a snapshot that has a write past replication is disturbed, whether that was undone or not', async () => {
  const device = await Device.start(new MemoryServer(), { collections: { notes: {}, accounts: { mode: 'strict' } } });
  await device.exchange();
  const versionOf = async (): Promise<number> => {
    const snapshot = device.db.snapshot();
    const version = await snapshot.version;
    await snapshot.close();
    return version;
  };
  const { drained } = await device.replica.state();
  const before = await versionOf();
  assert.equal(await device.replica.isDisturbed(before, drained), false);
  await device.db.collection('notes').set('k', 1);
  assert.equal(await device.replica.isDisturbed(await versionOf(), drained), false);
  await device.db.collection('accounts').set('k', 1);
  assert.equal(await device.replica.isDisturbed(before, drained), false);
  const since = await versionOf();
  assert.equal(await device.replica.isDisturbed(since, drained), true);
  while (await device.replica.drain());
  assert.equal(await device.replica.isDisturbed(since, drained), true);
  await device.stop();
});

for (const isIn of [true, false]) {
  test(`the outcome of a transaction is known, although the log was cut off behind it: it is ${isIn ? '' : 'not '}in`, async () => {
    const server = new MemoryServer();
    const snapshots = new MemorySnapshotStore();
    const log = new MemoryLog(server);
    const append = log.append.bind(log);
    let isBroken = false;
    log.append = async (...given) => {
      if (!isBroken) return append(...given);
      if (isIn) await append(...given);
      throw logUnavailable('the connection broke');
    };
    const [a, b] = [
      await Device.start(server, { collections, snapshots, log }),
      await Device.start(server, { collections, snapshots }),
    ];
    const increment = (tx: StrictTransaction): Promise<unknown> =>
      tx.collection<string, number>('accounts').update('n', (old = 0) => old + 1);
    await runStrict(a.replica, increment, {});
    await b.exchange();
    isBroken = true;
    const sent: Sent<unknown, StrictRecord> = {};
    await assert.rejects(runStrict(a.replica, increment, {}, sent), { code: 'KV_LOG_UNAVAILABLE' });
    await cutOff(server, b);
    isBroken = false;
    a.replica.reconnect();
    await runStrict(a.replica, increment, {}, sent);
    assert.equal(await a.db.collection('accounts').get('n'), 2);
    await converge([a, b]);
    await equal([a, b]);
    assert.equal(await b.db.collection('accounts').get('n'), 2);
    await stopAll([a, b]);
  });
}
