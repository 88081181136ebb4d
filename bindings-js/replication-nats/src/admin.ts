/**
 * Streams, accounts and credentials for `@mangrove-kv/replication-nats`. For servers only: what this makes
 * opens all databases.
 *
 * @module @mangrove-kv/replication-nats/admin
 */
import type { ConnectionOptions, NatsConnection } from '@nats-io/nats-core';
import { Api } from './api.ts';
import { Connection } from './connection.ts';
import type { NatsCredentials } from './connection.ts';
import { makeStreams } from './streams.ts';
import type { StreamOptions } from './streams.ts';

export type { NatsCredentials } from './connection.ts';
export type { StreamOptions } from './streams.ts';

/** Options of {@link createStreams}. */
export interface CreateStreamsOptions extends StreamOptions {
  /** Addresses of servers. */
  readonly servers: string | readonly string[];
  /** Of a user of the account that has the streams. Default: none. */
  readonly credentials?: NatsCredentials | undefined;
  /** Makes the connection; Node before 22 needs `connect` of `@nats-io/transport-node`. Default: over WebSocket. */
  readonly connect?: ((options: ConnectionOptions) => Promise<NatsConnection>) | undefined;
  /** How long to wait for an answer, in milliseconds. Default: 10,000. */
  readonly timeout?: number | undefined;
}

/**
 * Creates the streams of the logs, or changes them to what is asked for. Rejects with
 * `KV_LOG_UNAVAILABLE` if the servers do not answer, and with `KV_LOG_REFUSED` if they are too old
 * or do not permit it.
 */
export async function createStreams(options: CreateStreamsOptions): Promise<void> {
  const { servers, credentials, connect, timeout = 10_000 } = options;
  const connection = new Connection({ servers, credentials, connect, timeout, name: 'mangrove administration' });
  try {
    await makeStreams(new Api(connection, '$JS.API'), options);
  } finally {
    await connection.close();
  }
}

export { DEVICE_API, accountsConfig, adminCredentials, createAuthority, deviceCredentials } from './authority.ts';
export type { Authority, DeviceCredentialsOptions } from './authority.ts';
