// Poison records, which no device can decode: each device skips them and applies everything that
// follows.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deflateRawSync } from 'node:zlib';
import { keyCodecs, valueCodecs } from 'mangrove-kv';
import { crc32c } from '../src/bytes.ts';
import { MemoryLog, MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import { CHUNK, COMPRESSED, REPAIR, encodeBody, encodeRecord, isIntact } from '../src/record.ts';
import type { RecordBody, ReplicationOp, SyncTransaction } from '../src/record.ts';
import type { LoggedRecord } from '../src/remote-log.ts';
import { toHlc } from '../src/clock.ts';
import { code } from '../../kv/test/support/kit.ts';
import { Device, converge } from './device.ts';
import { equal, stopAll } from './helpers.ts';

/** As the devices have it. */
const DECLARED = new Map([['notes', '{"key":"any","value":"structured","mode":"merge"}']]);

const bytes = (...values: number[]): Uint8Array<ArrayBuffer> => new Uint8Array(values);
const record = (flags: number, body: Uint8Array, seq = 1): Uint8Array<ArrayBuffer> =>
  encodeRecord({ flags, device: 7n, seq, back: 1 }, body);
const encoded = (key: Uint8Array): Uint8Array<ArrayBuffer> =>
  encodeBody({
    n: 1,
    declared: DECLARED,
    transactions: [
      {
        base: 0,
        hlc: toHlc(Date.now()),
        ops: [
          {
            type: 'set',
            collection: 'notes',
            key: keyCodecs.any.encode('beside it').slice(),
            value: valueCodecs.structured().encode(1).slice(),
            expiresAt: 0,
          },
          { type: 'set', collection: 'notes', key, value: valueCodecs.structured().encode(1).slice(), expiresAt: 0 },
        ],
      },
    ],
  });
const good = (): Uint8Array<ArrayBuffer> => record(0, encoded(keyCodecs.any.encode('p').slice()));
const flipped = (at: number, bit: number): Uint8Array =>
  good().map((byte, index) => (index === at ? byte ^ bit : byte));

const POISON: readonly (readonly [string, readonly Uint8Array[]])[] = [
  ['garbage under a valid checksum', [record(0, bytes(1, 2, 3))]],
  ['an empty body', [record(0, bytes())]],
  ['a part of 3 bytes', [record(CHUNK, bytes(1, 2, 3))]],
  ['a last part of 0 bytes', [record(CHUNK, bytes())]],
  ['a last part of garbage', [record(CHUNK, bytes(0, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9))]],
  ['a last part without the others', [record(CHUNK, bytes(255, 255, 255, 255, 0, 0, 0, 0, 1))]],
  [
    'two parts of garbage',
    [record(CHUNK, bytes(0, 0, 0, 0, 0, 0, 0, 1, 200)), record(CHUNK, bytes(0, 0, 0, 1, 0, 0, 0, 0, 9), 2)],
  ],
  ['a flipped bit in the version', [flipped(0, 4)]],
  ['a flipped bit in the flags', [flipped(1, 64)]],
  ['a flipped bit in the body', [flipped(25, 64)]],
  ['a key of 100,000 bytes', [record(0, encoded(new Uint8Array(100_000).fill(9)))]],
  [
    'a collection with a name of 250 bytes',
    [
      record(
        0,
        encodeBody({
          n: 1,
          declared: new Map([['n'.repeat(250), DECLARED.get('notes')!]]),
          transactions: [
            { base: 0, hlc: toHlc(Date.now()), ops: [{ type: 'delete', collection: 'n'.repeat(250), key: bytes(1) }] },
          ],
        }),
      ),
    ],
  ],
  ['a record of 3 bytes', [bytes(1, 2, 3)]],
  ['a record of 0 bytes', [bytes()]],
  ['a body that would take 700 MiB', [record(COMPRESSED, new Uint8Array(deflateRawSync(new Uint8Array(700 << 20))))]],
  ['compressed garbage', [record(COMPRESSED, bytes(255, 255, 255))]],
];

for (const [name, records] of POISON) {
  test(`${name} stops nobody`, async () => {
    const server = new MemoryServer();
    const devices = [await Device.start(server), await Device.start(server)] as const;
    const [a, b] = devices;
    await a.db.collection('notes').set('one', 1);
    await converge(devices);
    for (const [index, each] of records.entries()) server.append(each, { idempotencyKey: `poison ${index}` });
    await a.db.collection('notes').set('two', 2);
    await converge(devices);
    await b.db.collection('notes').set('three', 3);
    const late = await Device.start(server);
    const all = [...devices, late];
    await converge(all);
    await equal(all);
    assert.deepEqual(await late.db.collection('notes').entries().toArray(), [
      ['one', 1],
      ['three', 3],
      ['two', 2],
    ]);
    // A part whose others never come is no error yet.
    if (!name.includes('without the others')) {
      for (const { alarms, replica } of all) {
        assert.ok(alarms.length > 0, 'each device tells');
        const aside = await replica.tables.aside.entries().toArray();
        assert.deepEqual(
          aside.map(([, row]) => row.code),
          alarms.map(({ code }) => code),
        );
        const last = server.records.find(({ position }) => position === aside.at(-1)?.[0]);
        assert.deepEqual(new Uint8Array(aside.at(-1)![1].record), new Uint8Array(last!.record), 'and keeps the record');
      }
    }
    await stopAll(all);
  });
}

const set = (key: string): ReplicationOp => ({
  type: 'set',
  collection: 'notes',
  key: keyCodecs.any.encode(key).slice(),
  value: valueCodecs.structured().encode(1).slice(),
  expiresAt: 0,
});
const named = (name: string, declaration: string): RecordBody => ({
  n: 1,
  declared: new Map([[name, declaration]]),
  transactions: [{ base: 0, hlc: 1n, ops: [{ ...set('p'), collection: name } as ReplicationOp] }],
});
const plain = (change: Partial<SyncTransaction>, n = 1): RecordBody => ({
  n,
  declared: DECLARED,
  transactions: [{ base: 0, hlc: toHlc(Date.now()), ops: [set('p')], ...change }],
});
const cleared = (lower: Uint8Array, upper: Uint8Array, isExclusive = false): RecordBody =>
  plain({
    ops: [
      {
        type: 'clear',
        collection: 'notes',
        lower: { bytes: lower, isExclusive },
        upper: { bytes: upper, isExclusive },
      },
    ],
  });

/** What no device writes and each can read: it means something, or nothing. */
const STRANGE: readonly (readonly [name: string, flags: number, body: RecordBody])[] = [
  ['the greatest clock', 0, plain({ hlc: 2n ** 64n - 1n })],
  ['the greatest base', 0, plain({ base: Number.MAX_SAFE_INTEGER })],
  ['the greatest number', 0, plain({}, Number.MAX_SAFE_INTEGER)],
  ['the greatest expiry', 0, plain({ ops: [{ ...set('p'), expiresAt: Number.MAX_SAFE_INTEGER } as ReplicationOp] })],
  [
    'a repair with the greatest stamp',
    REPAIR,
    plain({
      ops: [
        {
          ...set('p'),
          stamp: { h: 2n ** 64n - 1n, device: 2n ** 64n - 1n, n: Number.MAX_SAFE_INTEGER, isStrict: true },
        } as ReplicationOp,
      ],
    }),
  ],
  ['a clear with bounds the wrong way round', 0, cleared(bytes(200), bytes(1))],
  ['a clear of an empty range', 0, cleared(bytes(5), bytes(5), true)],
  ['a clear up to a bound of 100,000 bytes', 0, cleared(bytes(), new Uint8Array(100_000).fill(1))],
  ['a collection whose name is that of a property', 0, named('__proto__', DECLARED.get('notes')!)],
  ['another one', 0, named('constructor', DECLARED.get('notes')!)],
  ['a name of half a character', 0, named('a\0\ud800', DECLARED.get('notes')!)],
  ['a declaration of an unknown codec', 0, named('other', '{"key":"none","value":"none","mode":"merge"}')],
];

for (const [name, flags, body] of STRANGE) {
  test(`${name} stops nobody, and means the same to all`, async () => {
    const server = new MemoryServer();
    const snapshots = new MemorySnapshotStore();
    const [a, b] = [await Device.start(server, { snapshots }), await Device.start(server, { snapshots })];
    await a.db.collection('notes').set('one', 1);
    await converge([a, b]);
    server.append(record(flags, encodeBody(body)), { idempotencyKey: 'strange' });
    await a.db.collection('notes').set('two', 2);
    await converge([a, b]);
    await b.db.collection('notes').set('p', 3);
    await converge([b, a]);
    const late = await Device.start(server, { snapshots });
    await converge([late]);
    await a.replica.compact();
    const fresh = await Device.start(server, { snapshots });
    const all = [a, b, late, fresh];
    await converge(all);
    await equal(all);
    assert.deepEqual(await fresh.db.collection('notes').entries({ gte: 'p' }).toArray(), [
      ['p', 3],
      ['two', 2],
    ]);
    const digests = await Promise.all(
      all.map(async ({ replica }) => Object.entries((await replica.state()).digests).sort()),
    );
    for (const digest of digests) assert.deepEqual(digest, digests[0]);
    assert.deepEqual(
      all.flatMap(({ alarms }) => alarms.filter(({ code: kind }) => kind === 'KV_REPLICATION_DIVERGED')),
      [],
    );
    await stopAll(all);
  });
}

for (const what of ['operation', 'version']) {
  test(`a record with an ${what === 'version' ? 'unknown version' : 'unknown operation'} stops nobody, and a program that understands it applies it in its place`, async () => {
    const server = new MemoryServer();
    const snapshots = new MemorySnapshotStore();
    const [a, b] = [await Device.start(server, { snapshots }), await Device.start(server, { snapshots })];
    await a.db.collection('notes').setMany([
      ['p', 'before'],
      ['q', 'before'],
    ]);
    await converge([a, b]);
    const understood = record(0, encoded(keyCodecs.any.encode('p').slice()));
    const unknown = Uint8Array.from(understood.slice(0, -4));
    if (what === 'version') unknown[0] = 2;
    else unknown[findOperation(unknown)] = 9;
    server.append(withChecksum(unknown), { idempotencyKey: 'newer' });
    await a.db.collection('notes').set('q', 'after');
    await converge([a, b]);
    await equal([a, b]);
    for (const device of [a, b]) {
      assert.deepEqual(
        device.alarms.map(({ code }) => code),
        ['KV_VERSION_UNSUPPORTED'],
      );
      assert.deepEqual(await device.db.collection('notes').entries().toArray(), [
        ['p', 'before'],
        ['q', 'after'],
      ]);
      await assert.rejects(device.replica.compact(), code('KV_VERSION_UNSUPPORTED'));
    }
    // The record as the next version reads it; what this one understood is less.
    (server.records as unknown as { record: Uint8Array }[]).find(
      ({ record: bytes }) => bytes.length === understood.length && bytes[12] === understood[12] && bytes[9] === 7,
    )!.record = understood;
    const { tables } = a.replica;
    await tables.state.update('state', (state) => ({ ...state!, aside: 0, serial: state!.serial + 1 }));
    const updated = await a.restart(server, { snapshots });
    const fresh = await Device.start(server, { snapshots });
    await converge([updated, fresh]);
    await equal([updated, fresh]);
    assert.deepEqual(await updated.db.collection('notes').entries().toArray(), [
      ['beside it', 1],
      ['p', 1],
      ['q', 'after'],
    ]);
    await updated.replica.compact();
    await stopAll([updated, fresh, b]);
  });
}

/** Where a body's first operation is: behind the name of the first collection there is its declaration. */
function findOperation(bytes: Uint8Array): number {
  return Buffer.from(bytes).indexOf('notes') - 3;
}

function withChecksum(bytes: Uint8Array): Uint8Array {
  const checksum = new Uint8Array(4);
  new DataView(checksum.buffer).setUint32(0, crc32c(bytes));
  return Buffer.concat([bytes, checksum]);
}

test('many records that cannot be read are passed over together, and what is before them is applied at once', async () => {
  const server = new MemoryServer();
  const a = await Device.start(server);
  await a.db.collection('notes').set('before', 1);
  await a.exchange();
  for (let nth = 0; nth < 20; nth++) server.append(flipped(25, 64), { idempotencyKey: `x:${nth}` });
  await a.db.collection('notes').set('behind', 2);
  while (await a.replica.drain());
  while (await a.replica.publish());
  const b = await Device.start(server);
  let failures = 0;
  for (let isMore = true; isMore; ) {
    try {
      isMore = await b.replica.pull();
    } catch (error) {
      assert.ok(code('KV_LOG_UNAVAILABLE')(error), String(error));
      assert.equal(await b.db.collection('notes').get('before'), 1);
      failures++;
    }
  }
  assert.ok(failures > 0 && failures < 5, `${failures} failures, after each of which a device waits longer`);
  assert.deepEqual(await b.db.collection('notes').keys().toArray(), ['before', 'behind']);
  assert.equal(b.alarms.length, 20);
  await converge([a, b]);
  await equal([a, b]);
  await stopAll([a, b]);
});

/** A log whose server makes something else of each record that cannot be read, each time that it is read. */
class DamagingLog extends MemoryLog {
  readonly #damage: (record: Uint8Array, reads: number) => Uint8Array;
  #reads = 0;

  constructor(server: MemoryServer, damage: (record: Uint8Array, reads: number) => Uint8Array) {
    super(server);
    this.#damage = damage;
  }

  override async read(after: number, limit: number): Promise<readonly LoggedRecord[]> {
    return (await super.read(after, limit)).map((logged) =>
      isIntact(logged.record) ? logged : { ...logged, record: this.#damage(logged.record, ++this.#reads) },
    );
  }
}

test('what is noted of a record that cannot be read is what the log has, whatever a server makes of it at times', async () => {
  const server = new MemoryServer();
  // Every fifth time another byte of the checksum is wrong, too.
  const log = new DamagingLog(server, (record, reads) =>
    record.map((byte, at) => (reads % 5 === 0 && at === record.length - 1 ? byte ^ (1 << ((reads / 5) % 8)) : byte)),
  );
  const device = await Device.start(server, { log });
  await device.db.collection('notes').set('one', 1);
  await converge([device]);
  const { history } = await device.replica.state();
  server.append(flipped(25, 64), { idempotencyKey: 'poison' });
  await converge([device]);
  device.replica.reconnect();
  await converge([device]);
  assert.deepEqual(device.repairs, []);
  assert.equal((await device.replica.state()).history, history);
  await stopAll([device]);
});

test('a record that is another one each time stops nobody', async () => {
  const server = new MemoryServer();
  const device = await Device.start(server, {
    log: new DamagingLog(server, (record, reads) => record.map((byte) => byte ^ (1 + (reads % 255)))),
  });
  server.append(flipped(25, 64), { idempotencyKey: 'poison' });
  server.append(good(), { idempotencyKey: 'good' });
  await converge([device]);
  assert.equal(await device.db.collection('notes').get('p'), 1);
  await stopAll([device]);
});

test('the records behind one of a newer version are not taken for a gap', async () => {
  const server = new MemoryServer();
  const [a, b] = [await Device.start(server), await Device.start(server)];
  for (const key of ['k', 'l', 'm']) {
    await a.db.collection('notes').set(key, 1);
    await a.exchange();
  }
  const records = server.records as unknown as { record: Uint8Array }[];
  const newer = Uint8Array.from(records[1]!.record.slice(0, -4));
  newer[0] = 2;
  records[1]!.record = withChecksum(newer);
  await b.exchange();
  assert.deepEqual(
    b.alarms.map(({ code: reason }) => reason),
    ['KV_VERSION_UNSUPPORTED'],
  );
  assert.deepEqual(await b.db.collection('notes').keys().toArray(), ['k', 'm']);
  await stopAll([a, b]);
});
