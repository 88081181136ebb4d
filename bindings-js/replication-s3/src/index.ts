/**
 * The log of a database, its snapshots and its archive on S3-compatible storage.
 *
 * @module @mangrove-kv/replication-s3
 */
import type { RemoteLog, SnapshotStore } from '@mangrove-kv/replication';
import { S3Archive } from './archive.ts';
import type { S3Options } from './bucket.ts';
import { S3Log } from './log.ts';
import { databaseFolder } from './names.ts';
import { S3Snapshots } from './snapshots.ts';

export type { S3Archive } from './archive.ts';
export type { ArchivedSnapshot, LogArchive, RestorePlan } from '@mangrove-kv/replication/archive';
export type { S3Credentials, S3Options } from './bucket.ts';
export { takeOver } from './fencing.ts';
export type { FencedWriter, TakeOverOptions } from './fencing.ts';
export { probeBucket } from './probe.ts';
export type { AppendOptions, LoggedRecord, Position, RemoteLog, SnapshotStore } from '@mangrove-kv/replication';

/** Options of {@link s3Snapshots}. */
export interface S3SnapshotOptions extends S3Options {
  /** Whether to test a bucket that has not passed {@link probeBucket} before its first use. Default: true. */
  readonly probe?: boolean | undefined;
}

/** Options of {@link s3Archive}. */
export interface S3DatabaseOptions extends S3SnapshotOptions {
  /** The name of the database. */
  readonly database: string;
}

/** Options of {@link s3Log}. */
export interface S3LogOptions extends S3DatabaseOptions {
  /** How often to ask whether there are new records while somebody listens, in milliseconds. Default: 5,000. */
  readonly pollInterval?: number | undefined;
}

/**
 * The log of a database in a bucket, for few writers and seconds of delay: an append takes two
 * requests. Operations reject with
 *
 * - `KV_LOG_UNAVAILABLE` without an answer: repeat later;
 * - `KV_LOG_REFUSED` if the bucket fails {@link probeBucket}, or the service refuses the credentials;
 * - `KV_LOG_CONFLICT` and `KV_LOG_TRUNCATED` as {@link RemoteLog} says;
 * - `KV_CLOSED` after `close`.
 *
 * Throws `KV_INVALID_ARGUMENT` for unusable options.
 */
export function s3Log(options: S3LogOptions): RemoteLog {
  return new S3Log(options, databaseFolder(options.database));
}

/** A store of snapshots in a bucket. Larger ones are in parts of 8 MiB, of which one is in memory. */
export function s3Snapshots(options: S3SnapshotOptions): SnapshotStore {
  return new S3Snapshots(options);
}

/** The archive of a database's log in a bucket. */
export function s3Archive(options: S3DatabaseOptions): S3Archive {
  return new S3Archive(options);
}
