// MinIO, for the log and for everything else.
import { Link } from '../support/proxy.ts';
import { startMinio } from '../support/s3.ts';
import { addressOf, bucketFaults, rollBack } from './bucket-faults.ts';
import type { World } from './world.ts';

const TIMEOUT = 3000;

export async function startS3(): Promise<World> {
  const server = await startMinio();
  const link = await Link.to(server.port);
  const store = addressOf(server, link, TIMEOUT);
  return {
    log: { type: 's3', bucket: store },
    store,
    readers: [{ type: 's3', bucket: store }],
    faults: bucketFaults(server, link),
    losses: { loseHistory: rollBack(server) },
    credentials: undefined,
    hasConditions: true,
    recover: async () => undefined,
    stop: async () => {
      await link.close();
      await server.stop();
    },
  };
}
