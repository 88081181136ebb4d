// What a device can do with its credentials, and what not: it has the protocol in its hands.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { headers, jwtAuthenticator, wsconnect } from '@nats-io/nats-core';
import type { NatsConnection } from '@nats-io/nats-core';
import { createUser } from '@nats-io/nkeys';
import {
  DEVICE_API,
  accountsConfig,
  adminCredentials,
  createAuthority,
  createStreams,
  deviceCredentials,
} from '../../replication-nats/src/admin.ts';
import type { NatsCredentials } from '../../replication-nats/src/admin.ts';
import { natsLog } from '../../replication-nats/src/index.ts';
import type { RemoteLog } from '../src/remote-log.ts';
import { bytesOf, hasCode, readAll, readCount, testLog, textOf } from './support/log-contract.ts';
import { Cluster } from './support/nats.ts';

const authority = createAuthority();
const signer = authority.devices;
const SHARDS = 2;
/** In different shards. */
const [MINE, FOREIGN] = ['mine', 'foreign 1'];
let cluster: Cluster;

before(async () => {
  cluster = await Cluster.start({ accounts: await accountsConfig(authority) });
  await createStreams({
    servers: cluster.servers,
    shards: SHARDS,
    replicas: 1,
    credentials: await adminCredentials({ signer: authority.streams, expiresIn: 600 }),
  });
});
after(() => cluster.stop());

const credentialsOf = (database: string, device: string, more: object = {}): Promise<NatsCredentials> =>
  deviceCredentials({ signer, database, device, shards: SHARDS, expiresIn: 600, ...more });

function open(
  database: string,
  device: string,
  credentials: NatsCredentials | (() => NatsCredentials | Promise<NatsCredentials>),
  timeout = 2000,
): RemoteLog {
  return natsLog({
    servers: cluster.servers,
    database,
    device,
    shards: SHARDS,
    apiPrefix: DEVICE_API,
    credentials,
    timeout,
  });
}

/** A connection of a device that does what it likes. */
async function hostile(
  database: string,
  device: string,
): Promise<{ readonly connection: NatsConnection; readonly inbox: string }> {
  const credentials = (await credentialsOf(database, device)) as { readonly jwt: string; readonly seed: string };
  const inbox = `_INBOX.${database.replace(' ', '=20')}.${device}`;
  const connection = await wsconnect({
    servers: cluster.servers,
    inboxPrefix: inbox,
    authenticator: jwtAuthenticator(credentials.jwt, new TextEncoder().encode(credentials.seed)),
    noAsyncTraces: true,
  });
  return { connection, inbox };
}

/** All that is in a database, as a device of it sees it. */
async function contentOf(database: string): Promise<string[]> {
  const log = open(database, 'reader', await credentialsOf(database, 'reader'));
  try {
    return (await readAll(log)).map(({ record }) => textOf(record));
  } finally {
    await log.close();
  }
}

let seeded = 0;
/** A record of the victim's, so that its database is not empty. */
async function seed(database: string): Promise<string[]> {
  const log = open(database, 'victim', await credentialsOf(database, 'victim'));
  await log.append(bytesOf(`victim ${++seeded}`), { idempotencyKey: `victim:${seeded}` });
  await log.close();
  return contentOf(database);
}

testLog('NATS with accounts and tokens', () => ({
  open: async (database, device) =>
    open(database, device, await credentialsOf(database, device, { canCompact: true }), 10_000),
}));

