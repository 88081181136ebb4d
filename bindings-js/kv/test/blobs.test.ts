// Blobs, streams and ranges of values: what goes in comes out, in parts, and what was not stored takes no space.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { open, openSync, valueCodecs } from 'mangrove-kv';
import type { Collection, Database } from 'mangrove-kv';
import { blob } from 'mangrove-kv/blob';
import { checkOptions } from '../src/api/options.ts';
import { KvDatabase } from '../src/api/database.ts';
import { syncFaces } from '../src/api/synchronous.ts';
import { InThreadTransport } from '../src/engine/in-thread-transport.ts';
import { MemoryStorage } from '../src/storage/memory.ts';
import { Connection } from '../src/wire/connection.ts';
import { FaultyStorage, failure } from './support/faulty-storage.ts';
import { rejects, withMemory, withPath } from './support/kit.ts';

const MIB = 1 << 20;

/** Bytes that are not the same anywhere. */
function bytesOf(length: number, seed = 1): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(length);
  const words = new Uint32Array(bytes.buffer, 0, length >> 2);
  for (let at = 0, state = seed; at < words.length; at++)
    words[at] = state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
  return bytes;
}

const digest = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

async function contents(blob: Blob | undefined): Promise<Uint8Array> {
  return new Uint8Array(await (blob ?? assert.fail('there is no value')).arrayBuffer());
}

function assertSame(found: Uint8Array, expected: Uint8Array): void {
  assert.equal(found.length, expected.length);
  assert.equal(digest(found), digest(expected));
}

async function collect(stream: ReadableStream<Uint8Array> | undefined): Promise<Uint8Array[]> {
  const parts = [];
  for await (const part of stream ?? assert.fail('there is no value')) parts.push(part);
  return parts;
}

function streamOf(parts: AsyncGenerator<Uint8Array>): ReadableStream<Uint8Array> {
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await parts.next();
      if (done === true) controller.close();
      else controller.enqueue(value);
    },
  });
}

const filesOf = (db: Database): Collection<string, Blob> => db.collection<string, Blob>('files', { value: blob() });
const rawOf = (db: Database): Collection<string, Uint8Array> =>
  db.collection<string, Uint8Array>('raw', { value: valueCodecs.bytes });

async function verify(db: Database): Promise<void> {
  assert.deepEqual((await db.verify()).problems, []);
}

const LENGTHS = [0, 1, 100, 255 << 10, (256 << 10) + 1, MIB - 100, MIB - 1, MIB, MIB + 1, 20 * MIB];

for (const thread of ['same', 'worker'] as const) {
  test(`Blobs and Files come back as they were, thread "${thread}"`, () =>
    withPath(async (path) => {
      let db = await open(path, { thread });
      let files = filesOf(db);
      for (const length of LENGTHS) {
        const bytes = bytesOf(length, length + 1);
        await files.set('blob', new Blob([bytes], { type: 'image/png' }));
        await files.set('file', new File([bytes], 'grün.png', { type: 'image/png', lastModified: 1234 }));
        if (length === MIB) {
          await db.close();
          db = await open(path, { thread });
          files = filesOf(db);
        }
        const [found, file] = [await files.get('blob'), (await files.get('file')) as File];
        assertSame(await contents(found), bytes);
        assert.equal(found?.type, 'image/png');
        assert.ok(!(found instanceof File));
        assertSame(await contents(file), bytes);
        assert.deepEqual([file.name, file.type, file.lastModified], ['grün.png', 'image/png', 1234]);
        const parts = await collect(await files.getStream('blob'));
        assertSame(Buffer.concat(parts), bytes);
        assert.ok(parts.every((part) => part.length <= MIB));
        if (length <= MIB) {
          assertSame(await contents((await files.getMany(['blob']))[0]), bytes);
          for (const [key, value] of await files.entries().toArray()) {
            assertSame(await contents(value), bytes);
            assert.equal(value instanceof File, key === 'file');
          }
        }
      }
      assert.equal(await files.get('none'), undefined);
      assert.equal(await files.getStream('none'), undefined);
      await verify(db);
      await db.close();
    }));
}

