// The parts of mangrove-kv that replicate databases, by the names under which they are imported.
import type * as Nats from '@mangrove-kv/replication-nats';
import type * as S3 from '@mangrove-kv/replication-s3';

export { archiveLog, restoreArchive } from '@mangrove-kv/replication/archive';
export type { ArchiveRestoreReport, ArchivedSnapshot } from '@mangrove-kv/replication/archive';
export type {
  PrefixMode,
  RemoteLog,
  Seal,
  ReplicationCodec,
  ReplicatedCollectionOptions,
  ReplicationMode,
} from '@mangrove-kv/replication';
export type { NatsCredentials } from '@mangrove-kv/replication-nats';
export type { S3Options } from '@mangrove-kv/replication-s3';

/** The drivers import packages that the user installs. */
export const importS3 = (): Promise<typeof S3> => import('@mangrove-kv/replication-s3');
export const importNats = (): Promise<typeof Nats> => import('@mangrove-kv/replication-nats');
