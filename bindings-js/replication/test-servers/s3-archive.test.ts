// The archive, restoring to a point in time, and one writer at a time.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { LoggedRecord, RemoteLog } from '../src/remote-log.ts';
import { probeBucket, s3Archive, s3Log, takeOver } from '../../replication-s3/src/index.ts';
import type { S3Options } from '../../replication-s3/src/index.ts';
import { bytesOf, hasCode, textOf } from './support/log-contract.ts';
import { startMinio } from './support/s3.ts';
import type { S3Server } from './support/s3.ts';

let server: S3Server;
let databases = 0;
before(async () => {
  server = await startMinio();
  await probeBucket(server.options);
});
after(() => server.stop());

const optionsOf = (): S3Options & { readonly database: string } => ({
  ...server.options,
  database: `archive ${++databases}`,
});

async function fill(log: RemoteLog, from: number, to: number): Promise<void> {
  for (let seq = from; seq <= to; seq++) await log.append(bytesOf(`r${seq}`), { idempotencyKey: `a:${seq}` });
}

async function all(records: AsyncIterable<LoggedRecord>): Promise<LoggedRecord[]> {
  const found: LoggedRecord[] = [];
  for await (const record of records) found.push(record);
  return found;
}

const names = (first: number, last: number): string[] =>
  Array.from({ length: last - first + 1 }, (_, at) => `r${first + at}`);

test('what is archived is what the log had, in several segments', async () => {
  const options = optionsOf();
  const [log, archive] = [s3Log(options), s3Archive(options)];
  assert.equal(await archive.position(), 0);
  assert.deepEqual(await all((await archive.restore()).records), []);
  for (const [from, to] of [
    [1, 5],
    [6, 6],
    [7, 20],
  ] as const) {
    await fill(log, from, to);
    assert.equal(await archive.archive(log), to);
  }
  assert.equal(await archive.archive(log), 20);
  const { snapshot, records } = await archive.restore();
  assert.equal(snapshot, undefined);
  assert.deepEqual(await all(records), await log.read(0, 100));
});

test('several archivers make one archive', async () => {
  const options = optionsOf();
  const log = s3Log(options);
  await fill(log, 1, 10);
  await Promise.all([1, 2, 3].map(() => s3Archive(options).archive(s3Log(options))));
  await fill(log, 11, 15);
  await Promise.all([1, 2, 3].map(() => s3Archive(options).archive(s3Log(options))));
  const { records } = await s3Archive(options).restore();
  assert.deepEqual(
    (await all(records)).map(({ record }) => textOf(record)),
    names(1, 15),
  );
});

test('a point in time is a snapshot before it, and the records up to it', async () => {
  const options = optionsOf();
  const archive = s3Archive(options);
  // A log whose clock goes on by a second with each record, but once goes back.
  const records: LoggedRecord[] = Array.from({ length: 30 }, (_, at) => ({
    position: 10 * (at + 1),
    serverTime: (at === 20 ? 5 : at + 1) * 1000,
    record: bytesOf(`r${at + 1}`),
  }));
  const log = {
    read: async (from: number, limit: number) => records.filter(({ position }) => position > from).slice(0, limit),
  } as Partial<RemoteLog> as RemoteLog;
  await archive.archive(log);
  await archive.addSnapshot({ position: 100, serverTime: 10_000, key: 'at 100' });
  await archive.addSnapshot({ position: 200, serverTime: 20_000, key: 'at 200' });
  // Again: an answer may have been lost.
  await archive.addSnapshot({ position: 200, serverTime: 20_000, key: 'at 200' });
  await assert.rejects(
    archive.addSnapshot({ position: 200, serverTime: 20_000, key: 'another' }),
    hasCode('KV_LOG_CONFLICT'),
  );
  const plan = async (at: object): Promise<readonly [string | undefined, readonly string[]]> => {
    const { snapshot, records: after } = await archive.restore(at);
    return [snapshot?.key, (await all(after)).map(({ record }) => textOf(record))];
  };
  assert.deepEqual(await plan({ time: 9_999 }), [undefined, names(1, 9)]);
  assert.deepEqual(await plan({ time: 10_000 }), ['at 100', []]);
  assert.deepEqual(await plan({ time: 15_500 }), ['at 100', names(11, 15)]);
  assert.deepEqual(await plan({ time: 25_000 }), ['at 200', names(21, 25)]);
  assert.deepEqual(await plan({ position: 199 }), ['at 100', names(11, 19)]);
  assert.deepEqual(await plan({ position: 240 }), ['at 200', names(21, 24)]);
  assert.deepEqual(await plan({}), ['at 200', names(21, 30)]);
  assert.deepEqual(await plan({ time: 500 }), [undefined, []]);
});

