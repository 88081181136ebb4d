// Flushes in another thread: what waits for them, what proceeds meanwhile, and what a failed one
// means. The tests decide when a flush ends.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mock, test } from 'node:test';
import { Connection } from '../src/wire/connection.ts';
import { KvDatabase } from '../src/api/database.ts';
import { InThreadTransport } from '../src/engine/in-thread-transport.ts';
import type { FlushableFile } from '../src/storage/node-fs.ts';
import { checkOptions } from '../src/api/options.ts';
import { syncFaces } from '../src/api/synchronous.ts';
import { MemoryStorage } from '../src/storage/memory.ts';
import { SWEEP_EVERY_MS, SWEEP_PAUSE_MS } from '../src/engine/sweep.ts';
import { KvError } from '../src/base/errors.ts';
import type { Database, StorageFile } from '../src/types/index.ts';
import { chance, code, rejects } from './support/kit.ts';

const module = new WebAssembly.Module(readFileSync(new URL('../dist/mangrove_bg.wasm', import.meta.url)));

/** In-memory files whose flushes end when the test says so. */
class GatedStorage extends MemoryStorage {
  readonly flushesLater = true;
  /** Files with a flush in progress, and the function that ends it. */
  readonly running: { file: string; end: (error?: unknown) => void }[] = [];
  flushes = 0;
  writes = 0;

  override open(name: string): FlushableFile {
    const file: StorageFile = super.open(name);
    return Object.assign(Object.create(file) as FlushableFile, {
      read: file.read.bind(file),
      write: (at: number, from: Uint8Array) => {
        this.writes++;
        file.write(at, from);
      },
      size: file.size.bind(file),
      truncate: file.truncate.bind(file),
      close: file.close.bind(file),
      flush: () => {
        this.flushes++;
        file.flush();
      },
      flushLater: (done: (error: unknown) => void) => this.running.push({ file: name, end: (error) => done(error) }),
    });
  }

  /** Ends the oldest flush in progress. */
  end(error?: unknown): string {
    const oldest = this.running.shift();
    assert.ok(oldest !== undefined, 'a flush is in progress');
    oldest.end(error);
    return oldest.file;
  }
}

function open(storage = new GatedStorage()) {
  let releases = 0;
  const transport = new InThreadTransport(module, storage, checkOptions({}).engine, {
    release: () => releases++,
    syncFaces,
  });
  const info = { path: 'x', persistence: 'fs', durability: 'strict' } as const;
  const db: Database<string, number> = new KvDatabase<string, number>(new Connection(transport), info, {});
  return { storage, db, releases: () => releases };
}

/** Opens a database with one durable entry. */
async function opened() {
  const all = open();
  all.db.sync.set('a', 0);
  return all;
}

const turn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0));

/** On a busy machine a message may wait for more than one turn. */
async function until(isTrue: () => boolean): Promise<void> {
  for (const begun = performance.now(); !isTrue(); await turn()) {
    assert.ok(performance.now() - begun < 60_000, 'what was waited for never happens');
  }
}

function outcome(promise: Promise<unknown>): { value?: unknown; isPending: boolean } {
  const state: { value?: unknown; isPending: boolean } = { isPending: true };
  promise.then(
    (value) => Object.assign(state, { value, isPending: false }),
    () => Object.assign(state, { isPending: false }),
  );
  return state;
}

test('a write is done when its flush is, and calls made meanwhile take effect after it', async () => {
  const { db, storage } = await opened();
  const write = outcome(db.set('a', 1));
  await until(() => storage.running.length === 1);
  const read = outcome(db.get('a'));
  const count = outcome(db.count());
  await turn();
  assert.deepEqual([write.isPending, read.isPending, count.isPending], [true, true, true]);
  assert.equal(storage.end(), 'log');
  await until(() => !write.isPending && !read.isPending && !count.isPending);
  assert.deepEqual([write.isPending, read.value, count.value], [false, 1, 1]);
  assert.equal(storage.running.length, 0);
  await db.close();
});

test('all writes called during a flush share the next one', async () => {
  const { db, storage } = await opened();
  const first = db.set('first', 1);
  await until(() => storage.running.length === 1);
  const others = [];
  for (let index = 0; index < 20; index++) {
    others.push(db.set(`key ${index}`, index));
    await turn();
  }
  storage.end();
  await first;
  await until(() => storage.running.length === 1);
  storage.end();
  await Promise.all(others);
  assert.equal(await db.count(), 22);
  await db.close();
});

