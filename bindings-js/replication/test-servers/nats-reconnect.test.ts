// Servers that are away, come back, and whose answers are lost.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { wsconnect } from '@nats-io/nats-core';
import { createStreams } from '../../replication-nats/src/admin.ts';
import { natsLog } from '../../replication-nats/src/index.ts';
import type { NatsLogOptions } from '../../replication-nats/src/index.ts';
import type { RemoteLog } from '../src/remote-log.ts';
import { bytesOf, hasCode, readAll, textOf } from './support/log-contract.ts';
import { Cluster } from './support/nats.ts';
import { Link } from './support/proxy.ts';

let cluster: Cluster;
before(async () => {
  cluster = await Cluster.start();
  await createStreams({ servers: cluster.servers, replicas: 1 });
});
after(() => cluster.stop());

async function withLink(
  database: string,
  run: (log: RemoteLog, link: Link) => Promise<void>,
  options: Partial<NatsLogOptions> = {},
): Promise<void> {
  const link = await Link.to(cluster.nodes[0]?.websocket as number);
  const log = natsLog({ servers: `ws://127.0.0.1:${link.port}`, database, device: 'd', timeout: 700, ...options });
  try {
    await run(log, link);
  } finally {
    await log.close();
    await link.close();
  }
}

/** Repeats an operation until the log is available. */
async function eventually<T>(run: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await run();
    } catch (error) {
      if (!hasCode('KV_LOG_UNAVAILABLE')(error)) throw error;
    }
  }
}

test('without a server the log is unavailable, and works when there is one', () =>
  withLink('late', async (log, link) => {
    link.set('cut');
    let calls = 0;
    const end = log.wake(() => calls++);
    await assert.rejects(log.append(bytesOf('1'), { idempotencyKey: 'd:1' }), hasCode('KV_LOG_UNAVAILABLE'));
    await assert.rejects(log.read(0, 1), hasCode('KV_LOG_UNAVAILABLE'));
    await assert.rejects(log.manifest(), hasCode('KV_LOG_UNAVAILABLE'));
    assert.equal(calls, 0);
    link.set('open');
    await eventually(() => log.append(bytesOf('1'), { idempotencyKey: 'd:1' }));
    // Something may have come while it was away.
    while (calls === 0) await new Promise((resolve) => setTimeout(resolve, 20));
    end();
    assert.equal((await eventually(() => readAll(log))).length, 1);
  }));

test('a server that restarts keeps what it has acknowledged, and readers go on', () =>
  withLink('restart', async (log) => {
    for (let seq = 1; seq <= 20; seq++) {
      await eventually(() => log.append(bytesOf(String(seq)), { idempotencyKey: `d:${seq}` }));
      if (seq % 5 === 0) await eventually(() => log.read(0, 3));
      if (seq % 7 !== 0) continue;
      await cluster.nodes[0]?.kill();
      await cluster.nodes[0]?.start();
    }
    const records = await eventually(() => readAll(log, 0, 3));
    assert.deepEqual(
      records.map(({ record }) => textOf(record)),
      Array.from({ length: 20 }, (_, at) => String(at + 1)),
    );
  }));

for (const isStrict of [false, true]) {
  test(`appends whose answers are lost are there once${isStrict ? ', with a condition too' : ''}`, () =>
    withLink(`lost ${isStrict}`, async (log, link) => {
      let newest = 0;
      for (let seq = 1; seq <= 8; seq++) {
        const options = { idempotencyKey: `d:${seq}`, ...(isStrict ? { expect: newest } : {}) };
        await eventually(() => log.read(newest, 1));
        link.set('deaf');
        await assert.rejects(log.append(bytesOf(String(seq)), options), hasCode('KV_LOG_UNAVAILABLE'));
        // The connection has lost its place in what the server says.
        link.set('cut');
        link.set('open');
        newest = await eventually(() => log.append(bytesOf(String(seq)), options));
        assert.equal(await eventually(() => log.append(bytesOf(String(seq)), options)), newest);
      }
      const records = await eventually(() => readAll(log));
      assert.deepEqual(
        records.map(({ record }) => textOf(record)),
        Array.from({ length: 8 }, (_, at) => String(at + 1)),
      );
      assert.equal(records.at(-1)?.position, newest);
    }));
}

