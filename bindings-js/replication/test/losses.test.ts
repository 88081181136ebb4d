// What the log has lost, and what comes again or is put back.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryLog, MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import { UNBASED, decodeBody, REPAIR, STRICT, decodeRecord, encodeBody, encodeRecord } from '../src/record.ts';
import { logUnavailable } from '../src/remote-log.ts';
import type { LoggedRecord } from '../src/remote-log.ts';
import { decodeOutbox } from '../src/state.ts';
import { runStrict } from '../src/strict.ts';
import { Device, converge } from './device.ts';
import type { DeviceOptions } from './device.ts';
import { cutOff, reconnect } from './helpers.ts';
import { keyCodecs } from 'mangrove-kv';

const notes = ({ db }: Device) => db.collection<string, unknown>('notes');
const digestsOf = async ({ replica }: Device): Promise<unknown> => (await replica.state()).digests;
async function send(device: Device): Promise<void> {
  while (await device.replica.drain());
  while (await device.replica.publish());
}
/** Only what is in the middle. */
const lose = (server: MemoryServer, index: number): void => void (server.records as unknown[]).splice(index, 1);

test('a write that comes again does not win against one that knew it', async () => {
  // Which one wins depends on the devices' ids.
  for (let round = 0; round < 16; round++) {
    const server = new MemoryServer();
    const [a, b] = [await Device.start(server), await Device.start(server, { clock: () => Date.now() + 1000 })];
    await converge([a, b]);
    await notes(b).set('k', 'first');
    await send(b);
    await a.exchange();
    await notes(a).set('k', 'knew it');
    while (await a.replica.drain());
    lose(server, 0);
    await converge([b, a]);
    assert.deepEqual([await notes(a).get('k'), await notes(b).get('k')], ['knew it', 'knew it']);
  }
});

test('a write that comes again leaves the same base', async () => {
  const server = new MemoryServer();
  const [a, b] = [await Device.start(server), await Device.start(server)];
  await converge([a, b]);
  await notes(b).set('k', 1);
  await send(b);
  await a.exchange();
  lose(server, 0);
  await converge([b, a]);
  assert.deepEqual(await digestsOf(a), await digestsOf(b));
});

test('a snapshot does not confirm what the log has lost', async () => {
  const server = new MemoryServer();
  const options: DeviceOptions = { snapshots: new MemorySnapshotStore() };
  const [a, b] = [await Device.start(server, options), await Device.start(server, options)];
  await a.exchange();
  await notes(a).set('k', 1);
  await send(a);
  await b.exchange();
  await b.replica.compact();
  server.loseHistory(0);
  await reconnect([a, b]);
  await notes(b).set('k', 2);
  await converge([b, a, b]);
  assert.equal(await notes(a).get('k'), 2);
});

test('what is left of the log is read, although a snapshot has it', async () => {
  const server = new MemoryServer();
  const options: DeviceOptions = { snapshots: new MemorySnapshotStore() };
  const [a, b] = [await Device.start(server, options), await Device.start(server, options)];
  for (const key of ['k', 'l']) {
    await notes(a).set(key, 1);
    await a.exchange();
  }
  await b.exchange();
  await b.replica.compact();
  server.loseHistory((server.records.at(-1)?.position ?? 0) - 1);
  await reconnect([a, b]);
  const fresh = await Device.start(server, options);
  await converge([fresh, a, b]);
  assert.deepEqual(await digestsOf(a), await digestsOf(fresh));
});

test('a clear reaches what is sent again behind it', async () => {
  const server = new MemoryServer();
  const a = await Device.start(server);
  await a.exchange();
  await notes(a).set('k', 1);
  await send(a);
  await notes(a).clear();
  await send(a);
  lose(server, 0);
  await converge([a]);
  assert.equal(await notes(a).get('k'), undefined);
});

test('a clear reaches what is put back behind it', async () => {
  const server = new MemoryServer();
  const [a, b] = [await Device.start(server), await Device.start(server)];
  await notes(a).set('k', 1);
  await a.exchange();
  await b.exchange();
  await notes(b).clear();
  while (await b.replica.drain());
  server.loseHistory(0);
  await reconnect([b]);
  await reconnect([a, b]);
  assert.deepEqual([await notes(a).get('k'), await notes(b).get('k')], [undefined, undefined]);
});