test('blocks are flushed before the log', async () => {
  const { db, storage } = await opened();
  const large = db.collection<string, Uint8Array>('large');
  const write = large.set('a', crypto.getRandomValues(new Uint8Array(60_000)));
  await until(() => storage.running.length === 1);
  assert.equal(storage.end(), 'data');
  assert.equal(storage.end(), 'log');
  await write;
  await db.close();
});

test('transactions wait, and a message continues after each commit', async () => {
  const { db, storage } = await opened();
  const tx = db.begin();
  await tx.set('a', 5);
  const commit = outcome(tx.commit());
  const count = outcome(db.count());
  const write = outcome(db.set('b', 1));
  await until(() => storage.running.length === 1);
  assert.deepEqual([commit.isPending, count.isPending, write.isPending], [true, true, true]);
  storage.end();
  // The write needs another flush.
  await until(() => storage.running.length === 1);
  storage.end();
  await until(() => !commit.isPending && !count.isPending && !write.isPending);
  assert.deepEqual([commit.isPending, count.value, write.isPending], [false, 1, false]);
  await db.close();
});

test('a synchronous call ends the wait, and the flush that it did not wait for still counts', async () => {
  const { db, storage } = await opened();
  const write = db.set('a', 1);
  await until(() => storage.running.length === 1);
  const later = db.set('b', 2);
  const before = storage.flushes;
  assert.equal(db.sync.get('b'), 2);
  assert.ok(storage.flushes > before);
  await Promise.all([write, later]);
  // The first flush is still in progress; meanwhile writes are flushed at once.
  await db.set('c', 3);
  assert.equal(storage.running.length, 1);
  storage.end();
  const next = db.set('d', 4);
  // From now on flushes run in the other thread again.
  await until(() => storage.running.length === 1);
  storage.end();
  await next;

  const last = db.set('e', 5);
  await until(() => storage.running.length === 1);
  assert.equal(db.sync.get('e'), 5);
  await last;
  storage.end(new Error('writes were lost'));
  await rejects(db.set('f', 6), 'KV_IO');
  assert.equal(await db.get('e'), 5);
  await db.close().catch(() => undefined);
});

test('a failed flush rejects the writes that waited for it, and nothing shows them', async () => {
  const { db, storage } = await opened();
  const write = db.set('a', 1);
  const removed = db.delete('a');
  await until(() => storage.running.length === 1);
  const queued = db.set('b', 1);
  const read = db.get('a');
  storage.end(Object.assign(new Error('the disk is gone'), { code: 'EIO' }));
  await rejects(write, 'KV_IO');
  await rejects(removed, 'KV_IO');
  await rejects(queued, 'KV_IO');
  assert.equal(await read, 0);
  assert.throws(() => db.sync.set('c', 1), code('KV_IO'));
  assert.deepEqual(await db.entries().toArray(), [['a', 0]]);
  await db.close().catch(() => undefined);
});

test('relaxed writes do not wait for their flush, which comes later', async () => {
  const { db, storage } = await opened();
  const before = storage.flushes;
  await db.set('a', 1, { durability: 'relaxed' });
  await until(() => storage.running.length === 1);
  assert.equal(storage.flushes, before);
  const meanwhile = outcome(db.set('b', 2, { durability: 'relaxed' }));
  await turn();
  assert.equal(meanwhile.isPending, true);
  storage.end();
  await until(() => !meanwhile.isPending);
  assert.equal(meanwhile.isPending, false);
  await db.close();
});

test('nothing is swept during a flush, and the failure of one is reported', {
  skip: 'Deno' in globalThis || 'Bun' in globalThis,
}, async () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  try {
    const { db, storage } = open();
    const errors: string[] = [];
    db.addEventListener('error', ({ error }) => errors.push(error.code));
    for (let key = 0; key < 5; key++) db.sync.set(`key ${key}`, key, { expireAt: 1 });
    db.sync.set('a', 1, { durability: 'relaxed' });
    mock.timers.tick(100);
    assert.equal(storage.running.length, 1);
    const { writes } = storage;
    mock.timers.tick(SWEEP_EVERY_MS);
    assert.equal(storage.writes, writes);
    storage.end();
    mock.timers.tick(SWEEP_PAUSE_MS);
    assert.ok(storage.writes > writes);
    assert.equal((await db.stats()).entries, 1);
    mock.timers.tick(100);
    storage.end(new KvError('KV_IO', 'flush log: writes were lost'));
    assert.deepEqual(errors, ['KV_IO']);
    assert.throws(() => db.sync.set('b', 1), code('KV_IO'));
    await db.close().catch(() => undefined);
  } finally {
    mock.timers.reset();
  }
});

