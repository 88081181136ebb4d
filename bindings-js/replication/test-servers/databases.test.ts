// Databases that are kept in step over real servers, which are killed and cut off meanwhile.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { replicate } from '@mangrove-kv/replication';
import type { Replication, ReplicationOptions } from '@mangrove-kv/replication';
import { createStreams } from '../../replication-nats/src/admin.ts';
import { natsLog } from '../../replication-nats/src/index.ts';
import { s3Snapshots } from '../../replication-s3/src/index.ts';
import { Cluster } from './support/nats.ts';
import { startMinio } from './support/s3.ts';
import type { S3Server } from './support/s3.ts';

const SHARDS = 1;
const NOTES = 60;
const INCREMENTS = 12;
const collections = { notes: {}, accounts: { mode: 'strict' } } as const;

// Replication keeps no process alive while it waits to try again.
const alive = setInterval(() => undefined, 1000);
after(() => clearInterval(alive));

interface Device {
  readonly db: Database;
  readonly replication: Replication;
}

async function start(
  cluster: Cluster,
  bucket: S3Server,
  name: string,
  options: Partial<ReplicationOptions> = {},
): Promise<Device> {
  const db = await open(name, { storage: 'memory', feed: true });
  const log = natsLog({ servers: cluster.servers, database: 'shared', device: name, shards: SHARDS, timeout: 1500 });
  return {
    db,
    replication: await replicate(db, { log, snapshots: s3Snapshots(bucket.options), collections, ...options }),
  };
}

async function stop({ db, replication }: Device): Promise<void> {
  await replication.close();
  await db.close();
}

async function contentOf({ db }: Device): Promise<string> {
  const parts = await Promise.all(
    Object.keys(collections).map(async (name) => [name, await db.collection(name).entries().toArray()]),
  );
  return JSON.stringify(parts);
}

/** Resolves once the device has what another one has that wrote nothing since. */
async function equals(device: Device, wanted: string): Promise<void> {
  while ((await contentOf(device)) !== wanted) await pause(50);
}

const pause = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Kills a server, then cuts another one off. In between the others have time to elect a leader. */
async function makeTrouble(cluster: Cluster): Promise<void> {
  await pause(500);
  await cluster.nodes[0]?.kill();
  await pause(1000);
  await cluster.nodes[0]?.start();
  await pause(5000);
  cluster.isolate(1, 'silent');
  await pause(1500);
  cluster.isolate(1, 'open');
}

test('devices lose nothing while servers are killed and cut off, and a new one starts from a snapshot', async () => {
  const cluster = await Cluster.start({ nodes: 3 });
  const bucket = await startMinio();
  try {
    await createStreams({ servers: cluster.servers, shards: SHARDS, replicas: 3, timeout: 2000 });
    const devices = await Promise.all(['a', 'b', 'c'].map((name) => start(cluster, bucket, name)));
    const trouble = makeTrouble(cluster);
    await Promise.all(
      devices.map(async ({ db, replication }, device) => {
        for (let nth = 0; nth < NOTES; nth++) {
          await db.collection('notes').set(`${device}:${nth}`, { text: `note ${nth}` });
          await pause(100);
          // All devices write this one.
          await db.collection('notes').set('shared', { device, nth });
          if (nth % (NOTES / INCREMENTS) === 0) {
            await replication.transaction(async (tx) => {
              await tx.collection<string, number>('accounts').update('balance', (old = 0) => old + 1);
            });
          }
        }
      }),
    );
    await trouble;
    // Now everything gets into the log; what each device has read of it may differ.
    await Promise.all(devices.map(({ replication }) => replication.flush()));
    const [first] = devices as [Device, Device, Device];
    await first.replication.transaction((tx) => tx.collection<string, number>('accounts').set('end', 1));
    const content = await contentOf(first);
    await Promise.all(devices.map((device) => equals(device, content)));
    assert.equal(await first.db.collection('accounts').get('balance'), devices.length * INCREMENTS);
    assert.equal(await first.db.collection('notes').count(), devices.length * NOTES + 1);

    const replayed = await start(cluster, bucket, 'd');
    await equals(replayed, content);
    assert.notEqual(await first.replication.compact(), undefined);
    const restored = await start(cluster, bucket, 'e');
    await equals(restored, content);
    await Promise.all([...devices, replayed, restored].map(stop));
  } finally {
    await cluster.stop();
    await bucket.stop();
  }
});