for (const what of ['compacts', 'puts back what the log has lost']) {
  test(`a program that does not know a collection ${what}, where one led that does`, async () => {
    const server = new MemoryServer();
    const snapshots = new MemorySnapshotStore();
    const known: DeviceOptions = { collections: { notes: {}, tasks: {} }, snapshots };
    const first = await Device.start(server, known);
    await first.db.collection('tasks').set('t', 1);
    await first.exchange();
    const old = await first.restart(server, { snapshots });
    await old.exchange();
    if (what === 'compacts') await old.replica.compact();
    else {
      server.loseHistory(0);
      await reconnect([old]);
      const fresh = await Device.start(server, known);
      await converge([fresh, old]);
      assert.equal(await fresh.db.collection('tasks').get('t'), 1);
    }
  });
}

test('a part that came back is not lost because the next one was not sent yet', async () => {
  const a = await Device.start(new MemoryServer(), { isInMemory: true });
  await a.exchange();
  await a.db.transaction(async (tx) => {
    for (let key = 0; key < 20; key++)
      await tx.collection(notes(a)).set(
        `k${key}`,
        Array.from({ length: 30_000 }, () => Math.random()),
      );
  });
  while (await a.replica.drain());
  const before = await a.replica.tables.outbox.keys().toArray();
  await a.replica.publish();
  while (await a.replica.pull());
  assert.deepEqual(await a.replica.tables.outbox.keys().toArray(), before);
});

test('a commit from before a loss that was captured after it has no base of the history that was lost', async () => {
  const server = new MemoryServer();
  const a = await Device.start(server);
  for (let key = 0; key < 5; key++) {
    await notes(a).set(`x${key}`, key);
    await a.exchange();
  }
  await notes(a).set('y', 1);
  await a.exchange();
  await notes(a).set('k', 'not captured');
  server.loseHistory(0);
  a.replica.reconnect();
  while (await a.replica.pull());
  while (await a.replica.drain());
  const [, bytes] = (await a.replica.tables.outbox.first()) ?? [0, new Uint8Array(0)];
  const { flags, body } = decodeOutbox(bytes);
  assert.ok((flags & UNBASED) !== 0 || decodeBody(body).transactions.every(({ base }) => base === 0));
});

test('an entry comes back when a clock that was ahead is right, although commits were captured meanwhile', async () => {
  const real = Date.now;
  let ahead = 0;
  const server = new MemoryServer({ serverTime: () => real() });
  const [a, b] = [await Device.start(server), await Device.start(server, { clock: () => real() + ahead })];
  await notes(a).set('k', 'for an hour', { expireIn: 3_600_000 });
  await converge([a, b]);
  ahead = 7_200_000;
  Date.now = () => real() + ahead;
  try {
    await b.db.purgeExpired();
    await notes(b).set('z', 1);
    await send(b);
  } finally {
    Date.now = real;
    ahead = 0;
  }
  await converge([a, b]);
  const again = await b.restart(server, {});
  await converge([again, a]);
  assert.equal(await notes(again).get('k'), 'for an hour');
});

test('a strict transaction that the log lost and another device put back does not run again', async () => {
  const server = new MemoryServer();
  const options: DeviceOptions = { collections: { accounts: { mode: 'strict' } } };
  let isReplyLost = false;
  class Log extends MemoryLog {
    override async append(...args: Parameters<MemoryLog['append']>): ReturnType<MemoryLog['append']> {
      const position = await super.append(...args);
      if (isReplyLost) throw logUnavailable('the reply is lost');
      return position;
    }
  }
  const [a, b] = [
    await Device.start(server, { ...options, log: new Log(server) }),
    await Device.start(server, options),
  ];
  await runStrict(b.replica, (tx) => tx.collection<string, number>('accounts').set('x', 1), {});
  await a.exchange();
  const sent = {};
  const add = () =>
    runStrict(
      a.replica,
      (tx) => tx.collection<string, number>('accounts').update('x', (old = 0) => old + 10),
      {},
      sent,
    );
  isReplyLost = true;
  await assert.rejects(add());
  isReplyLost = false;
  await b.exchange();
  server.loseHistory((server.records.at(-1)?.position ?? 0) - 1);
  await reconnect([b]);
  a.replica.reconnect();
  await add().catch(() => undefined);
  await converge([a, b]);
  assert.equal(await b.db.collection<string, number>('accounts').get('x'), 11);
});

