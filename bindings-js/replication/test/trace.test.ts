// What replication traces: each event, in the situation that it tells of.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { open } from 'mangrove-kv';
import type { Database, KvError, TraceEvent } from 'mangrove-kv';
import {
  MemoryLog,
  MemoryServer,
  MemorySnapshotStore,
  logRefused,
  logUnavailable,
  replicate,
} from '@mangrove-kv/replication';
import type { Position, Replication, ReplicationOptions } from '@mangrove-kv/replication';
import { Device } from './device.ts';
import { collections, withhold } from './helpers.ts';

// Replication keeps no process alive while it waits to try again.
const alive = setInterval(() => undefined, 1000);
after(() => clearInterval(alive));

/** Waits for a condition, for so long that only a mistake takes longer. */
async function until(isTrue: () => boolean | Promise<boolean>): Promise<void> {
  for (const end = Date.now() + 20_000; !(await isTrue()); await sleep(5))
    assert.ok(Date.now() < end, 'it takes too long');
}

class AwayLog extends MemoryLog {
  failure: KvError | undefined;

  override async append(...given: Parameters<MemoryLog['append']>): Promise<Position> {
    if (this.failure !== undefined) throw this.failure;
    return super.append(...given);
  }

  override async read(...given: Parameters<MemoryLog['read']>): ReturnType<MemoryLog['read']> {
    if (this.failure !== undefined) throw this.failure;
    return super.read(...given);
  }
}

interface Node {
  readonly db: Database;
  readonly log: AwayLog;
  readonly replication: Replication;
  /** What replication traced. */
  readonly traced: TraceEvent[];
}

async function openTraced(): Promise<{ db: Database; traced: TraceEvent[] }> {
  const traced: TraceEvent[] = [];
  const db = await open('node', {
    storage: 'memory',
    feed: true,
    trace: (event) => void (event.source === 'replication' && traced.push(event)),
  });
  return { db, traced };
}

async function start(server: MemoryServer, options: Partial<ReplicationOptions> = {}): Promise<Node> {
  const log = new AwayLog(server);
  const { db, traced } = await openTraced();
  return { db, log, traced, replication: await replicate(db, { log, collections, ...options }) };
}

async function stop(...nodes: readonly Node[]): Promise<void> {
  for (const { db, replication } of nodes) {
    await replication.close();
    await db.close();
  }
}

const notes = ({ db }: Node) => db.collection<string, string>('notes');

const statusesOf = ({ traced }: Node): string[] =>
  traced.flatMap((event) => (event.event === 'status' ? [event.status] : []));

test('the status is traced when it changes, with why', async () => {
  const node = await start(new MemoryServer());
  await until(() => node.replication.state.status === 'live');
  node.log.failure = logUnavailable('the network is gone');
  await notes(node).set('a', 'b');
  await until(() => node.replication.state.status === 'offline');
  await until(() => statusesOf(node).at(-1) === 'offline');
  assert.equal((node.traced.at(-1) as { error?: { message: string } }).error?.message, node.log.failure.message);
  node.log.failure = undefined;
  await node.replication.flush();
  await stop(node);
  const statuses = statusesOf(node).filter((status) => status !== 'catching-up');
  assert.deepEqual(statuses, ['connecting', 'live', 'offline', 'live', 'stopped']);
});

test('a conflict is traced, without the key and the values', async () => {
  const server = new MemoryServer();
  const [loser, winner] = [await start(server), await start(server)];
  await notes(loser).set('first', 'x');
  for (const { replication } of [loser, winner]) await replication.flush();
  winner.log.failure = logUnavailable('the network is gone');
  await notes(loser).set('k', 'loses');
  await loser.replication.flush();
  await sleep(5);
  await notes(winner).set('k', 'wins');
  winner.log.failure = undefined;
  await winner.replication.flush();
  await until(() => loser.traced.some(({ event }) => event === 'conflict'));
  const { time: _, ...conflict } = loser.traced.find(({ event }) => event === 'conflict') as TraceEvent;
  assert.deepEqual(conflict, { database: 'node', source: 'replication', event: 'conflict', collection: 'notes' });
  await stop(loser, winner);
});

test('a repair is traced', async () => {
  const server = new MemoryServer();
  const node = await start(server, { snapshots: new MemorySnapshotStore() });
  for (const key of ['a', 'b', 'c']) {
    await notes(node).set(key, key);
    await node.replication.flush();
  }
  server.loseHistory(server.records.at(-3)?.position as number);
  node.log.failure = logUnavailable('the network is gone');
  await until(() => node.replication.state.status === 'offline');
  node.log.failure = undefined;
  await until(() => node.traced.some((event) => event.event === 'repair' && event.records > 0));
  await stop(node);
});

test('an error is traced, and has the traces itself', async () => {
  const node = await start(new MemoryServer());
  await until(() => node.replication.state.status === 'live');
  const heard = new Promise<KvError>((resolve) =>
    node.replication.addEventListener('error', ({ error }) => resolve(error), { once: true }),
  );
  node.log.failure = logRefused('the log wants no more');
  await notes(node).set('a', 'b');
  const { code, message, trace = [] } = await heard;
  const last = trace.at(-1) as Extract<TraceEvent, { source: 'replication'; event: 'error' }>;
  assert.deepEqual(
    [last.source, last.event, last.error.code, last.error.message],
    ['replication', 'error', code, message],
  );
  await stop(node);
});

test('entries that were not what the log says are traced', async () => {
  const server = new MemoryServer();
  const options = { snapshots: new MemorySnapshotStore(), collections };
  // The types of the built package and of the sources have symbols of their own.
  const other = await Device.start(server as never, options);
  await other.db.collection('notes').setMany([
    ['a', 1],
    ['b', 2],
  ]);
  await other.exchange();
  const { db, traced } = await openTraced();
  const device = await Device.adopt(server as never, options, db);
  await device.exchange();
  await withhold(device, 'b');
  device.replica.stop();
  await other.replica.compact();
  const replication = await replicate(db, { log: new MemoryLog(server), ...options });
  await until(() => traced.some(({ event }) => event === 'diverged'));
  const { time: _, ...diverged } = traced.find(({ event }) => event === 'diverged') as TraceEvent;
  assert.deepEqual(diverged, {
    database: 'node',
    source: 'replication',
    event: 'diverged',
    collection: 'notes',
    entries: 1,
  });
  await replication.close();
  await db.close();
  await other.stop();
});

test('nothing is attached where nothing is traced', async () => {
  const db = await open('node', { storage: 'memory', feed: true });
  const log = new AwayLog(new MemoryServer());
  const replication = await replicate(db, { log, collections });
  const heard = new Promise<KvError>((resolve) =>
    replication.addEventListener('error', ({ error }) => resolve(error), { once: true }),
  );
  log.failure = logRefused('the log wants no more');
  await db.collection('notes').set('a', 'b');
  assert.ok(!Object.hasOwn(await heard, 'trace'));
  await replication.close();
  await db.close();
});