test('an archive with a hole goes on from a snapshot, and does not restore across it', async () => {
  const options = optionsOf();
  const [log, archive] = [s3Log(options), s3Archive(options)];
  await fill(log, 1, 10);
  await archive.archive(log);
  await fill(log, 11, 20);
  await log.purge(15);
  await assert.rejects(archive.archive(log), hasCode('KV_LOG_TRUNCATED'));
  await archive.addSnapshot({ position: 15, serverTime: Date.now() + 3600_000, key: 'at 15' });
  assert.equal(await archive.archive(log, { after: 15 }), 20);
  const { snapshot, records } = await archive.restore();
  assert.equal(snapshot?.key, 'at 15');
  assert.deepEqual(
    (await all(records)).map(({ record }) => textOf(record)),
    names(16, 20),
  );
  const before = await archive.restore({ position: 12 });
  await assert.rejects(all(before.records), hasCode('KV_NOT_FOUND'));
  await assert.rejects(all((await archive.restore({ position: 21 })).records), hasCode('KV_NOT_FOUND'));
});

test('each record is restored once, although archivers began after different snapshots', async () => {
  const options = optionsOf();
  const [log, archive] = [s3Log(options), s3Archive(options)];
  await fill(log, 1, 20);
  let isFirst = true;
  const slow = {
    read: async (from: number, limit: number) => {
      const records = await log.read(from, limit);
      if (isFirst) {
        isFirst = false;
        assert.equal(await s3Archive(options).archive(log, { after: 12 }), 20);
      }
      return records;
    },
  } as Partial<RemoteLog> as RemoteLog;
  assert.equal(await archive.archive(slow, { after: 5 }), 20);
  await fill(log, 21, 25);
  assert.equal(await archive.archive(log), 25);
  for (const start of [5, 8, 12, 15]) {
    await archive.addSnapshot({ position: start, serverTime: 0, key: `at ${start}` });
    const { records, hasMore } = await archive.restore();
    assert.deepEqual(
      (await all(records)).map(({ record }) => textOf(record)),
      names(start + 1, 25),
    );
    assert.equal(hasMore?.(), false);
  }
});

test('of two writers the older one is fenced off', async () => {
  const options = optionsOf();
  const seen: string[] = [];
  const first = await takeOver(s3Log(options), { fence: bytesOf('fence 1'), idempotencyKey: 'w1:1' });
  await first.append(bytesOf('a'), 'w1:2');
  await first.append(bytesOf('b'), 'w1:3');
  const second = await takeOver(s3Log(options), {
    fence: bytesOf('fence 2'),
    idempotencyKey: 'w2:1',
    onRecords: (records) => {
      seen.push(...records.map(({ record }) => textOf(record)));
    },
  });
  assert.deepEqual(seen, ['fence 1', 'a', 'b']);
  for (let tries = 0; tries < 2; tries++)
    await assert.rejects(first.append(bytesOf('late'), 'w1:4'), hasCode('KV_LOG_REFUSED'));
  await second.append(bytesOf('c'), 'w2:2');
  assert.deepEqual(
    (await s3Log(options).read(0, 10)).map(({ record }) => textOf(record)),
    ['fence 1', 'a', 'b', 'fence 2', 'c'],
  );
});

test('a writer that slept through a purge neither loses its record nor revives a slot', async () => {
  const options = optionsOf();
  const [sleeper, other] = [s3Log(options), s3Log(options)];
  await sleeper.append(bytesOf('first'), { idempotencyKey: 's:1' });
  await fill(other, 1, 10);
  await other.purge(8);
  const position = await sleeper.append(bytesOf('second'), { idempotencyKey: 's:2' });
  assert.equal(position, 12);
  assert.deepEqual(
    (await s3Log(options).read(8, 10)).map(({ record }) => textOf(record)),
    ['r8', 'r9', 'r10', 'second'],
  );
  for (let slot = 1; slot <= 8; slot++) await assert.rejects(other.at(slot), hasCode('KV_LOG_TRUNCATED'));
});

test('an append whose answer was lost is found again', async () => {
  const options = optionsOf();
  let losing = 0;
  const lossy = s3Log({
    ...options,
    fetch: async (request) => {
      const response = await fetch(request);
      if (request.method !== 'PUT' || losing === 0) return response;
      losing--;
      await response.arrayBuffer();
      throw new TypeError('the connection was lost');
    },
  });
  await lossy.append(bytesOf('one'), { idempotencyKey: 'a:1' });
  losing = 1;
  await assert.rejects(lossy.append(bytesOf('two'), { idempotencyKey: 'a:2' }), hasCode('KV_LOG_UNAVAILABLE'));
  assert.equal(await lossy.append(bytesOf('two'), { idempotencyKey: 'a:2' }), 2);
  losing = 1;
  await assert.rejects(
    lossy.append(bytesOf('three'), { idempotencyKey: 'a:3', expect: 2 }),
    hasCode('KV_LOG_UNAVAILABLE'),
  );
  assert.equal(await s3Log(options).append(bytesOf('three'), { idempotencyKey: 'a:3', expect: 2 }), 3);
  losing = 1;
  await assert.rejects(lossy.replaceManifest(0, bytesOf('m')), hasCode('KV_LOG_UNAVAILABLE'));
  assert.equal(await lossy.replaceManifest(0, bytesOf('m')), 1);
  assert.deepEqual(
    (await lossy.read(0, 10)).map(({ record }) => textOf(record)),
    ['one', 'two', 'three'],
  );
});
