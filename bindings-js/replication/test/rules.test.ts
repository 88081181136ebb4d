// What a record makes of the base, rule by rule as docs/REPLICATION.md has them: records of devices that are not
// there, and a device that reads them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keyCodecs, valueCodecs } from 'mangrove-kv';
import { toHlc } from '../src/clock.ts';
import { MemoryServer } from '../src/memory-log.ts';
import { crc32c } from '../src/bytes.ts';
import { CHECK, CHUNK, FENCE, REPAIR, STRICT, UNBASED, decodeBody, encodeBody, encodeRecord } from '../src/record.ts';
import type { RecordHeader, ReplicationOp } from '../src/record.ts';
import { decodeRow } from '../src/row.ts';
import type { Stamp, WriteStamp } from '../src/row.ts';
import { decodeOutbox } from '../src/state.ts';
import type { ReplicaState } from '../src/state.ts';
import { Device } from './device.ts';

const DAY_MS = 24 * 3_600_000;
/** Years before what any clock of this machine says. */
const START = 1_600_000_000_000;
const MERGE = '{"key":"any","value":"structured","mode":"merge"}';
const collections = { notes: { prefixModes: [{ prefix: 's', mode: 'strict' }] } } as const;

const keyOf = (key: string): Uint8Array => keyCodecs.any.encode(key).slice();
type Op = (name: string) => ReplicationOp;
const set =
  (key: string, value: unknown, stamp?: WriteStamp): Op =>
  (collection) => ({
    type: 'set',
    collection,
    key: keyOf(key),
    value: valueCodecs.structured().encode(value).slice(),
    expiresAt: 0,
    ...(stamp && { stamp }),
  });
const expiring =
  (key: string, value: string, expiresAt: number): Op =>
  (collection) => ({ ...(set(key, value)(collection) as Extract<ReplicationOp, { type: 'set' }>), expiresAt });
const remove =
  (key: string): Op =>
  (collection) => ({ type: 'delete', collection, key: keyOf(key) });
const bound = (key: string, isExclusive: boolean) => ({ bytes: keyOf(key), isExclusive });
const clear =
  (lower?: ReturnType<typeof bound>, upper?: ReturnType<typeof bound>): Op =>
  (collection) => ({ type: 'clear', collection, lower, upper });

interface Given {
  readonly device?: bigint;
  /** Position that the writer had applied; default: none. */
  readonly base?: number;
  /** The writer's clock; default: that of the log. */
  readonly at?: number;
  /** Default: the number of the record. */
  readonly n?: number;
  readonly flags?: number;
  readonly name?: string;
  readonly declaration?: string;
  readonly digests?: ReplicaState['digests'];
}

/** A log, and a device that reads it. */
class Reader {
  readonly server: MemoryServer;
  readonly device: Device;
  readonly #clock: { now: number };
  readonly #numbers = new Map<bigint, number>();
  #last: Uint8Array | undefined;

  private constructor(server: MemoryServer, device: Device, clock: { now: number }) {
    this.server = server;
    this.device = device;
    this.#clock = clock;
  }

  static async start(): Promise<Reader> {
    const clock = { now: START };
    const server = new MemoryServer({ serverTime: () => clock.now });
    return new Reader(
      server,
      await Device.start(server, { collections, isInMemory: true, clock: () => clock.now }),
      clock,
    );
  }

  get now(): number {
    return this.#clock.now;
  }

  set now(time: number) {
    this.#clock.now = time;
  }