test('relaxed writes are flushed in time despite a flush that was not waited for', {
  skip: 'Deno' in globalThis || 'Bun' in globalThis,
}, async () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  try {
    const { db, storage } = open();
    const write = db.set('a', 1);
    // In a busy thread the write waits for a turn.
    while (storage.running.length === 0) await new Promise(setImmediate);
    assert.equal(db.sync.get('a'), 1);
    await write;
    db.sync.set('b', 2, { durability: 'relaxed' });
    const { flushes } = storage;
    mock.timers.tick(100);
    assert.equal(storage.flushes, flushes + 1);
    storage.end();
    await db.close();
  } finally {
    mock.timers.reset();
  }
});

test('closing waits for the flush, and releases everything once', async () => {
  const { db, storage, releases } = await opened();
  const write = outcome(db.set('a', 1));
  await until(() => storage.running.length === 1);
  const closing = outcome(db.close());
  await turn();
  assert.deepEqual([write.isPending, closing.isPending, releases()], [true, true, 0]);
  storage.end();
  await until(() => !write.isPending && !closing.isPending);
  assert.deepEqual([write.isPending, closing.isPending, releases()], [false, false, 1]);
  const again = open(storage).db;
  assert.deepEqual(await again.entries().toArray(), [['a', 1]]);
  again.sync.close();

  const last = open(storage);
  const lost = outcome(last.db.set('a', 2));
  await until(() => last.storage.running.length === 1);
  last.db.sync.close();
  await until(() => !lost.isPending);
  assert.deepEqual([lost.isPending, last.releases()], [false, 1]);
  storage.end();
  assert.deepEqual(open(storage).db.sync.get('a'), 2);
});

test('calls take effect in order, whenever flushes end', async () => {
  const random = chance(7);
  const { db, storage } = await opened();
  const expected = new Map<string, number>();
  const checks: Promise<void>[] = [];
  let isRunning = true;
  const flushing = (async () => {
    while (isRunning) {
      if (storage.running.length > 0 && random() < 0.5) storage.end();
      await turn();
    }
  })();
  expected.set('a', 0);
  for (let step = 0; step < 600; step++) {
    const key = `key ${Math.floor(random() * 20)}`;
    const kind = random();
    if (kind < 0.45) {
      expected.set(key, step);
      checks.push(db.set(key, step));
    } else if (kind < 0.5) {
      expected.delete(key);
      checks.push(db.delete(key).then(() => undefined));
    } else if (kind < 0.75) {
      const value = expected.get(key);
      checks.push(db.get(key).then((found) => assert.equal(found, value)));
    } else if (kind < 0.85) {
      const { size } = expected;
      checks.push(db.count().then((found) => assert.equal(found, size)));
    } else if (kind < 0.95) {
      assert.equal(db.sync.get(key), expected.get(key));
    } else {
      db.sync.set(key, step);
      expected.set(key, step);
    }
    if (random() < 0.3) await turn();
  }
  await Promise.all(checks);
  isRunning = false;
  await flushing;
  while (storage.running.length > 0) storage.end();
  assert.deepEqual(new Map(await db.entries().toArray()), new Map([...expected].sort(([a], [b]) => (a < b ? -1 : 1))));
  await db.close();
});

test('a flush that ends at once gives one reply', async () => {
  const storage = new GatedStorage();
  const transport = new InThreadTransport(module, storage, checkOptions({}).engine, { release: () => undefined });
  const db = new KvDatabase<string, number>(
    new Connection(transport),
    { path: 'x', persistence: 'fs', durability: 'strict' },
    {},
  );
  const { events } = transport;
  assert.ok(events !== undefined);
  let replies = 0;
  transport.events = {
    ...events,
    reply: (bytes, count) => {
      replies += count;
      events.reply(bytes, count);
    },
  };
  storage.running.push = (flush) => {
    flush.end();
    return 0;
  };
  for (let key = 0; key < 5; key++) {
    await db.set(String(key), key);
    assert.equal(replies, key + 1);
  }
  await db.close();
});
