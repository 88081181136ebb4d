// Records that a server has taken against their condition, as it does in a cluster when several
// come at once. Here they are made on purpose.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { headers, wsconnect } from '@nats-io/nats-core';
import type { NatsConnection } from '@nats-io/nats-core';
import { createStreams } from '../../replication-nats/src/admin.ts';
import { natsLog } from '../../replication-nats/src/index.ts';
import type { RemoteLog } from '../src/remote-log.ts';
import { bytesOf, hasCode, readAll, textOf } from './support/log-contract.ts';
import { Cluster } from './support/nats.ts';

let cluster: Cluster;
let connection: NatsConnection;
before(async () => {
  cluster = await Cluster.start();
  await createStreams({ servers: cluster.servers, replicas: 1 });
  connection = await wsconnect({ servers: cluster.servers });
});
after(async () => {
  await connection.close();
  await cluster.stop();
});

/** Puts a record into the log as if it had been appended after a position, and returns its own. */
async function force(database: string, device: string, text: string, afterPosition: number): Promise<number> {
  const fields = headers();
  fields.set('Mangrove-Key', `${device}:1`);
  fields.set('Mangrove-After', String(afterPosition));
  return (
    await connection.request(`oplog.0.${database}.${device}`, bytesOf(text), { headers: fields, timeout: 5000 })
  ).json<{ readonly seq: number }>().seq;
}

const open = (database: string, device: string): RemoteLog => natsLog({ servers: cluster.servers, database, device });
const textsOf = async (log: RemoteLog, from = 0, limit = 100): Promise<string[]> =>
  (await readAll(log, from, limit)).map(({ record }) => textOf(record));

test('readers ignore a record that is not right after what it expected, wherever they begin', async () => {
  const [log, tail] = [open('a', 'd'), open('a', 'tail')];
  const first = await log.append(bytesOf('1'), { idempotencyKey: 'd:1' });
  const second = await log.append(bytesOf('2'), { idempotencyKey: 'd:2' });
  assert.deepEqual(await textsOf(tail), ['1', '2']);
  await force('a', 'x', 'late', first);
  await force('a', 'y', 'later', second);
  assert.deepEqual(await textsOf(tail, second), []);
  const third = await log.append(bytesOf('3'), { idempotencyKey: 'd:3' });
  assert.deepEqual(await textsOf(tail, second), ['3']);
  await force('a', 'z', 'in time', third);
  for (const [from, texts] of [
    [0, ['1', '2', '3', 'in time']],
    [first, ['2', '3', 'in time']],
    [second, ['3', 'in time']],
    [third, ['in time']],
  ] as const) {
    for (const limit of [1, 2, 100]) {
      const fresh = open('a', 'fresh');
      assert.deepEqual(await textsOf(fresh, from, limit), texts);
      await fresh.close();
    }
  }
  await Promise.all([log.close(), tail.close()]);
});

test('a record that is ignored does not keep others from being appended after the one before it', async () => {
  const [log, other] = [open('b', 'd'), open('b', 'e')];
  const first = await log.append(bytesOf('1'), { idempotencyKey: 'd:1' });
  const second = await log.append(bytesOf('2'), { idempotencyKey: 'd:2' });
  for (const device of ['x', 'y', 'z']) await force('b', device, device, first);
  await assert.rejects(
    other.append(bytesOf('no'), { idempotencyKey: 'e:1', expect: first }),
    hasCode('KV_LOG_CONFLICT'),
  );
  const third = await other.append(bytesOf('3'), { idempotencyKey: 'e:1', expect: second });
  assert.deepEqual(await textsOf(log), ['1', '2', '3']);
  await assert.rejects(
    log.append(bytesOf('no'), { idempotencyKey: 'd:3', expect: second }),
    hasCode('KV_LOG_CONFLICT'),
  );
  await log.append(bytesOf('4'), { idempotencyKey: 'd:3', expect: third });
  assert.deepEqual(await textsOf(other), ['1', '2', '3', '4']);
  await Promise.all([log.close(), other.close()]);
});

test('a record that is ignored does not count as a repeated append', async () => {
  const log = open('d', 'd');
  const first = await log.append(bytesOf('1'), { idempotencyKey: 'd:1' });
  await log.append(bytesOf('2'), { idempotencyKey: 'd:2' });
  for (const [device, text] of [
    ['x', 'same'],
    ['y', 'other'],
  ] as const) {
    await force('d', device, 'same', first);
    const own = open('d', device);
    const position = await own.append(bytesOf(text), { idempotencyKey: `${device}:1` });
    assert.equal(await own.append(bytesOf(text), { idempotencyKey: `${device}:1` }), position);
    const again = open('d', device);
    assert.equal(await again.append(bytesOf(text), { idempotencyKey: `${device}:1` }), position);
    await Promise.all([own.close(), again.close()]);
  }
  assert.deepEqual(await textsOf(log), ['1', '2', 'same', 'other']);
  await log.close();
});

test('what belongs to a database but is no record is no record', async () => {
  const log = open('c', 'd');
  const first = await log.append(bytesOf('1'), { idempotencyKey: 'd:1' });
  // It is proved to be missing by a message in the log.
  assert.equal(await log.at(first + 1), undefined);
  const second = await log.append(bytesOf('2'), { idempotencyKey: 'd:2', expect: first });
  assert.deepEqual(await textsOf(log), ['1', '2']);
  assert.equal(await log.at(second - 1), undefined);
  await log.close();
});