test('getRange is slice, of bytes and of contents', () =>
  withMemory({}, async (db) => {
    const [files, raw] = [filesOf(db), rawOf(db)];
    for (const length of [0, 1, 10, 300_000, 3 * MIB + 5]) {
      const bytes = bytesOf(length, 7);
      await files.set('a', new Blob([bytes]));
      await raw.set('a', bytes);
      const edges = [
        0,
        1,
        -1,
        5,
        -5,
        MIB - 40,
        MIB,
        2 * MIB + 3,
        -MIB,
        length,
        -length,
        length - 1,
        length + 1,
        -length - 1,
        Infinity,
        -Infinity,
      ];
      for (const start of [undefined, ...edges]) {
        for (const end of [undefined, ...edges]) {
          const expected = bytes.slice(start, end);
          for (const collection of [files, raw] as const) {
            const found = (await collection.getRange('a', start, end)) ?? assert.fail('there is a value');
            assert.ok(
              found.length === expected.length && Buffer.compare(found, expected) === 0,
              `${length}: ${start} ${end}`,
            );
          }
        }
      }
    }
    assert.equal(await raw.getRange('b', 0, 5), undefined);
    assert.equal(await files.getRange('b', 0, 5), undefined);
    await rejects(raw.getRange('a', 0.5), 'KV_INVALID_ARGUMENT');
    await rejects(raw.getRange('a', 0, Number.NaN), 'KV_INVALID_ARGUMENT');
    const plain = db.collection<string, unknown>('plain');
    await plain.set('a', 'text');
    await rejects(plain.getRange('a', 0, 1), 'KV_INVALID_ARGUMENT');
    await rejects(plain.getStream('a'), 'KV_INVALID_ARGUMENT');
  }));

test('streams of any kind are stored as bytes and as Blobs', () =>
  withMemory({}, async (db) => {
    const [files, raw] = [filesOf(db), rawOf(db)];
    const bytes = bytesOf(3 * MIB + 17, 3);
    async function* pieces(length: number): AsyncGenerator<Uint8Array> {
      for (let at = 0; at < bytes.length; at += length) {
        yield bytes.subarray(at, at + length);
        yield new Uint8Array(0);
      }
    }
    for (const length of [65_537, MIB, bytes.length]) {
      await raw.setStream('a', pieces(length));
      assertSame((await raw.get('a')) ?? assert.fail(), bytes);
      await files.setStream('a', streamOf(pieces(length)), { type: 'video/mp4', name: 'a.mp4', lastModified: 5 });
      const file = (await files.get('a')) as File;
      assertSame(await contents(file), bytes);
      assert.deepEqual([file.type, file.name, file.lastModified], ['video/mp4', 'a.mp4', 5]);
    }
    await raw.setStream('empty', (async function* () {})());
    assert.equal((await raw.get('empty'))?.length, 0);
    await files.setStream('empty', (async function* () {})());
    assert.equal((await files.get('empty'))?.size, 0);
    await raw.setStream('short', pieces(bytes.length), { expireIn: 1 });
    await new Promise((resolve) => setTimeout(resolve, 5));
    assert.equal(await raw.get('short'), undefined);
    await files.set('short', new Blob([bytes]), { expireAt: 1 });
    await files.set('shorter', new Blob(['1']), { expireAt: 1 });
    assert.deepEqual(await files.keys().toArray(), ['a', 'empty']);
    await verify(db);
    await rejects(raw.setStream('a', pieces(9), { type: 'text/plain' }), 'KV_INVALID_ARGUMENT');
    await rejects(raw.setStream('a', [bytes] as never), 'KV_INVALID_ARGUMENT');
    await rejects(
      raw.setStream(
        'a',
        (async function* () {
          yield 'text';
        })() as never,
      ),
      'KV_INVALID_VALUE',
    );
    await rejects(raw.setStream('a', pieces(9), { typ: 'x' } as never), 'KV_INVALID_ARGUMENT');
    await rejects(db.collection<string, unknown>('plain').setStream('a', pieces(9)), 'KV_INVALID_ARGUMENT');
    assertSame((await raw.get('a')) ?? assert.fail(), bytes);
  }));

