// Lookups and scans that need no message: they give the same answers, in the order of the calls,
// and copies of what is stored.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inspect } from 'node:util';
import fc from 'fast-check';
import { keyCodecs, valueCodecs } from 'mangrove-kv';
import type { KeyCodec, ValueCodec } from 'mangrove-kv';
import { fastOf } from '../src/codec/fast.ts';
import { keyCodecs as ownKeys } from '../src/codec/keys.ts';
import { valueCodecs as ownValues } from '../src/codec/values.ts';
import { code, withMemory } from './support/kit.ts';

const text = fc.oneof(
  fc.string({ maxLength: 90 }),
  fc.string({ unit: 'binary', maxLength: 90 }),
  fc.string({ unit: 'grapheme', maxLength: 30 }),
);
const number = fc.oneof(
  fc.integer(),
  fc.nat(300),
  fc.maxSafeInteger(),
  fc.double(),
  fc.constantFrom(-0, 23, 24, 255, 256, 65535, 65536, 2 ** 32 - 1, 2 ** 32),
);
const bytes = fc.uint8Array({ maxLength: 600 });
const any = fc.oneof(
  text,
  number,
  bytes,
  fc.bigInt(),
  fc.boolean(),
  fc.constant(null),
  fc.array(fc.oneof(text, number), { maxLength: 3 }),
);

interface Codec {
  readonly id: string;
  encode(value: unknown): Uint8Array;
  decode(bytes: Uint8Array): unknown;
}

const CODECS = [...Object.values(ownKeys), ...Object.values(ownValues)].map(
  (codec) => (typeof codec === 'function' ? (codec as () => unknown)() : codec) as Codec,
);

for (const codec of CODECS) {
  const fast = fastOf(codec);
  if (fast === undefined) continue;
  test(`${codec.id}: the fast functions write and read what the codec does`, () => {
    fc.assert(
      fc.property(any, fc.nat(20), fc.nat(700), (value, at, room) => {
        const out = new Uint8Array(800).fill(0xee);
        const end = fast.put(value, out, at, at + room);
        const isRefused = (): boolean => {
          try {
            codec.encode(value);
            return false;
          } catch {
            return true;
          }
        };
        if (end < 0) return;
        assert.equal(isRefused(), false);
        const encoded = codec.encode(value);
        assert.deepEqual(out.subarray(at, end), encoded);
        assert.ok(end <= at + room);
        assert.deepEqual(out.subarray(at + room), new Uint8Array(800 - at - room).fill(0xee), 'it wrote past its room');
      }),
      { numRuns: 500 },
    );
    fc.assert(
      fc.property(any, fc.nat(20), (value, at) => {
        let encoded: Uint8Array;
        try {
          encoded = codec.encode(value);
        } catch {
          return;
        }
        const around = new Uint8Array(at + encoded.length + 9).fill(0xee);
        around.set(encoded, at);
        const read = fast.read(around, at, at + encoded.length);
        assert.deepEqual(read, codec.decode(encoded));
        around.fill(0x11);
        assert.deepEqual(read, codec.decode(encoded), 'what was read changes with the buffer');
      }),
      { numRuns: 500 },
    );
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 12 }), (stored) => {
        const result = (read: () => unknown): unknown => {
          try {
            return { value: read() };
          } catch (error) {
            return { code: (error as { code?: string }).code ?? (error as Error).name };
          }
        };
        const around = new Uint8Array(stored.length + 8).fill(0x61);
        around.set(stored, 4);
        // Compared as text, since invalid dates never equal each other.
        assert.equal(
          inspect(result(() => fast.read(around, 4, 4 + stored.length))),
          inspect(result(() => codec.decode(stored))),
        );
      }),
      { numRuns: 500 },
    );
  });
}

test('a call sees earlier calls and not later ones', () =>
  withMemory<string, number>({}, async (db) => {
    await db.set('a', 1);
    const calls = [
      db.get('a'),
      db.set('a', 2),
      db.get('a'),
      db.has('b'),
      db.set('b', 3),
      db.getMany(['a', 'b']),
      db.delete('a'),
      db.has('a'),
    ];
    assert.deepEqual(await Promise.all(calls), [1, undefined, 2, false, undefined, [2, 3], true, false]);
    const before = db.entries();
    const write = db.set('c', 4);
    const after = db.entries();
    assert.deepEqual(await before.toArray(), [['b', 3]]);
    assert.deepEqual(await after.toArray(), [
      ['b', 3],
      ['c', 4],
    ]);
    await write;
  }));

/** Returns the very bytes that it was given. */
const identity: ValueCodec<Uint8Array> = { id: 'identity', encode: (value) => value, decode: (stored) => stored };

test('a codec may keep the bytes that it decodes', () =>
  withMemory<string, Uint8Array>({ value: identity }, async (db) => {
    const make = (index: number): Uint8Array => new Uint8Array(100).fill(index);
    await db.setMany(
      Array.from({ length: 50 }, (_, index) => [`k${String(index).padStart(2, '0')}`, make(index)] as const),
    );
    const kept = [
      await db.get('k00'),
      db.sync.get('k01'),
      ...(await db.getMany(['k02', 'k03'])),
      ...db.sync.getMany(['k04', 'k05']),
      ...(await db.values({ gte: 'k06', lt: 'k09' }).toArray()),
      ...db.sync.values({ gte: 'k09', lt: 'k12' }),
      (await db.getEntry('k12'))?.value,
      db.sync.getEntry('k13')?.value,
      (await db.at(14))?.[1],
      db.sync.at(15)?.[1],
    ];
    await db.setMany(Array.from({ length: 50 }, (_, index) => [`k${index}`, make(255)] as const));
    for await (const entry of db) entry[1].fill(254);
    assert.deepEqual(
      kept,
      Array.from({ length: kept.length }, (_, index) => make(index)),
    );
  }));

