// RxDB's devices: databases in memory, which replicate over one nats-server or a WebSocket server of
// RxDB's own, with RxDB's plugins.
import { createRequire } from 'node:module';
import { Cluster } from '../../bindings-js/replication/test-servers/support/nats.ts';
import { Link } from '../../bindings-js/replication/test-servers/support/proxy.ts';
import { startServer } from './peer.ts';
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
  version: 0,
  primaryKey: 'id',
  type: 'object',
  required: ['id'],
  properties: {
    id: { type: 'string', maxLength: 100 },
    title: { type: 'string' },
    text: { type: 'string' },
    done: { type: 'boolean' },
    number: { type: 'number' },
  },
};

/** All there are: with smaller ones the plugin pulls the first batch again and again. */
const PULL_DOCUMENTS = 50_000;

/** How devices replicate, and how that is stopped. */
interface Network {
  readonly link: Link;
  replicate(collection: Collection): Replication | Promise<Replication>;
  stop(): Promise<unknown>;
}

async function startNats(): Promise<Network> {
  const { replicateNats } = require('rxdb/plugins/replication-nats') as { replicateNats(options: object): Replication };
  const cluster = await Cluster.start({ nodes: 1 });
  const link = await Link.to(cluster.nodes[0]?.port as number);
  return {
    link,
    replicate: (collection) =>
      replicateNats({
        collection,
        replicationIdentifier: 'bench',
        streamName: 'bench',
        subjectPrefix: 'bench',
        waitForLeadership: false,
        live: true,
        connection: { servers: `127.0.0.1:${link.port}` },
        pull: { batchSize: PULL_DOCUMENTS },
        push: { batchSize: 1000 },
      }),
    stop: () => cluster.stop(),
  };
}

async function startWebSocket(): Promise<Network> {
  const { replicateWithWebsocketServer } = require('rxdb/plugins/replication-websocket') as {
    replicateWithWebsocketServer(options: object): Promise<Replication>;
  };
  const { link, kill } = await startServer('rxdb-server.cjs', JSON.stringify(SCHEMA));
  return {
    link,
    replicate: (collection) =>
      replicateWithWebsocketServer({
        collection,
        replicationIdentifier: 'bench',
        url: `ws://127.0.0.1:${link.port}`,
        live: true,
        batchSize: 1000,
      }),
    stop: async () => kill(),
  };
}

async function start(directory: string, network: Network): Promise<Peer> {
  const { createRxDatabase } = require('rxdb') as { createRxDatabase(options: object): Promise<Database> };
  const { getRxStorageMemory } = require('rxdb/plugins/storage-memory') as { getRxStorageMemory(): object };
  return {
    bytes: () => network.link.bytes,
    async device(name, { replicates }) {
      const db = await createRxDatabase({
        name: `${directory}/${name}`,
        storage: getRxStorageMemory(),
        multiInstance: false,
        eventReduce: true,
      });
      const { notes } = await db.addCollections({ notes: { schema: SCHEMA } });
      const replication = replicates ? await network.replicate(notes) : undefined;
      return {
        put: async (key, value) => void (await notes.insert({ id: key, ...value })),
        async putAll(entries) {
          await notes.bulkInsert(entries.map(([key, value]) => ({ id: key, ...value })));
          await replication?.awaitInSync();
        },
        count: () => notes.count().exec(),
        watch: (seen) => void notes.$.subscribe(({ documentId }) => seen(documentId)),
        settle: async () => void (await replication?.awaitInSync()),
        async close() {
          await replication?.cancel();
          await db.close();
        },
      };
    },
    async stop() {
      await network.link.close();
      await network.stop();
    },
  };
}

export const startRxDB = async (directory: string): Promise<Peer> => start(directory, await startNats());
export const startRxDBWebSocket = async (directory: string): Promise<Peer> => start(directory, await startWebSocket());
