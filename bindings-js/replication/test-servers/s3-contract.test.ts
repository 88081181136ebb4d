import { after } from 'node:test';
import { s3Log, s3Snapshots } from '../../replication-s3/src/index.ts';
import { testLog } from './support/log-contract.ts';
import { startMinio } from './support/s3.ts';
import type { S3Server } from './support/s3.ts';
import { testStore } from './support/store-contract.ts';

let started: Promise<S3Server> | undefined;
const server = (): Promise<S3Server> => (started ??= startMinio());
after(async () => (await started)?.stop());

testLog('S3 on MinIO', async () => {
  const { options } = await server();
  return { open: (database) => s3Log({ ...options, database, prefix: 'test/', pollInterval: 20 }) };
});

testStore('snapshots on MinIO', async () => s3Snapshots((await server()).options));
