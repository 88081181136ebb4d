/**
 * The log of a database on NATS JetStream.
 *
 * @module @mangrove-kv/replication-nats
 */
import type { ConnectionOptions, NatsConnection } from '@nats-io/nats-core';
import { KvError } from 'mangrove-kv';
import type { RemoteLog } from '@mangrove-kv/replication';
import type { NatsCredentials } from './connection.ts';
import { NatsLog } from './log.ts';

export type { NatsCredentials } from './connection.ts';
export type { AppendOptions, LoggedRecord, Position, RemoteLog } from '@mangrove-kv/replication';

/** Options of {@link natsLog}. */
export interface NatsLogOptions {
  /** Addresses of one or more servers of a cluster, such as `wss://a.example.com`. */
  readonly servers: string | readonly string[];
  /** The name of the database, the same on all its devices. */
  readonly database: string;
  /** The id of this device: 1 to 64 letters, digits, `-` and `_`. No two devices have the same one. */
  readonly device: string;
  /** Called before each connection, so that it can get a new token when the old one has expired. Default: none. */
  readonly credentials?: NatsCredentials | (() => NatsCredentials | Promise<NatsCredentials>) | undefined;
  /** Over how many streams databases are spread. It must be what the streams were created with. Default: 1. */
  readonly shards?: number | undefined;
  /** Where the JetStream API is in the account of the devices. Default: `$JS.API`. */
  readonly apiPrefix?: string | undefined;
  /**
   * How long to wait for an answer, in milliseconds; also for a server that is connected to, and for
   * `credentials`, which then go on while operations reject. Default: 10,000.
   */
  readonly timeout?: number | undefined;
  /** Makes the connection; Node before 22 needs `connect` of `@nats-io/transport-node`. Default: over WebSocket. */
  readonly connect?: ((options: ConnectionOptions) => Promise<NatsConnection>) | undefined;
}

/**
 * The log of a database on NATS JetStream. It connects when it is first used, and again when the
 * connection is lost. Operations reject with
 *
 * - `KV_LOG_UNAVAILABLE` without a connection, an answer in time, or a quorum: repeat later;
 * - `KV_LOG_REFUSED` if the server is older than 2.15.2, has no streams, or refuses the credentials
 *   or what they are used for;
 * - `KV_LOG_CONFLICT` and `KV_LOG_TRUNCATED` as {@link RemoteLog} says;
 * - `KV_CLOSED` after `close`.
 *
 * Throws `KV_INVALID_ARGUMENT` for an unusable name of a database or a device.
 */
export function natsLog(options: NatsLogOptions): RemoteLog {
  if (options?.servers === undefined || options.servers.length === 0)
    throw new KvError('KV_INVALID_ARGUMENT', 'natsLog needs the addresses of servers');
  return new NatsLog(options);
}
