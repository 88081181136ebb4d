/**
 * Archives of replicated databases: fills them, and makes databases of an earlier time from them.
 *
 * @module @mangrove-kv/replication/archive
 */
export { archiveLog, archiveSnapshot } from './fill.ts';
export type { ArchiveLogOptions, ArchiveLogReport, ArchiveOptions } from './fill.ts';
export type { ArchivedSnapshot, LogArchive, RestorePlan } from './plan.ts';
export { restoreArchive } from './restore.ts';
export type { ArchiveRestoreOptions, ArchiveRestoreProgress, ArchiveRestoreReport } from './restore.ts';
