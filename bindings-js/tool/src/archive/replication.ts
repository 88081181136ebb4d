// The parts of mangrove-kv that replicate databases, by the names under which they are imported.
import type * as Nats from 'mangrove-kv/sync/nats';
import type * as S3 from 'mangrove-kv/sync/s3';

export { archiveLog, restoreArchive } from 'mangrove-kv/sync/archive';
export type { ArchiveRestoreReport, ArchivedSnapshot } from 'mangrove-kv/sync/archive';
export type { PrefixMode, RemoteLog, Seal, SyncCodec, SyncCollectionOptions, SyncMode } from 'mangrove-kv/sync';
export type { NatsCredentials } from 'mangrove-kv/sync/nats';
export type { S3Options } from 'mangrove-kv/sync/s3';

/** The drivers import packages that the user installs. */
export const importS3 = (): Promise<typeof S3> => import('mangrove-kv/sync/s3');
export const importNats = (): Promise<typeof Nats> => import('mangrove-kv/sync/nats');
