// The bytes of records: golden, because every device reads what any version wrote.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { crc32c } from '../../src/sync/bytes.ts';
import { clamp, tick, toHlc, toMs } from '../../src/sync/clock.ts';
import { FENCE, REPAIR, STRICT, decodeRecord, decodeTransactions, encodeRecord, encodeTransactions } from '../../src/sync/record.ts';
import type { SyncOp, SyncTransaction } from '../../src/sync/record.ts';
import { decodeOverlay, decodeStamp, encodeOverlay, encodeStamp } from '../../src/sync/rows.ts';
import { Wire } from '../../src/sync/wire.ts';
import { code } from '../support/kit.ts';

const bytes = (...values: number[]): Uint8Array => new Uint8Array(values);
const hex = (data: Uint8Array): string => Buffer.from(data).toString('hex');
const device = 0x0123_4567_89ab_cdefn;

const GOLDEN: readonly { readonly name: string; readonly flags: number; readonly seq: number; readonly transactions: readonly SyncTransaction[]; readonly record: string }[] = [
  {
    name: 'a set, a delete and a clear of two collections',
    flags: 0, seq: 1,
    transactions: [
      { base: 7, hlc: toHlc(1_700_000_000_000) + 3n, ops: [
        { type: 'set', collection: 'notes', key: bytes(1, 2), value: bytes(9, 8, 7), expiresAt: 0 },
        { type: 'delete', collection: 'notes', key: bytes(5) },
      ] },
      { base: 300, hlc: toHlc(1_700_000_000_001), ops: [
        { type: 'clear', collection: 'tasks', lower: { bytes: bytes(1), isExclusive: false }, upper: { bytes: bytes(4), isExclusive: true } },
        { type: 'set', collection: 'tasks', key: bytes(2), value: bytes(), expiresAt: 1_800_000_000_000 },
      ] },
    ],
    record: '01000123456789abcdef010207018bcfe568000003020100056e6f746573020102000309080702000105'
      + 'ac02018bcfe568010000020301057461736b730101010201040101010280a0f1c2b134009e2c7494',
  },
  {
    name: 'a strict transaction with a large value',
    flags: STRICT, seq: 129,
    transactions: [{ base: 2 ** 40, hlc: 1n, ops: [{ type: 'blob', collection: 'files', key: bytes(1), hash: new Uint8Array(32).fill(0xab), size: 5_000_000, expiresAt: 0 }] }],
    record: '01010123456789abcdef81010180808080802000000000000000010104000566696c6573010100c096b102abababababababababababababababababababababababababababababababab0429eb62',
  },
  {
    name: 'a repair with stamps of its own',
    flags: REPAIR, seq: 2,
    transactions: [{ base: 0, hlc: 5n, ops: [
      { type: 'set', collection: 'n', key: bytes(1), value: bytes(2), expiresAt: 0, stamp: { h: 77n, device: 1n, isStrict: true } },
      { type: 'delete', collection: 'n', key: bytes(3), stamp: { h: 78n, device: 2n, isStrict: false } },
    ] }],
    record: '01020123456789abcdef020100000000000000000502c1000000000000004d000000000000000100016e010100010242000000000000004e000000000000000200010329fafed0',
  },
  { name: 'a fence', flags: FENCE, seq: 3, transactions: [], record: '01200123456789abcdef0300a6f3c4cb' },
];

for (const { name, flags, seq, transactions, record } of GOLDEN) {
  test(`golden: ${name}`, () => {
    const made = encodeRecord({ flags, device, seq }, encodeTransactions(transactions));
    assert.equal(hex(made), record);
    const { header, body } = decodeRecord(made);
    assert.deepEqual(header, { flags, device, seq });
    assert.deepEqual(decodeTransactions(body), transactions);
  });
}

/** Objects with a prototype, as decoding makes them. */
const shape = <T>(model: { [K in keyof T]: fc.Arbitrary<T[K]> }): fc.Arbitrary<T> => fc.record(model, { noNullPrototype: true }) as fc.Arbitrary<T>;
const anyBytes = fc.uint8Array({ maxLength: 20 }).map((data) => new Uint8Array(data));
const anyTime = fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 2 ** 45 }));
const anyStamp = shape({ h: fc.bigInt(0n, 2n ** 64n - 1n), device: fc.bigInt(0n, 2n ** 64n - 1n), isStrict: fc.boolean() });
const anyBound = fc.option(shape({ bytes: anyBytes, isExclusive: fc.boolean() }), { nil: undefined });
const anyName = fc.constantFrom('a', 'b', 'ein Name', '名前');
const stamped = <T extends object>(op: fc.Arbitrary<T>): fc.Arbitrary<T> =>
  fc.tuple(op, fc.option(anyStamp, { nil: undefined })).map(([given, stamp]) => (stamp === undefined ? given : { ...given, stamp }));
