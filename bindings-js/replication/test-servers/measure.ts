// Measures the drivers on loopback: `npm run replication:measure`.
import process from 'node:process';
import { createStreams } from '../../replication-nats/src/admin.ts';
import { natsLog } from '../../replication-nats/src/index.ts';
import type { RemoteLog } from '../src/remote-log.ts';
import { probeBucket, s3Log } from '../../replication-s3/src/index.ts';
import { Cluster } from './support/nats.ts';
import { Link } from './support/proxy.ts';
import { startMinio } from './support/s3.ts';

const RECORD = new Uint8Array(100).fill(7);

async function appends(log: RemoteLog, count: number): Promise<string> {
  const times: number[] = [];
  for (let seq = 1; seq <= count; seq++) {
    const start = performance.now();
    await log.append(RECORD, { idempotencyKey: `measured:${seq}` });
    times.push(performance.now() - start);
  }
  times.sort((a, b) => a - b);
  const at = (share: number): string => (times[Math.floor(times.length * share)] as number).toFixed(1);
  return `append p50 ${at(0.5)} ms, p99 ${at(0.99)} ms`;
}

async function catchUp(log: RemoteLog, count: number): Promise<string> {
  const start = performance.now();
  let read = 0;
  for (let after = 0; ; ) {
    const records = await log.read(after, 1000);
    if (records.length === 0) break;
    read += records.length;
    after = records.at(-1)?.position as number;
  }
  if (read < count) throw new Error(`${read} records of ${count} were read`);
  return `catch-up ${Math.round((read / (performance.now() - start)) * 1000)} records/s`;
}

for (const nodes of [1, 3] as const) {
  const cluster = await Cluster.start({ nodes });
  await createStreams({ servers: cluster.servers, replicas: nodes, timeout: 2000 });
  const link = await Link.to(cluster.nodes[0]?.websocket as number);
  const writer = natsLog({ servers: `ws://127.0.0.1:${link.port}`, database: 'a', device: 'measured' });
  await appends(writer, 50);
  // Those of the first 50 are repeated, so as to measure new ones only.
  const log = natsLog({ servers: `ws://127.0.0.1:${link.port}`, database: 'b', device: 'measured' });
  await log.append(RECORD, { idempotencyKey: 'measured:0' });
  const before = link.bytes;
  const latency = await appends(log, 1000);
  const bytes = Math.round((link.bytes - before) / 1000);
  // Many devices at once, so that there is something to catch up with.
  await Promise.all(
    Array.from({ length: 40 }, async (_, device) => {
      const filler = natsLog({ servers: cluster.servers, database: 'b', device: `filler${device}` });
      for (let seq = 1; seq <= 500; seq++) await filler.append(RECORD, { idempotencyKey: `filler${device}:${seq}` });
      await filler.close();
    }),
  );
  const reader = natsLog({ servers: cluster.servers, database: 'b', device: 'reader' });
  process.stdout.write(
    `NATS, ${nodes} server(s): ${latency}, ${bytes} bytes both ways for a record of ${RECORD.length}, ${await catchUp(reader, 21_001)}\n`,
  );
  await Promise.all([writer, log, reader].map((one) => one.close()));
  await link.close();
  await cluster.stop();
}

const minio = await startMinio();
await probeBucket(minio.options);
const link = await Link.to(minio.port);
const log = s3Log({ ...minio.options, endpoint: `http://127.0.0.1:${link.port}`, database: 'a' });
await log.append(RECORD, { idempotencyKey: 'measured:0' });
const before = link.bytes;
const latency = await appends(log, 300);
const bytes = Math.round((link.bytes - before) / 300);
process.stdout.write(
  `S3 on MinIO: ${latency}, ${bytes} bytes both ways for a record of ${RECORD.length}, ${await catchUp(s3Log({ ...minio.options, database: 'a' }), 301)}\n`,
);
await log.close();
await link.close();
await minio.stop();
process.exit(0);
