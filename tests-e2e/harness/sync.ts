// Databases of a page that are kept in step over NATS.
import { open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { useSync } from 'mangrove-kv/react';
import { MemorySnapshotStore, syncDatabase } from 'mangrove-kv/sync';
import type { Sync, SyncConflict } from 'mangrove-kv/sync';
import { natsLog } from 'mangrove-kv/sync/nats';
import { createElement } from 'react';
import type { ReactNode } from 'react';
import { createRoot } from 'react-dom/client';

export { createStreams } from 'mangrove-kv/sync/nats-admin';

export interface Synced {
  readonly db: Database;
  readonly sync: Sync;
  /** Conflicts that the page was told of, and those that it was to resolve. */
  readonly conflicts: SyncConflict[];
  readonly resolved: SyncConflict[];
  /** Codes of errors. */
  readonly errors: string[];
  /** Keys that were set in `notes`, as the feed has them. */
  readonly seen: string[];
  /** Records that this page has appended to the log. */
  appends: number;
}

function Shown({ sync }: { sync: Sync }): ReactNode {
  const { status, pending, lastError } = useSync(sync);
  return createElement('p', { id: 'sync' }, `${status}, ${pending} pending, ${lastError?.code ?? 'no error'}`);
}

/** Opens the database of a device, starts sync, and shows its state in the page. */
export async function start(device: string, servers: readonly string[]): Promise<Synced> {
  const db = await open(device, { feed: true });
  const log = natsLog({ servers, database: 'shared', device, timeout: 2000 });
  const append = log.append.bind(log);
  const conflicts: SyncConflict[] = [];
  const resolved: SyncConflict[] = [];
  const errors: string[] = [];
  const seen: string[] = [];
  log.append = (record, options) => {
    synced.appends++;
    return append(record, options);
  };
  const sync = await syncDatabase(db, {
    log,
    snapshots: new MemorySnapshotStore(),
    collections: { notes: {}, accounts: { mode: 'strict' } },
    resolve: (conflict) => void resolved.push(conflict),
  });
  const synced: Synced = { db, sync, conflicts, resolved, errors, seen, appends: 0 };
  sync.addEventListener('conflict', ({ conflict }) => conflicts.push(conflict));
  sync.addEventListener('error', ({ error }) => errors.push(`${error.code}: ${error.message}`));
  void (async () => {
    for await (const { changes } of db.collection<string, unknown>('notes').watch()) {
      for (const change of changes) if (change.type === 'set') seen.push(change.key);
    }
  })().catch((error: unknown) => errors.push(String(error)));
  createRoot(document.body.appendChild(document.createElement('main'))).render(createElement(Shown, { sync }));
  return synced;
}
