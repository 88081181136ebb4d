// Commits of the application of which the feed tells late, or never, while replication commits beside them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import { runStrict } from '../src/strict.ts';
import { Device, Disk, converge } from './device.ts';
import { collections, cutOff, equal, stopAll } from './helpers.ts';
import { Oracle } from './oracle.ts';
import { openSlow } from './slow-feed.ts';
import type { SlowFeed } from './slow-feed.ts';

type Scene = { readonly slow: SlowFeed; readonly device: Device; readonly other: Device };

/** A device that has to read a snapshot again, since the log's front is gone, and another one. */
async function withLateFeed(isFed: boolean, scene: (scene: Scene) => Promise<void>): Promise<void> {
  const server = new MemoryServer();
  const options = { snapshots: new MemorySnapshotStore(), collections };
  const [before, other] = [await Device.start(server, options), await Device.start(server, options)];
  for (const key of ['k', 'l', 'm']) await before.db.collection('notes').set(key, 1);
  await converge([before, other]);
  await cutOff(server, other);
  await before.stop();
  const slow = await openSlow(before.disk, isFed);
  const device = await Device.adopt(server, options, slow.db);
  while (await device.replica.drain());
  slow.delay = 10;
  await scene({ slow, device, other });
  slow.delay = 0;
  await converge([device, other]);
  await equal([device, other]);
  await stopAll([device, other]);
}

for (const isFed of [true, false]) {
  const feed = isFed ? 'a feed' : 'a feed in memory';

  for (const [title, left] of [
    [`of which ${feed} tells late`, Infinity],
    [`that ${feed} loses behind one that it has told`, 1],
  ] as const) {
    test(`a rereading does not undo commits ${title}, whenever they are made`, async () => {
      for (let [at, isOver] = [0, false]; !isOver; at++) {
        await withLateFeed(isFed, async ({ device, other, slow }) => {
          let count = 0;
          slow.onTransaction = async () => {
            if (count++ !== at) return;
            slow.left = left;
            const notes = slow.db.collection('notes');
            await notes.delete('k');
            await notes.set('l', 2);
            await notes.delete('m');
          };
          await device.exchange();
          isOver = count <= at;
          slow.onTransaction = async () => undefined;
          await converge([device, other]);
          for (const { db } of isOver ? [] : [device, other]) {
            const notes = db.collection('notes');
            assert.deepEqual(
              await Promise.all(['k', 'l', 'm'].map((key) => notes.get(key))),
              [undefined, 2, undefined],
              `before transaction ${at}`,
            );
          }
        });
        if (isOver) assert.ok(at > 4, `${at} transactions`);
      }
    });
  }

  test(`a strict transaction has not read a write past replication of which ${feed} tells late`, () =>
    withLateFeed(isFed, async ({ device, slow }) => {
      const { replica } = device;
      await device.exchange();
      const settle = replica.settle.bind(replica);
      let isFirst = true;
      replica.settle = async (...args) => {
        await settle(...args);
        if (isFirst) await slow.db.collection('accounts').set('a', 'past replication');
        isFirst = false;
      };
      const reads: unknown[] = [];
      await runStrict(
        replica,
        async (tx) => {
          const accounts = tx.collection<string, string>('accounts');
          reads.push(await accounts.get('a'));
          await accounts.set('b', String(reads.at(-1)));
        },
        {},
      );
      assert.deepEqual(
        [reads, await slow.db.collection('accounts').get('b')],
        [['past replication', undefined], 'undefined'],
      );
      assert.deepEqual(
        device.alarms.map(({ code }) => code),
        ['KV_REPLICATION_MODE'],
      );
    }));
}

test('what a comparison has found is sent once, although it was interrupted and the feed has it after all', async () => {
  const server = new MemoryServer();
  const storage = new Disk();
  const slow = await openSlow(storage, true);
  const device = await Device.adopt(server, {}, slow.db, storage);
  while (await device.replica.drain());
  slow.left = 0;
  const notes = slow.db.collection('notes');
  await notes.set('k', 1);
  await notes.set('l', 1);
  slow.onTransaction = async () => {
    if ((await device.replica.pending()) > 0) throw new Error('the process dies');
  };
  await assert.rejects(async () => {
    for (;;) await device.replica.drain();
  }, /the process dies/);
  const again = await device.restart(server, {});
  await again.exchange();
  const sets = new Oracle(server.records).accepted.flatMap(({ transactions }) =>
    transactions.flatMap(({ operations }) => operations.map(({ kind }) => kind)),
  );
  assert.deepEqual(sets, ['set', 'set']);
  await again.stop();
});

for (const isFed of [true, false]) {
  test(`a flush waits for what ${isFed ? 'a feed' : 'a feed in memory'} has lost behind a commit that it has told`, () =>
    withLateFeed(isFed, async ({ device, other, slow }) => {
      await device.exchange();
      const notes = slow.db.collection('notes');
      slow.left = 1;
      for (const key of ['first', 'second', 'third']) await notes.set(key, 1);
      await device.exchange();
      await other.exchange();
      for (const key of ['first', 'second', 'third']) assert.equal(await other.db.collection('notes').get(key), 1, key);
    }));
}
