// Large values, which are objects of their own: a device that catches up fetches each once, before it applies.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryServer, MemorySnapshotStore } from '../../src/sync/memory-log.ts';
import { logUnavailable } from '../../src/sync/remote-log.ts';
import { decodeRow } from '../../src/sync/row.ts';
import { Device, converge } from './device.ts';
import { equal, stopAll } from './helpers.ts';

const SIZE = 260 << 10;
const MAX_BYTES = 16 << 20;
const MAX_PARALLEL = 8;

const value = (seed: number): Uint8Array => new Uint8Array(SIZE).fill(seed + 1);

/** Counts what is fetched, and how much of it at a time. */
class CountedStore extends MemorySnapshotStore {
  readonly gets = new Map<string, number>();
  /** Values that are fetched and not applied. */
  waiting = 0;
  most = 0;
  #parallel = 0;
  mostParallel = 0;
  isMissing: (key: string) => boolean = () => false;

  override async get(key: string): ReturnType<MemorySnapshotStore['get']> {
    if (!key.startsWith('blob/')) return super.get(key);
    this.gets.set(key, (this.gets.get(key) ?? 0) + 1);
    this.mostParallel = Math.max(this.mostParallel, ++this.#parallel);
    try {
      // Others get their turn.
      await new Promise((resolve) => setTimeout(resolve));
      if (this.isMissing(key)) throw logUnavailable('told to be missing');
      this.most = Math.max(this.most, ++this.waiting);
      return await super.get(key);
    } finally {
      this.#parallel--;
    }
  }
}

/** Counts attempts to apply; each that succeeds lets go of the values. */
function countAttempts({ replica }: Device, store: CountedStore): () => number {
  const { tables } = replica;
  const change = tables.change.bind(tables);
  let attempts = 0;
  tables.change = async (...given) => {
    attempts++;
    const result = await change(...given as Parameters<typeof change>);
    store.waiting = 0;
    return result as never;
  };
  return () => attempts;
}

/** Each value in a record of its own. */
async function write(device: Device, first: number, count: number): Promise<void> {
  for (let at = first; at < first + count; at++) {
    await device.db.collection('notes').set(at, value(at));
    await device.sync();
  }
}

test('a device that catches up fetches each value once, some at a time, and applies in few commits', async () => {
  const [server, store] = [new MemoryServer(), new CountedStore()];
  const a = await Device.start(server, { snapshots: store, isInMemory: true });
  await a.db.collection('notes').set('first', 'a small one');
  await a.sync();
  await write(a, 0, 128);
  await a.sync();
  assert.equal(store.gets.size, 0, 'a device has its own values');
  assert.ok(server.records.length >= 129);
  const b = await Device.start(server, { snapshots: store, isInMemory: true });
  const attempts = countAttempts(b, store);
  await b.sync();
  await equal([a, b]);
  assert.equal(store.gets.size, 128);
  for (const [key, times] of store.gets) assert.equal(times, 1, key);
  assert.ok(store.most * SIZE <= MAX_BYTES, `${store.most} values in memory`);
  assert.ok(store.mostParallel > 1 && store.mostParallel <= MAX_PARALLEL, `${store.mostParallel} at a time`);
  // One attempt finds that values are missing, one applies.
  const parts = Math.ceil(128 * SIZE / (MAX_BYTES - SIZE));
  assert.ok(attempts() <= 2 * (parts + 1) + 4, `${attempts()} attempts`);
  await stopAll([a, b]);
});

test('what comes before a value that cannot be fetched is applied, and fetched once', async () => {
  const [server, store] = [new MemoryServer(), new CountedStore()];
  const a = await Device.start(server, { snapshots: store, isInMemory: true });
  await write(a, 0, 5);
  const known = new Set(await store.list('blob/'));
  await write(a, 5, 1);
  const [late = ''] = (await store.list('blob/')).filter((key) => !known.has(key));
  await write(a, 6, 20);
  await a.sync();
  const b = await Device.start(server, { snapshots: store, isInMemory: true });
  store.isMissing = (key) => key === late;
  await assert.rejects(b.replica.settle(), { code: 'KV_LOG_UNAVAILABLE' });
  assert.deepEqual(await b.db.collection('notes').keys().toArray(), [0, 1, 2, 3, 4]);
  store.isMissing = () => false;
  await b.sync();
  await equal([a, b]);
  for (const key of known) assert.equal(store.gets.get(key), 1);
  await stopAll([a, b]);
});

test('values of a transaction in several records, of a copy and of other collections', async () => {
  const [server, store] = [new MemoryServer(), new CountedStore()];
  const a = await Device.start(server, { snapshots: store, collections: { notes: {}, others: {} } });
  await write(a, 0, 3);
  const noise = (seed: number): Uint8Array => Uint8Array.from({ length: 100_000 }, (_, at) => Math.imul(at + seed, 2_654_435_761) >>> 24);
  for (let round = 0; round < 3; round++) {
    await a.db.collection('notes').setMany([...Array.from({ length: 12 }, (_, at) => [`part ${round} ${at}`, noise(round * 100 + at)] as const), [`large ${round}`, value(100 + round)], [`twin ${round}`, value(100 + round)]]);
    await a.db.collection('others').set(round, value(200 + round));
    await write(a, 10 + round, 1);
  }
  await a.sync();
  const twin = await Device.start(server, { snapshots: store, collections: { notes: {}, others: {} } }, a.disk.copy());
  await write(twin, 50, 2);
  await write(a, 60, 2);
  await converge([a, twin]);
  await equal([a, twin]);
  store.gets.clear();
  const b = await Device.start(server, { snapshots: store });
  await b.sync();
  assert.deepEqual(await b.db.collection('notes').entries().toArray(), await a.db.collection('notes').entries().toArray());
  // Also of the collection that it does not know: it keeps what the log has.
  assert.equal(store.gets.size, 3 + 3 + 3 + 3 + 4);
  for (const [key, times] of store.gets) assert.equal(times, 1, key);
  await stopAll([a, twin, b]);
});

test('an own large value that comes back while the log is read anew is not taken for empty', async () => {
  const [server, store] = [new MemoryServer(), new CountedStore()];
  const a = await Device.start(server, { snapshots: store });
  await a.db.collection('notes').set('small', 1);
  await a.sync();
  server.loseHistory(0);
  await a.db.collection('notes').set('large', value(1));
  while (await a.replica.drain());
  while (await a.replica.publish());
  const before = await a.db.collection('notes').entries().toArray();
  a.replica.reconnect();
  const b = await Device.start(server, { snapshots: store });
  await converge([a, b]);
  await equal([a, b]);
  assert.deepEqual(await b.db.collection('notes').entries().toArray(), before);
  await a.replica.compact();
  await stopAll([a, b]);
});

test('an own large value that comes back is kept where the entry may be something else', async () => {
  const server = new MemoryServer();
  const device = await Device.start(server, { snapshots: new MemorySnapshotStore(), isInMemory: true });
  const notes = device.db.collection('notes');
  await device.sync();
  // It expires, and it was written over.
  await notes.set('a', value(1), { expireIn: 3_600_000 });
  await notes.set('b', value(2));
  while (await device.replica.drain());
  while (await device.replica.publish());
  await notes.set('b', 'since');
  while (await device.replica.drain());
  while (await device.replica.pull());
  const rows = await device.replica.tables.byName.get('notes')!.rows.values().toArray();
  assert.deepEqual(rows.map((row) => (decodeRow(row).base?.kept?.length ?? 0) > SIZE), [true, true]);
  assert.ok(decodeRow(rows[0] as Uint8Array).base!.stamp.expiresAt > 0);
  await stopAll([device]);
});

test('a large value that is not what its name says is not applied', async () => {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const [a, b] = [await Device.start(server, { snapshots, isInMemory: true }), await Device.start(server, { snapshots, isInMemory: true })];
  await write(a, 0, 1);
  const [key] = await snapshots.list('blob/');
  await snapshots.delete(key as string);
  await snapshots.put(key as string, new Blob([value(5) as Uint8Array<ArrayBuffer>]).stream());
  await assert.rejects(b.replica.pull(), { code: 'KV_CORRUPT' });
  assert.equal(await b.db.collection('notes').size, 0);
  await stopAll([a, b]);
});

test('devices that write the same large value send both', async () => {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const devices = [await Device.start(server, { snapshots, isInMemory: true }), await Device.start(server, { snapshots, isInMemory: true })] as const;
  for (const [at, { db }] of devices.entries()) await db.collection('notes').set(`of ${at}`, value(7));
  await converge(devices);
  await equal(devices);
  assert.equal(await devices[0].db.collection('notes').size, 2);
  assert.equal((await snapshots.list('blob/')).length, 1);
  await stopAll(devices);
});
