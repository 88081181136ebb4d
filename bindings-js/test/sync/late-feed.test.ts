// Commits of the application of which the feed tells late, or never, while sync commits beside them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KvError, open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { MemoryServer, MemorySnapshotStore } from '../../src/sync/memory-log.ts';
import { runStrict } from '../../src/sync/strict.ts';
import { Device, converge } from './device.ts';
import { collections, cutOff, equal, stopAll } from './helpers.ts';

interface SlowFeed {
  readonly db: Database;
  /** Each step of the feed takes so long. */
  delay: number;
  /** So many more commits, and then the feed has lost the next ones. */
  left: number;
}

/** A database whose feed takes its time, as beside a busy leader. */
async function openSlow(storage: Device['disk'], isFed: boolean): Promise<SlowFeed> {
  const db = await open('device', { storage, ...(isFed && { feed: true }), unitBytes: 512, nodeBytes: 2048 });
  const slow: SlowFeed = { db, delay: 0, left: Infinity };
  const changes = db.changes.bind(db);
  db.changes = (...args: Parameters<typeof changes>) => {
    const commits = changes(...args);
    const next = commits.next.bind(commits);
    commits.next = async () => {
      const step = await next();
      await new Promise((resolve) => setTimeout(resolve, slow.delay));
      if (!step.done && step.value.changes.length > 0 && slow.left-- <= 0) {
        slow.left = Infinity;
        throw new KvError('KV_TRUNCATED_FEED', 'the feed has lost commits');
      }
      return step;
    };
    return commits;
  };
  return slow;
}

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
  slow.delay = 30;
  await scene({ slow, device, other });
  slow.delay = 0;
  await converge([device, other]);
  await equal([device, other]);
  await stopAll([device, other]);
}

for (const isFed of [true, false]) {
  const feed = isFed ? 'a feed' : 'a feed in memory';

  test(`a delete of which ${feed} tells late is not undone by a rereading`, () => withLateFeed(isFed, async ({ device, other, slow }) => {
    await slow.db.collection('notes').delete('k');
    await device.sync();
    for (const { db } of [device, other]) {
      await converge([device, other]);
      assert.equal(await db.collection('notes').get('k'), undefined);
    }
  }));

  test(`what ${feed} loses behind a commit that it has told is not undone by a rereading`, () => withLateFeed(isFed, async ({ device, other, slow }) => {
    slow.left = 1;
    await slow.db.collection('notes').delete('k');
    await slow.db.collection('notes').set('l', 2);
    await slow.db.collection('notes').delete('m');
    await device.sync();
    for (const { db } of [device, other]) {
      await converge([device, other]);
      const notes = db.collection('notes');
      assert.deepEqual(await Promise.all(['k', 'l', 'm'].map((key) => notes.get(key))), [undefined, 2, undefined]);
    }
  }));

  test(`a strict transaction has not read a write past sync of which ${feed} tells late`, () => withLateFeed(isFed, async ({ device, slow }) => {
    const { replica } = device;
    await device.sync();
    const settle = replica.settle.bind(replica);
    let isFirst = true;
    replica.settle = async (...args) => {
      await settle(...args);
      if (isFirst) await slow.db.collection('accounts').set('a', 'past sync');
      isFirst = false;
    };
    const reads: unknown[] = [];
    await runStrict(replica, async (tx) => {
      const accounts = tx.collection<string, string>('accounts');
      reads.push(await accounts.get('a'));
      await accounts.set('b', String(reads.at(-1)));
    }, {});
    assert.deepEqual([reads, await slow.db.collection('accounts').get('b')], [['past sync', undefined], 'undefined']);
    assert.deepEqual(device.alarms.map(({ code }) => code), ['KV_SYNC_MODE']);
  }));
}
