/**
 * One database on many devices, over a replicated log.
 *
 * @module @mangrove-kv/replication
 */
export { KvError } from 'mangrove-kv';
export { MemoryLog, MemoryServer, MemorySnapshotStore } from './memory-log.ts';
export type { MemoryFaults } from './memory-log.ts';
export { logConflict, logRefused, logTruncated, logUnavailable } from './remote-log.ts';
export type { AppendOptions, LoggedRecord, Position, RemoteLog, SnapshotStore } from './remote-log.ts';
export type {
  ReplicationConflict,
  ReplicationEventMap,
  ReplicationOptions,
  ReplicationProgress,
  ReplicationStatus,
} from './options.ts';
export { replicate } from './replication.ts';
export type { Replication } from './replication.ts';
export type { StrictOptions, StrictTransaction } from './strict.ts';
export type { PrefixMode, ReplicationMode } from './modes.ts';
export type { ReplicationCodec, ReplicatedCollectionOptions } from './tables.ts';
export type { Seal } from './wire.ts';