test('two entries that a loss gave one key of a unique index are both there, and one of them is in the index', async () => {
  const server = new MemoryServer();
  const indexes = { byEmail: { key: ({ email }: { readonly email: string }) => email, unique: true } } as const;
  const options = { collections: { users: { mode: 'strict', indexes } } } as unknown as DeviceOptions;
  const users = ({ db }: Device) =>
    db.collection<string, { readonly email: string }, { byEmail: string }>('users', { indexes });
  const claim = (device: Device, key: string, email: string): Promise<void> =>
    runStrict(
      device.replica,
      (tx) => tx.collection(users(device) as never).set(key as never, { email } as never),
      {},
    ).then(() => undefined);
  const [a, b] = [await Device.start(server, options), await Device.start(server, options)];
  await claim(a, 'zero', 'zero@x');
  await converge([a, b]);
  const kept = server.records.at(-1)?.position as number;
  await claim(a, 'ada', 'ada@x');
  server.loseHistory(kept);
  b.replica.reconnect();
  await claim(b, 'eve', 'ada@x');
  await claim(b, "eve's", 'other@x');
  await reconnect([a, b]);
  const later = await Device.start(server, options);
  await converge([a, b, later]);
  await claim(later, 'bob', 'bob@x');
  await converge([a, b, later]);
  for (const device of [a, b, later]) {
    assert.deepEqual(await users(device).keys().toArray(), ['ada', 'bob', 'eve', "eve's", 'zero']);
    const inIndex = await users(device).index('byEmail').keys().toArray();
    assert.equal(inIndex.length, 4);
    assert.equal(await users(device).index('byEmail').count({ eq: 'ada@x' }), 1);
    assert.ok(
      device.alarms.some(
        ({ code, message }) => code === 'KV_UNIQUE' && message.includes('"ada@x"') && message.includes('"byEmail"'),
      ),
      'the entry is named',
    );
    assert.deepEqual((await device.db.verify()).problems, []);
  }
  await assert.rejects(claim(a, 'ada', 'bob@x'), { code: 'KV_UNIQUE' });
  await claim(a, 'ada', 'ada@new');
  await converge([a, b, later]);
  await claim(b, 'eve', 'ada@x');
  await converge([a, b, later]);
  for (const device of [a, b, later]) assert.equal(await users(device).index('byEmail').count(), 5);
  await Promise.all([a, b, later].map((device) => device.stop()));
});

test('what the log has lost is put back, although the log was cut off behind it since', async () => {
  const server = new MemoryServer();
  const options: DeviceOptions = { snapshots: new MemorySnapshotStore() };
  const [a, b] = [await Device.start(server, options), await Device.start(server, options)];
  await notes(b).set('first', 1);
  await converge([b, a]);
  const kept = server.records.at(-1)?.position as number;
  await notes(a).set('k', 'of a');
  await send(a);
  await a.exchange();
  server.loseHistory(kept);
  b.replica.reconnect();
  // Records of another history are where those of `a` were, and are removed.
  for (let round = 0; (server.records[0]?.position ?? 0) <= kept + 1; round++) {
    assert.ok(round < 9);
    await notes(b).set('round', round);
    await b.replica.compact();
  }
  await reconnect([a, b]);
  for (const device of [a, b]) assert.equal(await notes(device).get('k'), 'of a');
  assert.deepEqual(a.repairs.length, 1);
  assert.deepEqual(await digestsOf(a), await digestsOf(b));
  await Promise.all([a, b].map((device) => device.stop()));
});

