// Databases whose feed tells late of commits, or loses them, while replication commits beside the application.
import { KvError, open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import type { Disk } from './device.ts';

export interface SlowFeed {
  readonly db: Database;
  /** Each step of the feed takes so long. */
  delay: number;
  /** So many more commits, and then the feed has lost the next ones. */
  left: number;
  onLoss: () => void;
  /** Called before each transaction of replication. */
  onTransaction: () => Promise<void>;
}

export const openPlain = (storage: Disk, isFed: boolean): Promise<Database> =>
  open('device', { storage, ...(isFed && { feed: true }), advanced: { unitBytes: 512, nodeBytes: 2048 } });

/** A database whose feed takes its time, as beside a busy leader. */
export async function openSlow(storage: Disk, isFed: boolean): Promise<SlowFeed> {
  const db = await openPlain(storage, isFed);
  const slow: SlowFeed = {
    db,
    delay: 0,
    left: Infinity,
    onLoss: () => undefined,
    onTransaction: async () => undefined,
  };
  const transaction = db.transaction.bind(db);
  db.transaction = (async (...args: Parameters<typeof transaction>) => {
    await slow.onTransaction();
    return transaction(...args);
  }) as typeof db.transaction;
  const changes = db.changes.bind(db);
  db.changes = (...args: Parameters<typeof changes>) => {
    const commits = changes(...args);
    const next = commits.next.bind(commits);
    commits.next = async () => {
      const step = await next();
      if (slow.delay > 0) await new Promise((resolve) => setTimeout(resolve, slow.delay));
      if (!step.done && step.value.changes.length > 0 && slow.left-- <= 0) {
        slow.left = Infinity;
        slow.onLoss();
        throw new KvError('KV_TRUNCATED_FEED', 'the feed has lost commits');
      }
      return step;
    };
    return commits;
  };
  return slow;
}
