import { after } from 'node:test';
import { createStreams } from '../../replication-nats/src/admin.ts';
import { natsLog } from '../../replication-nats/src/index.ts';
import { testLog } from './support/log-contract.ts';
import { Cluster } from './support/nats.ts';

for (const nodes of [1, 3] as const) {
  const SHARDS = 2;
  let started: Promise<Cluster> | undefined;
  const start = async (): Promise<Cluster> => {
    const cluster = await Cluster.start({ nodes });
    await createStreams({ servers: cluster.servers, shards: SHARDS, replicas: nodes, timeout: 2000 });
    return cluster;
  };
  after(async () => (await started)?.stop());

  testLog(`NATS with ${nodes === 1 ? 'one server' : 'three servers'}`, async () => {
    started ??= start();
    const { servers } = await started;
    return { open: (database, device) => natsLog({ servers, database, device, shards: SHARDS }) };
  });
}
