// What replication does by itself: here nothing is committed, flushed or sent after what is to be mended.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { type KvError, open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { MemoryLog, MemoryServer, MemorySnapshotStore, logUnavailable, replicate } from '@mangrove-kv/replication';
import type {
  LoggedRecord,
  Position,
  Replication,
  ReplicationConflict,
  ReplicationOptions,
} from '@mangrove-kv/replication';

const collections = { notes: {}, accounts: { mode: 'strict' } } as const;
const HOUR_MS = 3_600_000;

// Replication keeps no process alive while it waits to try again.
const alive = setInterval(() => undefined, 1000);
after(() => clearInterval(alive));

const pause = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Waits for as long as the test may take. */
async function until(isReached: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isReached())) await pause(20);
}

/** Runs `work` with a clock that can be ahead. `real` is the one that is right. */
async function withClock(work: (set: (offset: number) => void, real: () => number) => Promise<void>): Promise<void> {
  const real = Date.now;
  let offset = 0;
  Date.now = () => real() + offset;
  try {
    await work((next) => {
      offset = next;
    }, real);
  } finally {
    Date.now = real;
  }
}

/** A log that can be away, and whose next answer to an append can be lost. */
class FaultyLog extends MemoryLog {
  isAway = false;
  losesAnswer = false;
  isAnswerLost = false;

  override async append(
    record: Uint8Array,
    ...given: Parameters<MemoryLog['append']> extends [unknown, ...infer Rest] ? Rest : never
  ): Promise<Position> {
    this.#check();
    const position = await super.append(record, ...given);
    if (!this.losesAnswer) return position;
    [this.isAway, this.losesAnswer, this.isAnswerLost] = [true, false, true];
    throw logUnavailable('the answer is lost');
  }

  override async read(...given: Parameters<MemoryLog['read']>): Promise<readonly LoggedRecord[]> {
    this.#check();
    const records = await super.read(...given);
    // What was appended meanwhile is not seen before its answer would have come.
    this.#check();
    if (this.losesAnswer) throw logUnavailable('the log is slow');
    return records;
  }

  override async at(...given: Parameters<MemoryLog['at']>): Promise<LoggedRecord | undefined> {
    this.#check();
    return super.at(...given);
  }

  #check(): void {
    if (this.isAway) throw logUnavailable('the log is away');
  }
}

interface Device {
  readonly db: Database;
  readonly replication: Replication;
  readonly log: FaultyLog;
}

async function start(server: MemoryServer, options: Partial<ReplicationOptions> = {}, db?: Database): Promise<Device> {
  const log = new FaultyLog(server);
  const opened = db ?? (await open('device', { storage: 'memory', feed: true }));
  return { db: opened, replication: await replicate(opened, { log, collections, ...options }), log };
}

async function stop(...devices: readonly Device[]): Promise<void> {
  for (const { replication, db } of devices) {
    await replication.close();
    await db.close();
  }
}

const notes = ({ db }: Device): ReturnType<Database['collection']> => db.collection('notes');

test('a clock that was ahead and is corrected in steps: all entries that it has removed come back', async () => {
  await withClock(async (set, real) => {
    const server = new MemoryServer({ serverTime: real });
    const device = await start(server);
    await notes(device).set('an hour', 1, { expireIn: HOUR_MS });
    await notes(device).set('ten minutes', 1, { expireIn: HOUR_MS / 6 });
    await device.replication.flush();
    set(2 * HOUR_MS);
    await device.db.purgeExpired();
    await device.replication.flush();
    assert.equal(await notes(device).size, 0);
    set(HOUR_MS / 2);
    await until(() => notes(device).has('an hour'));
    set(0);
    await until(() => notes(device).has('ten minutes'));
    await stop(device);
  });
});

test('what a clock that was ahead has removed comes back although a rename made a comparison of it', async () => {
  await withClock(async (set, real) => {
    const server = new MemoryServer({ serverTime: real });
    const device = await start(server, { collections: { notes: {}, other: {} } });
    await notes(device).set('k', 1, { expireIn: HOUR_MS });
    await device.db.collection('other').set('k', 1);
    await device.replication.flush();
    set(2 * HOUR_MS);
    await device.db.purgeExpired();
    // Before the feed of the removal was read.
    await device.db.renameCollection('other', 'else');
    await device.replication.flush();
    set(0);
    await until(() => notes(device).has('k'));
    await stop(device);
  });
});

