// Makes a plain database of an earlier time from an archive.
import { abortable } from 'mangrove-kv/internal';
import { KvError } from 'mangrove-kv';
import type { Collection, Database } from 'mangrove-kv';
import { toKvError } from '../failures.ts';
import type { ReplicationOptions } from '../options.ts';
import type { Position, SnapshotStore } from '../remote-log.ts';
import { Replica } from '../replica.ts';
import { sealManifest } from '../snapshot.ts';
import type { ReplicaState } from '../state.ts';
import { Tables } from '../tables.ts';
import { Wire } from '../wire.ts';
import { PlanLog } from './plan-log.ts';
import type { ArchivedSnapshot, RestorePlan } from './plan.ts';

/** How far a restore is. */
export interface ArchiveRestoreProgress {
  /** Everything up to this position of the log is applied; 0 until the snapshot is loaded. */
  readonly position: Position;
  /** The log's time of that record, in milliseconds since 1970; 0 before the first one. */
  readonly serverTime: number;
  /** Number of records applied after the snapshot. */
  readonly records: number;
}

/** Options of {@link restoreArchive}. */
export interface ArchiveRestoreOptions extends Pick<ReplicationOptions, 'collections' | 'mode' | 'seal'> {
  /** What to restore: `s3Archive(…).restore({ time })`. It can be used once. */
  readonly plan: RestorePlan;
  /** The object store of the database, with its large values. Default: only that of the archive. */
  readonly snapshots?: SnapshotStore | undefined;
  /**
   * Does as devices do with what the log itself has lost or damaged: they pass over records that
   * are missing or cannot be read. Default: false, which rejects instead.
   */
  readonly skipDamaged?: boolean | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Receives the progress. An exception that it throws ends the work. */
  readonly onProgress?: ((progress: ArchiveRestoreProgress) => void) | undefined;
}

/** What was restored. */
export interface ArchiveRestoreReport extends ArchiveRestoreProgress {
  /** The snapshot with which it began. */
  readonly snapshot: ArchivedSnapshot | undefined;
  /** Number of entries in each collection, without those that have expired since. */
  readonly collections: { readonly [name: string]: number };
  /** Collections that the archive has and `collections` does not name. They were not restored. */
  readonly unlisted: readonly string[];
  /** What was passed over because of `skipDamaged`. */
  readonly skipped: readonly KvError[];
  /**
   * Whether the archive has later records. If not, records of the time asked for may be in the log
   * that were not archived. Undefined if the plan does not tell.
   */
  readonly hasMore: boolean | undefined;
}

const MAX_TRIES = 6;
const MIN_WAIT_MS = 250;
/** A replica passes over damage after five attempts. */
const MAX_DAMAGED_TRIES = 10;

/** The collections in which replication keeps its own rows. */
function ownOf(tables: Tables, state: ReplicaState | undefined): Collection<never, never>[] {
  const rows = state === undefined ? [...tables.byName.values()] : tables.all(state);
  return [
    tables.state,
    tables.applied,
    tables.outbox,
    tables.offered,
    tables.chunks,
    tables.witness,
    tables.blobs,
    tables.conflicts,
    tables.expiring,
    tables.aside,
    ...rows.map((table) => table.rows),
  ] as unknown as Collection<never, never>[];
}

/** Snapshots come from the archive if it has them, large values from the database's store. */
function storeOf({ plan, snapshots }: ArchiveRestoreOptions): SnapshotStore {
  const readOnly = (): never => {
    throw new KvError('KV_LOG_REFUSED', 'what is restored is read and never written');
  };
  return {
    async get(key, signal) {
      const stores = key === plan.snapshot?.key ? [plan.snapshots, snapshots] : [snapshots, plan.snapshots];
      for (const store of stores) {
        const found = await store?.get(key, signal);
        if (found !== undefined) return found;
      }
      const where =
        snapshots === undefined
          ? "the archive; pass the database's object store as the option `snapshots`"
          : 'the object store';
      throw new KvError('KV_NOT_FOUND', `${key}, which the archive refers to, is not in ${where}`);
    },
    list: async () => readOnly(),
    put: async () => readOnly(),
    delete: async () => readOnly(),
  };
}

function check(db: Database, options: ArchiveRestoreOptions): void {
  const { plan, collections } = (options ?? {}) as Partial<ArchiveRestoreOptions>;
  if (typeof (db as Partial<Database> | undefined)?.collection !== 'function')
    throw new KvError('KV_INVALID_ARGUMENT', 'restoreArchive needs an open database');
  if (typeof plan?.records?.[Symbol.asyncIterator] !== 'function')
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      'restoreArchive needs the option `plan`, which `restore` of an archive makes',
    );
  if (typeof collections !== 'object' || collections === null || Object.keys(collections).length === 0) {
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      'restoreArchive needs the option `collections`: what it does not name is not restored',
    );
  }
}

