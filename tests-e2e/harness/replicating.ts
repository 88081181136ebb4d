// A database that is kept in step over NATS, in a page or in a worker.
import { open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { MemorySnapshotStore, replicate } from '@mangrove-kv/replication';
import type { RemoteLog, Replication, ReplicationConflict } from '@mangrove-kv/replication';
import { natsLog } from '@mangrove-kv/replication-nats';

/** What the worker of a page tells it. */
export type Told =
  | { readonly type: 'append' }
  | { readonly type: 'resolve'; readonly conflict: ReplicationConflict }
  | { readonly type: 'error'; readonly message: string };

const collections = { notes: {}, accounts: { mode: 'strict' } } as const;

/** The log of a device, which calls `onAppend` for each record. */
export function logOf(device: string, servers: readonly string[], onAppend: () => void): RemoteLog {
  const log = natsLog({ servers, database: 'shared', device, timeout: 2000 });
  const append = log.append.bind(log);
  log.append = (record, options) => {
    onAppend();
    return append(record, options);
  };
  return log;
}

/** Opens the database of a device, and replicates it in this thread when it is its turn. */
export async function openReplicated(
  device: string,
  log: RemoteLog | undefined,
  resolve: (conflict: ReplicationConflict) => void,
): Promise<{ readonly db: Database; readonly replication: Replication }> {
  const db = await open(device, { feed: true });
  return { db, replication: await replicate(db, { log, snapshots: new MemorySnapshotStore(), collections, resolve }) };
}