for (const how of ['records', 'a snapshot'] as const) {
  test(`an own write that a clock has removed while its answer was lost is there after it was read in ${how}`, async () => {
    await withClock(async (set, real) => {
      const server = new MemoryServer({ serverTime: real });
      const snapshots = new MemorySnapshotStore();
      const [device, other] = [await start(server, { snapshots }), await start(server, { snapshots })];
      await notes(device).set('first', 0);
      await device.replication.flush();
      await other.replication.flush();
      device.log.losesAnswer = true;
      await notes(device).set('k', 'for an hour', { expireAt: real() + HOUR_MS });
      await until(() => device.log.isAnswerLost);
      await other.replication.flush();
      assert.equal(await notes(other).get('k'), 'for an hour', 'the log has it');
      set(2 * HOUR_MS);
      await device.db.purgeExpired();
      await until(() => device.replication.state.pending > 0);
      set(0);
      await pause(200);
      if (how === 'a snapshot') {
        for (let round = 0; round < 3; round++) {
          await notes(other).set('first', round);
          await other.replication.compact();
        }
      }
      device.log.isAway = false;
      await until(
        async () => (await notes(device).get('k')) === 'for an hour' && device.replication.state.pending === 0,
      );
      assert.equal(await notes(other).get('k'), 'for an hour');
      await stop(device, other);
    });
  });

  test(`the loser of a conflict that it reads in ${how} is told of it`, async () => {
    const server = new MemoryServer();
    const snapshots = new MemorySnapshotStore();
    const [resolved, told]: [ReplicationConflict[], ReplicationConflict[]] = [[], []];
    const [loser, winner] = [
      await start(server, { snapshots, resolve: (conflict) => void resolved.push(conflict) }),
      await start(server, { snapshots }),
    ];
    loser.replication.addEventListener('conflict', ({ conflict }) => told.push(conflict));
    await notes(loser).set('first', 0);
    await loser.replication.flush();
    await winner.replication.flush();
    winner.log.isAway = true;
    loser.log.losesAnswer = true;
    await notes(loser).set('k', 'loses');
    await until(() => loser.log.isAnswerLost);
    await pause(5);
    await notes(winner).set('k', 'wins');
    await until(() => winner.replication.state.pending > 0);
    winner.log.isAway = false;
    await until(() => winner.replication.state.pending === 0);
    if (how === 'a snapshot') {
      for (let round = 0; round < 3; round++) {
        await notes(winner).set('first', round);
        await winner.replication.compact();
      }
    }
    loser.log.isAway = false;
    await until(() => resolved.length > 0);
    const conflict = { collection: 'notes', key: 'k', mine: 'loses', theirs: 'wins' };
    assert.deepEqual(resolved, [conflict]);
    assert.deepEqual(told, [conflict]);
    await until(async () => (await notes(loser).get('k')) === 'wins');
    await stop(loser, winner);
  });
}

test('a confirmed write that loses behind a snapshot, in records that are read for the first time, is told of', async () => {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const told: ReplicationConflict[] = [];
  const [loser, winner, third] = [
    await start(server, { snapshots }),
    await start(server, { snapshots }),
    await start(server, { snapshots }),
  ];
  loser.replication.addEventListener('conflict', ({ conflict }) => told.push(conflict));
  await notes(loser).set('first', 0);
  for (const { replication } of [loser, winner, third]) await replication.flush();
  winner.log.isAway = true;
  await notes(loser).set('k', 'loses');
  await loser.replication.flush();
  await third.replication.flush();
  loser.log.isAway = true;
  await pause(5);
  await notes(winner).set('k', 'wins');
  await until(() => winner.replication.state.pending > 0);
  for (let round = 0; round < 3; round++) {
    await notes(third).set('first', round);
    await third.replication.compact();
  }
  winner.log.isAway = false;
  await until(() => winner.replication.state.pending === 0);
  loser.log.isAway = false;
  await until(async () => (await notes(loser).get('k')) === 'wins');
  assert.deepEqual(told, [{ collection: 'notes', key: 'k', mine: 'loses', theirs: 'wins' }]);
  await stop(loser, winner, third);
});

test('a conflict that is read once more, after a loss, is not told of again', async () => {
  const server = new MemoryServer();
  const told: ReplicationConflict[] = [];
  const [loser, winner] = [await start(server), await start(server)];
  loser.replication.addEventListener('conflict', ({ conflict }) => told.push(conflict));
  await notes(loser).set('first', 0);
  for (const { replication } of [loser, winner]) await replication.flush();
  winner.log.isAway = true;
  await notes(loser).set('k', 'loses');
  await loser.replication.flush();
  await pause(5);
  await notes(winner).set('k', 'wins');
  await until(() => winner.replication.state.pending > 0);
  winner.log.isAway = false;
  await until(() => told.length > 0);
  await notes(winner).set('last', 0);
  await winner.replication.flush();
  await until(() => notes(loser).has('last'));
  const repaired = new Promise((resolve) => loser.replication.addEventListener('repair', resolve));
  server.loseHistory(server.records.length - 1);
  loser.log.isAway = true;
  await until(() => loser.replication.state.status === 'offline');
  loser.log.isAway = false;
  await repaired;
  await until(() => loser.replication.state.pending === 0);
  assert.deepEqual(told, [{ collection: 'notes', key: 'k', mine: 'loses', theirs: 'wins' }]);
  await stop(loser, winner);
});