async function checkEmpty(tables: Tables): Promise<void> {
  for (const collection of [...[...tables.byName.values()].map(({ data }) => data), ...ownOf(tables, undefined)]) {
    if ((await collection.size) === 0) continue;
    const what = collection.name.startsWith('mangrove:')
      ? 'is or was replicated, or a restore into it was interrupted'
      : `has entries in ${JSON.stringify(collection.name)}`;
    throw new KvError('KV_INVALID_ARGUMENT', `restoreArchive: the database ${what}; restore into a new database`);
  }
}

/** Applies the log to its end. Failures that may pass are repeated a few times. */
async function applyAll(
  replica: Replica,
  log: PlanLog,
  { plan, skipDamaged = false, signal, onProgress }: ArchiveRestoreOptions,
  progress: () => Promise<ArchiveRestoreProgress>,
): Promise<void> {
  let [tries, damagedTries, position] = [0, 0, -1];
  for (;;) {
    signal?.throwIfAborted();
    try {
      if (!(await replica.pull(signal))) return;
    } catch (error) {
      signal?.throwIfAborted();
      const failure = toKvError(error);
      const isDamage = failure.code === 'KV_CORRUPT' || failure.code === 'KV_REPLICATION_GAP';
      // Damage of the archive, not of a record that the log had so: nothing behind it can be trusted.
      if (isDamage && (log.isBroken || (await progress()).position < (plan.snapshot?.position ?? 0))) throw failure;
      if (isDamage && !skipDamaged)
        throw new KvError(
          failure.code,
          `${failure.message}. \`skipDamaged\` passes over what the log itself had lost or damaged, as devices do`,
          { cause: failure },
        );
      if (
        isDamage
          ? ++damagedTries > MAX_DAMAGED_TRIES
          : failure.code !== 'KV_LOG_UNAVAILABLE' || log.isBroken || ++tries >= MAX_TRIES
      )
        throw failure;
      if (!isDamage) await abortable(new Promise((resolve) => setTimeout(resolve, MIN_WAIT_MS * 2 ** tries)), signal);
      continue;
    }
    const now = await progress();
    if (now.position === position) continue;
    [tries, damagedTries, position] = [0, 0, now.position];
    onProgress?.(now);
  }
}

/**
 * Makes a plain database of what the devices of a replicated one had at a point in time. It can
 * be opened without replication, or be replicated as a new database, under another name.
 *
 * The collections have to be empty. If it rejects, or the process ends before, the database holds a
 * part of what it should: destroy it, and restore into a new one. O(snapshot and records).
 *
 * Entries whose expiry has passed since are not restored.
 *
 * @throws KvError KV_INVALID_ARGUMENT if the database is not new, or for unusable options;
 * KV_NOT_FOUND if a part of the archive or a large value is missing; KV_CORRUPT if something is
 * damaged or sealed with another key; KV_REPLICATION_GAP if the log had lost records; KV_REPLICATION_MODE for
 * a collection with another mode than on the devices; KV_LOG_UNAVAILABLE and KV_LOG_REFUSED as the
 * servers answer.
 */
export async function restoreArchive<K, V, I>(
  db: Database<K, V, I>,
  options: ArchiveRestoreOptions,
): Promise<ArchiveRestoreReport> {
  // The default collection's types are of no interest here.
  const plain = db as unknown as Database;
  check(plain, options);
  const { plan, collections, mode, seal, signal } = options;
  signal?.throwIfAborted();
  const tables = new Tables(plain, collections, mode ?? 'merge');
  await checkEmpty(tables);
  const log = new PlanLog(
    plan,
    plan.snapshot &&
      (await sealManifest(new Wire(seal), {
        version: 1,
        cursor: { position: plan.snapshot.position, serverTime: 0, crc: 0 },
        key: plan.snapshot.key,
        purged: 0,
      })),
  );
  const skipped: KvError[] = [];
  const replica = new Replica(
    plain,
    { log, snapshots: storeOf(options), collections, seal, tables, isCopy: true },
    {
      conflicts: () => undefined,
      alarm: (error) => skipped.push(error),
      repaired: () => undefined,
      diverged: () => undefined,
      changed: () => undefined,
    },
  );
  const progress = async (): Promise<ArchiveRestoreProgress> => {
    const { position, serverTime } = (await replica.state()).cursor;
    return { position, serverTime, records: log.countUpTo(position) };
  };
  try {
    await replica.start();
    await applyAll(replica, log, options, progress);
    const done = await progress();
    const entries: [string, number][] = [];
    for (const { name, data } of tables.byName.values()) entries.push([name, await data.size]);
    const state = await replica.state();
    replica.stop();
    // One commit: without it the database says that it is not complete.
    await plain.transaction(
      async (tx) => {
        for (const { name } of ownOf(tables, state)) await tx.dropCollection(name);
      },
      { durability: 'strict', timeout: Infinity },
    );
    return {
      ...done,
      snapshot: plan.snapshot,
      collections: Object.fromEntries(entries),
      unlisted: Object.keys(state.declared)
        .filter((name) => !tables.byName.has(name))
        .sort(),
      skipped,
      hasMore: plan.hasMore?.(),
    };
  } finally {
    replica.stop();
    await log.close();
  }
}