test('a snapshot of records that the log has lost neither cuts the log off nor keeps others from being made', async () => {
  const server = new MemoryServer();
  const options: DeviceOptions = { snapshots: new MemorySnapshotStore() };
  const [a, b] = [await Device.start(server, options), await Device.start(server, options)];
  await notes(b).set('first', 1);
  await converge([b, a]);
  const kept = server.records.at(-1)?.position as number;
  for (let round = 0; round < 5; round++) await notes(a).set('k', round), await a.exchange();
  await a.replica.compact();
  await a.stop();
  server.loseHistory(kept);
  b.replica.reconnect();
  await notes(b).set('other', 1);
  await b.exchange();
  assert.ok(server.records.length < 5, 'the log is shorter than what the snapshot has');
  assert.ok(await b.replica.compact(), 'the newest snapshot lacks what the log has');
  assert.equal(server.records[0]?.position, 1, 'the snapshot before has not what is at the front of the log');
  const later = await Device.start(server, options);
  await converge([b, later]);
  assert.deepEqual(await digestsOf(later), await digestsOf(b));
  assert.equal(await notes(later).get('k'), 4, 'it was put back');
  await Promise.all([b, later].map((device) => device.stop()));
});

test('a record in which a key is written twice does not win against what knew it when it comes again', async () => {
  for (let round = 0; round < 16; round++) {
    const server = new MemoryServer();
    const [a, b] = [await Device.start(server), await Device.start(server, { clock: () => Date.now() + 1000 })];
    await converge([a, b]);
    await notes(b).set('k', 'first');
    await notes(b).set('k', 'second');
    await send(b);
    assert.equal(server.records.length, 1);
    await a.exchange();
    await notes(a).set('k', 'knew it');
    while (await a.replica.drain());
    lose(server, 0);
    await converge([b, a]);
    assert.deepEqual([await notes(a).get('k'), await notes(b).get('k')], ['knew it', 'knew it']);
  }
});

test('a clear that comes again after a loss does not win against what knew it', async () => {
  for (let round = 0; round < 16; round++) {
    const server = new MemoryServer();
    const [a, b] = [await Device.start(server), await Device.start(server)];
    await notes(a).set('k', 1);
    await converge([a, b]);
    await notes(b).clear();
    await send(b);
    await a.exchange();
    await notes(a).set('k', 'knew it');
    await a.exchange();
    server.loseHistory(0);
    await reconnect([a]);
    await reconnect([b, a]);
    assert.deepEqual([await notes(a).get('k'), await notes(b).get('k')], ['knew it', 'knew it']);
  }
});

test('a write over what a clear finds no more wins against that clear', async () => {
  const server = new MemoryServer();
  const [a, b] = [await Device.start(server), await Device.start(server, { clock: () => Date.now() + 1000 })];
  await notes(a).set('k', 1);
  await converge([a, b]);
  await notes(b).clear();
  while (await b.replica.drain());
  server.loseHistory(0);
  b.replica.reconnect();
  while (await b.replica.pull());
  await b.replica.publish();
  a.replica.reconnect();
  while (await a.replica.pull());
  await notes(a).set('k', 'knew it');
  await a.exchange();
  await converge([b, a]);
  assert.deepEqual([await notes(a).get('k'), await notes(b).get('k')], ['knew it', 'knew it']);
});

test('a snapshot does not confirm a transaction whose first parts were forgotten', async () => {
  let now = Date.now();
  const server = new MemoryServer({ serverTime: () => now });
  const options: DeviceOptions = { snapshots: new MemorySnapshotStore(), clock: () => now };
  const [a, b] = [await Device.start(server, options), await Device.start(server, options)];
  await converge([a, b]);
  await a.db.transaction(async (tx) => {
    for (let key = 0; key < 20; key++)
      await tx.collection(notes(a)).set(
        `k${key}`,
        Array.from({ length: 10_000 }, () => Math.random()),
      );
  });
  while (await a.replica.drain());
  await a.replica.publish();
  assert.equal(server.records.length, 1);
  await b.exchange();
  now += 100 * 86_400_000;
  await notes(b).set('z', 1);
  await b.exchange();
  while (await a.replica.publish());
  await b.exchange();
  assert.equal(await notes(b).has('k7'), false);
  await cutOff(server, b);
  await reconnect([a, b]);
  assert.equal(await notes(b).has('k7'), true);
});

