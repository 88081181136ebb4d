// Large values, which are objects of their own: a device that catches up fetches each once, before it applies.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import { logUnavailable } from '../src/remote-log.ts';
import { collect, toStream } from '../src/wire.ts';
import { Device, converge } from './device.ts';
import { cutOff, equal, reconnect, stopAll } from './helpers.ts';
import { decodeRow } from '../src/row.ts';

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
    const result = await change(...(given as Parameters<typeof change>));
    store.waiting = 0;
    return result as never;
  };
  return () => attempts;
}

/** Each value in a record of its own. */
async function write(device: Device, first: number, count: number): Promise<void> {
  for (let at = first; at < first + count; at++) {
    await device.db.collection('notes').set(at, value(at));
    await device.exchange();
  }
}

test('a device that catches up fetches each value once, some at a time, and applies in few commits', async () => {
  const [server, store] = [new MemoryServer(), new CountedStore()];
  const a = await Device.start(server, { snapshots: store, isInMemory: true });
  await a.db.collection('notes').set('first', 'a small one');
  await a.exchange();
  await write(a, 0, 128);
  await a.exchange();
  assert.equal(store.gets.size, 0, 'a device has its own values');
  assert.ok(server.records.length >= 129);
  const b = await Device.start(server, { snapshots: store, isInMemory: true });
  const attempts = countAttempts(b, store);
  await b.exchange();
  await equal([a, b]);
  assert.equal(store.gets.size, 128);
  for (const [key, times] of store.gets) assert.equal(times, 1, key);
  assert.ok(store.most * SIZE <= MAX_BYTES, `${store.most} values in memory`);
  assert.ok(store.mostParallel > 1 && store.mostParallel <= MAX_PARALLEL, `${store.mostParallel} at a time`);
  // One attempt finds that values are missing, one applies.
  const parts = Math.ceil((128 * SIZE) / (MAX_BYTES - SIZE));
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
  await a.exchange();
  const b = await Device.start(server, { snapshots: store, isInMemory: true });
  store.isMissing = (key) => key === late;
  await assert.rejects(b.replica.settle(), { code: 'KV_LOG_UNAVAILABLE' });
  assert.deepEqual(await b.db.collection('notes').keys().toArray(), [0, 1, 2, 3, 4]);
  store.isMissing = () => false;
  await b.exchange();
  await equal([a, b]);
  for (const key of known) assert.equal(store.gets.get(key), 1);
  await stopAll([a, b]);
});

test('values of a transaction in several records, of a copy and of other collections', async () => {
  const [server, store] = [new MemoryServer(), new CountedStore()];
  const a = await Device.start(server, { snapshots: store, collections: { notes: {}, others: {} } });
  await write(a, 0, 3);
  const noise = (seed: number): Uint8Array =>
    Uint8Array.from({ length: 100_000 }, (_, at) => Math.imul(at + seed, 2_654_435_761) >>> 24);
  for (let round = 0; round < 3; round++) {
    await a.db
      .collection('notes')
      .setMany([
        ...Array.from({ length: 12 }, (_, at) => [`part ${round} ${at}`, noise(round * 100 + at)] as const),
        [`large ${round}`, value(100 + round)],
        [`twin ${round}`, value(100 + round)],
      ]);
    await a.db.collection('others').set(round, value(200 + round));
    await write(a, 10 + round, 1);
  }
  await a.exchange();
  const twin = await Device.start(server, { snapshots: store, collections: { notes: {}, others: {} } }, a.disk.copy());
  await write(twin, 50, 2);
  await write(a, 60, 2);
  await converge([a, twin]);
  await equal([a, twin]);
  store.gets.clear();
  const b = await Device.start(server, { snapshots: store });
  await b.exchange();
  assert.deepEqual(
    await b.db.collection('notes').entries().toArray(),
    await a.db.collection('notes').entries().toArray(),
  );
  // Also of the collection that it does not know: it keeps what the log has.
  assert.equal(store.gets.size, 3 + 3 + 3 + 3 + 4);
  for (const [key, times] of store.gets) assert.equal(times, 1, key);
  await stopAll([a, twin, b]);
});

