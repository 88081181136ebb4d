/**
 * One database on many devices, over a replicated log.
 *
 * @module mangrove-kv/sync
 */
export { KvError } from '../base/errors.ts';
export { MemoryLog, MemoryServer, MemorySnapshotStore } from '../sync/memory-log.ts';
export type { MemoryFaults } from '../sync/memory-log.ts';
export { logConflict, logRefused, logTruncated, logUnavailable } from '../sync/remote-log.ts';
export type { AppendOptions, LoggedRecord, Position, RemoteLog, SnapshotStore } from '../sync/remote-log.ts';
export type { SyncConflict, SyncEventMap, SyncOptions, SyncProgress, SyncStatus } from '../sync/options.ts';
export { syncDatabase } from '../sync/sync.ts';
export type { Sync } from '../sync/sync.ts';
export type { StrictOptions, StrictTransaction } from '../sync/strict.ts';
export type { PrefixMode, SyncMode } from '../sync/modes.ts';
export type { SyncCodec, SyncCollectionOptions } from '../sync/tables.ts';
export type { Seal } from '../sync/wire.ts';
