// A server that answers reads although it has not heard yet of what the others have taken. Here
// another one answers in its place with what was current before.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { headers, wsconnect } from '@nats-io/nats-core';
import type { Msg, NatsConnection } from '@nats-io/nats-core';
import { createStreams } from '../../replication-nats/src/admin.ts';
import { natsLog } from '../../replication-nats/src/index.ts';
import { bytesOf, hasCode, textOf } from './support/log-contract.ts';
import { Cluster } from './support/nats.ts';

let cluster: Cluster;
let connection: NatsConnection;
/** How many of the next reads of a manifest get the reply to the one before them. */
let lag = 0;
before(async () => {
  cluster = await Cluster.start();
  await createStreams({ servers: cluster.servers, replicas: 1 });
  connection = await wsconnect({ servers: cluster.servers });
  let last: Msg | undefined;
  connection.subscribe('LAG.>', {
    callback: (_, message) => {
      const subject = message.subject.replace('LAG.', '$JS.API.');
      if (!subject.startsWith('$JS.API.DIRECT.GET.MANIFEST')) {
        connection.publish(subject, message.data, { reply: message.reply as string });
        return;
      }
      const answer = ({ data, headers: fields }: Msg): boolean =>
        message.respond(data, { headers: fields ?? headers() });
      if (lag > 0 && last !== undefined) {
        lag--;
        answer(last);
        return;
      }
      void connection.request(subject, message.data, { timeout: 5000 }).then((reply) => {
        last = reply;
        answer(reply);
      });
    },
  });
});
after(async () => {
  await connection.close();
  await cluster.stop();
});

const open = (database: string, device: string, timeout = 5000): ReturnType<typeof natsLog> =>
  natsLog({ servers: cluster.servers, database, device, timeout, apiPrefix: 'LAG' });

test('a device reads the manifest that it has written', async () => {
  const log = open('own', 'd');
  assert.equal(await log.manifest(), undefined);
  const first = await log.replaceManifest(0, bytesOf('one'));
  lag = 3;
  assert.deepEqual(await log.manifest(), { revision: first, manifest: bytesOf('one') });
  assert.equal(lag, 0);
  const second = await log.replaceManifest(first, bytesOf('two'));
  // Its reply was lost, so it is repeated.
  lag = 3;
  assert.equal(await log.replaceManifest(first, bytesOf('two')), second);
  assert.equal(lag, 0);
  await log.close();
});

test('a device reads no older manifest than before, unless the servers lost it', async () => {
  const [log, other] = [open('seen', 'd', 700), open('seen', 'e', 700)];
  const first = await other.replaceManifest(0, bytesOf('one'));
  assert.equal((await log.manifest())?.revision, first);
  const second = await other.replaceManifest(first, bytesOf('two'));
  // What this device has not seen, it may miss.
  lag = 1;
  assert.equal(textOf((await log.manifest())?.manifest as Uint8Array), 'one');
  assert.equal((await other.manifest())?.revision, second);
  lag = 1;
  assert.equal(textOf((await log.manifest())?.manifest as Uint8Array), 'two');
  await (
    await connection.request('$JS.API.STREAM.PURGE.MANIFEST0', JSON.stringify({ filter: 'manifest.0.seen' }))
  ).json();
  await assert.rejects(log.manifest(), hasCode('KV_LOG_UNAVAILABLE'));
  assert.equal(await log.manifest(), undefined);
  await Promise.all([log.close(), other.close()]);
});
