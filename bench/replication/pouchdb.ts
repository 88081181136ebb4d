// PouchDB's devices: databases on LevelDB, which replicate live with express-pouchdb.
import { mkdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { startServer } from './peer.ts';
import type { Peer } from './peer.ts';

interface Live extends PromiseLike<unknown> {
  on(event: string, listener: (info: never) => void): Live;
  cancel(): void;
}

interface Pouch {
  put(document: object): Promise<unknown>;
  bulkDocs(documents: readonly object[]): Promise<unknown>;
  info(): Promise<{ doc_count: number }>;
  changes(options: object): Live;
  sync(remote: Pouch | string, options: object): Live;
  replicate: { to(remote: string, options: object): Promise<unknown> };
  close(): Promise<void>;
}

const ignore = (): void => undefined;
const require = createRequire(new URL('./peers/package.json', import.meta.url));

export async function startPouchDB(directory: string): Promise<Peer> {
  const PouchDB = require('pouchdb') as new (name: string) => Pouch;
  const serverDirectory = join(directory, 'server');
  mkdirSync(serverDirectory, { recursive: true });
  const { link, kill } = await startServer('server.cjs', serverDirectory);
  const remote = `http://127.0.0.1:${link.port}/bench`;
  return {
    bytes: () => link.bytes,
    async device(name, { replicates }) {
      const db = new PouchDB(join(directory, name));
      const live = replicates
        ? db.sync(remote, { live: true, retry: true, batch_size: 1000 }).on('error', ignore)
        : undefined;
      return {
        put: async (key, value) => void (await db.put({ _id: key, ...value })),
        async putAll(entries) {
          await db.bulkDocs(entries.map(([key, value]) => ({ _id: key, ...value })));
          await db.replicate.to(remote, { batch_size: 1000 });
        },
        count: async () => (await db.info()).doc_count,
        watch(seen) {
          db.changes({ live: true, since: 'now' }).on('change', ({ id }: { id: string }) => seen(id));
        },
        settle: async () => void (await db.replicate.to(remote, {})),
        async close() {
          live?.cancel();
          // It may fail because it was cancelled.
          await live?.then(ignore, ignore);
          await db.close();
        },
      };
    },
    async stop() {
      await link.close();
      kill();
    },
  };
}