test('values are copies', () =>
  withMemory<string, Uint8Array>({ value: valueCodecs.bytes }, async (db) => {
    await db.set('a', new Uint8Array(200).fill(7));
    const all = [
      await db.get('a'),
      db.sync.get('a'),
      (await db.getMany(['a']))[0],
      [...db.sync.values()][0],
      (await db.values().toArray())[0],
    ];
    for (const value of all) {
      assert.deepEqual(value, new Uint8Array(200).fill(7));
      assert.equal(value?.buffer.byteLength, 200, 'it shares its buffer');
      value?.fill(9);
    }
    assert.deepEqual(await db.get('a'), new Uint8Array(200).fill(7));
  }));

test('a codec made from another uses its own functions', async () => {
  const upper: KeyCodec<string> = {
    ...keyCodecs.string,
    id: 'upper',
    encode: (key) => keyCodecs.string.encode(key.toUpperCase()),
  };
  await withMemory<string, number>({ key: upper }, async (db) => {
    await db.setMany([['a', 1]]);
    assert.equal(await db.get('A'), 1);
    assert.equal(db.sync.get('a'), 1);
    assert.deepEqual(await db.keys().toArray(), ['A']);
  });
});

test('long keys and values are found, and invalid keys are refused', () =>
  withMemory<unknown, Uint8Array>({ value: valueCodecs.bytes }, async (db) => {
    const keys = ['k'.repeat(1000), 'k'.repeat(1500), ['ä', 'b'.repeat(900)], 'ü'.repeat(400)];
    const value = new Uint8Array(5 << 20).map((_, index) => index % 251);
    for (const key of keys) {
      assert.equal(db.sync.has(key), false);
      await db.set(key, value);
      assert.equal(await db.has(key), true);
      assert.deepEqual(await db.get(key), value);
      assert.deepEqual(db.sync.get(key), value);
    }
    assert.deepEqual(
      await db.getMany(keys),
      keys.map(() => value),
    );
    assert.equal(await db.get('k'.repeat(60_000)), undefined);
    await assert.rejects(db.get(Number.NaN), code('KV_INVALID_KEY'));
    await assert.rejects(db.getMany(['a', () => 0]), code('KV_INVALID_KEY'));
    assert.throws(() => db.sync.get(undefined), code('KV_INVALID_KEY'));
  }));

test('an item that cannot be decoded throws when its turn comes', () =>
  withMemory({}, async (db) => {
    const asBytes = db.collection('c', { key: keyCodecs.uint32, value: valueCodecs.bytes });
    await asBytes.setMany([
      [1, Uint8Array.of(1)],
      [2, Uint8Array.of(0x1c)],
      [3, Uint8Array.of(3)],
    ]);
    // Decodes the same bytes with another codec of that name.
    const wrong: ValueCodec<unknown> = Object.assign(valueCodecs.structured(), { id: 'bytes' });
    const c = db.collection('c', { key: keyCodecs.uint32, value: wrong });
    const sync = db.sync.collection(c);
    const scan = sync.entries();
    assert.deepEqual(scan.next().value, [1, 1]);
    assert.throws(() => scan.next(), code('KV_CORRUPT'));
    assert.equal(scan.next().done, true);
    const items = c.entries();
    assert.deepEqual((await items.next()).value, [1, 1]);
    await assert.rejects(items.next(), code('KV_CORRUPT'));
    assert.equal((await items.next()).done, true);
    await assert.rejects(c.get(2), code('KV_CORRUPT'));
    assert.throws(() => sync.getMany([1, 2]), code('KV_CORRUPT'));
    assert.equal(await c.get(3), 3);
  }));

test('lookups work in snapshots and transactions too', () =>
  withMemory<string, number>({}, async (db) => {
    await db.set('a', 1);
    const snapshot = db.snapshot();
    await snapshot.version;
    await db.set('a', 2);
    assert.equal(await snapshot.get('a'), 1);
    assert.equal(snapshot.sync.get('a'), 1);
    assert.deepEqual([...snapshot.sync.entries()], [['a', 1]]);
    await snapshot.close();
    await assert.rejects(snapshot.get('a'), code('KV_CLOSED'));
    assert.throws(() => snapshot.sync.get('a'), code('KV_CLOSED'));
    await db.transaction(async (tx) => {
      assert.equal(await tx.get('a'), 2);
      tx.set('a', 3);
      assert.equal(await tx.get('a'), 3);
      assert.deepEqual(await tx.entries().toArray(), [['a', 3]]);
      assert.equal(await db.get('a'), 2);
    });
    assert.equal(db.sync.get('a'), 3);
    await db.close();
    await assert.rejects(db.get('a'), code('KV_CLOSED'));
    assert.throws(() => [...db.sync.entries()], code('KV_CLOSED'));
  }));