test('a snapshot that names one before it names one that the log has', async () => {
  const server = new MemoryServer();
  const store = new MemorySnapshotStore();
  const options: DeviceOptions = { snapshots: store };
  const [a, c] = [await Device.start(server, options), await Device.start(server, options)];
  const positions = (): number[] => server.records.map(({ position }) => position);
  await notes(a).set('k', 1);
  await converge([a, c]);
  await notes(a).set('l', 1);
  await a.exchange();
  await a.replica.compact();
  server.loseHistory(positions()[0] as number);
  await reconnect([a]);
  for (const key of ['m', 'n', 'o', 'p']) {
    await notes(a).set(key, 1);
    await a.exchange();
  }
  await converge([a, c]);
  const at = positions().at(-1) as number;
  await notes(a).set('q', 1);
  await a.exchange();
  const first = positions()[0];
  await a.replica.compact();
  // What the log has lost is no base: it is not kept, and nothing is cut off for it.
  assert.equal((await store.list('snapshot/')).length, 1);
  assert.equal(positions()[0], first);
  server.loseHistory(at);
  await reconnect([a]);
  await reconnect([a, c]);
  assert.deepEqual(await digestsOf(a), await digestsOf(c));
});

test('a damaged answer is no loss: the device stays who it is', async () => {
  const server = new MemoryServer();
  let isDamaged = false;
  class DamagingLog extends MemoryLog {
    override async at(position: number): Promise<LoggedRecord | undefined> {
      const found = await super.at(position);
      if (!isDamaged || found === undefined) return found;
      isDamaged = false;
      return { ...found, record: found.record.slice(0, -1) };
    }
  }
  const a = await Device.start(server, { log: new DamagingLog(server) });
  await notes(a).set('k', 1);
  await a.exchange();
  const { device } = await a.replica.state();
  isDamaged = true;
  await reconnect([a]);
  assert.equal(isDamaged, false);
  assert.equal((await a.replica.state()).device, device);
  assert.deepEqual(a.repairs, []);
  await a.stop();
});

for (const how of ['delete', 'clear'] as const) {
  test(`a ${how} while the log is read once more reaches what is put back behind it`, async () => {
    const server = new MemoryServer();
    const [a, b] = [await Device.start(server), await Device.start(server)];
    await notes(a).set('k', 1);
    await converge([a, b]);
    server.loseHistory(0);
    const fresh = await Device.start(server);
    await notes(fresh).set('x', 1);
    await fresh.exchange();
    a.replica.reconnect();
    await a.replica.pull();
    assert.equal((await a.replica.state()).rejoin, 'lost', 'it has not seen the end of the log');
    if (how === 'delete') await notes(a).delete('k');
    else await notes(a).clear({ prefix: 'k' });
    while (await a.replica.drain());
    await a.exchange();
    await reconnect([b]);
    await converge([a, b]);
    assert.deepEqual([await notes(a).keys().toArray(), await notes(b).keys().toArray()], [['x'], ['x']]);
  });
}

test('what is put back keeps its expiry', async () => {
  const server = new MemoryServer();
  const a = await Device.start(server);
  await notes(a).set('k', 'for an hour', { expireIn: 3_600_000 });
  await a.exchange();
  const { expiresAt } = (await notes(a).getEntry('k')) ?? {};
  server.loseHistory(0);
  await reconnect([a]);
  const fresh = await Device.start(server);
  await fresh.exchange();
  assert.ok(expiresAt !== undefined);
  assert.equal((await notes(fresh).getEntry('k'))?.expiresAt, expiresAt);
});

test('an entry whose value came into the log again with another expiry has that', async () => {
  const server = new MemoryServer();
  const a = await Device.start(server);
  await notes(a).set('k', 'the same', { expireIn: 3_600_000 });
  await a.exchange();
  server.loseHistory(0);
  const fresh = await Device.start(server, { clock: () => Date.now() + 1000 });
  await notes(fresh).set('k', 'the same', { expireIn: 7_200_000 });
  await fresh.exchange();
  await reconnect([a]);
  assert.equal((await notes(a).getEntry('k'))?.expiresAt, (await notes(fresh).getEntry('k'))?.expiresAt);
});