test('many short Blobs are one commit, by setMany and in batches, beside other changes and in transactions', () =>
  withMemory({}, async (db) => {
    const files = filesOf(db);
    const made = Array.from({ length: 40 }, (_, at) => bytesOf(at * 1000, at));
    const list = made.map(
      (bytes, at) =>
        [
          `k${String(at).padStart(2, '0')}`,
          at % 2 === 0 ? new Blob([bytes], { type: 'a/b' }) : new File([bytes], `f${at}`, { lastModified: at }),
        ] as const,
    );
    const longest = bytesOf((256 << 10) - 100);
    await files.setMany([...list, ['longest', new Blob([longest])]]);
    const versions = new Set((await files.entries({ meta: true }).toArray()).map(({ version }) => version));
    assert.equal(versions.size, 1);
    for (const [at, [key]] of list.entries()) {
      const found = await files.get(key);
      assertSame(await contents(found), made[at] as Uint8Array);
      if (at % 2 === 0) assert.equal(found?.type, 'a/b');
      else assert.deepEqual([(found as File).name, (found as File).lastModified], [`f${at}`, at]);
    }
    assertSame(await contents(await files.get('longest')), longest);
    const { version } = await db
      .batch()
      .set('x', 1)
      .collection(files)
      .set('k00', new Blob(['new']))
      .delete('k01')
      .set('k01', new Blob(['again']), { expireIn: 60_000 })
      .commit();
    assert.equal((await files.getEntry('k00'))?.version, version);
    assert.equal(await (await files.get('k01'))?.text(), 'again');
    assert.equal(await db.get('x'), 1);
    await db.transaction(async (tx) => {
      await tx.collection(files).setMany([['k02', new Blob(['in a transaction'])]]);
      assert.equal(await (await tx.collection(files).get('k02'))?.text(), 'in a transaction');
    });
    assert.equal(await (await files.get('k02'))?.text(), 'in a transaction');
    await verify(db);
  }));

test('other ways to store a Blob refuse it', () =>
  withPath(async (path) => {
    const db = await open(path);
    const files = filesOf(db);
    const value = new Blob(['1']);
    await rejects(
      files.setMany([
        ['a', value],
        ['b', new Blob([bytesOf(256 << 10)])],
      ]),
      'KV_INVALID_VALUE',
    );
    await rejects(
      files.setMany([
        ['a', value],
        ['b', 'text' as never],
      ]),
      'KV_INVALID_VALUE',
    );
    assert.throws(
      () =>
        db
          .batch()
          .collection(files)
          .set('a', 'text' as never),
      { code: 'KV_INVALID_VALUE' },
    );
    await rejects(files.getOrInsert('a', value), 'KV_INVALID_VALUE');
    await rejects(
      files.update('a', () => value),
      'KV_INVALID_VALUE',
    );
    await rejects(files.set('a', 'text' as never), 'KV_INVALID_VALUE');
    await rejects(files.set('a', undefined as never), 'KV_INVALID_VALUE');
    await rejects(files.set('a', new File([], 'x'.repeat(5000))), 'KV_INVALID_VALUE');
    await rejects(db.set('a', value), 'KV_INVALID_VALUE');
    const indexed = db.collection<string, Blob>('indexed', {
      value: blob(),
      indexes: { bySize: { key: ({ size }) => size } },
    });
    await rejects(indexed.set('a', value), 'KV_INVALID_ARGUMENT');
    await rejects(indexed.setMany([['a', value]]), 'KV_INVALID_ARGUMENT');
    assert.equal(await files.count(), 0);
    // The codec belongs to the collection.
    await files.set('a', value);
    await rejects(
      db.collection<string, Uint8Array>('files', { value: valueCodecs.bytes }).getRange('a', 0, 1),
      'KV_CODEC_MISMATCH',
    );
    await db.close();
    const sync = openSync(path);
    assert.throws(() => sync.collection<string, Blob>('files', { value: blob() }).set('b', value), {
      code: 'KV_INVALID_VALUE',
    });
    sync.close();
  }));

