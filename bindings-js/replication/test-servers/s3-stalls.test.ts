// Requests that stop in the middle: they end, and what comes after them works.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { s3Log, s3Snapshots } from '../../replication-s3/src/index.ts';
import type { S3Options } from '../../replication-s3/src/index.ts';
import { bytesOf, hasCode } from './support/log-contract.ts';
import { Link } from './support/proxy.ts';
import { startMinio } from './support/s3.ts';
import type { S3Server } from './support/s3.ts';
import { streamOf } from './support/store-contract.ts';

let server: S3Server;
before(async () => {
  server = await startMinio();
});
after(() => server.stop());

const SIZE = 300_000;
const TIMEOUT = 400;

async function withLink(run: (link: Link, options: S3Options) => Promise<void>): Promise<void> {
  const link = await Link.to(server.port);
  try {
    await run(link, { ...server.options, endpoint: `http://127.0.0.1:${link.port}`, timeout: TIMEOUT });
  } finally {
    await link.close();
  }
}

function isUnavailable(pattern: RegExp): (error: unknown) => boolean {
  return (error) => hasCode('KV_LOG_UNAVAILABLE')(error) && pattern.test(String(error));
}

test('an answer that stops in its body ends the read, and the next one works', () =>
  withLink(async (link, options) => {
    const log = s3Log({ ...options, database: 'stalls' });
    await log.append(new Uint8Array(SIZE), { idempotencyKey: 'd:1' });
    // More than the small answers before it take.
    link.holdAnswers(SIZE / 2);
    await assert.rejects(
      log.read(0, 1),
      isUnavailable(/reading log\/000000000001 in the bucket databases: the answer stopped within 400 ms/),
    );
    link.releaseAnswers();
    link.set('cut');
    link.set('open');
    assert.equal((await log.read(0, 1))[0]?.record.length, SIZE);
    await log.close();
  }));

test('a read whose answer stopped is ended by its signal', () =>
  withLink(async (link, options) => {
    const log = s3Log({ ...options, timeout: 60_000, database: 'aborts' });
    await log.append(new Uint8Array(SIZE), { idempotencyKey: 'd:1' });
    link.holdAnswers(SIZE / 2);
    const stop = new AbortController();
    const read = log.read(0, 1, stop.signal);
    setTimeout(() => stop.abort(new Error('enough')), 100);
    await assert.rejects(read, /enough/);
    await log.close();
  }));

test('an answer that is slow but does not stop arrives', () =>
  withLink(async (link, options) => {
    const timeout = 2000;
    const snapshots = s3Snapshots({ ...options, timeout });
    await snapshots.put('slow', streamOf(new Uint8Array(SIZE)));
    link.holdAnswers(0);
    const timer = setInterval(() => link.releaseAnswers(SIZE / 8), 300);
    const start = performance.now();
    const stream = await snapshots.get('slow');
    clearInterval(timer);
    link.releaseAnswers();
    assert.equal((await new Response(stream).arrayBuffer()).byteLength, SIZE);
    assert.ok(performance.now() - start > timeout, 'all of it took longer than it may between two parts');
  }));

test('credentials that do not come, or a fetch that never returns, hold nothing up', async () => {
  let isStuck = false;
  const stuck = <T>(otherwise: () => T | Promise<T>): T | Promise<T> =>
    isStuck ? new Promise<T>(() => undefined) : otherwise();
  const { credentials } = server.options;
  for (const [options, pattern] of [
    [
      { credentials: () => stuck(() => credentials as Exclude<S3Options['credentials'], () => unknown>) },
      /no credentials within 400 ms/,
    ],
    [{ fetch: (request: Request) => stuck(() => fetch(request)) as Promise<Response> }, /no answer within 400 ms/],
  ] as const) {
    isStuck = false;
    const log = s3Log({ ...server.options, ...options, timeout: TIMEOUT, database: `stuck ${String(pattern)}` });
    const first = await log.append(bytesOf('1'), { idempotencyKey: 'd:1' });
    isStuck = true;
    await assert.rejects(log.append(bytesOf('2'), { idempotencyKey: 'd:2' }), isUnavailable(pattern));
    await assert.rejects(log.read(0, 1), isUnavailable(pattern));
    isStuck = false;
    assert.equal(await log.append(bytesOf('2'), { idempotencyKey: 'd:2' }), first + 1);
    await log.close();
  }
});

test('credentials that have expired are asked for again, those of an application that has no others are refused', async () => {
  const answer = (code: string, status: number): { readonly fetch: () => Promise<Response> } => ({
    fetch: async () => new Response(`<Error><Code>${code}</Code></Error>`, { status }),
  });
  const { credentials } = server.options;
  const expired = answer('ExpiredToken', 400);
  await assert.rejects(
    s3Log({ ...server.options, ...expired, credentials: () => credentials as never, database: 'e' }).read(0, 1),
    isUnavailable(/400 ExpiredToken/),
  );
  await assert.rejects(s3Log({ ...server.options, ...expired, database: 'e' }).read(0, 1), hasCode('KV_LOG_REFUSED'));
  await assert.rejects(
    s3Log({
      ...server.options,
      ...answer('InvalidAccessKeyId', 403),
      credentials: () => credentials as never,
      database: 'e',
    }).read(0, 1),
    hasCode('KV_LOG_REFUSED'),
  );
  const failing = (): never => {
    throw new Error('the session server is away');
  };
  await assert.rejects(
    s3Log({ ...server.options, credentials: failing, database: 'e' }).read(0, 1),
    isUnavailable(/the session server is away/),
  );
  await assert.rejects(
    s3Log({ ...server.options, endpoint: 'http://127.0.0.1:9', database: 'e' }).read(0, 1),
    isUnavailable(/fetch failed: .+/),
  );
});