// In Node 20 and 22 a WebSocket that was closed before it was open does not send `close`.
for (const [name, options] of [
  ['', {}],
  [
    ', also with a client that waits for an event that never comes',
    { connect: (given) => wsconnect({ ...given, wsFactory: undefined }) },
  ],
] as readonly (readonly [string, Partial<NatsLogOptions>])[]) {
  test(`a server that did not answer for a while is connected to${name}`, () =>
    withLink(
      `silent${name.length}`,
      async (log, link) => {
        link.set('silent');
        for (let tries = 0; tries < 4; tries++) await assert.rejects(log.read(0, 1), hasCode('KV_LOG_UNAVAILABLE'));
        link.set('open');
        await eventually(() => log.append(bytesOf('1'), { idempotencyKey: 'd:1' }));
        link.set('silent');
        for (let tries = 0; tries < 4; tries++)
          await assert.rejects(log.append(bytesOf('2'), { idempotencyKey: 'd:2' }), hasCode('KV_LOG_UNAVAILABLE'));
        link.set('open');
        await eventually(() => log.append(bytesOf('2'), { idempotencyKey: 'd:2' }));
        assert.deepEqual(
          (await eventually(() => readAll(log))).map(({ record }) => textOf(record)),
          ['1', '2'],
        );
      },
      options,
    ));
}

test('a log is unavailable while the application gets credentials', async () => {
  const log = natsLog({
    servers: cluster.servers,
    database: 'waiting',
    device: 'd',
    timeout: 200,
    credentials: () => new Promise(() => undefined),
  });
  await assert.rejects(log.read(0, 1), hasCode('KV_LOG_UNAVAILABLE'));
  await assert.rejects(log.append(bytesOf('1'), { idempotencyKey: 'd:1' }), hasCode('KV_LOG_UNAVAILABLE'));
  await log.close();
});

test('a log closes while its connection is being replaced, and while it is opening', async () => {
  for (const state of ['cut', 'silent'] as const) {
    for (let time = 0; time < 5; time++) {
      await withLink('closing', async (log, link) => {
        if (time > 0) await eventually(() => log.read(0, 1));
        link.set(state);
        await Promise.race([
          log.read(0, 1).catch(() => undefined),
          new Promise((resolve) => setTimeout(resolve, time * 150)),
        ]);
      });
    }
  }
  const never = natsLog({
    servers: cluster.servers,
    database: 'closing',
    device: 'd',
    timeout: 200,
    credentials: () => new Promise(() => undefined),
  });
  void never.read(0, 1).catch(() => undefined);
  await never.close();
});

test('a device whose clock is set back while it is offline connects again', () =>
  withLink('clock', async (log, link) => {
    const { now } = Date;
    const end = log.wake(() => undefined);
    try {
      await eventually(() => log.append(bytesOf('1'), { idempotencyKey: 'd:1' }));
      link.set('cut');
      // The client has noticed, and tries again and again.
      for (let tries = 0; tries < 3; tries++)
        await assert.rejects(log.append(bytesOf('2'), { idempotencyKey: 'd:2' }), hasCode('KV_LOG_UNAVAILABLE'));
      Date.now = () => now() - 86_400_000;
      link.set('open');
      let failures = 0;
      while (
        await log.append(bytesOf('2'), { idempotencyKey: 'd:2' }).then(
          () => false,
          () => true,
        )
      )
        assert.ok(++failures < 30, 'it does not connect');
    } finally {
      Date.now = now;
      end();
    }
  }));

test('a manifest whose answer is lost is replaced once', () =>
  withLink('manifest', async (log, link) => {
    assert.equal(await eventually(() => log.manifest()), undefined);
    link.set('deaf');
    await assert.rejects(log.replaceManifest(0, bytesOf('one')), hasCode('KV_LOG_UNAVAILABLE'));
    link.set('cut');
    link.set('open');
    const revision = await eventually(() => log.replaceManifest(0, bytesOf('one')));
    assert.equal((await eventually(() => log.manifest()))?.revision, revision);
  }));
