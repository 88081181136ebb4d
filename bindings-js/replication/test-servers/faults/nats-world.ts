// Three servers of NATS with accounts, and MinIO for snapshots and large values.
import {
  DEVICE_API,
  accountsConfig,
  adminCredentials,
  createAuthority,
  createStreams,
  deviceCredentials,
} from '../../../replication-nats/src/admin.ts';
import { Cluster } from '../support/nats.ts';
import { Link } from '../support/proxy.ts';
import { startMinio } from '../support/s3.ts';
import { connectToAny } from './any-version.ts';
import { addressOf, bucketFaults } from './bucket-faults.ts';
import { FAULTS, loseHistory } from './faults.ts';
import type { Fault, World } from './world.ts';

const TIMEOUT = 3000;

export async function startNats(isOld: boolean): Promise<World> {
  const authority = createAuthority();
  const cluster = await Cluster.start({ nodes: 3, isOld, accounts: await accountsConfig(authority) });
  const bucket = await startMinio();
  const link = await Link.to(bucket.port);
  const { servers } = cluster;
  await createStreams({
    servers,
    replicas: 3,
    timeout: 2000,
    ...(isOld && { connect: connectToAny }),
    credentials: await adminCredentials({ signer: authority.streams, expiresIn: 600 }),
  });
  const address = (at: readonly string[]) =>
    ({ type: 'nats', servers: at, apiPrefix: DEVICE_API, timeout: TIMEOUT }) as const;
  const { kill, cut, silence, half } = bucketFaults(bucket, link);
  const ofCluster = Object.entries(FAULTS).map(
    ([name, fault]) => [name, (random) => fault(cluster, random)] satisfies [string, Fault],
  );
  return {
    log: address(servers),
    readers: servers.map((server) => address([server])),
    store: addressOf(bucket, link, TIMEOUT),
    faults: {
      ...Object.fromEntries(ofCluster),
      storeKill: kill,
      storeCut: cut,
      storeSilence: silence,
      storeHalf: half,
    },
    losses: { loseHistory: (random) => loseHistory(cluster, random) },
    credentials: (database, device, expiresIn) =>
      deviceCredentials({ signer: authority.devices, database, device, expiresIn, canCompact: true }),
    // The old version does not know conditions on the records of all devices.
    hasConditions: !isOld,
    recover: async () => {
      for (const node of cluster.nodes) if (!node.isRunning) await node.start();
    },
    stop: async () => {
      await cluster.stop();
      await link.close();
      await bucket.stop();
    },
  };
}