  /** Appends a record; returns its position. */
  write(
    { device = 7n, base = 0, at = this.now, n, flags = 0, name = 'notes', declaration, digests = {} }: Given,
    ...ops: readonly Op[]
  ): number {
    const seq = (this.#numbers.get(device) ?? 0) + 1;
    this.#numbers.set(device, seq);
    const declared = new Map([
      [name, declaration ?? this.device.replica.tables.byName.get('notes')?.declaration ?? ''],
    ]);
    return this.append(
      { flags, device, seq, back: 1 },
      encodeBody({
        n: n ?? seq,
        declared,
        transactions: [{ base, hlc: toHlc(at), ops: ops.map((op) => op(name)) }],
        ...(flags & CHECK && { digests }),
      }),
    );
  }

  append(header: RecordHeader, body: Uint8Array): number {
    this.#last = encodeRecord(header, body);
    return this.server.append(this.#last, { idempotencyKey: `${header.device}:${header.seq}` });
  }

  /** The newest record comes once more. */
  repeat(): void {
    this.server.append(this.#last as Uint8Array, { idempotencyKey: `again ${this.now}` });
  }

  async get(key = 'k'): Promise<unknown> {
    while (await this.device.replica.pull());
    return this.device.db.collection('notes').get(key);
  }

  /** What the base has of a key, also of one without a value. */
  async stamp(key = 'k'): Promise<Stamp | undefined> {
    while (await this.device.replica.pull());
    const row = await this.device.replica.tables.byName.get('notes')?.rows.get(keyOf(key));
    return row && decodeRow(row).base?.stamp;
  }
}

function rule(name: string, work: (log: Reader) => Promise<void>): void {
  test(name, async () => {
    const log = await Reader.start();
    try {
      await work(log);
    } finally {
      await log.device.stop();
    }
  });
}

const [A, B] = [7n, 8n];

rule('a write whose device knew the value wins, whatever the clocks say', async (log) => {
  const position = log.write({ device: A, at: START }, set('k', 'first'));
  log.write({ device: B, base: position, at: START - DAY_MS }, set('k', 'knew it'));
  assert.equal(await log.get(), 'knew it');
  // The greatest stamp is that of the newest value.
  assert.ok(((await log.stamp()) as Stamp).h > toHlc(START));
  log.write({ device: A, base: position, at: START }, set('k', 'did not'));
  assert.equal(await log.get(), 'knew it');
});

rule('of the writes of one device the later one wins, whatever its clock says', async (log) => {
  log.write({ n: 1, at: START }, set('k', 'one'));
  log.write({ n: 3, at: START - DAY_MS }, set('k', 'three'), set('k', 'three again'));
  assert.equal(await log.get(), 'three again');
  assert.ok(((await log.stamp()) as Stamp).h > toHlc(START));
  log.write({ n: 2, at: START + 1000 }, set('k', 'two'));
  assert.equal(await log.get(), 'three again', 'a record that comes late loses to one that was captured after it');
});

rule('of two writes that did not know each other the greater stamp wins', async (log) => {
  for (const [key, first, second] of [
    ['clock', { device: B, at: START + 1 }, { device: A, at: START + 2 }],
    ['device', { device: A, at: START }, { device: B, at: START }],
  ] as const) {
    log.write(first, set(key, 'loses, although it is longer'));
    log.write(second, set(key, 'wins'));
    log.write(
      first.device === A ? { ...first, device: 5n } : { ...first, device: 6n },
      set(key, 'loses in the other order'),
    );
    assert.equal(await log.get(key), 'wins', key);
  }
});

rule('a clock that is ahead counts as a minute ahead of the log', async (log) => {
  log.write({ at: START + DAY_MS }, set('k', 'ahead'));
  assert.equal((await log.stamp())?.h, toHlc(START + 60_000));
});

rule(
  "a clock that is ahead counts the same where the servers' clock has gone back, and then the greater id wins",
  async (log) => {
    log.write({ device: A, at: START + DAY_MS }, set('k', 'first'), set('l', 'first'));
    log.now -= 10_000;
    log.write({ device: B, at: START + DAY_MS + 1 }, set('k', 'second'));
    log.write({ device: A - 1n, at: START + DAY_MS + 1 }, set('l', 'of a smaller id'));
    assert.equal(await log.get('k'), 'second');
    assert.equal(await log.get('l'), 'first');
    log.now += 10_000;
  },
);

rule('a strict write wins, and its stamp is the greatest', async (log) => {
  const before = log.write({ flags: STRICT, at: START }, set('s', 'first'));
  log.write({ device: B, flags: STRICT, base: before, at: START - DAY_MS }, set('s', 'second'));
  assert.equal(await log.get('s'), 'second');
  assert.ok(((await log.stamp('s')) as Stamp).h > toHlc(START));
});

rule('a strict record has no effect unless it follows the one that its writer had read', async (log) => {
  const first = log.write({ flags: STRICT }, set('s', 'first'));
  log.write({ device: B }, set('k', 'between'));
  log.write({ device: B, flags: STRICT, base: first }, set('s', 'out of place'));
  assert.equal(await log.get('s'), 'first');
  assert.equal(log.device.alarms.at(-1)?.code, 'KV_CORRUPT');
});

rule('a fence or a check out of place has no effect', async (log) => {
  const first = log.write({ device: A, flags: FENCE });
  await log.get();
  assert.deepEqual(log.device.alarms, []);
  log.write({ device: B, flags: FENCE, base: first - 1 });
  await log.get();
  assert.deepEqual(
    log.device.alarms.map(({ code }) => code),
    ['KV_CORRUPT'],
  );
  log.write({ device: B }, set('k', 'x'));
  log.write({ device: B, flags: CHECK, base: first });
  await log.get();
  assert.equal(log.device.alarms.filter(({ code }) => code === 'KV_REPLICATION_DIVERGED').length, 0);
});

rule("a write to a key of the other mode has no effect, unless it is a repair's", async (log) => {
  const position = log.write({}, set('s', 'by merge'), set('k', 'x'));
  log.write({ flags: STRICT, base: position }, set('k', 'by strict'));
  assert.deepEqual([await log.get('s'), await log.get('k')], [undefined, 'x']);
  log.write({ flags: REPAIR }, set('s', 'repaired', { h: toHlc(START), device: B, n: 1, isStrict: true }));
  assert.equal(await log.get('s'), 'repaired');
});

rule('of a repair nothing but its stamps counts', async (log) => {
  const stamp = (at: number, device: bigint, n: number): WriteStamp => ({ h: toHlc(at), device, n, isStrict: false });
  const position = log.write({ device: A, n: 5, at: START }, set('k', 'newer'), set('l', 'older'));
  log.write(
    { device: B, flags: REPAIR, base: position, at: START + 1000 },
    set('k', 'repaired', stamp(START - 1, B, 9)),
    set('l', 'repaired', stamp(START + 1, A, 3)),
  );
  assert.deepEqual([await log.get('k'), await log.get('l')], ['newer', 'repaired']);
  const { h, device, n } = (await log.stamp('l')) as Stamp;
  assert.deepEqual([h, device, n], [toHlc(START + 1), A, 3]);
});

rule('of two repairs with one stamp, devices take the same one in either order', async (log) => {
  const stamp: WriteStamp = { h: toHlc(START), device: 9n, n: 1, isStrict: false };
  log.write({ device: A, flags: REPAIR }, set('k', 'one', stamp), set('l', 'longer', stamp));
  log.write({ device: B, flags: REPAIR }, set('k', 'longer', stamp), set('l', 'one', stamp));
  assert.deepEqual([await log.get('k'), await log.get('l')], ['longer', 'longer']);
  log.write({ device: B, flags: REPAIR }, (name) => ({ ...remove('l')(name), stamp }) as ReplicationOp);
  assert.equal(await log.get('l'), 'longer', 'a delete is less than any value');
});

rule('a base of a history that was lost counts as nothing known', async (log) => {
  const position = log.write({ device: A, at: START }, set('k', 'there'));
  log.write({ device: B, base: position, flags: UNBASED, at: START - 1 }, set('k', 'did not know it'));
  assert.equal(await log.get(), 'there');
});

rule("a tombstone is forgotten when it is 90 days old by the log's time, and a value never is", async (log) => {
  const position = log.write({ device: A, at: START }, set('gone', 'x'), set('kept', 'there'));
  log.write({ device: A, base: position, at: START }, remove('gone'));
  log.now = START + 89 * DAY_MS;
  log.write({ device: A }, set('other', 1));
  log.write({ device: B, at: START - 1 }, set('gone', 'too early'), set('kept', 'from long ago'));
  assert.deepEqual([await log.get('gone'), await log.get('kept')], [undefined, 'there']);
  log.now = START + 91 * DAY_MS;
  log.write({ device: A }, set('other', 2));
  log.write({ device: B, at: START - 1 }, set('gone', 'written anew'), set('kept', 'from long ago'));
  assert.deepEqual([await log.get('gone'), await log.get('kept')], ['written anew', 'there']);
});

rule('a clear deletes what has a value, in its range, and leaves nothing where there is none', async (log) => {
  const position = log.write({ device: A, at: START }, ...['a', 'b', 'c', 'd', 'gone'].map((key) => set(key, key)));
  log.write({ device: A, base: position, at: START }, remove('gone'));
  const tombstone = await log.stamp('gone');
  log.write({ device: B, at: START + 1000 }, clear(bound('a', true), bound('c', true)));
  assert.deepEqual(await Promise.all(['a', 'b', 'c'].map((key) => log.get(key))), ['a', undefined, 'c']);
  log.write(
    { device: B, at: START + 1000 },
    clear(bound('c', false), bound('d', false)),
    clear(bound('x', false), undefined),
    clear(bound('gone', false), bound('gone', false)),
  );
  assert.deepEqual(await Promise.all(['a', 'c', 'd'].map((key) => log.get(key))), ['a', undefined, undefined]);
  assert.deepEqual(await log.stamp('gone'), tombstone);
  assert.equal(await log.stamp('x'), undefined);
  log.write({ device: 5n, at: START - 1 }, clear());
  assert.equal(await log.get('a'), 'a', 'a clear that is older and did not know the value');
});

rule('a clear leaves the keys of the other mode', async (log) => {
  const position = log.write({ flags: STRICT }, set('s', 'strict'));
  log.write({ base: position }, set('k', 'x'), clear());
  assert.deepEqual([await log.get('s'), await log.get('k')], ['strict', undefined]);
});

rule("a value is dead when the log's time has reached its expiry, and that time does not go back", async (log) => {
  const hour = 3_600_000;
  log.write({}, expiring('k', 'for an hour', START + hour), expiring('l', 'a bit longer', START + hour + 1));
  assert.ok((await log.stamp('k'))?.isDead === false);
  log.now = START + hour;
  log.write({}, set('other', 'x'));
  const { isDead, check } = (await log.stamp('k')) as Stamp;
  assert.deepEqual([isDead, check, (await log.stamp('l'))?.isDead], [true, 0, false]);
  log.now = START;
  log.write({}, expiring('m', 'over', START + hour), expiring('n', 'not over', START + hour + 1));
  const dead = (await log.stamp('m')) as Stamp;
  assert.deepEqual([dead.isDead, dead.check, dead.expiresAt, (await log.stamp('n'))?.isDead], [true, 0, 0, false]);
});

rule(
  "records that have no effect move the log's time, and one that is new does so before its operations",
  async (log) => {
    const hour = 3_600_000;
    log.write({}, expiring('k', 'for an hour', START + hour));
    log.now = START + hour;
    log.repeat();
    assert.equal((await log.stamp('k'))?.isDead, true);
    log.now = START + 2 * hour;
    log.write({}, expiring('l', 'was over when the log took it', START + 2 * hour));
    assert.equal((await log.stamp('l'))?.isDead, true);
  },
);

rule(
  'the first record that names a collection declares it, and one that declares it otherwise has no effect on it',
  async (log) => {
    const [first, second] = [MERGE, MERGE.replace('"any"', '"string"')];
    log.write({ name: 'tasks', declaration: first }, set('t', 'first'));
    log.write({ device: B, name: 'tasks', declaration: second }, set('t', 'otherwise'));
    log.write({ device: B, name: 'nonsense', declaration: '{"mode":1}' }, set('t', 'x'));
    log.write({ device: B, name: 'x'.repeat(201), declaration: first }, set('t', 'x'));
    await log.get();
    const { declared } = await log.device.replica.state();
    assert.deepEqual(declared, { tasks: first });
    const { value } = (await log.device.db.collection('notes').getEntry('t')) ?? {};
    assert.equal(value, undefined);
  },
);

rule('what a device writes is later than what it has seen', async (log) => {
  log.write({ at: START + 30_000 }, set('k', 'half a minute ahead'));
  await log.get();
  await log.device.db.collection('notes').setMany([['k', 'one']]);
  await log.device.db.collection('notes').set('l', 'two');
  while (await log.device.replica.drain());
  const [, bytes] = (await log.device.replica.tables.outbox.first()) ?? [];
  const times = decodeBody(decodeOutbox(bytes as Uint8Array).body).transactions.map(({ hlc }) => hlc);
  assert.equal(times.length, 2);
  assert.ok(times[0]! > toHlc(START + 30_000) && times[1]! > times[0]!);
  await log.device.db.collection('notes').set('m', 'three');
  while (await log.device.replica.drain());
  const [, last] = (await log.device.replica.tables.outbox.last()) ?? [];
  const { transactions } = decodeBody(decodeOutbox(last as Uint8Array).body);
  assert.ok(transactions[0]!.hlc > times[1]!);
});

rule('a write that lost is a conflict, unless the winner knew it', async (log) => {
  await log.device.db.collection('notes').set('k', 'mine');
  await log.device.exchange();
  const position = log.server.records.at(-1)?.position as number;
  log.write({ device: A, base: position, at: START + 1 }, set('k', 'knew it'));
  await log.get();
  assert.equal(log.device.conflicts.length, 0);
  await log.device.db.collection('notes').set('k', 'mine again');
  await log.device.exchange();
  log.write({ device: B, base: position, at: START + 1000 }, set('k', 'did not know it'));
  await log.get();
  assert.deepEqual(
    log.device.conflicts.map(({ mine, theirs }) =>
      [mine, theirs].map((each) => each && valueCodecs.structured().decode(each.value)),
    ),
    [['mine again', 'did not know it']],
  );
});

rule('records that are read at once have the effect that they have one by one', async (log) => {
  const first = log.write({ device: A, at: START }, set('k', 'first'), set('l', 'first'));
  await log.get();
  log.write(
    { device: A, at: START + 1000 },
    set('k', 'second'),
    set('a', 'a'),
    set('b', 'b'),
    set('c', 'c'),
    expiring('x', 'for an hour', START + DAY_MS),
  );
  // It knew the first values only.
  log.write({ device: B, base: first, at: START }, clear(bound('a', true), undefined));
  log.write({ device: B, base: first, at: START + 2000 }, clear(bound('a', true), bound('c', true)));
  log.now += DAY_MS;
  log.write({ device: B }, set('other', 'x'));
  assert.deepEqual(await Promise.all(['k', 'l', 'a', 'b', 'c'].map((key) => log.get(key))), [
    'second',
    undefined,
    'a',
    undefined,
    'c',
  ]);
  assert.equal((await log.stamp('x'))?.isDead, true);
});

rule('a number that was applied is skipped', async (log) => {
  log.write({ device: A, at: START + 1000 }, clear());
  log.server.append(log.server.records[0]!.record, { idempotencyKey: 'again before' });
  log.write({ device: B, at: START }, set('k', 'behind the clear'));
  log.server.append(log.server.records[0]!.record, { idempotencyKey: 'again' });
  assert.equal(await log.get(), 'behind the clear');
});

rule("the index of expiries has what the log's time will end, and nothing else", async (log) => {
  const { expiring: index } = log.device.replica.tables;
  const position = log.write(
    { device: A },
    expiring('k', 'for an hour', START + 3_600_000),
    expiring('l', 'for a day', START + DAY_MS),
  );
  await log.get();
  assert.equal(await index.size, 2);
  log.write({ device: A, base: position }, set('l', 'for ever'));
  await log.get();
  assert.equal(await index.size, 1);
  // One of a newer version says nothing of the time.
  log.now = START + DAY_MS;
  log.server.append(newer(), { idempotencyKey: 'newer' });
  assert.equal((await log.stamp())?.isDead, false);
  log.write({ device: A }, set('other', 'x'));
  assert.equal((await log.stamp())?.isDead, true);
  assert.equal(await index.size, 0);
});

/** A record of a version that this one does not understand. */
function newer(): Uint8Array {
  const bytes = encodeRecord(
    { flags: 0, device: 9n, seq: 1, back: 1 },
    encodeBody({ n: 1, declared: new Map(), transactions: [] }),
  );
  bytes[0] = 2;
  new DataView(bytes.buffer).setUint32(bytes.length - 4, crc32c(bytes.subarray(0, -4)));
  return bytes;
}

rule('a check is compared with the base before its time, all of it', async (log) => {
  const hour = 3_600_000;
  const position = log.write({ device: A }, expiring('k', 'for an hour', START + hour), set('l', 'x'));
  await log.get();
  const { digests } = await log.device.replica.state();
  log.now = START + hour;
  const checked = log.write({ device: A, flags: CHECK, base: position, digests });
  assert.equal((await log.stamp())?.isDead, true);
  assert.equal(log.device.alarms.length, 0);
  const [count, sum] = (await log.device.replica.state()).digests['notes'] as readonly [number, number];
  log.write({ device: A, flags: CHECK, base: checked, digests: { notes: [count, sum + 1] } });
  await log.get();
  assert.equal(log.device.alarms[0]?.code, 'KV_REPLICATION_DIVERGED', 'the same number of other values');
});

rule('a check that does not name a collection says that it is empty', async (log) => {
  const position = log.write({ device: A }, set('k', 'x'));
  log.write({ device: A, flags: CHECK, base: position });
  await log.get();
  assert.equal(log.device.alarms[0]?.code, 'KV_REPLICATION_DIVERGED');
});

rule('parts of a transaction complete it for 90 days', async (log) => {
  const body = (n: number, key: string): Uint8Array =>
    encodeBody({
      n,
      declared: new Map([['notes', log.device.replica.tables.byName.get('notes')!.declaration]]),
      transactions: [{ base: 0, hlc: toHlc(START), ops: [set(key, 'whole')('notes')] }],
    });
  const part = (bytes: Uint8Array, index: number, left: number): Uint8Array =>
    Uint8Array.from([0, 0, 0, index, 0, 0, 0, left, ...bytes]);
  for (const [device, days, key] of [
    [A, 89, 'k'],
    [B, 91, 'l'],
  ] as const) {
    const bytes = body(1, key);
    log.append({ flags: CHUNK, device, seq: 1, back: 1 }, part(bytes.subarray(0, 10), 0, 1));
    await log.get();
    log.now += days * DAY_MS;
    log.append({ flags: CHUNK, device, seq: 2, back: 1 }, part(bytes.subarray(10), 1, 0));
    assert.equal(await log.get(key), days === 89 ? 'whole' : undefined);
    assert.equal(await log.device.replica.tables.chunks.size, 0);
  }
});

rule('of the records that have no effect the newest 256 are kept', async (log) => {
  for (let seq = 1; seq <= 260; seq++) log.append({ flags: 0, device: A, seq, back: 1 }, new Uint8Array([1, 2, 3]));
  await log.get();
  const positions = await log.device.replica.tables.aside.keys().toArray();
  assert.deepEqual([positions.length, positions[0], positions.at(-1)], [256, 5, 260]);
});

rule(
  'a history that takes the place of another has its own time, parts, declarations, and records without effect',
  async (log) => {
    log.now = START + DAY_MS;
    log.append({ flags: 0, device: B, seq: 1, back: 1 }, new Uint8Array([1, 2, 3]));
    const body = encodeBody({
      n: 1,
      declared: new Map([['notes', log.device.replica.tables.byName.get('notes')!.declaration]]),
      transactions: [{ base: 0, hlc: toHlc(START), ops: [set('part', 'x')('notes')] }],
    });
    log.append(
      { flags: CHUNK, device: A, seq: 1, back: 1 },
      Uint8Array.from([0, 0, 0, 0, 0, 0, 0, 1, ...body.subarray(0, 10)]),
    );
    log.write({ device: 6n, name: 'tasks', declaration: MERGE }, set('t', 'x'));
    await log.get();
    log.server.loseHistory(0);
    log.now = START;
    log.write({ device: 4n, name: 'tasks', declaration: MERGE.replace('"any"', '"string"') }, set('t', 'x'));
    log.append(
      { flags: CHUNK, device: A, seq: 2, back: 2 },
      Uint8Array.from([0, 0, 0, 1, 0, 0, 0, 0, ...body.subarray(10)]),
    );
    log.write({ device: 5n }, expiring('k', 'for an hour', START + 3_600_000));
    log.device.replica.reconnect();
    assert.equal((await log.stamp())?.isDead, false);
    assert.equal(await log.get('part'), undefined);
    assert.equal(await log.device.replica.tables.aside.size, 0);
    assert.equal((await log.device.replica.state()).declared['tasks'], MERGE.replace('"any"', '"string"'));
  },
);

rule('what comes after a loss arrives', async (log) => {
  const position = log.write({ device: A }, set('k', 'x'));
  await log.get();
  log.server.loseHistory(0);
  log.device.replica.reconnect();
  await log.device.exchange();
  log.write({ device: B, base: position }, set('l', 'since'));
  assert.deepEqual([await log.get('k'), await log.get('l')], ['x', 'since']);
});

rule('nothing stays pending when a record has come back', async (log) => {
  const notes = log.device.db.collection('notes');
  await notes.setMany([
    ['k', 1],
    ['l', 1],
    ['m', 1],
  ]);
  await log.device.exchange();
  await notes.delete('l');
  await log.device.exchange();
  await notes.clear();
  await log.device.exchange();
  for await (const [, row] of log.device.replica.tables.byName.get('notes')!.rows.entries())
    assert.equal(decodeRow(row).pending, undefined);
});

rule("an entry that another device wrote with another expiry has that one's", async (log) => {
  await log.device.db.collection('notes').set('k', 'the same', { expireAt: START + 200 * 365 * DAY_MS });
  while (await log.device.replica.drain());
  log.write({ device: A, at: START + 1000 }, expiring('k', 'the same', START + 100 * 365 * DAY_MS));
  await log.device.exchange();
  assert.equal((await log.device.db.collection('notes').getEntry('k'))?.expiresAt, START + 100 * 365 * DAY_MS);
});

rule('a check says nothing to a device that has set records of a newer version aside', async (log) => {
  const position = log.server.append(newer(), { idempotencyKey: 'newer' });
  log.write({ device: A, flags: CHECK, base: position, digests: { notes: [1, 1] } });
  await log.get();
  assert.deepEqual(
    log.device.alarms.map(({ code }) => code),
    ['KV_VERSION_UNSUPPORTED'],
  );
});

rule('what is pending is counted until it has come back', async ({ device }) => {
  const counts = [await device.replica.pending()];
  await device.db.collection('notes').set('k', 1);
  while (await device.replica.drain());
  counts.push(await device.replica.pending());
  await device.exchange();
  counts.push(await device.replica.pending());
  assert.deepEqual(counts, [0, 1, 0]);
});
