// Servers that lag, and servers that lie to devices which seal their records.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keyCodecs } from 'mangrove-kv';
import { MemoryLog, MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import { decodeBody, decodeRecord, encodeBody, encodeRecord, STRICT } from '../src/record.ts';
import type { AppendOptions, LoggedRecord } from '../src/remote-log.ts';
import { runStrict } from '../src/strict.ts';
import { code } from '../../kv/test/support/kit.ts';
import { Device, converge } from './device.ts';
import { equal, stopAll } from './helpers.ts';
import { decodeRow } from '../src/row.ts';

const HOUR_MS = 3_600_000;

/** A server that does not know the newest records yet. */
class LaggingLog extends MemoryLog {
  hidden = 0;

  override async read(after: number, limit: number): Promise<readonly LoggedRecord[]> {
    const records = await super.read(after, limit);
    return records.slice(0, records.length - Math.min(this.hidden, records.length));
  }
}

/** Takes records wherever they come, and says of them what it likes. */
class LyingServer extends MemoryServer {
  ignoresExpect = false;

  override append(
    record: Uint8Array,
    { idempotencyKey, expect }: Pick<AppendOptions, 'idempotencyKey' | 'expect'>,
  ): ReturnType<MemoryServer['append']> {
    return super.append(record, { idempotencyKey, ...(!this.ignoresExpect && expect !== undefined && { expect }) });
  }
}

const accounts = { collections: { notes: {}, accounts: { mode: 'strict' } } } as const;
const makeSeal = async () => ({
  key: await crypto.subtle.generateKey({ name: 'AES-GCM', length: 256 }, false, ['encrypt', 'decrypt']),
  database: 'notes',
});

test('a strict transaction that only reads is not stale beside a server that lags', async () => {
  const server = new MemoryServer();
  const log = new LaggingLog(server);
  const [a, b] = [await Device.start(server, accounts), await Device.start(server, { ...accounts, log })];
  const increment = (device: Device): Promise<number> =>
    runStrict(
      device.replica,
      (tx) => tx.collection<string, number>('accounts').update('n', (old = 0) => old + 1) as Promise<number>,
      {},
    );
  await increment(a);
  await converge([a, b]);
  await increment(a);
  log.hidden = 1;
  let isOver = false;
  const read = runStrict(b.replica, (tx) => tx.collection<string, number>('accounts').get('n'), {
    maxRetries: 1000,
  }).finally(() => {
    isOver = true;
  });
  for (let turn = 0; turn < 50 && !isOver; turn++) await new Promise((resolve) => setImmediate(resolve));
  assert.ok(!isOver, 'it waits for what it cannot see');
  log.hidden = 0;
  assert.equal(await read, 2);
  await stopAll([a, b]);
});

test('servers that let strict records in out of place make no increment vanish', async () => {
  const server = new LyingServer();
  const seal = await makeSeal();
  const devices = [
    await Device.start(server, { ...accounts, seal }),
    await Device.start(server, { ...accounts, seal }),
  ] as const;
  await converge(devices);
  server.ignoresExpect = true;
  const results = await Promise.all(
    devices.map(async ({ replica }) => {
      const seen: number[] = [];
      for (let count = 0; count < 20; count++) {
        seen.push(
          await runStrict(
            replica,
            async (tx) => {
              const next = ((await tx.collection<string, number>('accounts').get('n')) ?? 0) + 1;
              await tx.collection<string, number>('accounts').set('n', next);
              return next;
            },
            { maxRetries: 1000 },
          ),
        );
      }
      return seen;
    }),
  );
  await converge(devices);
  await equal(devices);
  assert.equal(await devices[0].db.collection('accounts').get('n'), 40);
  assert.deepEqual(
    results.flat().sort((a, b) => a - b),
    Array.from({ length: 40 }, (_, at) => at + 1),
    'no two transactions saw the same state',
  );
  const alarms = devices[0].alarms.map(({ code }) => code);
  assert.ok(alarms.length > 0 && alarms.every((code) => code === 'KV_CORRUPT'), 'the servers did let some in');
  await stopAll(devices);
});

for (const [what, time, isAlways] of [
  ['long ago', 1000, false],
  ['long ago, from the first one on', 1000, true],
  ['far ahead', Date.now() + 50 * 365 * 24 * HOUR_MS, false],
] as const) {
  test(`where records are sealed the servers' clock decides nothing: records that were taken ${what}`, async () => {
    let lie: number | undefined = isAlways ? time : undefined;
    const server = new LyingServer({ serverTime: () => lie ?? Date.now() });
    const seal = await makeSeal();
    let now = Date.now();
    const options = { seal, clock: () => now };
    const devices = [await Device.start(server, options), await Device.start(server, options)] as const;
    const [a, b] = devices;
    await a.db.collection('notes').set('soon', 'x', { expireIn: HOUR_MS });
    await converge(devices);
    // Neither knows the other's write, and the first one in the log is the later one.
    for (const [key, early, late] of [
      ['k', b, a],
      ['l', a, b],
    ] as const) {
      await early.db.collection('notes').set(key, 'earlier');
      while (await early.replica.drain());
      now += 5000;
      await late.db.collection('notes').set(key, 'later');
      while (await late.replica.drain());
      lie = time;
      while (await late.replica.publish());
      if (!isAlways) lie = undefined;
      await converge([late, early]);
    }
    await equal(devices);
    for (const { db } of devices)
      assert.deepEqual(await db.collection('notes').entries().toArray(), [
        ['k', 'later'],
        ['l', 'later'],
        ['soon', 'x'],
      ]);
    await stopAll(devices);
  });
}

for (const [what, isLast] of [
  ['before the check', true],
  ['of long before', false],
] as const)
  test(`servers that keep a record ${what} from one device are found by the next check`, async () => {
    const server = new MemoryServer();
    /** Shows all but one record. */
    class WithholdingLog extends MemoryLog {
      withheld = 0;

      override async read(after: number, limit: number): Promise<readonly LoggedRecord[]> {
        return (await super.read(after, limit)).filter(({ position }) => position !== this.withheld);
      }
    }
    const seal = await makeSeal();
    const snapshots = new MemorySnapshotStore();
    const log = new WithholdingLog(server);
    const [a, b, victim] = [
      await Device.start(server, { seal, snapshots }),
      await Device.start(server, { seal, snapshots }),
      await Device.start(server, { seal, snapshots, log }),
    ];
    await a.db.collection('notes').set('k', 'before');
    await converge([a, b, victim]);
    await b.db.collection('notes').set('k', 'after');
    await b.exchange();
    log.withheld = server.records.at(-1)!.position;
    if (!isLast) await a.db.collection('notes').set('other', 1);
    await converge([a, victim]);
    // Nothing tells so far: `b` has written nothing since.
    assert.equal(victim.alarms.length, 0);
    assert.equal(await victim.db.collection('notes').get('k'), 'before');
    await a.replica.compact();
    await victim.exchange();
    // The check itself is out of place where the record before it is not the one that its writer had read.
    assert.deepEqual(
      [...new Set(victim.alarms.map((alarm) => alarm.code))],
      [isLast ? 'KV_CORRUPT' : 'KV_REPLICATION_DIVERGED'],
    );
    if (!isLast) {
      await victim.db.collection('notes').set('of the victim', 1);
      await assert.rejects(victim.replica.compact(), code('KV_REPLICATION_DIVERGED'));
    }
    assert.deepEqual(a.alarms, []);
    // An honest server mends it.
    log.withheld = 0;
    await b.db.collection('notes').set('later', 1);
    await converge([b, a]);
    await a.replica.compact();
    await converge([a, b, victim]);
    await equal([a, b, victim]);
    await stopAll([a, b, victim]);
  });

test('the servers cannot make devices forget a part of a long transaction', async () => {
  const server = new LyingServer();
  /** Says of the last part that it came after a hundred years. */
  class LateLog extends MemoryLog {
    override async read(after: number, limit: number): Promise<readonly LoggedRecord[]> {
      return (await super.read(after, limit)).map((logged) =>
        decodeRecord(logged.record).header.seq === 3
          ? { ...logged, serverTime: logged.serverTime + 100 * 365 * 24 * HOUR_MS }
          : logged,
      );
    }
  }
  const seal = await makeSeal();
  const devices = [
    await Device.start(server, { seal }),
    await Device.start(server, { seal, log: new LateLog(server) }),
  ] as const;
  const [a, b] = devices;
  await a.db
    .collection('notes')
    .setMany(Array.from({ length: 40 }, (_, at) => [at, crypto.getRandomValues(new Uint8Array(50_000))]));
  await converge(devices);
  assert.equal(server.records.length, 3);
  assert.equal(await b.db.collection('notes').size, 40);
  await equal(devices);
  await stopAll(devices);
});

test('nobody writes under the id of another device, where the log knows who writes', async () => {
  const server = new MemoryServer();
  /** As with tokens: each has a name of its own. */
  class NamedLog extends MemoryLog {
    static readonly senders = new Map<number, string>();
    readonly #name: string;

    constructor(name: string) {
      super(server);
      this.#name = name;
    }

    override async append(...args: Parameters<MemoryLog['append']>): Promise<number> {
      const position = await super.append(...args);
      if (!NamedLog.senders.has(position)) NamedLog.senders.set(position, this.#name);
      return position;
    }

    override async read(after: number, limit: number): Promise<readonly LoggedRecord[]> {
      return (await super.read(after, limit)).map((logged) => ({
        ...logged,
        sender: NamedLog.senders.get(logged.position),
      }));
    }
  }
  const [a, b, victim] = [
    await Device.start(server, { log: new NamedLog('a') }),
    await Device.start(server, { log: new NamedLog('b') }),
    await Device.start(server, { log: new NamedLog('victim') }),
  ];
  await victim.db.collection('notes').set('k', 'mine');
  await converge([victim, a, b]);
  const [first] = server.records;
  const { header, body } = decodeRecord(first!.record);
  const { transactions, ...rest } = decodeBody(body);
  const forged = encodeBody({
    ...rest,
    n: 100,
    transactions: [
      {
        ...transactions[0]!,
        base: 1000,
        ops: [{ type: 'delete', collection: 'notes', key: keyCodecs.any.encode('k').slice() }],
      },
    ],
  });
  await new NamedLog('mallory').append(encodeRecord({ ...header, seq: 100, back: 100 - header.seq }, forged), {
    idempotencyKey: 'forged',
  });
  await victim.db.collection('notes').set('later', 1);
  await converge([a, b, victim]);
  await equal([a, b, victim]);
  assert.deepEqual(await b.db.collection('notes').entries().toArray(), [
    ['k', 'mine'],
    ['later', 1],
  ]);
  assert.deepEqual(
    b.alarms.map(({ code }) => code),
    ['KV_CORRUPT'],
  );
  // A copy of the file with credentials of its own gets an id of its own.
  const copy = await Device.start(server, { log: new NamedLog('copy') }, victim.disk.copy());
  await copy.db.collection('notes').set('copy', 1);
  await victim.db.collection('notes').set('original', 1);
  await converge([copy, victim, a, b]);
  await equal([a, b, victim, copy]);
  assert.equal(await a.db.collection('notes').size, 4);
  await stopAll([a, b, victim, copy]);
});

test('an entry of sealed records is over when the servers and a writer say so', async () => {
  let [serverNow, ahead] = [Date.now(), 0];
  const server = new LyingServer({ serverTime: () => serverNow });
  const seal = await makeSeal();
  const [a, b] = [
    await Device.start(server, { seal, clock: () => Date.now() + ahead }),
    await Device.start(server, { seal }),
  ];
  const notes = a.db.collection('notes');
  const isThere = async (): Promise<boolean> => {
    await converge([a, b]);
    const [[, row]] = (await b.replica.tables.byName.get('notes')!.rows.entries({ limit: 1 }).toArray()) as [
      [Uint8Array, Uint8Array],
    ];
    return !decodeRow(row).base!.stamp.isDead;
  };
  await notes.set('k', 'for an hour', { expireIn: HOUR_MS });
  assert.ok(await isThere());
  // The servers alone: a record that they repeat is no new one.
  serverNow += 2 * HOUR_MS;
  server.append(server.records[0]!.record, { idempotencyKey: 'again' });
  assert.ok(await isThere());
  serverNow -= 2 * HOUR_MS;
  // A writer alone.
  ahead = 2 * HOUR_MS;
  await notes.set('other', 1);
  assert.ok(await isThere());
  assert.ok((await b.replica.state()).time <= serverNow);
  serverNow += 2 * HOUR_MS;
  await notes.set('other', 2);
  assert.ok(!(await isThere()));
  await stopAll([a, b]);
});

test('a record at a position that was read has no effect', async () => {
  const server = new MemoryServer();
  /** Says at the end of each read that an old position has another record. */
  class BackwardLog extends MemoryLog {
    override async read(after: number, limit: number): Promise<readonly LoggedRecord[]> {
      const records = await super.read(after, limit);
      const newest = records.at(-1);
      return newest === undefined ? records : [...records.slice(0, -1), { ...newest, position: after }, newest];
    }
  }
  const [a, b] = [await Device.start(server), await Device.start(server, { log: new BackwardLog(server) })];
  await a.db.collection('notes').set('k', 1);
  await a.exchange();
  while (await b.replica.pull());
  assert.deepEqual(
    b.alarms.map(({ code }) => code),
    ['KV_CORRUPT'],
  );
  assert.equal((await b.replica.state()).cursor.position, 1);
  assert.equal(await b.db.collection('notes').get('k'), 1);
  await stopAll([a, b]);
});

test('a tab learns that its strict record has no effect, from whoever replicates then', async () => {
  const server = new LyingServer();
  const seal = await makeSeal();
  const [a, b] = [await Device.start(server, { ...accounts, seal }), await Device.start(server, { ...accounts, seal })];
  await converge([a, b]);
  const { cursor } = await a.replica.state();
  const op = { type: 'delete' as const, collection: 'accounts', key: keyCodecs.any.encode('n').slice() };
  assert.ok(await a.replica.offer(STRICT, [op], cursor.position, { id: 'tab/1' }));
  await b.db.collection('notes').set('between', 1);
  await b.exchange();
  server.ignoresExpect = true;
  await a.exchange();
  const next = await a.restart(server, { ...accounts, seal });
  assert.equal(await next.replica.outcomeOfId('tab/1'), false);
  await stopAll([next, b]);
});