for (const database of [MINE, FOREIGN]) {
  test(`a record cannot be forged on the subject of another device (${database})`, async () => {
    const content = await seed(database);
    const { connection, inbox } = await hostile(MINE, 'hostile');
    const shard = database === MINE ? 0 : 1;
    const victim = `oplog.${shard}.${database.replace(' ', '=20')}.victim`;
    try {
      await assert.rejects(connection.request(victim, 'forged', { timeout: 1000 }), /permissions violation/i);
      // The victim's subject as that of a reply: the answer of the server would become a record.
      const api = (request: string): string => `${DEVICE_API}.${request}`;
      const requests: readonly (readonly [string, string])[] = [
        [
          api('CONSUMER.CREATE.OPLOG0.x1.oplog.0.mine.>'),
          JSON.stringify({
            stream_name: 'OPLOG0',
            config: { name: 'x1', filter_subject: 'oplog.0.mine.>', ack_policy: 'none' },
          }),
        ],
        [api('CONSUMER.MSG.NEXT.OPLOG0.x1'), JSON.stringify({ batch: 5, no_wait: true })],
        [api('CONSUMER.DELETE.OPLOG0.nothing'), ''],
        [api('DIRECT.GET.MANIFEST0.manifest.0.mine'), ''],
        ['oplog.0.mine.hostile', 'mine'],
      ];
      for (const [subject, body] of requests) connection.publish(subject, body, { reply: victim });
      await connection.flush();
      // A consumer that pushes to the victim's subject.
      for (const deliver of [victim, `${inbox}.pushed`]) {
        await connection
          .request(
            api('CONSUMER.CREATE.OPLOG0.x2.oplog.0.mine.>'),
            JSON.stringify({
              stream_name: 'OPLOG0',
              config: {
                name: 'x2',
                deliver_subject: deliver,
                filter_subject: 'oplog.0.mine.>',
                ack_policy: 'none',
                deliver_policy: 'all',
              },
            }),
            { timeout: 1000 },
          )
          .catch(() => undefined);
      }
      await new Promise((resolve) => setTimeout(resolve, 500));
    } finally {
      await connection.close();
    }
    // What the hostile device wrote as itself is its right.
    assert.deepEqual(
      (await contentOf(database)).filter((record) => record !== 'mine'),
      content.filter((record) => record !== 'mine'),
    );
  });
}

test('with streams and devices in one account it can be forged', async () => {
  const single = await Cluster.start();
  try {
    await createStreams({ servers: single.servers, replicas: 1 });
    const connection = await wsconnect({ servers: single.servers });
    connection.publish('$JS.API.STREAM.NAMES', '', { reply: 'oplog.0.mine.victim' });
    await connection.flush();
    const log = natsLog({ servers: single.servers, database: MINE, device: 'reader' });
    assert.match(textOf((await readCount(log, 1))[0]?.record as Uint8Array), /stream_names_response/);
    await log.close();
    await connection.close();
  } finally {
    await single.stop();
  }
});

test('another database cannot be read', async () => {
  await seed(FOREIGN);
  const { connection } = await hostile(MINE, 'hostile');
  const config = { ack_policy: 'none', deliver_policy: 'all' };
  const create = (stream: string, filter: string, body: object): Promise<string> =>
    connection
      .request(
        `${DEVICE_API}.CONSUMER.CREATE.${stream}.y.${filter}`,
        JSON.stringify({ stream_name: stream, config: { name: 'y', ...config, ...body } }),
        { timeout: 1000 },
      )
      .then(
        (reply) => reply.string(),
        (error: unknown) => `error: ${String(error)}`,
      );
  try {
    assert.match(
      await create('OPLOG1', 'oplog.1.foreign=201.>', { filter_subject: 'oplog.1.foreign=201.>' }),
      /permissions violation/i,
    );
    assert.match(await create('OPLOG0', 'oplog.0.>', { filter_subject: 'oplog.0.>' }), /permissions violation/i);
    // The subject of the request names another filter than its body.
    for (const body of [{ filter_subject: 'oplog.0.>' }, { filter_subjects: ['oplog.0.>'] }, {}])
      assert.match(await create('OPLOG0', 'oplog.0.mine.>', body), /error/, JSON.stringify(body));
    for (const request of [
      'STREAM.MSG.GET.OPLOG0',
      'DIRECT.GET.OPLOG0',
      'STREAM.INFO.OPLOG0',
      'STREAM.PURGE.OPLOG0',
      'STREAM.DELETE.OPLOG0',
      'CONSUMER.CREATE.OPLOG0',
      'DIRECT.GET.MANIFEST1.manifest.1.foreign=201',
    ]) {
      for (const prefix of [DEVICE_API, '$JS.API'])
        await assert.rejects(
          connection.request(`${prefix}.${request}`, '{"seq":1}', { timeout: 1000 }),
          /permissions violation/i,
          request,
        );
    }
    const errors: string[] = [];
    for (const subject of ['live.>', 'oplog.>', '_INBOX.>', 'live.oplog.1.>', '>']) {
      connection.subscribe(subject, {
        callback: (error) => {
          if (error) errors.push(subject);
        },
      });
    }
    await connection.flush();
    await new Promise((resolve) => setTimeout(resolve, 200));
    assert.deepEqual(errors, ['live.>', 'oplog.>', '_INBOX.>', 'live.oplog.1.>', '>']);
  } finally {
    await connection.close();
  }
});

