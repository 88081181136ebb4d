// An engine that stops unexpectedly: nothing waits for ever, every call rejects with a KvError, and
// the files are closed.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { Connection } from '../src/wire/connection.ts';
import { KvDatabase } from '../src/api/database.ts';
import { InThreadTransport } from '../src/engine/in-thread-transport.ts';
import { syncFaces } from '../src/api/synchronous.ts';
import { checkOptions } from '../src/api/options.ts';
import type { Transport, TransportEvents } from '../src/wire/transport.ts';
import { EngineHost } from '../src/engine/engine-host.ts';
import { KvError } from '../src/base/errors.ts';
import { CrashingStorage, FaultyStorage } from './support/faulty-storage.ts';
import { code, rejects } from './support/kit.ts';

const module = new WebAssembly.Module(readFileSync(new URL('../dist/mangrove_bg.wasm', import.meta.url)));
const { engine } = checkOptions({});
const info = { path: 'x', persistence: 'custom', durability: 'strict' } as const;

test('a crash rejects waiting and later calls, and closes the files', async () => {
  const storage = new CrashingStorage();
  let releases = 0;
  const db = new KvDatabase(
    new Connection(new InThreadTransport(module, storage, engine, { release: () => releases++, syncFaces })),
    info,
    {},
  );
  await db.set('a', 1);
  const iterator = db.entries();
  const snapshot = db.snapshot();
  await iterator.next();
  storage.isCrashing = true;
  const waiting = [db.set('b', 2), db.get('a'), db.get('b'), db.snapshot().get('a')];
  for (const call of waiting) await rejects(call as Promise<unknown>, 'KV_IO');
  assert.equal(db.status, 'closed');
  const later = [
    db.get('a'),
    db.set('c', 3),
    iterator.next(),
    snapshot.get('a'),
    db.flush(),
    db.size,
    db.entries().toArray(),
  ];
  for (const call of later) await rejects(Promise.resolve(call), 'KV_IO');
  await db.close();
  assert.equal(storage.closed, storage.opened);
  assert.equal(releases, 1);

  storage.isCrashing = false;
  const again = new KvDatabase(
    new Connection(new InThreadTransport(module, storage, engine, { release: () => undefined, syncFaces })),
    info,
    {},
  );
  assert.deepEqual(await again.entries().toArray(), [['a', 1]]);
  await again.close();
});

test('a crash in a lookup that sends no message is handled like any other', async () => {
  const { now } = Date;
  const crash = async (call: (db: KvDatabase<unknown, unknown>) => Promise<unknown>): Promise<void> => {
    const storage = new CrashingStorage();
    const db = new KvDatabase<unknown, unknown>(
      new Connection(new InThreadTransport(module, storage, engine, { release: () => undefined, syncFaces })),
      info,
      {},
    );
    await db.set('a', 1);
    let waiting;
    // The engine asks for the time on the first read after a commit.
    Date.now = () => {
      throw new Error('there is no time');
    };
    try {
      waiting = call(db);
    } finally {
      Date.now = now;
    }
    await assert.rejects(waiting, { code: 'KV_IO', message: /there is no time/ });
    assert.equal(db.status, 'closed');
    await rejects(db.get('a'), 'KV_IO');
    await db.close();
    assert.equal(storage.closed, storage.opened);
  };
  await crash((db) => db.get('a'));
  await crash((db) => db.hasMany(['a']));
  await crash((db) => db.entries().toArray());
  await crash(async (db) => db.sync.get('a'));
  await crash(async (db) => [...db.sync.entries()]);
});

test('a crash while opening closes the files', () => {
  const storage = new CrashingStorage();
  storage.isCrashing = true;
  assert.throws(() => EngineHost.open(module, storage, engine), code('KV_IO'));
  assert.equal(storage.opened, 1);
  assert.equal(storage.closed, 1);
});

test('a disposed host says so', () => {
  const host = EngineHost.open(module, new FaultyStorage(), engine);
  host.dispose();
  host.dispose();
  assert.throws(() => host.execute(new Uint8Array([0x41])), code('KV_CLOSED'));
});

/** A transport whose engine does what the test says. */
class ScriptedTransport implements Transport {
  readonly takesBuffers = true;
  events: TransportEvents | undefined;
  readonly sent: Uint8Array[] = [];
  disposed = 0;

  send(message: Uint8Array<ArrayBuffer>): void {
    this.sent.push(message);
  }

  dispose(): void {
    this.disposed++;
  }
}

test('a failing worker rejects every message in flight', async () => {
  const transport = new ScriptedTransport();
  const db = new KvDatabase(new Connection(transport), info, {});
  const first = db.get('a');
  await Promise.resolve();
  const second = db.get('b');
  await Promise.resolve();
  assert.equal(transport.sent.length, 2);
  const unsent = db.get('c');
  transport.events?.fail(new KvError('KV_IO', 'the worker failed'));
  transport.events?.fail(new KvError('KV_CORRUPT', 'said twice, heard once'));
  for (const call of [first, second, unsent, db.get('d')]) await rejects(call, 'KV_IO');
  await db.close();
  assert.equal(transport.disposed, 1);
});

test('a malformed reply ends the connection', async () => {
  for (const answer of [[], [0], [0, 1, 200], [1, 5, 75], [0, 1, 3, 1, 2]]) {
    const transport = new ScriptedTransport();
    const connection = new Connection(transport);
    const db = new KvDatabase(connection, info, {});
    const calls = [db.get('a'), db.get('b')];
    await Promise.resolve();
    // The first reply belongs to the request that names the collection.
    transport.events?.reply(new Uint8Array([0, ...answer]), 1);
    for (const call of calls) await assert.rejects(call, (error: KvError) => error.code === 'KV_IO');
    assert.equal(db.status, 'closed');
    assert.equal(transport.disposed, 1);
  }
});

test('a message that cannot be sent rejects', async () => {
  const transport = new ScriptedTransport();
  transport.send = () => {
    throw new DOMException('gone', 'DataCloneError');
  };
  const db = new KvDatabase(new Connection(transport), info, {});
  await rejects(db.get('a'), 'KV_IO');
});

test('calls of one turn share one message, large ones take several', async () => {
  const transport = new ScriptedTransport();
  const db = new KvDatabase<string, string>(new Connection(transport), info, {});
  const calls = [db.get('a'), db.set('b', 'c'), db.size.then((size) => size)];
  await Promise.resolve();
  assert.equal(transport.sent.length, 1);
  calls.push(...['x', 'y', 'z'].map((key) => db.set(key, 'v'.repeat(700_000))));
  await Promise.resolve();
  assert.equal(transport.sent.length, 3);
  transport.events?.fail(new KvError('KV_IO', 'end of the test'));
  for (const call of calls) await rejects(call as Promise<unknown>, 'KV_IO');
});