test('what the log still has is not put back, and a device that puts something back has another id', async () => {
  const server = new MemoryServer();
  const [a, b] = [await Device.start(server), await Device.start(server)];
  for (const key of ['k', 'l', 'm']) {
    await notes(a).set(key, 1);
    await a.exchange();
  }
  await b.exchange();
  const { device } = await b.replica.state();
  server.loseHistory(2);
  await reconnect([b]);
  const { header, body } = decodeRecord(server.records[2]!.record);
  assert.equal(header.flags & REPAIR, REPAIR);
  const keys = decodeBody(body).transactions.flatMap(({ ops }) =>
    ops.map((op) => op.type !== 'clear' && keyCodecs.any.decode(op.key)),
  );
  assert.deepEqual(keys, ['m']);
  assert.notEqual((await b.replica.state()).device, device);
  // Both go on.
  await reconnect([a]);
  await notes(a).set('n', 1);
  await converge([a, b]);
  assert.deepEqual(await notes(b).keys().toArray(), ['k', 'l', 'm', 'n']);
});

test('what a snapshot has and the log has lost is put back by a device that never read it', async () => {
  const server = new MemoryServer();
  const options: DeviceOptions = { snapshots: new MemorySnapshotStore() };
  const [a, behind] = [await Device.start(server, options), await Device.start(server, options)];
  await notes(a).set('k', 1);
  await converge([a, behind]);
  await notes(a).set('l', 1);
  await a.replica.compact();
  server.loseHistory(0);
  await reconnect([behind]);
  assert.deepEqual(await notes(behind).keys().toArray(), ['k', 'l']);
  const fresh = await Device.start(server, options);
  await fresh.exchange();
  assert.deepEqual(await notes(fresh).keys().toArray(), ['k', 'l']);
});

test("a strict record that was on its way when the history was lost is nobody's to wait for", async () => {
  const server = new MemoryServer();
  let isDown = false;
  class Log extends MemoryLog {
    override async append(...args: Parameters<MemoryLog['append']>): ReturnType<MemoryLog['append']> {
      if (isDown) throw logUnavailable('no answer');
      return super.append(...args);
    }
  }
  const a = await Device.start(server, {
    collections: { notes: {}, accounts: { mode: 'strict' } },
    log: new Log(server),
  });
  await notes(a).set('k', 1);
  await a.exchange();
  isDown = true;
  const record = await a.replica.offer(STRICT, [], (await a.replica.state()).cursor.position);
  assert.ok(record);
  await assert.rejects(a.replica.outcomeOf(record), { code: 'KV_LOG_UNAVAILABLE' });
  isDown = false;
  server.loseHistory(0);
  a.replica.reconnect();
  await assert.rejects(a.replica.outcomeOf(record), { code: 'KV_CONFLICT' });
  await a.exchange();
  assert.equal(await a.replica.pending(), 0);
  assert.ok(server.records.every((each) => (decodeRecord(each.record).header.flags & STRICT) === 0));
});

test('a record that came into the log under an earlier id is not sent again', async () => {
  const server = new MemoryServer();
  const [a, b] = [await Device.start(server), await Device.start(server)];
  await notes(b).set('x', 1);
  await b.exchange();
  await a.exchange();
  await notes(a).set('k', 1);
  await send(a);
  // The log has another record in the place of the first one, and the second one is still there.
  const body = encodeBody({
    n: 1,
    declared: new Map([['notes', a.replica.tables.byName.get('notes')!.declaration]]),
    transactions: [
      {
        base: 0,
        hlc: 1n << 40n,
        ops: [{ type: 'delete', collection: 'notes', key: keyCodecs.any.encode('y').slice() }],
      },
    ],
  });
  (server.records as unknown as { record: Uint8Array }[])[0]!.record = encodeRecord(
    { flags: 0, device: 9n, seq: 1, back: 1 },
    body,
  );
  await reconnect([a]);
  assert.equal((await a.replica.state()).formers.length, 1);
  const written = server.records
    .map(({ record }) => decodeRecord(record))
    .filter(({ header }) => (header.flags & REPAIR) === 0)
    .flatMap(({ body }) =>
      decodeBody(body).transactions.flatMap(({ ops }) =>
        ops.map((op) => op.type !== 'clear' && keyCodecs.any.decode(op.key)),
      ),
    );
  assert.deepEqual(written, ['y', 'k']);
});