test('the condition of an append can name another database, and then only harms its own record', async () => {
  const content = await seed(FOREIGN);
  const { connection } = await hostile(MINE, 'hostile');
  try {
    const fields = headers();
    fields.set('Nats-Expected-Last-Subject-Sequence', '0');
    fields.set('Nats-Expected-Last-Subject-Sequence-Subject', 'oplog.1.>');
    await connection.request('oplog.0.mine.hostile', 'x', { headers: fields, timeout: 1000 }).catch(() => undefined);
  } finally {
    await connection.close();
  }
  assert.deepEqual(await contentOf(FOREIGN), content);
  const log = open(FOREIGN, 'victim', await credentialsOf(FOREIGN, 'victim'));
  await log.append(bytesOf('unharmed'), { idempotencyKey: 'unharmed:1' });
  await log.close();
});

test('devices may neither purge nor replace the manifest', async () => {
  const log = open(MINE, 'a', await credentialsOf(MINE, 'a'));
  try {
    const position = await log.append(bytesOf('x'), { idempotencyKey: 'a:1' });
    await assert.rejects(log.purge(position), hasCode('KV_LOG_REFUSED'));
    await assert.rejects(log.replaceManifest(0, bytesOf('x')), hasCode('KV_LOG_REFUSED'));
    assert.equal(await log.manifest(), undefined);
  } finally {
    await log.close();
  }
});

test('credentials that are expired, of another authority, or of another key are refused', async () => {
  const now = Date.now();
  const real = (await credentialsOf(MINE, 'a')) as { readonly jwt: string; readonly seed: string };
  const other = (await credentialsOf(MINE, 'b')) as { readonly jwt: string; readonly seed: string };
  const expired = await credentialsOf(MINE, 'a', { expiresIn: 1 });
  while (Date.now() < now + 3000) await new Promise((resolve) => setTimeout(resolve, 100));
  const refused: readonly NatsCredentials[] = [
    expired,
    await deviceCredentials({ signer: createAuthority().devices, database: MINE, device: 'a', expiresIn: 600 }),
    // Somebody has seen the token on its way, but not the key.
    { jwt: real.jwt, seed: other.seed },
    { user: 'a', password: 'b' },
  ];
  for (const credentials of refused) {
    const log = open(MINE, 'a', credentials);
    await assert.rejects(log.read(0, 1), hasCode('KV_LOG_REFUSED'), JSON.stringify(credentials));
    await log.close();
  }
});

test('a device can keep the seed of its key to itself', async () => {
  const key = createUser();
  const { jwt } = (await credentialsOf(MINE, 'own', { publicKey: key.getPublicKey() })) as { readonly jwt: string };
  const log = open(MINE, 'own', { jwt, seed: textOf(key.getSeed()) });
  await log.append(bytesOf('x'), { idempotencyKey: 'own:1' });
  await log.close();
});

test('unusable options are refused', async () => {
  for (const options of [
    { device: 'a.b' },
    { device: '' },
    { device: '>' },
    { database: '' },
    { expiresIn: 0 },
    { signer: 'no seed' },
    { shards: 0 },
  ]) {
    await assert.rejects(
      deviceCredentials({ signer, database: MINE, device: 'a', expiresIn: 1, ...options }),
      hasCode('KV_INVALID_ARGUMENT'),
      JSON.stringify(options),
    );
  }
  for (const options of [{ device: '*' }, { database: '' }, { servers: [] }, { shards: 1.5 }]) {
    assert.throws(
      () => natsLog({ servers: 'ws://127.0.0.1:1', database: MINE, device: 'a', ...options }),
      hasCode('KV_INVALID_ARGUMENT'),
      JSON.stringify(options),
    );
  }
});

test('a device whose token expires while it is connected goes on with the next one', async () => {
  let asked = 0;
  const log = open(MINE, 'renewed', () => {
    asked++;
    return credentialsOf(MINE, 'renewed', { expiresIn: asked === 1 ? 2 : 600 });
  });
  try {
    let calls = 0;
    const end = log.wake(() => calls++);
    for (let seq = 1; asked < 2; seq++) {
      await log.append(bytesOf(String(seq)), { idempotencyKey: `renewed:${seq}` }).catch((error: unknown) => {
        assert.ok(hasCode('KV_LOG_UNAVAILABLE')(error) || hasCode('KV_LOG_REFUSED')(error), String(error));
      });
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    const after = await log.append(bytesOf('after'), { idempotencyKey: 'renewed:100000' });
    // The subscription went with the old connection.
    const before = calls;
    const writer = open(MINE, 'writer', await credentialsOf(MINE, 'writer'));
    for (let seq = 1; calls === before; seq++) {
      await writer.append(bytesOf(String(seq)), { idempotencyKey: `writer:${seq}` });
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
    end();
    await writer.close();
    assert.ok((await readCount(log, 1, after)).length > 0);
  } finally {
    await log.close();
  }
});
