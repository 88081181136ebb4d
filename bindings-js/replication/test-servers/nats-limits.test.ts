// What a log on NATS takes, and how its streams decide where it is.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { wsconnect } from '@nats-io/nats-core';
import { createStreams } from '../../replication-nats/src/admin.ts';
import { natsLog } from '../../replication-nats/src/index.ts';
import { bytesOf, hasCode, readCount, textOf } from './support/log-contract.ts';
import { Cluster } from './support/nats.ts';

const MAX_RECORD = 1024 * 1024 - 4096;

let cluster: Cluster;
before(async () => {
  cluster = await Cluster.start();
  await createStreams({ servers: cluster.servers, replicas: 1 });
});
after(() => cluster.stop());

test('the largest record is taken, and one that is larger is refused', async () => {
  const log = natsLog({ servers: cluster.servers, database: 'large', device: 'd' });
  const largest = crypto.getRandomValues(new Uint8Array(65_536));
  const record = Uint8Array.from({ length: MAX_RECORD }, (_, at) => largest[at % largest.length] as number);
  await log.append(record, { idempotencyKey: 'd:1' });
  await assert.rejects(
    log.append(new Uint8Array(MAX_RECORD + 1), { idempotencyKey: 'd:2' }),
    hasCode('KV_LOG_REFUSED'),
  );
  await log.append(bytesOf('next'), { idempotencyKey: 'd:2' });
  const records = await readCount(log, 2);
  assert.ok(Buffer.from(records[0]?.record as Uint8Array).equals(Buffer.from(record)));
  assert.equal(textOf(records[1]?.record as Uint8Array), 'next');
  await log.close();
});

test('a name takes up to 200 bytes in a subject', async () => {
  // A space takes three.
  for (const database of ['a'.repeat(200), `${' '.repeat(66)}ab`]) {
    const log = natsLog({ servers: cluster.servers, database, device: 'd' });
    await log.append(bytesOf('x'), { idempotencyKey: 'd:1' });
    await log.close();
  }
  for (const database of ['a'.repeat(201), ' '.repeat(67)])
    assert.throws(() => natsLog({ servers: cluster.servers, database, device: 'd' }), hasCode('KV_INVALID_ARGUMENT'));
});

test('streams that are created again keep what they have, and headers and subjects are what the documentation says', async () => {
  const log = natsLog({ servers: cluster.servers, database: 'notes of ada', device: 'd' });
  const first = await log.append(bytesOf('one'), { idempotencyKey: 'd:1' });
  await createStreams({ servers: cluster.servers, replicas: 1 });
  const second = await log.append(bytesOf('two'), { idempotencyKey: 'd:2', expect: first });
  assert.equal((await readCount(log, 2)).length, 2);
  const connection = await wsconnect({ servers: cluster.servers });
  const stored = await connection.request('$JS.API.STREAM.MSG.GET.OPLOG0', JSON.stringify({ seq: second }));
  const { message } = stored.json<{ readonly message: { readonly subject: string; readonly hdrs: string } }>();
  assert.equal(message.subject, 'oplog.0.notes=20of=20ada.d');
  const headers = Buffer.from(message.hdrs, 'base64').toString();
  assert.match(headers, /^Mangrove-Key: ?d:2\r$/m);
  assert.match(headers, new RegExp(`^Mangrove-After: ?${first}\r$`, 'm'));
  await connection.close();
  await log.close();
});

test('a device that was told another number of shards looks for the database in another stream', async () => {
  const { servers } = cluster;
  await createStreams({ servers, replicas: 1, shards: 8 });
  let moved = 0;
  for (const database of ['a', 'b', 'c', 'd', 'e', 'f']) {
    const [one, eight] = [
      natsLog({ servers, database: `shard ${database}`, device: 'd' }),
      natsLog({ servers, database: `shard ${database}`, device: 'd', shards: 8 }),
    ];
    await one.append(bytesOf('x'), { idempotencyKey: 'd:1' });
    await readCount(one, 1);
    if ((await eight.read(0, 10)).length === 0) moved++;
    await one.close();
    await eight.close();
  }
  assert.ok(moved > 0);
});
