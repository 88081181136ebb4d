// The module in two parts: the core works without the lazy part, and asks for it once a call needs it.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { Connection } from '../src/wire/connection.ts';
import { KvDatabase } from '../src/api/database.ts';
import { syncFaces } from '../src/api/synchronous.ts';
import { checkOptions } from '../src/api/options.ts';
import { InThreadTransport } from '../src/engine/in-thread-transport.ts';
import { valueCodecs } from '../src/codec/values.ts';
import { instantiate } from '../build/wasm/glue.js';
import type { LazyPart } from '../src/engine/engine-host.ts';
import { MemoryStorage } from '../src/storage/memory.ts';
import { code, rejects } from './support/kit.ts';

const moduleOf = (name: string): WebAssembly.Module =>
  new WebAssembly.Module(readFileSync(new URL(`../dist/${name}`, import.meta.url)));
const core = moduleOf('mangrove_core_bg.wasm');
const lazy = moduleOf('mangrove_lazy_bg.wasm');
const { engine } = checkOptions({});
const info = { path: 'x', persistence: 'custom', durability: 'strict' } as const;

function openWith(lazy: LazyPart | undefined): KvDatabase<string, number> {
  return new KvDatabase(
    new Connection(
      new InThreadTransport(core, new MemoryStorage(), engine, { release: () => undefined, lazy, syncFaces }),
    ),
    info,
    {},
  );
}

/** A lazy that arrives when the test says so. */
function late(): {
  readonly lazy: () => Promise<WebAssembly.Module>;
  readonly loads: () => number;
  arrive(): void;
  fail(error: Error): void;
} {
  let loads = 0;
  let settle: { resolve(module: WebAssembly.Module): void; reject(error: Error): void } | undefined;
  return {
    lazy: () => {
      loads++;
      return new Promise((resolve, reject) => {
        settle = { resolve, reject };
      });
    },
    loads: () => loads,
    arrive: () => settle?.resolve(lazy),
    fail: (error) => settle?.reject(error),
  };
}

async function turns(count: number): Promise<void> {
  for (let left = count; left > 0; left--) await new Promise((resolve) => setTimeout(resolve, 5));
}

/** Every kind of call that needs the lazy part. */
const CALLS = {
  stats: async (db: KvDatabase<string, number>) => assert.ok((await db.stats()).version > 0),
  verify: async (db: KvDatabase<string, number>) => assert.equal((await db.verify()).ok, true),
  compact: async (db: KvDatabase<string, number>) => assert.ok((await db.compact()).after > 0),
  layout: async (db: KvDatabase<string, number>) => assert.ok((await db.layout()).extents.length > 0),
  backup: async (db: KvDatabase<string, number>) =>
    assert.ok((await new Response(db.backup()).arrayBuffer()).byteLength > 0),
  refresh: async (db: KvDatabase<string, number>) => assert.equal(await db.refresh(), false),
  getRange: async (db: KvDatabase<string, number>) =>
    assert.equal(await db.collection<string, Uint8Array>('raw', { value: valueCodecs.bytes }).getRange('a'), undefined),
  setStream: async (db: KvDatabase<string, number>) => {
    const raw = db.collection<string, Uint8Array>('streamed', { value: valueCodecs.bytes });
    await raw.setStream(
      'a',
      (async function* () {
        yield new Uint8Array(300_000);
      })(),
    );
    assert.equal((await raw.get('a'))?.length, 300_000);
    await db.dropCollection('streamed');
  },
};

for (const [name, call] of Object.entries(CALLS)) {
  test(`${name} waits for the lazy part, and nothing else does`, async () => {
    const loading = late();
    const db = openWith(loading.lazy);
    await db.set('a', 1);
    assert.equal(loading.loads(), 0);
    let isDone = false;
    const called = call(db).then(() => {
      isDone = true;
    });
    await turns(10);
    await db.set('b', 2);
    assert.equal(await db.get('b'), 2);
    assert.equal(await db.transaction((tx) => tx.get('a')), 1);
    assert.deepEqual([isDone, loading.loads()], [false, 1]);
    loading.arrive();
    await called;
    await Promise.all(Object.values(CALLS).map((other) => other(db)));
    assert.equal(loading.loads(), 1);
    await db.close();
  });
}

