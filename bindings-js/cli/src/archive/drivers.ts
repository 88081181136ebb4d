// Drivers of servers, whose packages the user installs.
import { KvError } from 'mangrove-kv';
import type { ArchiveArguments } from './arguments.ts';
import { importNats, importS3 } from './replication.ts';
import type { RemoteLog } from './replication.ts';

/** Loads a module, or says what to install. */
async function load<T>(importing: Promise<T>, name: string): Promise<T> {
  try {
    return await importing;
  } catch (error) {
    if (!String((error as Error).message).includes(name)) throw error;
    throw new KvError(
      'KV_UNSUPPORTED',
      `this needs the package ${name}: install it beside @mangrove-kv/cli, or run npx --package @mangrove-kv/cli --package ${name} mangrove-kv …`,
      { cause: error },
    );
  }
}

export const loadS3 = (): ReturnType<typeof importS3> => load(importS3(), 'aws4fetch');

export async function openLog({ database, bucket, nats }: ArchiveArguments): Promise<RemoteLog> {
  if (nats === undefined) return (await loadS3()).s3Log({ ...bucket, database });
  const { natsLog } = await load(importNats(), '@nats-io/nats-core');
  const isTcp = nats.servers.some((server) => /^(?:nats|tls):/.test(server));
  if (!isTcp && typeof WebSocket === 'undefined') {
    throw new KvError(
      'KV_UNSUPPORTED',
      'this runtime has no WebSocket, as Node before 22: name TCP ports of the servers with --nats nats://…',
    );
  }
  const transport = '@nats-io/transport-node';
  const { connect } = isTcp
    ? await load(import(transport) as Promise<Pick<Parameters<typeof natsLog>[0], 'connect'>>, transport)
    : {};
  return natsLog({ ...nats, database, connect });
}
