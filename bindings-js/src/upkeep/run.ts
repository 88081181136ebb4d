// The order in which a database is made beside the place that it goes to, which is the same for all storages.
import { runRecover, runRestore } from './job.ts';
import type { Watch } from './job.ts';
import type { FullRecoverReport, RestoreReport } from './report.ts';
import type { CustomStorage, StorageFile } from '../types.ts';

/** Added to the names of files that are not yet, or no longer, of use. A database that is opened does not look at them. */
export const ASIDE = '.restoring';
/** A backup that arrives as a stream. The engine reads synchronously, so all of it has to be there. */
export const SPOOL_FILE = `backup${ASIDE}`;

/** The place that a database goes to, locked. */
export interface Target {
  /** Empty; what is written there is not yet the database. Asked for once, when nothing is waited for any more. */
  readonly storage: CustomStorage;
  /** An empty file beside it. */
  spool(): Promise<StorageFile>;
  /** Puts what was made in its place, in one step, and lets go. */
  install(): Promise<void>;
  /** Removes what was made and lets go. What was there before has not changed. */
  abandon(): Promise<void>;
}

/** A damaged database, locked and never written to. */
export interface Source {
  readonly storage: CustomStorage;
  close(): void;
}

/** What ended the work, where that was no error of its own. */
export type Reason = () => unknown;

async function into<R>(target: Target, make: (target: Target) => Promise<R | undefined> | R | undefined, reason: Reason): Promise<R> {
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
  module: WebAssembly.Module,
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
  return into(target, ({ storage }) => runRestore(module, file, storage, watch), reason);
}

export async function recoverInto(
  module: WebAssembly.Module,
  source: Source,
  openTarget: () => Promise<Target>,
  watch: Watch,
  reason: Reason,
): Promise<FullRecoverReport> {
  try {
    return await into(await openTarget(), ({ storage }) => runRecover(module, source.storage, storage, watch), reason);
  } finally {
    source.close();
  }
}