test('a lazy part that does not load fails the call, and the next call loads it again', async () => {
  const loading = late();
  const db = openWith(loading.lazy);
  await db.set('a', 1);
  const failed = db.stats();
  await turns(3);
  loading.fail(new Error('no network'));
  await assert.rejects(failed, (error: Error) => code('KV_IO')(error) && error.message.includes('no network'));
  assert.equal(await db.get('a'), 1);
  const called = db.stats();
  await turns(3);
  loading.arrive();
  assert.ok((await called).version > 0);
  assert.equal(loading.loads(), 2);
  await db.close();
});

test('a lazy part of another build is refused', async () => {
  const bytes = readFileSync(new URL('../dist/mangrove_lazy_bg.wasm', import.meta.url));
  const at = bytes.indexOf('lazy ') + 5;
  // As if the text that both parts were made of had another checksum.
  for (
    let place = bytes.indexOf(bytes.subarray(at, at + 16));
    place >= 0;
    place = bytes.indexOf(bytes.subarray(at, at + 16), place + 1)
  ) {
    if (place !== at) bytes.write('0'.repeat(16), place);
  }
  bytes.write('0'.repeat(16), at);
  const other = new WebAssembly.Module(bytes);
  const db = openWith(() => Promise.resolve(other));
  await db.set('a', 1);
  await assert.rejects(db.stats(), (error: Error) => code('KV_IO')(error) && error.message.includes('another version'));
  assert.equal(await db.get('a'), 1);
  await db.close();
});

test('a core whose lazy is unknown says so', async () => {
  const db = openWith(undefined);
  await db.set('a', 1);
  await rejects(db.verify(), 'KV_IO');
  assert.equal(await db.get('a'), 1);
  await db.close();
});

test('a database that closes finishes what waits for the lazy part', async () => {
  const loading = late();
  const db = openWith(loading.lazy);
  await db.set('a', 1);
  const waiting = db.stats();
  await turns(3);
  const closing = db.close();
  await rejects(db.get('a'), 'KV_CLOSED');
  loading.arrive();
  assert.ok((await waiting).version > 0);
  await closing;
  assert.equal(db.status, 'closed');
});

test('a backup has the state of its call, however late the lazy part comes', async () => {
  const loading = late();
  const db = openWith(loading.lazy);
  await db.set('a', 1);
  const stream = db.backup();
  const bytes = new Response(stream).arrayBuffer();
  await db.set('b', 2);
  await turns(3);
  loading.arrive();
  const whole = openWith(lazy);
  await whole.set('a', 1);
  const expected = await new Response(whole.backup()).arrayBuffer();
  // One record each; the header and the checksums differ.
  assert.equal((await bytes).byteLength, expected.byteLength);
  await Promise.all([db.close(), whole.close()]);
});

test('with the lazy part already loaded, synchronous calls work at once', async () => {
  const db = openWith(lazy);
  db.sync.set('a', 1);
  for (const call of Object.values(CALLS)) await call(db);
  assert.equal(db.sync.get('a'), 1);
  await db.close();
});

test('a panic of the core says what it was about', () => {
  const { open, panic_message: messageOf, reserve } = instantiate(core);
  // This has the module keep messages, and leaves no database open.
  assert.throws(() => open(undefined as never, 0, undefined, undefined, undefined, 0, new Uint8Array()));
  assert.throws(() => reserve(1), WebAssembly.RuntimeError);
  assert.match(messageOf() ?? '', /^panicked at .+\.rs:\d+/);
});
