// Databases of a page that are kept in step over NATS.
import type { Database } from 'mangrove-kv';
import { useSync } from 'mangrove-kv/react';
import type { Sync, SyncConflict } from 'mangrove-kv/sync';
import { createElement } from 'react';
import type { ReactNode } from 'react';
import { createRoot } from 'react-dom/client';
import { logOf, synchronize } from './syncing.ts';
import type { Told } from './syncing.ts';

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
  /** Records that this page, or its worker, has appended to the log. */
  readonly appends: number;
}

function Shown({ sync }: { sync: Sync }): ReactNode {
  const { status, pending, lastError } = useSync(sync);
  return createElement('p', { id: 'sync' }, `${status}, ${pending} pending, ${lastError?.code ?? 'no error'}`);
}

/**
 * Opens the database of a device, starts sync, and shows its state in the page. With `isInWorker`
 * the page leaves synchronizing to a worker of its own.
 */
export async function start(device: string, servers: readonly string[], isInWorker = false): Promise<Synced> {
  const conflicts: SyncConflict[] = [];
  const resolved: SyncConflict[] = [];
  const errors: string[] = [];
  const seen: string[] = [];
  let appends = 0;
  if (isInWorker) {
    const worker = new Worker(new URL('./syncing-worker.ts', import.meta.url), { type: 'module' });
    worker.onmessage = ({ data }: MessageEvent<Told>) => {
      if (data.type === 'append') appends++;
      else if (data.type === 'resolve') resolved.push(data.conflict);
      else errors.push(data.message);
    };
    worker.onerror = ({ message }) => errors.push(message);
    worker.postMessage({ device, servers });
  }
  const log = isInWorker ? undefined : logOf(device, servers, () => appends++);
  const { db, sync } = await synchronize(device, log, (conflict) => resolved.push(conflict));
  const synced: Synced = {
    db, sync, conflicts, resolved, errors, seen,
    get appends() {
      return appends;
    },
  };
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
