// RxDB's devices: databases in memory, which replicate over one nats-server with RxDB's plugin.
import { createRequire } from 'node:module';
import { Cluster } from '../../bindings-js/test-sync/support/nats.ts';
import { Link } from '../../bindings-js/test-sync/support/proxy.ts';
import type { Peer } from './peer.ts';

interface Collection {
  insert(document: object): Promise<unknown>;
  bulkInsert(documents: readonly object[]): Promise<unknown>;
  count(): { exec(): Promise<number> };
  readonly $: { subscribe(listener: (event: { readonly documentId: string }) => void): unknown };
}

interface Database {
  addCollections(collections: object): Promise<{ readonly notes: Collection }>;
  close(): Promise<unknown>;
}

interface Replication {
  awaitInSync(): Promise<unknown>;
  cancel(): Promise<unknown>;
}

const require = createRequire(new URL('./peers/package.json', import.meta.url));

const SCHEMA = {
  version: 0, primaryKey: 'id', type: 'object', required: ['id'],
  properties: { id: { type: 'string', maxLength: 100 }, title: { type: 'string' }, text: { type: 'string' }, done: { type: 'boolean' }, number: { type: 'number' } },
};

/** All there are: with smaller ones the plugin pulls the first batch again and again. */
const PULL_DOCUMENTS = 50_000;

export async function startRxDB(directory: string): Promise<Peer> {
  const { createRxDatabase } = require('rxdb') as { createRxDatabase(options: object): Promise<Database> };
  const { getRxStorageMemory } = require('rxdb/plugins/storage-memory') as { getRxStorageMemory(): object };
  const { replicateNats } = require('rxdb/plugins/replication-nats') as { replicateNats(options: object): Replication };
  const cluster = await Cluster.start({ nodes: 1 });
  const link = await Link.to(cluster.nodes[0]?.port as number);
  return {
    bytes: () => link.bytes,
    async device(name, { syncs }) {
      const db = await createRxDatabase({ name: `${directory}/${name}`, storage: getRxStorageMemory(), multiInstance: false, eventReduce: true });
      const { notes } = await db.addCollections({ notes: { schema: SCHEMA } });
      const replication = syncs ? replicateNats({
        collection: notes, replicationIdentifier: 'bench', streamName: 'bench', subjectPrefix: 'bench', waitForLeadership: false, live: true,
        connection: { servers: `127.0.0.1:${link.port}` }, pull: { batchSize: PULL_DOCUMENTS }, push: { batchSize: 1000 },
      }) : undefined;
      return {
        put: async (key, value) => void await notes.insert({ id: key, ...value }),
        async putAll(entries) {
          await notes.bulkInsert(entries.map(([key, value]) => ({ id: key, ...value })));
          await replication?.awaitInSync();
        },
        count: () => notes.count().exec(),
        watch: (seen) => void notes.$.subscribe(({ documentId }) => seen(documentId)),
        settle: async () => void await replication?.awaitInSync(),
        async close() {
          await replication?.cancel();
          await db.close();
        },
      };
    },
    async stop() {
      await link.close();
      await cluster.stop();
    },
  };
}
