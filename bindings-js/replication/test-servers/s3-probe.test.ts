// Buckets that keep no promise are refused before anything is in them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { probeBucket, s3Archive, s3Log, s3Snapshots } from '../../replication-s3/src/index.ts';
import { bytesOf, hasCode } from './support/log-contract.ts';
import { startMinio, startS3rver, startVersitygw } from './support/s3.ts';
import { streamOf } from './support/store-contract.ts';

for (const [name, start] of [
  ['s3rver', startS3rver],
  ['versitygw', startVersitygw],
] as const) {
  test(`${name} is refused, by everything that would use it`, async () => {
    const server = await start();
    try {
      const { options } = server;
      const isRefused = (error: unknown): boolean =>
        hasCode('KV_LOG_REFUSED')(error) && /bucket databases .* is refused/.test(String(error));
      await assert.rejects(probeBucket(options), isRefused);
      const log = s3Log({ ...options, database: 'a' });
      await assert.rejects(log.append(bytesOf('x'), { idempotencyKey: 'd:1' }), isRefused);
      await assert.rejects(log.read(0, 1), isRefused);
      await assert.rejects(s3Snapshots(options).put('a', streamOf(bytesOf('x'))), isRefused);
      await assert.rejects(s3Archive({ ...options, database: 'a' }).archive(log), isRefused);
    } finally {
      await server.stop();
    }
  });
}

test('MinIO passes, again and again, and the result is remembered', async () => {
  const server = await startMinio();
  try {
    for (let round = 0; round < 3; round++) await probeBucket(server.options, { again: true });
    let requests = 0;
    const counted = {
      ...server.options,
      fetch: (request: Request) => {
        requests++;
        return fetch(request);
      },
    };
    await probeBucket(counted);
    assert.equal(requests, 1);
  } finally {
    await server.stop();
  }
});

test('wrong keys and a missing bucket are refused, and a silent server is unavailable', async () => {
  const server = await startMinio();
  const { options } = server;
  await assert.rejects(
    probeBucket({ ...options, credentials: { accessKeyId: 'S3RVER', secretAccessKey: 'wrong' } }),
    hasCode('KV_LOG_REFUSED'),
  );
  await assert.rejects(probeBucket({ ...options, bucket: 'missing' }), hasCode('KV_LOG_REFUSED'));
  await server.stop();
  await assert.rejects(probeBucket(options), hasCode('KV_LOG_UNAVAILABLE'));
});
