// The bytes of records: golden, because every device reads what any version wrote.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deflateRawSync } from 'node:zlib';
import fc from 'fast-check';
import { crc32c } from '../src/bytes.ts';
import { clamp, tick, toHlc, toMs } from '../src/clock.ts';
import {
  COMPRESSED,
  FENCE,
  REPAIR,
  STRICT,
  decodeBody,
  decodeRecord,
  encodeBody,
  encodeRecord,
} from '../src/record.ts';
import type { ReplicationOp, SyncTransaction } from '../src/record.ts';
import { decodeRow, encodeRow } from '../src/row.ts';
import { Wire } from '../src/wire.ts';
import { code } from '../../kv/test/support/kit.ts';

const bytes = (...values: number[]): Uint8Array => new Uint8Array(values);
const hex = (data: Uint8Array): string => Buffer.from(data).toString('hex');
const device = 0x0123_4567_89ab_cdefn;

const DECLARED = new Map([
  ['notes', 'as notes'],
  ['tasks', 'as tasks'],
  ['files', ''],
  ['n', 'as n'],
]);

const GOLDEN: readonly {
  readonly name: string;
  readonly flags: number;
  readonly seq: number;
  readonly back: number;
  readonly n: number;
  readonly transactions: readonly SyncTransaction[];
  readonly record: string;
}[] = [
  {
    name: 'a set, a delete and a clear of two collections',
    flags: 0,
    seq: 1,
    back: 1,
    n: 1,
    transactions: [
      {
        base: 7,
        hlc: toHlc(1_700_000_000_000) + 3n,
        ops: [
          { type: 'set', collection: 'notes', key: bytes(1, 2), value: bytes(9, 8, 7), expiresAt: 0 },
          { type: 'delete', collection: 'notes', key: bytes(5) },
        ],
      },
      {
        base: 300,
        hlc: toHlc(1_700_000_000_001),
        ops: [
          {
            type: 'clear',
            collection: 'tasks',
            lower: { bytes: bytes(1), isExclusive: false },
            upper: { bytes: bytes(4), isExclusive: true },
          },
          { type: 'set', collection: 'tasks', key: bytes(2), value: bytes(), expiresAt: 1_800_000_000_000 },
        ],
      },
    ],
    record:
      '01000123456789abcdef0101010207018bcfe568000003020100056e6f746573086173206e6f746573020102000309080702000105' +
      'ac02018bcfe568010000020301057461736b73086173207461736b730101010201040101010280a0f1c2b134006166e19a',
  },
  {
    name: 'a strict transaction with a large value',
    flags: STRICT,
    seq: 129,
    back: 2,
    n: 129,
    transactions: [
      {
        base: 2 ** 40,
        hlc: 1n,
        ops: [
          {
            type: 'blob',
            collection: 'files',
            key: bytes(1),
            hash: new Uint8Array(32).fill(0xab),
            size: 5_000_000,
            check: 77,
            expiresAt: 0,
          },
        ],
      },
    ],
    record:
      '01010123456789abcdef81010281010180808080802000000000000000010104000566696c657300010100c096b1024dabababababababababababababababababababababababababababababababab89708268',
  },
  {
    name: 'a repair with stamps of its own',
    flags: REPAIR,
    seq: 2,
    back: 2,
    n: 200,
    transactions: [
      {
        base: 0,
        hlc: 5n,
        ops: [
          {
            type: 'set',
            collection: 'n',
            key: bytes(1),
            value: bytes(2),
            expiresAt: 0,
            stamp: { h: 77n, device: 1n, n: 4, isStrict: true },
          },
          { type: 'delete', collection: 'n', key: bytes(3), stamp: { h: 78n, device: 2n, n: 300, isStrict: false } },
        ],
      },
    ],
    record:
      '01020123456789abcdef0202c8010100000000000000000502c1000000000000004d00000000000000010400016e046173206e010100010242000000000000004e0000000000000002ac0200010300b07a6d',
  },
  {
    name: 'a fence',
    flags: FENCE,
    seq: 3,
    back: 1,
    n: 3,
    transactions: [],
    record: '01200123456789abcdef03010300c9f70dc1',
  },
];

