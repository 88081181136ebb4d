// Servers that lie to devices which seal their records. Nothing of it may have an effect.
import type { LoggedRecord, RemoteLog } from '@mangrove-kv/replication';

const YEAR_MS = 365 * 86_400_000;

/** When the servers say that they took a record: of some long ago, or far ahead, to all devices the same. */
const lieOf = ({ position, serverTime }: LoggedRecord): number => {
  const kind = Math.imul(position, 0x9e3779b1) >>> 28;
  return kind === 0 ? 1000 : kind === 1 ? serverTime + 50 * YEAR_MS : serverTime;
};

const told = (logged: LoggedRecord): LoggedRecord => ({ ...logged, serverTime: lieOf(logged) });

/** A bit of a record is another one. */
function damaged(logged: LoggedRecord): LoggedRecord {
  const record = logged.record.slice();
  const at = Math.floor(Math.random() * record.length);
  record[at] = (record[at] ?? 0) ^ (1 << Math.floor(Math.random() * 8));
  return { ...logged, record };
}

/**
 * A log that takes records wherever they come, tells wrong times, keeps the newest records back for
 * a while, and sends damaged ones.
 */
export function lying(log: RemoteLog): RemoteLog {
  return {
    append: (record, { idempotencyKey, signal }) => log.append(record, { idempotencyKey, signal }),
    read: async (after, limit, signal) => {
      const records = (await log.read(after, limit, signal)).map(told);
      const chance = Math.random();
      if (chance < 0.1) return records.slice(0, Math.floor(Math.random() * records.length));
      if (chance > 0.03 + 0.1 || records.length === 0) return records;
      const bad = Math.floor(Math.random() * records.length);
      return records.map((logged, at) => (at === bad ? damaged(logged) : logged));
    },
    at: async (position) => {
      const found = await log.at(position);
      return found && told(found);
    },
    wake: (listener) => log.wake(listener),
    manifest: () => log.manifest(),
    replaceManifest: (previous, next) => log.replaceManifest(previous, next),
    purge: (upTo) => log.purge(upTo),
    close: () => log.close(),
  };
}