/** A database whose engine is the module in two parts, with the sizes of what goes in and out. */
function measured(): {
  readonly db: KvDatabase<string, unknown>;
  readonly largest: { sent: number; received: number };
  memoryBytes(): number;
} {
  const moduleOf = (name: string): WebAssembly.Module =>
    new WebAssembly.Module(readFileSync(new URL(`../dist/${name}`, import.meta.url)));
  const lazy = moduleOf('mangrove_lazy_bg.wasm');
  const memories = new Set<WebAssembly.Memory>();
  const { Instance } = WebAssembly;
  WebAssembly.Instance = class extends Instance {
    constructor(module: WebAssembly.Module, imports?: WebAssembly.Imports) {
      super(module, imports);
      for (const exported of Object.values(this.exports))
        if (exported instanceof WebAssembly.Memory) memories.add(exported);
    }
  } as never;
  const { engine } = checkOptions({});
  const transport = new InThreadTransport(moduleOf('mangrove_core_bg.wasm'), new MemoryStorage(), engine, {
    release: () => undefined,
    lazy: () => Promise.resolve(lazy),
    syncFaces,
  });
  WebAssembly.Instance = Instance;
  assert.equal(memories.size, 1);
  const connection = new Connection(transport);
  const largest = { sent: 0, received: 0 };
  const { send, events } = transport as unknown as {
    send(message: Uint8Array): void;
    events: { reply(bytes: Uint8Array, count: number): void };
  };
  const { reply } = events;
  Object.assign(transport, {
    send(message: Uint8Array) {
      largest.sent = Math.max(largest.sent, message.length);
      return send.call(transport, message);
    },
  });
  Object.assign(events, {
    reply(bytes: Uint8Array, count: number) {
      largest.received = Math.max(largest.received, bytes.length);
      return reply.call(events, bytes, count);
    },
  });
  const db = new KvDatabase<string, unknown>(
    connection,
    { path: 'x', persistence: 'custom', durability: 'strict' },
    {},
  );
  return { db, largest, memoryBytes: () => Math.max(...[...memories].map(({ buffer }) => buffer.byteLength)) };
}

test('no message has more than a part, and the engine keeps none of the value in memory', async () => {
  const { db, largest, memoryBytes } = measured();
  const files = filesOf(db as unknown as Database);
  const parts = 96;
  const hash = createHash('sha256');
  async function* pieces(): AsyncGenerator<Uint8Array> {
    for (let at = 0; at < parts; at++) {
      const part = bytesOf(MIB, at);
      hash.update(part);
      yield part;
    }
  }
  await db.set('a', 1);
  const before = memoryBytes();
  await files.setStream('big', pieces());
  const [expected, found] = [hash.digest('hex'), createHash('sha256')];
  for await (const part of (await files.getStream('big')) ?? assert.fail()) found.update(part);
  assert.equal(found.digest('hex'), expected);
  const whole = (await files.get('big')) ?? assert.fail();
  assert.equal(whole.size, parts * MIB);
  await files.getRange('big', 50 * MIB, 50 * MIB + 10);
  assert.ok(largest.sent > MIB && largest.sent < MIB + 200, `${largest.sent}`);
  assert.ok(largest.received > MIB / 2 && largest.received < MIB + 200, `${largest.received}`);
  assert.ok(memoryBytes() - before < 16 * MIB, `the engine's memory grew by ${memoryBytes() - before} bytes`);
  await files.set('big', new Blob([whole, whole]));
  assert.equal((await files.get('big'))?.size, 2 * parts * MIB);
  assert.ok(memoryBytes() - before < 16 * MIB, `the engine's memory grew by ${memoryBytes() - before} bytes`);
  await db.close();
});