for (const { name, flags, seq, back, n, transactions, record } of GOLDEN) {
  test(`golden: ${name}`, () => {
    const made = encodeRecord({ flags, device, seq, back }, encodeBody({ n, declared: DECLARED, transactions }));
    assert.equal(hex(made), record);
    const { header, body } = decodeRecord(made);
    assert.deepEqual(header, { flags, device, seq, back });
    const read = decodeBody(body);
    assert.deepEqual([read.n, read.transactions], [n, transactions]);
    for (const [collection, declaration] of read.declared) assert.equal(declaration, DECLARED.get(collection));
  });
}

/** Objects with a prototype, as decoding makes them. */
const shape = <T>(model: { [K in keyof T]: fc.Arbitrary<T[K]> }): fc.Arbitrary<T> =>
  fc.record(model, { noNullPrototype: true }) as fc.Arbitrary<T>;
const anyBytes = fc.uint8Array({ maxLength: 20 }).map((data) => new Uint8Array(data));
const anyTime = fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 2 ** 45 }));
const anyStamp = shape({
  h: fc.bigInt(0n, 2n ** 64n - 1n),
  device: fc.bigInt(0n, 2n ** 64n - 1n),
  n: fc.maxSafeNat(),
  isStrict: fc.boolean(),
});
const anyBound = fc.option(shape({ bytes: anyBytes, isExclusive: fc.boolean() }), { nil: undefined });
const anyName = fc.constantFrom('a', 'b', 'ein Name', '名前');
const stamped = <T extends object>(op: fc.Arbitrary<T>): fc.Arbitrary<T> =>
  fc
    .tuple(op, fc.option(anyStamp, { nil: undefined }))
    .map(([given, stamp]) => (stamp === undefined ? given : { ...given, stamp }));
const anyOp = fc.oneof(
  stamped(
    shape({
      type: fc.constant('set' as const),
      collection: anyName,
      key: anyBytes,
      value: anyBytes,
      expiresAt: anyTime,
    }),
  ),
  stamped(shape({ type: fc.constant('delete' as const), collection: anyName, key: anyBytes })),
  stamped(
    shape({
      type: fc.constant('blob' as const),
      collection: anyName,
      key: anyBytes,
      expiresAt: anyTime,
      size: fc.maxSafeNat(),
      check: fc.maxSafeNat(),
      hash: fc.uint8Array({ minLength: 32, maxLength: 32 }).map((data) => new Uint8Array(data)),
    }),
  ),
  shape({ type: fc.constant('clear' as const), collection: anyName, lower: anyBound, upper: anyBound }),
) as fc.Arbitrary<ReplicationOp>;
const anyTransactions = fc.array(
  shape({ base: fc.maxSafeNat(), hlc: fc.bigInt(0n, 2n ** 64n - 1n), ops: fc.array(anyOp, { maxLength: 6 }) }),
  { maxLength: 4 },
);

test('records come back as they were', () => {
  fc.assert(
    fc.property(anyTransactions, fc.maxSafeNat(), fc.maxSafeNat(), fc.maxSafeNat(), (transactions, seq, back, n) => {
      const { header, body } = decodeRecord(
        encodeRecord({ flags: 0, device, seq, back }, encodeBody({ n, declared: new Map(), transactions })),
      );
      assert.deepEqual([header.seq, header.back], [seq, back]);
      const read = decodeBody(body);
      assert.deepEqual([read.n, read.transactions], [n, transactions]);
    }),
    { numRuns: 300 },
  );
});

test('damaged records are refused, whichever bytes are damaged', () => {
  const record = encodeRecord(
    { flags: 0, device, seq: 5, back: 1 },
    encodeBody({ n: 5, declared: DECLARED, transactions: GOLDEN[0]!.transactions }),
  );
  for (let at = 0; at < record.length; at++) {
    const damaged = record.slice();
    damaged[at]! ^= 0x10;
    assert.throws(
      () => decodeRecord(damaged),
      (error) => ['KV_CORRUPT', 'KV_VERSION_UNSUPPORTED'].includes((error as { code: string }).code),
    );
    assert.throws(
      () => decodeRecord(record.subarray(0, at)),
      (error) => ['KV_CORRUPT', 'KV_VERSION_UNSUPPORTED'].includes((error as { code: string }).code),
    );
  }
  const newer = record.slice(0, -4);
  newer[0] = 2;
  const checksum = new Uint8Array(4);
  new DataView(checksum.buffer).setUint32(0, crc32c(newer));
  assert.throws(() => decodeRecord(Buffer.concat([newer, checksum])), code('KV_VERSION_UNSUPPORTED'));
});