const anyOp = fc.oneof(
  stamped(shape({ type: fc.constant('set' as const), collection: anyName, key: anyBytes, value: anyBytes, expiresAt: anyTime })),
  stamped(shape({ type: fc.constant('delete' as const), collection: anyName, key: anyBytes })),
  stamped(shape({ type: fc.constant('blob' as const), collection: anyName, key: anyBytes, expiresAt: anyTime, size: fc.maxSafeNat(), hash: fc.uint8Array({ minLength: 32, maxLength: 32 }).map((data) => new Uint8Array(data)) })),
  shape({ type: fc.constant('clear' as const), collection: anyName, lower: anyBound, upper: anyBound }),
) as fc.Arbitrary<SyncOp>;
const anyTransactions = fc.array(shape({ base: fc.maxSafeNat(), hlc: fc.bigInt(0n, 2n ** 64n - 1n), ops: fc.array(anyOp, { maxLength: 6 }) }), { maxLength: 4 });

test('records come back as they were', () => {
  fc.assert(fc.property(anyTransactions, fc.maxSafeNat(), (transactions, seq) => {
    const { header, body } = decodeRecord(encodeRecord({ flags: 0, device, seq }, encodeTransactions(transactions)));
    assert.equal(header.seq, seq);
    assert.deepEqual(decodeTransactions(body), transactions);
  }), { numRuns: 300 });
});

test('damaged records are refused, whichever bytes are damaged', () => {
  const record = encodeRecord({ flags: 0, device, seq: 5 }, encodeTransactions(GOLDEN[0]!.transactions));
  for (let at = 0; at < record.length; at++) {
    const damaged = record.slice();
    damaged[at]! ^= 0x10;
    assert.throws(() => decodeRecord(damaged), (error) => ['KV_CORRUPT', 'KV_VERSION_UNSUPPORTED'].includes((error as { code: string }).code));
    assert.throws(() => decodeRecord(record.subarray(0, at)), (error) => ['KV_CORRUPT', 'KV_VERSION_UNSUPPORTED'].includes((error as { code: string }).code));
  }
  assert.throws(() => decodeRecord(encodeRecord({ flags: 64, device, seq: 5 }, bytes(0))), code('KV_VERSION_UNSUPPORTED'));
});

test('bodies of hostile bytes cause typed errors', () => {
  fc.assert(fc.property(fc.uint8Array({ maxLength: 60 }), (body) => {
    try {
      decodeTransactions(new Uint8Array(body));
    } catch (error) {
      assert.equal((error as Error).name, 'KvError', String(error));
    }
  }), { numRuns: 2000 });
});

test('rows come back as they were', () => {
  const stamp = { h: 5n, device, position: 2 ** 50, isStrict: true, isDead: false, expiresAt: 7, dataVersion: 300, epoch: 2, check: 2 ** 32 };
  assert.deepEqual(decodeStamp(encodeStamp(stamp)), stamp);
  for (const base of [undefined, null, { value: bytes(1, 2), expiresAt: 9 }, { value: bytes(), expiresAt: 0 }]) {
    const overlay = { ticket: 200, captured: 3, isDelete: base === null, expiresAt: 0, base };
    assert.deepEqual(decodeOverlay(encodeOverlay(overlay)), overlay);
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
  const record = await wire.pack(STRICT, device, 5, body);
  assert.ok(!Buffer.from(record).includes('secret'));
  assert.ok(record.length < body.length, 'it is compressed first');
  const logged = { position: 1, serverTime: 2, record };
  const read = await wire.unpack(logged);
  assert.deepEqual([read.flags, read.device, read.seq, Buffer.from(read.body).equals(Buffer.from(body))], [STRICT, device, 5, true]);
  await assert.rejects(new Wire({ key: other, database: 'notes' }).unpack(logged), code('KV_CORRUPT'));
  await assert.rejects(new Wire({ key, database: 'other' }).unpack(logged), code('KV_CORRUPT'));
  await assert.rejects(new Wire(undefined).unpack(logged), code('KV_CORRUPT'));
  await assert.rejects(wire.unpack({ ...logged, record: await new Wire(undefined).pack(0, device, 5, body) }), code('KV_CORRUPT'));
  // The same bytes under another device or number.
  const { header, body: sealed } = decodeRecord(record);
  for (const moved of [{ ...header, seq: 6 }, { ...header, device: 1n }, { ...header, flags: header.flags & ~STRICT }]) {
    await assert.rejects(wire.unpack({ ...logged, record: encodeRecord(moved, sealed) }), code('KV_CORRUPT'));
  }
});
