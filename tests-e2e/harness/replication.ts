// Databases of a page that are kept in step over NATS.
import type { Database } from 'mangrove-kv';
import { useReplication } from '@mangrove-kv/react';
import type { Replication, ReplicationConflict } from '@mangrove-kv/replication';
import { createElement } from 'react';
import type { ReactNode } from 'react';
import { createRoot } from 'react-dom/client';
import { logOf, openReplicated } from './replicating.ts';
import type { Told } from './replicating.ts';

export { createStreams } from '@mangrove-kv/replication-nats/admin';

export interface Synced {
  readonly db: Database;
  readonly replication: Replication;
  /** Conflicts that the page was told of, and those that it was to resolve. */
  readonly conflicts: ReplicationConflict[];
  readonly resolved: ReplicationConflict[];
  /** Codes of errors. */
  readonly errors: string[];
  /** Keys that were set in `notes`, as the feed has them. */
  readonly seen: string[];
  /** Records that this page, or its worker, has appended to the log. */
  readonly appends: number;
}

function Shown({ replication }: { replication: Replication }): ReactNode {
  const { status, pending, lastError } = useReplication(replication);
  return createElement('p', { id: 'replication' }, `${status}, ${pending} pending, ${lastError?.code ?? 'no error'}`);
}

/**
 * Opens the database of a device, starts replication, and shows its state in the page. With `isInWorker`
 * the page leaves replicating to a worker of its own.
 */
export async function start(device: string, servers: readonly string[], isInWorker = false): Promise<Synced> {
  const conflicts: ReplicationConflict[] = [];
  const resolved: ReplicationConflict[] = [];
  const errors: string[] = [];
  const seen: string[] = [];
  let appends = 0;
  if (isInWorker) {
    const worker = new Worker(new URL('./replicating-worker.ts', import.meta.url), { type: 'module' });
    worker.onmessage = ({ data }: MessageEvent<Told>) => {
      if (data.type === 'append') appends++;
      else if (data.type === 'resolve') resolved.push(data.conflict);
      else errors.push(data.message);
    };
    worker.onerror = ({ message }) => errors.push(message);
    worker.postMessage({ device, servers });
  }
  const log = isInWorker ? undefined : logOf(device, servers, () => appends++);
  const { db, replication } = await openReplicated(device, log, (conflict) => resolved.push(conflict));
  const replicated: Synced = {
    db,
    replication,
    conflicts,
    resolved,
    errors,
    seen,
    get appends() {
      return appends;
    },
  };
  replication.addEventListener('conflict', ({ conflict }) => conflicts.push(conflict));
  replication.addEventListener('error', ({ error }) => errors.push(`${error.code}: ${error.message}`));
  void (async () => {
    for await (const { changes } of db.collection<string, unknown>('notes').watch()) {
      for (const change of changes) if (change.type === 'set') seen.push(change.key);
    }
  })().catch((error: unknown) => errors.push(String(error)));
  createRoot(document.body.appendChild(document.createElement('main'))).render(createElement(Shown, { replication }));
  return replicated;
}