test('bodies of hostile bytes cause typed errors', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 60 }), (body) => {
      try {
        decodeBody(new Uint8Array(body));
      } catch (error) {
        assert.equal((error as Error).name, 'KvError', String(error));
      }
    }),
    { numRuns: 2000 },
  );
});

test('rows come back as they were', () => {
  const stamp = { h: 5n, device, n: 9, position: 2 ** 50, isStrict: true, isDead: false, expiresAt: 7, check: 2 ** 40 };
  const bases = [
    undefined,
    { stamp, kept: undefined },
    { stamp: { ...stamp, isStrict: false, isDead: true }, kept: undefined },
    { stamp, kept: bytes() },
    { stamp, kept: bytes(1, 2) },
  ];
  for (const base of bases) {
    for (const former of bases) {
      for (const pending of [undefined, { n: 300, check: 2 ** 45, expiresAt: 0 }]) {
        for (const shown of [undefined, { check: 2 ** 41, expiresAt: 8 }]) {
          const row = { history: 130, base, former, pending, shown };
          assert.deepEqual(decodeRow(encodeRow(row)), row);
        }
      }
    }
  }
});

test('the checksum is CRC-32C', () => {
  assert.equal(crc32c(new TextEncoder().encode('123456789')), 0xe306_9283);
});

test('clocks go forward, and never more than a minute beyond the log', () => {
  assert.equal(tick(0n, 5), toHlc(5));
  assert.equal(tick(toHlc(9), 5), toHlc(9) + 1n);
  assert.equal(toMs(clamp(toHlc(10 ** 9), 1000)), 61_000);
  assert.equal(clamp(toHlc(1000) + 7n, 1000), toHlc(1000) + 7n);
});

test('sealed records say nothing, and open with their key, place and database only', async () => {
  const key = await crypto.subtle.generateKey({ name: 'AES-GCM', length: 256 }, false, ['encrypt', 'decrypt']);
  const other = await crypto.subtle.generateKey({ name: 'AES-GCM', length: 256 }, false, ['encrypt', 'decrypt']);
  const wire = new Wire({ key, database: 'notes' });
  const body = new TextEncoder().encode('a secret '.repeat(200));
  const record = await wire.pack(STRICT, { device, seq: 5, back: 2 }, body);
  assert.ok(!Buffer.from(record).includes('secret'));
  assert.ok(record.length < body.length, 'it is compressed first');
  const logged = { position: 1, serverTime: 2, record };
  const read = await wire.unpack(logged);
  assert.deepEqual(
    [read.flags, read.device, read.seq, Buffer.from(read.body).equals(Buffer.from(body))],
    [STRICT, device, 5, true],
  );
  await assert.rejects(new Wire({ key: other, database: 'notes' }).unpack(logged), code('KV_CORRUPT'));
  await assert.rejects(new Wire({ key, database: 'other' }).unpack(logged), code('KV_CORRUPT'));
  await assert.rejects(new Wire(undefined).unpack(logged), code('KV_CORRUPT'));
  await assert.rejects(
    wire.unpack({ ...logged, record: await new Wire(undefined).pack(0, { device, seq: 5, back: 2 }, body) }),
    code('KV_CORRUPT'),
  );
  // The same bytes under another device or number.
  const { header, body: sealed } = decodeRecord(record);
  for (const moved of [
    { ...header, seq: 6 },
    { ...header, back: 1 },
    { ...header, device: 1n },
    { ...header, flags: header.flags & ~STRICT },
  ]) {
    await assert.rejects(wire.unpack({ ...logged, record: encodeRecord(moved, sealed) }), code('KV_CORRUPT'));
  }
});

test('a body has nothing behind its transactions, and is at most 1 MiB', async () => {
  const body = encodeBody({ n: 1, declared: new Map(), transactions: [] });
  assert.throws(() => decodeBody(Uint8Array.from([...body, 0])), code('KV_CORRUPT'));
  const bomb = encodeRecord(
    { flags: COMPRESSED, device, seq: 1, back: 1 },
    deflateRawSync(new Uint8Array((1 << 20) + 1)),
  );
  await assert.rejects(new Wire(undefined).unpack({ position: 1, serverTime: 1, record: bomb }), code('KV_CORRUPT'));
  const long = encodeRecord({ flags: COMPRESSED, device, seq: 1, back: 1 }, deflateRawSync(new Uint8Array(1 << 20)));
  assert.equal((await new Wire(undefined).unpack({ position: 1, serverTime: 1, record: long })).body.length, 1 << 20);
});
