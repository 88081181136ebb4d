// Encoding many entries when the engine has its own thread: other work gets its turn, and calls
// made meanwhile take effect afterwards.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open } from 'mangrove-kv';
import type { Database, ValueCodec } from 'mangrove-kv';
import { turn } from '../src/base/async.ts';
import { Connection } from '../src/wire/connection.ts';
import { Op } from '../src/wire/opcodes.ts';
import type { Transport } from '../src/wire/transport.ts';
import { KvError } from '../src/base/errors.ts';
import { rejects, withPath } from './support/kit.ts';

const COUNT = 200;

/** Takes a millisecond for each value, so that `COUNT` of them take several slices. */
const slow: ValueCodec<number> = {
  id: 'slow',
  encode: (value) => {
    if (value < 0) throw new RangeError('negative');
    for (const end = performance.now() + 1; performance.now() < end; );
    return Uint8Array.of(value & 255, value >> 8);
  },
  decode: ([low = 0, high = 0]) => low + (high << 8),
};

function withSlow(work: (db: Database<number, number>) => Promise<void>): Promise<void> {
  return withPath(async (path) => {
    const db = await open<number, number>(path, { thread: 'worker', value: slow });
    try {
      await work(db);
    } finally {
      await db.close();
    }
  });
}

const entries = (): [number, number][] => Array.from({ length: COUNT }, (_, index) => [index, index]);

/** Counts turns of the event loop until a promise is settled. */
async function turnsOf(promise: Promise<unknown>): Promise<number> {
  let isOver = false;
  let turns = 0;
  const end = promise.finally(() => {
    isOver = true;
  });
  while (!isOver) {
    await new Promise(setImmediate);
    turns++;
  }
  await end;
  return turns;
}

test('other work gets its turn while many entries are encoded', () =>
  withSlow(async (db) => {
    let encoded = 0;
    const list = entries();
    const written = db.setMany(list.map(([key, value]) => [key, value] as const)).then(() => {
      encoded = COUNT;
    });
    assert.equal(encoded, 0);
    assert.ok((await turnsOf(written)) > 5);
    assert.equal(await db.size, COUNT);
  }));

test('calls made meanwhile take effect afterwards, in order', () =>
  withSlow(async (db) => {
    await db.set(7, 1);
    const before = db.get(7);
    const written = db.setMany(entries());
    const [seen, size] = [db.get(COUNT - 1), db.size];
    const snapshot = db.snapshot();
    const later = db.setMany([
      [7, 700],
      [COUNT, COUNT],
    ]);
    const many = db.setMany(entries().map(([key]) => [key, key + 1] as const));
    const deleted = db.delete(8);
    assert.deepEqual(await Promise.all([before, seen, size, written, later, many, deleted]), [
      1,
      COUNT - 1,
      COUNT,
      undefined,
      undefined,
      undefined,
      true,
    ]);
    assert.deepEqual([await (await snapshot).get(7), await (await snapshot).get(8)], [7, 8]);
    assert.deepEqual(await db.getMany([6, 7, 8, 9, COUNT]), [7, 8, undefined, 10, COUNT]);
    await (await snapshot).close();
  }));

test('the array may be reused at once', () =>
  withSlow(async (db) => {
    const list = entries();
    const written = db.setMany(list);
    list.length = 0;
    list.push([1, 5000]);
    await written;
    assert.equal(await db.size, COUNT);
    assert.equal(await db.get(1), 1);
    assert.equal(await db.get(COUNT - 1), COUNT - 1);
  }));

test('an entry that cannot be encoded makes the call store nothing, and later calls are done', () =>
  withSlow(async (db) => {
    const written = db.setMany([...entries(), [COUNT, -1]]);
    const later = db.set(5, 55);
    await rejects(written, 'KV_INVALID_VALUE');
    await later;
    assert.deepEqual(await db.entries().toArray(), [[5, 55]]);
  }));

test('an abort before all entries are encoded leaves nothing', () =>
  withSlow(async (db) => {
    const controller = new AbortController();
    const written = db.setMany(entries(), { signal: controller.signal });
    const later = db.set(5, 55);
    controller.abort(new Error('enough'));
    await assert.rejects(written, /enough/);
    await later;
    assert.deepEqual(await db.entries().toArray(), [[5, 55]]);
  }));

test('a database that is closed at once has the entries', () =>
  withPath(async (path) => {
    const db = await open<number, number>(path, { thread: 'worker', value: slow });
    const written = db.setMany(entries());
    await db.close();
    await written;
    const again = await open<number, number>(path, { value: slow });
    assert.equal(await again.size, COUNT);
    await again.close();
  }));

test('a transaction that ends at once has the entries', () =>
  withSlow(async (db) => {
    await db.transaction(async (tx) => {
      void tx.setMany(entries());
    });
    assert.equal(await db.size, COUNT);
  }));

test('an abandoned iterator frees its snapshot, with or without another request', () =>
  withPath(async (path) => {
    const db = await open<number, number>(path, { thread: 'worker' });
    await db.setMany(entries());
    for (const isLast of [false, true]) {
      for await (const key of db.keys()) if (key === 3) break;
      if (isLast) await new Promise((resolve) => setTimeout(resolve, 100));
      assert.equal((await db.stats()).openSnapshots, 0);
    }
    await db.close();
  }));

test('an engine that is replaced meanwhile receives the collections first', async () => {
  const sent: Uint8Array[] = [];
  const transport: Transport = {
    takesBuffers: true,
    events: undefined,
    send: (message) => void sent.push(message),
    dispose: () => {},
  };
  const connection = new Connection(transport);
  connection.use('name', 'key', 'value');
  const held = connection.hold(turn(), () =>
    connection.request(
      (writer) => writer.u8(Op.batch),
      () => 'done',
    ),
  );
  const named = sent.length;
  assert.equal(sent[0]![0], Op.use);
  transport.events!.refuse(new KvError('KV_IO', 'the worker stopped'), named);
  await turn();
  await turn();
  // The collection, then the batch, in one message.
  assert.equal(sent[named]![0], Op.use);
  assert.equal(sent[named]!.at(-1), Op.batch);
  transport.events!.reply(Uint8Array.of(0, 0), 1);
  assert.equal(await held, 'done');
});
