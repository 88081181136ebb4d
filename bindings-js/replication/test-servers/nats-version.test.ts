// Servers that lose records are refused.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isAtLeast } from '../../replication-nats/src/connection.ts';
import { createStreams } from '../../replication-nats/src/admin.ts';
import { natsLog } from '../../replication-nats/src/index.ts';
import { bytesOf, hasCode } from './support/log-contract.ts';
import { Cluster } from './support/nats.ts';

test('versions are compared by number', () => {
  for (const version of ['2.15.2', '2.15.10', '2.16.0', '3.0.0', '2.16.0-RC.1'])
    assert.ok(isAtLeast(version, '2.15.2'), version);
  for (const version of ['2.9.10', '2.15.1', '1.99.99', '2.15.2-RC.1', '2.15', '', 'of unknown version'])
    assert.ok(!isAtLeast(version, '2.15.2'), version);
});

test('an old server is refused by each operation', async () => {
  const cluster = await Cluster.start({ isOld: true });
  try {
    const { servers } = cluster;
    const isRefused = (error: unknown): boolean => hasCode('KV_LOG_REFUSED')(error) && /2\.9\.10/.test(String(error));
    await assert.rejects(createStreams({ servers, replicas: 1 }), isRefused);
    const log = natsLog({ servers, database: 'a', device: 'd' });
    await assert.rejects(log.append(bytesOf('x'), { idempotencyKey: 'd:1' }), isRefused);
    await assert.rejects(log.read(0, 1), isRefused);
    await assert.rejects(log.at(1), isRefused);
    await assert.rejects(log.manifest(), isRefused);
    await log.close();
  } finally {
    await cluster.stop();
  }
});
