// Incremental backups, which only the command line tool makes and adds.
import type { CustomStorage, StorageFile } from '../types/index.ts';
import { runMaintenance } from './job.ts';
import type { Maker } from './job.ts';
import type { IncrementalReport, Watch } from './report.ts';

/** Passes the commits after a version to `take`, whose exceptions it throws. `isBesideWriter`: another process may write to `source` meanwhile. */
export function backupSince(
  maker: Maker,
  source: CustomStorage,
  isBesideWriter: boolean,
  version: number,
  take: (bytes: Uint8Array) => void,
  watch: Watch,
): IncrementalReport {
  let thrown: { readonly error: unknown } | undefined;
  const sink = {
    write: (bytes: Uint8Array) => {
      try {
        take(bytes);
      } catch (error) {
        thrown = { error };
        throw error;
      }
    },
  };
  try {
    return runMaintenance<IncrementalReport>(maker, watch, (instance, opening, watcher) =>
      instance.backupSince(source, isBesideWriter, version, sink, opening, watcher),
    ) as IncrementalReport;
  } catch (error) {
    throw thrown === undefined ? error : thrown.error;
  }
}

/** Adds the commits of such a backup to a database: all of them or none. */
export function restoreCommits(
  maker: Maker,
  backup: StorageFile,
  target: CustomStorage,
  watch: Watch,
): Omit<IncrementalReport, 'base'> {
  return runMaintenance<IncrementalReport>(maker, watch, (instance, opening, watcher) =>
    instance.restoreCommits(backup, target, opening, watcher),
  ) as IncrementalReport;
}