test('conflicts are kept until they are removed, those of later records, too', async () => {
  const server = new MemoryServer();
  const [a, b] = [
    await Device.start(server, { keepsConflicts: true }),
    await Device.start(server, { clock: () => Date.now() + 5000 }),
  ];
  for (const key of ['k', 'l']) {
    await notes(a).set(key, 'mine');
    await a.exchange();
    await notes(b).set(key, 'theirs');
    while (await b.replica.drain());
    await b.exchange();
    await a.exchange();
  }
  const kept = [];
  for (let next = await a.replica.nextConflict(); next !== undefined; next = await a.replica.nextConflict()) {
    kept.push(keyCodecs.any.decode(next.conflict.key));
    await a.replica.removeConflict(next.id);
  }
  assert.deepEqual(kept, ['k', 'l']);
});

test('what a loss has taken is put back, although the log is cut off while it is read once more', async () => {
  const server = new MemoryServer();
  const options: DeviceOptions = { snapshots: new MemorySnapshotStore() };
  const a = await Device.start(server, options);
  await notes(a).set('k', 1);
  await a.exchange();
  server.loseHistory(0);
  const fresh = await Device.start(server, options);
  await notes(fresh).set('x', 1);
  await fresh.exchange();
  a.replica.reconnect();
  await a.replica.pull();
  assert.equal((await a.replica.state()).rejoin, 'lost');
  await cutOff(server, fresh);
  await converge([a, fresh]);
  assert.equal(await notes(fresh).get('k'), 1);
  assert.equal(await notes(a).get('k'), 1);
});

for (const how of ['delete', 'clear'] as const) {
  test(`a ${how} past replication of a strict entry that is being put back is undone`, async () => {
    const server = new MemoryServer();
    const options = { collections: { accounts: { mode: 'strict' } } } as const;
    const [a, b] = [await Device.start(server, options), await Device.start(server, options)];
    const accounts = ({ db }: Device) => db.collection<string, number>('accounts');
    await runStrict(a.replica, (tx) => tx.collection<string, number>('accounts').set('k', 1), {});
    server.loseHistory(0);
    a.replica.reconnect();
    while (await a.replica.pull());
    assert.equal(await a.replica.pending(), 1);
    if (how === 'delete') await accounts(a).delete('k');
    else await accounts(a).clear();
    await converge([a, b]);
    assert.deepEqual(
      a.alarms.map(({ code }) => code),
      ['KV_REPLICATION_MODE'],
    );
    for (const device of [a, b]) assert.equal(await accounts(device).get('k'), 1);
    await Promise.all([a, b].map((device) => device.stop()));
  });
}

test('without a feed, a write past replication of a strict entry that is being put back is told of once, whatever restarts', async () => {
  const server = new MemoryServer();
  const options = { collections: { accounts: { mode: 'strict' } }, feed: false } as const;
  const accounts = ({ db }: Device) => db.collection<string, number>('accounts');
  let device = await Device.start(server, options);
  await runStrict(device.replica, (tx) => tx.collection<string, number>('accounts').set('k', 1), {});
  server.loseHistory(0);
  device.replica.reconnect();
  while (await device.replica.pull());
  assert.equal(await device.replica.pending(), 1);
  await accounts(device).set('k', 2);
  const alarms: string[] = [];
  for (let start = 0; start < 3; start++) {
    device = await device.restart(server, options);
    while (await device.replica.drain());
    alarms.push(...device.alarms.map(({ code }) => code));
  }
  assert.deepEqual(alarms, ['KV_REPLICATION_MODE']);
  await converge([device]);
  assert.equal(await accounts(device).get('k'), 1);
  await device.stop();
});

test('a delete that is put back and lost again stays', async () => {
  const server = new MemoryServer();
  const [a, b] = [await Device.start(server), await Device.start(server)];
  await notes(a).set('k', 1);
  await converge([a, b]);
  const { position } = (await a.replica.state()).cursor;
  await notes(a).delete('k');
  await a.exchange();
  for (let loss = 0; loss < 2; loss++) {
    server.loseHistory(position);
    for (const device of [a, b]) device.replica.reconnect();
    while (await a.replica.pull());
    assert.equal(await a.replica.pending(), 1);
    // The second loss takes what the first one has put back.
    if (loss === 0) await a.exchange();
  }
  await converge([a, b]);
  for (const device of [a, b]) assert.equal(await notes(device).get('k'), undefined);
  await Promise.all([a, b].map((device) => device.stop()));
});
