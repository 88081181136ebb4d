// Programs that know different collections, on one file in turn and on one log: what a program does not
// know it keeps.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keyCodecs } from 'mangrove-kv';
import { MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import { decodeRow } from '../src/row.ts';
import { runStrict } from '../src/strict.ts';
import { Device, converge } from './device.ts';
import { cutOff, equal, publish, reconnect, stopAll } from './helpers.ts';

const OLD = { collections: { notes: {} } } as const;
const NEW = { collections: { notes: {}, tasks: {}, accounts: { mode: 'strict' } } } as const;

const tasks = ({ db }: Device) => db.collection<string, string>('tasks');
const entriesOf = async (device: Device): Promise<unknown> =>
  Object.fromEntries(await tasks(device).entries().toArray());

for (const feed of [true, false]) {
  test(`an old program that leads for a while on a file loses nothing of what it does not know${feed ? '' : ', without a feed'}`, async () => {
    const server = new MemoryServer();
    const other = await Device.start(server, NEW);
    const first = await Device.start(server, { ...NEW, feed });
    await tasks(first).setMany([
      ['t0', 'before'],
      ['gone', 'before'],
      ['both', 'before'],
    ]);
    await runStrict(first.replica, (tx) => tx.collection('accounts').set('x', 1), {});
    await converge([first, other]);
    const old = await first.restart(server, { ...OLD, feed });
    await tasks(other).set('t1', 'elsewhere');
    await tasks(other).set('both', 'elsewhere');
    await tasks(other).delete('gone');
    await runStrict(other.replica, (tx) => tx.collection('accounts').set('x', 2), {});
    await other.exchange();
    // Another tab has the new program, while this one replicates.
    await tasks(old).set('t2', 'in the new tab');
    await old.db.collection('notes').set('n', 1);
    await converge([old, other]);
    await tasks(old).set('t3', 'in the new tab');
    await converge([old, other]);
    // Without a feed only a program that knows the collection finds what was written between two starts.
    if (feed) assert.equal(await tasks(other).get('t2'), 'in the new tab', 'it is sent while the old program leads');
    assert.equal(await tasks(other).get('t3'), 'in the new tab');
    const again = await old.restart(server, { ...NEW, feed });
    await converge([again, other]);
    await equal([again, other]);
    assert.deepEqual(await entriesOf(again), {
      both: 'elsewhere',
      t0: 'before',
      t1: 'elsewhere',
      t2: 'in the new tab',
      t3: 'in the new tab',
    });
    assert.equal(await again.db.collection('accounts').get('x'), 2);
    assert.deepEqual(
      [again, other].flatMap(({ alarms }) => alarms),
      [],
    );
    await stopAll([again, other]);
  });
}

test('an old program that compacts keeps what it does not know, for new devices and for those that were away', async () => {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const away = await Device.start(server, { ...NEW, snapshots });
  await tasks(away).setMany(Array.from({ length: 5 }, (_, at) => [`t${at}`, `task ${at}`] as const));
  await tasks(away).set('soon', 'x', { expireIn: 3_600_000 });
  await runStrict(away.replica, (tx) => tx.collection('accounts').set('x', 1), {});
  await away.exchange();
  const old = await Device.start(server, { ...OLD, snapshots });
  for (let round = 0; round < 4; round++) {
    await old.db.collection('notes').set('round', round);
    await old.replica.compact();
  }
  assert.ok((server.records[0]?.position ?? 0) > (await away.replica.state()).cursor.position, 'the log begins later');
  const fresh = await Device.start(server, { ...NEW, snapshots });
  await reconnect([away, fresh]);
  await equal([away, fresh]);
  assert.equal(await tasks(fresh).size, 6);
  assert.equal(await fresh.db.collection('accounts').get('x'), 1);
  // What it only knows of a snapshot is there, too, once it knows the collections.
  const updated = await (await old.restart(server, { ...OLD, snapshots })).restart(server, { ...NEW, snapshots });
  await converge([updated, fresh]);
  await equal([updated, fresh]);
  await stopAll([away, fresh, updated]);
});

test('what other programs wrote while an old one led is sent, even if that had no time for it', async () => {
  const server = new MemoryServer();
  const other = await Device.start(server, NEW);
  await tasks(other).set('both', 'first');
  const first = await Device.start(server, NEW);
  await converge([other, first]);
  const old = await first.restart(server, OLD);
  await tasks(other).set('both', 'elsewhere');
  await converge([other, old]);
  await old.db.transaction(async (tx) => {
    await tx.collection(tasks(old)).set('both', 'in the new tab');
    await tx.collection(tasks(old)).set('new', 'in the new tab');
  });
  const again = await old.restart(server, NEW);
  await converge([again, other]);
  await equal([again, other]);
  assert.deepEqual(await entriesOf(other), { both: 'in the new tab', new: 'in the new tab' });
  await stopAll([again, other]);
});

for (const how of ['clear and set', 'delete and set']) {
  test(`a device that adds a collection to the option keeps the entries of a transaction of ${how}`, async () => {
    const server = new MemoryServer();
    const [a, d] = [await Device.start(server, OLD), await Device.start(server, OLD)];
    const notes = a.db.collection<string, string>('notes');
    await notes.setMany([
      ['k', 'old'],
      ['l', 'old'],
      ['m', 'old'],
    ]);
    await a.exchange();
    await a.db.transaction(async (tx) => {
      const rows = tx.collection(notes);
      if (how === 'clear and set') await rows.clear();
      else await rows.deleteMany(['k', 'l', 'm']);
      await rows.setMany([
        ['k', 'new'],
        ['l', 'new'],
      ]);
    });
    await converge([a, d]);
    const more = await d.restart(server, NEW);
    await converge([more, a]);
    assert.deepEqual(await more.db.collection('notes').entries().toArray(), [
      ['k', 'new'],
      ['l', 'new'],
    ]);
    assert.deepEqual(await notes.entries().toArray(), [
      ['k', 'new'],
      ['l', 'new'],
    ]);
    await stopAll([a, more]);
  });
}

test('entries that were there before a collection is replicated meet those of the log', async () => {
  const server = new MemoryServer();
  const other = await Device.start(server, NEW);
  await tasks(other).setMany([
    ['both', 'the log'],
    ['log', 'the log'],
    ['same', 'same'],
  ]);
  const old = await Device.start(server, OLD);
  await tasks(old).setMany([
    ['both', 'local'],
    ['local', 'local'],
    ['same', 'same'],
  ]);
  await converge([other, old]);
  assert.equal(await tasks(other).get('local'), undefined, 'not replicated yet');
  const writerOf = async (key: string): Promise<bigint | undefined> => {
    const { rows } = other.replica.tables.byName.get('tasks')!;
    return decodeRow((await rows.get(keyCodecs.any.encode(key).slice())) as Uint8Array).base?.stamp.device;
  };
  const writer = await writerOf('same');
  const updated = await old.restart(server, NEW);
  await converge([updated, other]);
  await equal([updated, other]);
  assert.deepEqual(await entriesOf(other), { both: 'local', local: 'local', log: 'the log', same: 'same' });
  assert.equal(await writerOf('same'), writer, 'what the log had already is not sent');
  await stopAll([updated, other]);
});

test('lost history puts back what this program does not know', async () => {
  const server = new MemoryServer();
  const writer = await Device.start(server, NEW);
  await writer.db.collection('notes').set('n', 0);
  const old = await Device.start(server, OLD);
  await converge([writer, old]);
  await tasks(writer).setMany([
    ['a', '1'],
    ['b', '2'],
  ]);
  await tasks(writer).delete('a');
  await converge([writer, old]);
  // The one that knows the collection never comes back.
  await writer.stop();
  server.loseHistory(1);
  await reconnect([old]);
  const fresh = await Device.start(server, NEW);
  await converge([fresh, old]);
  assert.deepEqual(await entriesOf(fresh), { b: '2' });
  await stopAll([fresh, old]);
});

test('a program that does not name a collection which an earlier one on the file did compacts all of it', async () => {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const first = await Device.start(server, { ...NEW, snapshots });
  await tasks(first).setMany([
    ['a', 'one'],
    ['b', 'two'],
  ]);
  await runStrict(first.replica, (tx) => tx.collection('accounts').set('x', 1), {});
  await first.exchange();
  const old = await first.restart(server, { ...OLD, snapshots });
  await old.db.collection('notes').set('n', 1);
  assert.notEqual(await old.replica.compact(), undefined);
  await old.db.collection('notes').set('n', 2);
  assert.notEqual(await old.replica.compact(), undefined);
  const fresh = await Device.start(server, { ...NEW, snapshots });
  await converge([fresh, old]);
  assert.deepEqual(await entriesOf(fresh), { a: 'one', b: 'two' });
  assert.equal(await fresh.db.collection('accounts').get('x'), 1);
  // Lost history: what the old program cannot see it puts back all the same.
  server.loseHistory(0);
  await reconnect([old]);
  const later = await Device.start(server, { ...NEW, snapshots });
  await converge([later, old]);
  assert.deepEqual(await entriesOf(later), { a: 'one', b: 'two' });
  await stopAll([fresh, old, later]);
});

for (const how of ['set', 'delete'] as const) {
  test(`a ${how} is not undone by the comparison that a new collection needs, which began before it`, async () => {
    const server = new MemoryServer();
    const [other, first] = [await Device.start(server, NEW), await Device.start(server, NEW)];
    await tasks(other).set('k', 'before');
    await converge([other, first]);
    const old = await first.restart(server, OLD);
    await tasks(other).set('k', 'elsewhere');
    await converge([other, old]);
    const again = await old.restart(server, NEW);
    const { db } = again;
    const [changes, snapshot] = [db.changes.bind(db), db.snapshot.bind(db)];
    let [isComparing, isWritten] = [false, false];
    db.changes = ((options: Parameters<typeof changes>[0]) => {
      isComparing ||= options?.since === undefined;
      return changes(options);
    }) as typeof db.changes;
    db.snapshot = () => {
      const taken = snapshot();
      if (!isComparing || isWritten) return taken;
      isWritten = true;
      void (how === 'set' ? tasks(again).set('k', 'mine') : tasks(again).delete('k'));
      return taken;
    };
    await converge([again, other]);
    assert.ok(isWritten);
    await equal([again, other]);
    assert.deepEqual(await entriesOf(other), how === 'set' ? { k: 'mine' } : {});
    await stopAll([again, other]);
  });
}

test('a write that came back while the log is read once more is not sent again by a program that compares', async () => {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const [first, other] = [
    await Device.start(server, { ...OLD, snapshots }),
    await Device.start(server, { ...OLD, snapshots }),
  ];
  await first.db.collection('notes').set('k', 'old');
  await converge([first, other]);
  for (let round = 0; round < 2; round++) await cutOff(server, other);
  await publish(first, 'k');
  // The log begins with a snapshot; behind it comes the write, and the end of the log is not seen.
  while ((await first.replica.state()).cursor.position < server.records.at(-1)!.position) await first.replica.pull();
  assert.notEqual((await first.replica.state()).rejoin, undefined);
  const sent = server.records.length;
  const again = await first.restart(server, { ...NEW, snapshots });
  await converge([again, other]);
  assert.equal(server.records.length, sent);
  assert.equal(await other.db.collection('notes').get('k'), 'k');
  await stopAll([again, other]);
});