test('a conflict that cannot be resolved does not keep the others from it', async () => {
  const server = new MemoryServer();
  const seen: unknown[] = [];
  const device = await start(server, {
    resolve: ({ key }) => {
      seen.push(key);
      if (key === 'k') throw new Error('not this one');
    },
  });
  const other = await start(server);
  await device.replication.flush();
  device.log.isAway = true;
  for (const key of ['k', 'l']) await notes(device).set(key, 'mine');
  await until(() => device.replication.state.pending > 0);
  await pause(5);
  for (const key of ['k', 'l']) await notes(other).set(key, 'theirs');
  await other.replication.flush();
  device.log.isAway = false;
  await until(() => seen.includes('l') && seen.filter((key) => key === 'k').length > 1);
  assert.equal(seen.filter((key) => key === 'l').length, 1);
  await stop(device, other);
});

for (const [how, resolve] of [
  ['never ends', () => new Promise<void>(() => undefined)],
  ['waits for close', (replication: () => Replication) => replication().close()],
] as const) {
  test(`replication closes although a resolver ${how}`, async () => {
    const server = new MemoryServer();
    let isCalled = false;
    const device: Device = await start(server, {
      resolve: () => {
        isCalled = true;
        return resolve(() => device.replication);
      },
    });
    const other = await start(server);
    await device.replication.flush();
    device.log.isAway = true;
    await notes(device).set('k', 'mine');
    await until(() => device.replication.state.pending > 0);
    await pause(5);
    await notes(other).set('k', 'theirs');
    await other.replication.flush();
    device.log.isAway = false;
    await until(() => isCalled);
    await stop(device, other);
  });
}

test('the only writer captures, and undoes what went past replication, while the log cannot be reached at its start', async () => {
  const server = new MemoryServer();
  const first = await start(server, { exclusive: true });
  await first.replication.transaction((tx) => tx.collection('accounts').set('x', 1));
  await notes(first).set('n', 0);
  await first.replication.flush();
  const { position } = first.replication.state;
  await first.replication.close();
  const log = new FaultyLog(server);
  log.isAway = true;
  const replication = await replicate(first.db, { log, collections, exclusive: true });
  const errors: string[] = [];
  replication.addEventListener('error', ({ error }) => errors.push(error.code));
  await until(() => replication.state.status === 'offline');
  assert.equal(replication.state.position, position, 'what it has read before');
  await notes(first).set('n', 1);
  await first.db.collection('accounts').set('x', 2);
  await until(
    async () =>
      replication.state.pending === 1 &&
      errors.includes('KV_REPLICATION_MODE') &&
      (await first.db.collection('accounts').get('x')) === 1,
  );
  assert.equal(server.records.length, position);
  log.isAway = false;
  await until(() => replication.state.status === 'live' && replication.state.pending === 0);
  const other = await start(server);
  await other.replication.flush();
  assert.deepEqual([await notes(other).get('n'), await other.db.collection('accounts').get('x')], [1, 1]);
  await replication.close();
  await stop(other, first);
});

test('a record that the log loses after it has acknowledged it is sent again by itself', async () => {
  const server = new MemoryServer();
  let losses = 0;
  class LosingLog extends FaultyLog {
    override async append(...given: Parameters<FaultyLog['append']>): Promise<Position> {
      const position = await super.append(...given);
      if (losses-- > 0) server.loseHistory(server.records.length - 1);
      return position;
    }
  }
  const db = await open('device', { storage: 'memory', feed: true });
  const replication = await replicate(db, { log: new LosingLog(server), collections });
  await db.collection('notes').set('first', 1);
  await replication.flush();
  losses = 1;
  await db.collection('notes').set('k', 1);
  await until(() => replication.state.pending === 1);
  await until(() => replication.state.pending === 0);
  const other = await start(server);
  await other.replication.flush();
  assert.equal(await notes(other).get('k'), 1);
  await replication.close();
  await db.close();
  await stop(other);
});

test('a log that is back is asked often for what it could not give, however long it was away', async (t) => {
  const server = new MemoryServer();
  const [device, other] = [await start(server), await start(server)];
  await notes(other).set('first', 0);
  await other.replication.flush();
  await device.replication.flush();
  device.log.isAway = true;
  const errors: KvError[] = [];
  device.replication.addEventListener('error', ({ error }) => errors.push(error));
  await new MemoryLog(server).append(new Uint8Array(60).fill(9), { idempotencyKey: 'garbage' });
  await notes(other).set('k', 1);
  await other.replication.flush();
  const { setTimeout: given } = globalThis;
  const waits: number[] = [];
  t.after(() => Object.assign(globalThis, { setTimeout: given }));
  Object.assign(globalThis, {
    setTimeout: (run: () => void, milliseconds = 0, ...args: never[]) => {
      // Waits after failures are random.
      if (!Number.isInteger(milliseconds)) waits.push(milliseconds);
      return given(run, milliseconds, ...args);
    },
  });
  await until(() => waits.some((milliseconds) => milliseconds > 2000));
  waits.length = 0;
  device.log.isAway = false;
  await until(() => notes(device).has('k'));
  assert.ok(waits.length > 0 && waits.every((milliseconds) => milliseconds < 1000), String(waits));
  assert.deepEqual(
    errors.map(({ code }) => code),
    ['KV_CORRUPT'],
  );
  await stop(device, other);
});
