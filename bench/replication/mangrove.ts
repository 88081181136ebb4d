// Mangrove's devices: databases in files or in memory, which follow a log on one nats-server.
import { join } from 'node:path';
import { open } from 'mangrove-kv';
import { replicate } from '@mangrove-kv/replication';
import { natsLog } from '@mangrove-kv/replication-nats';
import { createStreams } from '@mangrove-kv/replication-nats/admin';
import { Cluster } from '../../bindings-js/replication/test-servers/support/nats.ts';
import { Link } from '../../bindings-js/replication/test-servers/support/proxy.ts';
import type { Device, Peer } from './peer.ts';

export async function startMangrove(directory: string, storage: 'fs' | 'memory'): Promise<Peer> {
  const cluster = await Cluster.start({ nodes: 1 });
  await createStreams({ servers: cluster.servers, replicas: 1, timeout: 2000 });
  const link = await Link.to(cluster.nodes[0]?.websocket as number);
  return {
    bytes: () => link.bytes,
    async device(name, { replicates }) {
      const db = await open(join(directory, name), { storage, feed: true, durability: 'relaxed' });
      const notes = db.collection<string, unknown>('notes');
      const log = natsLog({ servers: `ws://127.0.0.1:${link.port}`, database: 'bench', device: name });
      const replication = replicates ? await replicate(db, { log, collections: { notes: {} } }) : undefined;
      const device: Device = {
        put: (key, value) => notes.set(key, value),
        async putAll(entries) {
          await notes.setMany(entries);
          await replication?.flush();
        },
        count: () => notes.size,
        watch(seen) {
          void (async () => {
            for await (const { changes } of db.changes())
              for (const change of changes)
                if (change.collection === 'notes' && 'key' in change) seen(change.key as string);
          })().catch(() => undefined);
        },
        async settle() {
          await replication?.flush();
        },
        async close() {
          await replication?.close();
          await db.close();
        },
      };
      return device;
    },
    async stop() {
      await link.close();
      await cluster.stop();
    },
  };
}
