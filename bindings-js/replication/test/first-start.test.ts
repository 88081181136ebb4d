// The start of a device whose entries were not compared yet, beside an application that writes, step by step.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import { Device, Disk, converge } from './device.ts';
import { cutOff, equal, publish, stopAll } from './helpers.ts';
import { openSlow } from './slow-feed.ts';

const BEFORE = { notes: {} } as const;
const NOW = { notes: {}, tasks: {} } as const;
const DEATH = 'the process dies here';

/** What the device was before this start. */
type Past = 'new' | 'known' | 'another program';

/** A log whose front only a snapshot has, and a device that has written to it. */
async function world(): Promise<{
  readonly server: MemoryServer;
  readonly other: Device;
  readonly snapshots: MemorySnapshotStore;
}> {
  const [server, snapshots] = [new MemoryServer(), new MemorySnapshotStore()];
  const other = await Device.start(server, { snapshots, collections: NOW });
  for (const name of ['notes', 'tasks'])
    await other.db.collection(name).setMany([
      ['x', 1],
      ['y', 2],
    ]);
  await converge([other]);
  await cutOff(server, other);
  await publish(other, 'behind the snapshot');
  return { server, other, snapshots };
}

for (const isFed of [true, false]) {
  for (const past of ['new', 'known', 'another program'] satisfies Past[]) {
    for (const [title, second] of [
      ['', 'nothing'],
      [' and deletes', 'delete'],
      [', and the process dies', 'death'],
    ] as const) {
      const feed = isFed ? 'with a feed' : 'without a feed';
      test(`what an application writes${title} beside the start of a device (${past}, ${feed}) arrives, whenever that is`, async () => {
        const { server, other, snapshots } = await world();
        for (let [first, isOver] = [0, false]; !isOver; first++) {
          for (let after = first; ; after += 2) {
            const disk = new Disk();
            if (past !== 'new') {
              const earlier = await Device.start(
                server,
                { snapshots, collections: past === 'known' ? NOW : BEFORE, feed: isFed },
                disk,
              );
              await converge([earlier]);
              await earlier.stop();
            }
            const slow = await openSlow(disk, isFed);
            const notes = slow.db.collection('tasks');
            const key = `${first}/${after}`;
            let [count, done] = [0, 0];
            slow.onTransaction = async () => {
              const at = count++;
              if (at === first) {
                await notes.set(key, 1);
                done++;
              }
              if (second === 'nothing' || at !== after) return;
              if (second === 'delete') await notes.delete(key);
              else disk.left = 0;
              done++;
              if (second === 'death') throw new Error(DEATH);
            };
            let device = await Device.adopt(server, { snapshots, collections: NOW }, slow.db).catch(
              (error: unknown) => {
                if (second !== 'death') throw error;
                return undefined;
              },
            );
            await device?.exchange().catch((error: unknown) => {
              if (second !== 'death') throw error;
            });
            slow.onTransaction = async () => undefined;
            isOver = done === 0;
            if (second === 'death' && done === 2) {
              await device?.stop();
              device = await Device.start(server, { snapshots, collections: NOW, feed: isFed }, disk.copy());
            }
            const devices = [device as Device, other];
            await converge(devices);
            for (const { db } of devices)
              assert.equal(
                await db.collection('tasks').get(key),
                done === 0 || (second === 'delete' && done === 2) ? undefined : 1,
                `written before transaction ${first}, then ${second} before ${after}`,
              );
            await equal(devices);
            await devices[0]?.stop();
            if (done < 2) break;
          }
        }
        await stopAll([other]);
      });
    }
  }
}