test('a value changes at the end of its upload, and readers keep what they read', () =>
  withMemory({}, async (db) => {
    const files = filesOf(db);
    const [old, next] = [bytesOf(5 * MIB, 1), bytesOf(4 * MIB + 3, 2)];
    await files.set('a', new Blob([old]));
    const snapshot = db.snapshot();
    const reader = ((await files.getStream('a')) ?? assert.fail()).getReader();
    const parts = [(await reader.read()).value ?? assert.fail()];
    let isStored = false;
    async function* pieces(): AsyncGenerator<Uint8Array> {
      for (let at = 0; at < next.length; at += MIB) {
        yield next.subarray(at, at + MIB);
        assertSame((await files.getRange('a')) ?? assert.fail(), old);
      }
      await verify(db);
    }
    const getting = files.get('a');
    const other = files.set('b', new Blob([old])).then(() => files.set('c', new Blob([next])));
    await files.setStream('a', pieces()).then(() => {
      isStored = true;
    });
    assert.ok(isStored);
    await other;
    assertSame(await contents(await getting), old);
    for (let read = await reader.read(); !read.done; read = await reader.read()) parts.push(read.value);
    assertSame(Buffer.concat(parts), old);
    assertSame(await contents(await snapshot.collection(files).get('a')), old);
    assertSame((await snapshot.collection(files).getRange('a', -9)) ?? assert.fail(), old.slice(-9));
    assertSame(Buffer.concat(await collect(await snapshot.collection(files).getStream('a'))), old);
    snapshot.close();
    await rejects(snapshot.collection(files).get('a'), 'KV_CLOSED');
    for (const [key, bytes] of [
      ['a', next],
      ['b', old],
      ['c', next],
    ] as const)
      assertSame(await contents(await files.get(key)), bytes);
    await verify(db);
  }));

test('within a transaction Blobs are written and read like any value', () =>
  withMemory({}, async (db) => {
    const files = filesOf(db);
    const bytes = bytesOf(3 * MIB, 4);
    await files.set('a', new Blob(['1']));
    await db.transaction(async (tx) => {
      const inside = tx.collection(files);
      await inside.set('a', new Blob([bytes]));
      await inside.setStream('b', new Blob([bytes, '!']).stream());
      assertSame(await contents(await inside.get('a')), bytes);
      assertSame((await inside.getRange('b', -3)) ?? assert.fail(), Uint8Array.of(...bytes.slice(-2), 33));
      assertSame(Buffer.concat(await collect(await inside.getStream('a'))), bytes);
      assert.equal(await (await files.get('a'))?.text(), '1');
    });
    assertSame(await contents(await files.get('a')), bytes);
    assert.equal((await files.get('b'))?.size, bytes.length + 1);
    await rejects(
      db.transaction(async (tx) => {
        await tx.collection(files).set('a', new Blob(['2']));
        throw Object.assign(new Error('it is taken back'), { name: 'KvError', code: 'KV_ROLLBACK' });
      }),
      'KV_ROLLBACK',
    );
    assert.equal((await files.get('a'))?.size, bytes.length);
  }));

test('what is aborted or fails leaves the old value and takes no space', () =>
  withPath(async (path) => {
    const db = await open(path);
    const [files, raw] = [filesOf(db), rawOf(db)];
    await files.set('a', new Blob(['old']));
    await raw.set('a', Uint8Array.of(1));
    const bytes = bytesOf(MIB, 9);
    let ended = 0;
    async function* endless(during: (at: number) => unknown): AsyncGenerator<Uint8Array> {
      try {
        for (let at = 0; ; at++) {
          await during(at);
          yield bytes;
        }
      } finally {
        ended++;
      }
    }
    await assert.rejects(
      raw.setStream(
        'a',
        endless((at) => {
          if (at === 5) throw new RangeError('mine');
        }),
      ),
      RangeError,
    );
    for (let round = 0; round < 3; round++) {
      const controller = new AbortController();
      const upload = raw.setStream(
        'a',
        endless((at) => {
          if (at === 6) controller.abort(new RangeError('mine'));
        }),
        { signal: controller.signal },
      );
      await assert.rejects(upload, RangeError);
    }
    const stalled = new AbortController();
    let cancel!: (reason: unknown) => void;
    const cancelled = new Promise<unknown>((resolve) => (cancel = resolve));
    const stream = new ReadableStream<Uint8Array>({
      pull(control) {
        control.enqueue(bytes);
        if (control.desiredSize !== null) setTimeout(() => stalled.abort(new RangeError('stalled')), 20);
        return new Promise(() => undefined);
      },
      cancel,
    });
    await assert.rejects(files.setStream('a', stream, { signal: stalled.signal }), RangeError);
    // After the call has been rejected, if it was still loading the code for parts.
    assert.equal(((await cancelled) as Error).message, 'stalled');
    await assert.rejects(
      files.set('a', new Blob([bytes, bytes]), { signal: AbortSignal.abort(new RangeError('mine')) }),
      RangeError,
    );
    for (let left = 100; ended < 4 && left > 0; left--) await new Promise((resolve) => setTimeout(resolve, 5));
    assert.equal(ended, 4, 'generators are ended');
    assert.equal(await (await files.get('a'))?.text(), 'old');
    assert.deepEqual(await raw.get('a'), Uint8Array.of(1));
    const reading = new AbortController();
    const streaming = (await files.getStream('a', { signal: reading.signal })) ?? assert.fail();
    reading.abort(new RangeError('mine'));
    await assert.rejects(collect(streaming), RangeError);
    assert.equal((await db.stats()).openSnapshots, 0);
    await db.compact();
    assert.ok(statSync(join(path, 'data')).size < MIB);
    await verify(db);
    // Closing ends an upload, and the file is short again.
    // Slow, so that a disk that is busy flushing does not let it reach the longest value.
    const closed = raw.setStream(
      'a',
      endless(() => new Promise((resolve) => setTimeout(resolve, 10))),
    );
    await raw.setStream(
      'b',
      (async function* () {
        yield bytes;
      })(),
    );
    await raw.delete('b');
    await Promise.all([rejects(closed, 'KV_CLOSED'), db.close()]);
    const again = await open(path);
    await verify(again);
    await again.compact();
    assert.ok(statSync(join(path, 'data')).size < MIB);
    assert.deepEqual(await rawOf(again).get('a'), Uint8Array.of(1));
    await again.close();
  }));

