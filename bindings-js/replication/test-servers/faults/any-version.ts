// For the control: lets the driver use a server that it would refuse.
import { wsconnect } from '@nats-io/nats-core';
import type { ConnectionOptions, NatsConnection } from '@nats-io/nats-core';

/** Connects, and says that the server is new enough. */
export async function connectToAny(options: ConnectionOptions): Promise<NatsConnection> {
  const connection = await wsconnect(options);
  const info = connection.info;
  Object.defineProperty(connection, 'info', { get: () => ({ ...info, version: '2.15.2' }) });
  return connection;
}
