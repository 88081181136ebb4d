// The steps of building a database next to its destination, which are the same for all storages.
import { runRecover, runRestore } from './job.ts';
import type { Maker } from './job.ts';
import type { Watch } from './report.ts';
import type { FullRecoverReport, RestoreReport } from './report.ts';
import type { CustomStorage, StorageFile } from '../types/index.ts';

/** Suffix of files that are not in use yet, or no longer. Opening a database ignores them. */
export const RESTORING_SUFFIX = '.restoring';
/**
 * A spooled backup that arrived as a stream. The engine reads synchronously, so all of it must be
 * there.
 */
export const SPOOL_FILE = `backup${RESTORING_SUFFIX}`;

/** The locked destination of a new database. */
export interface Target {
  /**
   * Empty storage for the new database; its content is not the database yet. Read once, after the
   * last wait before the work starts.
   */
  readonly storage: CustomStorage;
  /** Returns an empty file beside it. */
  spool(): Promise<StorageFile>;
  /** Puts the new database in its place, in one step, and releases the lock. */
  install(): Promise<void>;
  /** Removes the new database and releases the lock. What was there before is unchanged. */
  abandon(): Promise<void>;
}

/** A damaged database, locked and never written to. */
export interface Source {
  readonly storage: CustomStorage;
  close(): void;
}

/** Returns why the work ended, if not by an error of its own. */
export type Reason = () => unknown;

async function into<R>(
  target: Target,
  make: (target: Target) => Promise<R | undefined> | R | undefined,
  reason: Reason,
): Promise<R> {
  let made;
  try {
    made = make(target);
    if (made instanceof Promise) made = await made;
    if (made === undefined) throw reason();
  } catch (error) {
    await target.abandon();
    throw error;
  }
  await target.install();
  return made;
}

export async function restoreInto(
  maker: Maker,
  target: Target,
  backup: (target: Target) => Promise<StorageFile>,
  watch: Watch,
  reason: Reason,
): Promise<RestoreReport> {
  let file: StorageFile;
  try {
    file = await backup(target);
  } catch (error) {
    await target.abandon();
    throw error;
  }
  return into(target, ({ storage }) => runRestore(maker, file, storage, watch), reason);
}

export async function recoverInto(
  maker: Maker,
  source: Source,
  openTarget: () => Promise<Target>,
  watch: Watch,
  reason: Reason,
): Promise<FullRecoverReport> {
  try {
    return await into(await openTarget(), ({ storage }) => runRecover(maker, source.storage, storage, watch), reason);
  } finally {
    source.close();
  }
}