test('an own large value that comes back while the log is read anew is not taken for empty', async () => {
  const [server, store] = [new MemoryServer(), new CountedStore()];
  const a = await Device.start(server, { snapshots: store });
  await a.db.collection('notes').set('small', 1);
  await a.exchange();
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

for (const what of ['lost', 'damaged']) {
  test(`a value that the object store has ${what} stops nothing behind it, and is there once it is put back`, async () => {
    const [server, store] = [new MemoryServer(), new MemorySnapshotStore()];
    const a = await Device.start(server, { snapshots: store });
    await write(a, 0, 1);
    const [key = ''] = await store.list('blob/');
    await write(a, 1, 1);
    await a.db.collection('notes').set('behind', 'it');
    await a.exchange();
    const bytes = await collect((await store.get(key)) as ReadableStream<Uint8Array>);
    await store.delete(key);
    if (what === 'damaged') await store.put(key, toStream(bytes.slice(1)));
    let b = await Device.start(server, { snapshots: store });
    await b.exchange();
    assert.deepEqual(await b.db.collection('notes').keys().toArray(), [1, 'behind']);
    assert.deepEqual(
      b.alarms.map(({ code }) => code),
      ['KV_NOT_FOUND'],
    );
    assert.match((b.alarms[0] as Error).message, new RegExp(key));
    assert.equal((await b.replica.tables.aside.entries().toArray()).length, 1);
    await b.db.collection('notes').set('mine', 'is sent');
    await b.exchange();
    await assert.rejects(b.replica.compact(), { code: 'KV_NOT_FOUND' });
    await a.exchange();
    assert.equal(await a.db.collection('notes').get('mine'), 'is sent');
    b = await b.restart(server, { snapshots: store });
    await b.exchange();
    assert.equal(await b.db.collection('notes').get('mine'), 'is sent', 'it is still not there');
    assert.equal(await b.db.collection('notes').has(0), false);
    await store.delete(key);
    await store.put(key, toStream(bytes));
    b = await b.restart(server, { snapshots: store });
    await converge([a, b]);
    await equal([a, b]);
    assert.deepEqual(await b.db.collection('notes').get(0), value(0));
    assert.ok(await b.replica.compact());
    await stopAll([a, b]);
  });
}

test('a device that has its own value needs no object of it', async () => {
  const [server, store] = [new MemoryServer(), new MemorySnapshotStore()];
  const a = await Device.start(server, { snapshots: store });
  await a.exchange();
  await a.db.collection('notes').set('for an hour', value(0), { expireIn: 3_600_000 });
  while (await a.replica.drain());
  while (await a.replica.publish());
  for (const key of await store.list('blob/')) await store.delete(key);
  await a.exchange();
  assert.deepEqual(a.alarms, []);
  await equal([a]);
  await stopAll([a]);
});

test('an own large value that was read again from a snapshot on is put back when the log loses it', async () => {
  const [server, store] = [new MemoryServer(), new CountedStore()];
  const [a, b] = [await Device.start(server, { snapshots: store }), await Device.start(server, { snapshots: store })];
  await a.db.collection('notes').set('zero', 0);
  await converge([a, b]);
  // The log begins with a snapshot meanwhile, behind which the value comes back.
  for (let round = 0; round < 2; round++) await cutOff(server, b);
  await a.db.collection('notes').set('large', value(1));
  while (await a.replica.drain());
  while (await a.replica.publish());
  await a.exchange();
  // Nobody else has read it.
  server.loseHistory(server.records.at(-1)!.position - 1);
  await reconnect([a, b]);
  const fresh = await Device.start(server, { snapshots: store });
  await converge([fresh, a, b]);
  await equal([a, b, fresh]);
  assert.deepEqual(await fresh.db.collection('notes').get('large'), value(1));
  await stopAll([a, b, fresh]);
});

test('an own large value that comes back is kept where the entry may be something else', async () => {
  const server = new MemoryServer();
  const device = await Device.start(server, { snapshots: new MemorySnapshotStore(), isInMemory: true });
  const notes = device.db.collection('notes');
  await device.exchange();
  // It expires, and it was written over.
  await notes.set('a', value(1), { expireIn: 3_600_000 });
  await notes.set('b', value(2));
  while (await device.replica.drain());
  while (await device.replica.publish());
  await notes.set('b', 'since');
  while (await device.replica.drain());
  while (await device.replica.pull());
  const rows = await device.replica.tables.byName.get('notes')!.rows.values().toArray();
  assert.deepEqual(
    rows.map((row) => (decodeRow(row).base?.kept?.length ?? 0) > SIZE),
    [true, true],
  );
  assert.ok(decodeRow(rows[0] as Uint8Array).base!.stamp.expiresAt > 0);
  await stopAll([device]);
});

test('devices that write the same large value send both', async () => {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const devices = [
    await Device.start(server, { snapshots, isInMemory: true }),
    await Device.start(server, { snapshots, isInMemory: true }),
  ] as const;
  for (const [at, { db }] of devices.entries()) await db.collection('notes').set(`of ${at}`, value(7));
  await converge(devices);
  await equal(devices);
  assert.equal(await devices[0].db.collection('notes').size, 2);
  assert.equal((await snapshots.list('blob/')).length, 1);
  await stopAll(devices);
});