test('a full or failing storage refuses the upload, and the next one succeeds', async () => {
  const storage = new FaultyStorage();
  const db = await open('full', { storage });
  const files = filesOf(db);
  await files.set('a', new Blob(['old']));
  const value = new Blob([bytesOf(6 * MIB, 2)]);
  storage.roomBytes = 3 * MIB;
  await rejects(files.set('a', value), 'KV_QUOTA_EXCEEDED');
  storage.broken.set('write', failure('KV_IO'));
  await rejects(files.set('b', value), 'KV_IO');
  storage.broken.clear();
  assert.equal(await (await files.get('a'))?.text(), 'old');
  await verify(db);
  storage.roomBytes = 100 * MIB;
  await files.set('a', value);
  assertSame(await contents(await files.get('a')), await contents(value));
  await verify(db);
  await db.close();
});

test('a read-only database reads Blobs and refuses uploads', () =>
  withPath(async (path) => {
    const bytes = bytesOf(2 * MIB);
    const writer = await open(path);
    await filesOf(writer).set('a', new Blob([bytes]));
    await writer.close();
    const db = await open(path, { readOnly: true });
    assertSame(await contents(await filesOf(db).get('a')), bytes);
    assertSame((await filesOf(db).getRange('a', 5, 9)) ?? assert.fail(), bytes.slice(5, 9));
    await rejects(filesOf(db).set('a', new Blob([bytes])), 'KV_READ_ONLY');
    await rejects(filesOf(db).set('a', new Blob(['1'])), 'KV_READ_ONLY');
    await db.close();
  }));

test('backups, followers and drops see Blobs as values', () =>
  withMemory({}, async (db) => {
    const files = filesOf(db);
    const bytes = bytesOf(2 * MIB, 8);
    await files.set('a', new Blob(['1']));
    const commits = files.watch();
    const next = commits.next();
    await files.set('a', new Blob([bytes], { type: 'x/y' }));
    const { value } = await next;
    const [change] = (value as unknown as { readonly changes: readonly { readonly value?: Blob }[] }).changes;
    assert.equal(change?.value?.type, 'x/y');
    assertSame(await contents(change?.value), bytes);
    await commits.return?.();
    assert.ok((await new Response(db.backup()).arrayBuffer()).byteLength > 2 * MIB);
    // A collection that is dropped during an upload is created again by it.
    async function* pieces(): AsyncGenerator<Uint8Array> {
      yield bytes;
      await db.dropCollection('files');
      yield bytes;
    }
    await rejects(files.setStream('b', pieces()), 'KV_SNAPSHOT_LOST');
    await files.setStream('b', new Blob([bytes]).stream());
    assertSame(await contents(await files.get('b')), bytes);
    await verify(db);
  }));
