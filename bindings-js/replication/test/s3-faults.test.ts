// Buckets whose listings lag behind, which the log does not need, and buckets that the probe refuses.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryServer } from '../src/memory-log.ts';
import { probeBucket, s3Archive, s3Log, s3Snapshots } from '../../replication-s3/src/index.ts';
import type { RemoteLog } from '../src/remote-log.ts';
import { bytesOf, hasCode, readAll, testLog, textOf } from '../test-servers/support/log-contract.ts';
import { bytesIn, streamOf } from '../test-servers/support/store-contract.ts';
import { code } from '../../kv/test/support/kit.ts';
import { Device, converge } from './device.ts';
import { equal, stopAll } from './helpers.ts';
import { S3Memory } from './s3-memory.ts';
import type { S3Faults } from './s3-memory.ts';

const DAY_MS = 86_400_000;

const open = ({ options }: S3Memory, database = 'notes'): RemoteLog =>
  s3Log({ ...options, database, probe: false, pollInterval: 20 });

for (const areListingsLate of [false, true]) {
  testLog(`S3 in memory${areListingsLate ? ', whose listings never show anything' : ''}`, () => {
    const bucket = new S3Memory();
    bucket.faults.areListingsLate = areListingsLate;
    return { open: (database) => open(bucket, database) };
  });
}

async function fill(log: RemoteLog, first: number, last: number): Promise<void> {
  for (let seq = first; seq <= last; seq++) await log.append(bytesOf(`r${seq}`), { idempotencyKey: `f:${seq}` });
}

test('a writer that slept through a purge finds the end of the log, although listings do not show the purge', async () => {
  const bucket = new S3Memory();
  const [sleeper, other] = [open(bucket), open(bucket)];
  await sleeper.append(bytesOf('first'), { idempotencyKey: 's:1' });
  await fill(other, 1, 10);
  bucket.faults.areListingsLate = true;
  await other.purge(8);
  const position = await sleeper.append(bytesOf('second'), { idempotencyKey: 's:2' });
  assert.equal(position, 12);
  const fresh = open(bucket);
  await assert.rejects(fresh.read(0, 10), hasCode('KV_LOG_TRUNCATED'));
  assert.deepEqual(
    (await readAll(fresh, 8)).map(({ record }) => textOf(record)),
    ['r8', 'r9', 'r10', 'second'],
  );
  for (let slot = 1; slot <= 8; slot++) await assert.rejects(fresh.at(slot), hasCode('KV_LOG_TRUNCATED'));
});

test('purges and manifests are found in any number, each by few requests', async () => {
  const bucket = new S3Memory();
  bucket.faults.areListingsLate = true;
  const log = open(bucket);
  for (let round = 1; round <= 40; round++) {
    await fill(log, round, round);
    await log.purge(round - 1);
    // Those that come late, or for less, change nothing.
    await log.purge(Math.max(0, round - 3));
    assert.equal(await log.replaceManifest(round - 1, bytesOf(`manifest ${round}`)), round);
    const fresh = open(bucket);
    const { requests } = bucket;
    assert.equal(textOf((await fresh.manifest())?.manifest as Uint8Array), `manifest ${round}`);
    assert.ok(
      bucket.requests - requests <= 2 * Math.ceil(Math.log2(round + 1)) + 2,
      `${bucket.requests - requests} requests for revision ${round}`,
    );
    if (round > 1) await assert.rejects(fresh.read(round - 2, 1), hasCode('KV_LOG_TRUNCATED'));
    assert.deepEqual(
      (await fresh.read(round - 1, 5)).map(({ record }) => textOf(record)),
      [`r${round}`],
    );
    await assert.rejects(fresh.replaceManifest(round - 1, bytesOf('late')), hasCode('KV_LOG_CONFLICT'));
  }
  const { requests } = bucket;
  await log.manifest();
  assert.equal(bucket.requests - requests, 1);
  // The reply of a replacement was lost, and it was replaced since.
  assert.equal(await open(bucket).replaceManifest(38, bytesOf('manifest 39')), 39);
});

test('a record is an object, an append takes two requests, and a purge deletes records only', async () => {
  const bucket = new S3Memory();
  const log = open(bucket);
  await fill(log, 1, 3);
  for (let seq = 4; seq <= 6; seq++) {
    const { requests } = bucket;
    await fill(log, seq, seq);
    assert.equal(bucket.requests - requests, 2);
  }
  await log.replaceManifest(0, bytesOf('manifest'));
  const name = (key: string): string => key.replace(/^database\/[^/]+\//, '');
  const names = (): string[] => [...bucket.objects.keys()].map(name).sort();
  const records = ['1', '2', '3', '4', '5', '6'].map((slot) => `log/${slot.padStart(12, '0')}`);
  const others = names().filter((key) => !key.startsWith('log/'));
  assert.deepEqual(names(), [...others, ...records].sort());
  assert.equal(others.filter((key) => key.startsWith('manifest/')).length, 1);
  const before = new Map(bucket.objects);
  await log.purge(4);
  const noted = names().filter((key) => key.startsWith('purge/'));
  assert.equal(noted.length, 1);
  assert.deepEqual(names(), [...others, ...noted, ...records.slice(4)].sort());
  for (const [key, bytes] of bucket.objects)
    if (before.has(key)) assert.deepEqual(bytes, before.get(key), `${key} was changed`);
});

test('of two writers that never pause neither is starved', async () => {
  const bucket = new S3Memory();
  const send = bucket.options.fetch as (request: Request) => Promise<Response>;
  const remote = (): RemoteLog =>
    s3Log({
      ...bucket.options,
      database: 'notes',
      probe: false,
      fetch: async (request) => {
        await new Promise((resolve) => setTimeout(resolve, 2 + 4 * Math.random()));
        return send(request);
      },
    });
  const RECORDS = 40;
  await Promise.all(
    ['a', 'b'].map(async (writer) => {
      const log = remote();
      for (let seq = 1; seq <= RECORDS; seq++)
        await log.append(bytesOf(writer), { idempotencyKey: `${writer}:${seq}` });
    }),
  );
  const writers = (await readAll(remote(), 0)).map(({ record }) => textOf(record)).join('');
  assert.equal(writers.length, 2 * RECORDS);
  // Who is through first leaves the rest to the other one.
  const both = writers.replace(/(.)\1*$/, '');
  const longest = Math.max(...(both.match(/a+|b+/g) ?? [writers]).map(({ length }) => length));
  assert.ok(longest <= RECORDS / 2, `${longest} records of one in a row: ${writers}`);
});

test('an upload that was interrupted shows nothing, leaves its parts, and can be repeated', async () => {
  const bucket = new S3Memory();
  const send = bucket.options.fetch as (request: Request) => Promise<Response>;
  const object = new Uint8Array(9 * 1024 * 1024).fill(7);
  let left = 2;
  const dying = s3Snapshots({
    ...bucket.options,
    probe: false,
    fetch: async (request) => {
      if (--left < 0) throw new Error('the power is gone');
      return send(request);
    },
  });
  await assert.rejects(dying.put('snapshot/x', streamOf(object)), hasCode('KV_LOG_UNAVAILABLE'));
  const store = s3Snapshots({ ...bucket.options, probe: false });
  assert.equal(await store.get('snapshot/x'), undefined);
  assert.deepEqual(await store.list(''), []);
  const keys = [...bucket.objects.keys()];
  assert.ok(keys.length > 0 && keys.every((key) => key.startsWith('snapshots/part/')), keys.join());
  await store.put('snapshot/x', streamOf(object));
  assert.ok(Buffer.from((await bytesIn(await store.get('snapshot/x'))) as Uint8Array).equals(Buffer.from(object)));
  assert.deepEqual(await store.list(''), ['snapshot/x']);
});

test('devices over such a bucket have everything, also after compactions', async () => {
  const bucket = new S3Memory();
  bucket.faults.areListingsLate = true;
  const start = (): Promise<Device> =>
    Device.start(new MemoryServer(), {
      log: open(bucket),
      snapshots: s3Snapshots({ ...bucket.options, probe: false }),
      isInMemory: true,
    });
  const [a, b] = [await start(), await start()];
  for (let round = 0; round < 5; round++) {
    await a.db.collection('notes').set(round, 'from a');
    await converge([a, b]);
    await (round % 2 === 0 ? a : b).replica.compact();
    await b.db.collection('notes').set(`b ${round}`, 'from b');
    await b.exchange();
    b.replica.reconnect();
  }
  const fresh = await start();
  await converge([fresh, a, b]);
  await equal([fresh, a, b]);
  assert.equal(await fresh.db.collection('notes').size, 10);
  assert.deepEqual(
    [a, b, fresh].flatMap(({ alarms, repairs }) => [...alarms, ...repairs]),
    [],
  );
  await stopAll([a, b, fresh]);
});

test('an archive goes on after its last segment and restores it, although listings show none, or only the first', async () => {
  for (const listed of [0, 1]) {
    const bucket = new S3Memory();
    const log = open(bucket);
    bucket.faults.areListingsLate = listed === 0;
    await fill(log, 1, 3);
    const archive = (): ReturnType<typeof s3Archive> =>
      s3Archive({ ...bucket.options, database: 'notes', probe: false });
    await archive().archive(log);
    bucket.faults.areListingsLate = true;
    for (const [first, last] of [
      [4, 6],
      [7, 7],
    ] as const) {
      await fill(log, first, last);
      assert.equal(await archive().archive(log), last);
      assert.equal(await archive().position(), last);
    }
    const texts: string[] = [];
    for await (const { record } of (await archive().restore()).records) texts.push(textOf(record));
    assert.deepEqual(texts, ['r1', 'r2', 'r3', 'r4', 'r5', 'r6', 'r7']);
    assert.equal([...bucket.objects.keys()].filter((key) => key.includes('/segment/')).length, 3);
  }
});

test('a bucket in order passes the probe, and the result is remembered', async () => {
  const bucket = new S3Memory();
  // Not needed.
  bucket.faults.areListingsLate = true;
  await probeBucket(bucket.options);
  assert.deepEqual([...bucket.objects.keys()], ['probe/passed-2']);
  const { requests } = bucket;
  await probeBucket(bucket.options);
  assert.equal(bucket.requests - requests, 1);
});

let reads = 0;
const faults: readonly (readonly [what: string, why: RegExp, faults: Partial<S3Faults>])[] = [
  ['shows objects late to those that looked for them before', /is not found/, { lateReads: 1 }],
  ['replaces objects', /were told that they created it/, { isConditionIgnored: 'replaces' }],
  ['does not tell that an object exists', /were told that they created it/, { isConditionIgnored: 'keeps' }],
  ['sends no Last-Modified', /header Last-Modified is missing/, { lastModified: () => undefined }],
  ['sends a Last-Modified that is no time', /header Last-Modified is "yesterday"/, { lastModified: () => 'yesterday' }],
  [
    'sends another Last-Modified each time',
    /header Last-Modified .* changes/,
    { lastModified: (created) => new Date(created + 1000 * reads++).toUTCString() },
  ],
];
for (const [what, why, given] of faults) {
  test(`the probe refuses a bucket that ${what}`, async () => {
    const bucket = new S3Memory();
    Object.assign(bucket.faults, given);
    for (const attempt of [
      () => probeBucket(bucket.options),
      () => s3Log({ ...bucket.options, database: 'notes' }).append(bytesOf('x'), { idempotencyKey: 'd:1' }),
    ]) {
      await assert.rejects(
        attempt(),
        (error) =>
          hasCode('KV_LOG_REFUSED')(error) &&
          why.test(String(error)) &&
          /the bucket bucket at http:\/\/s3.invalid is refused/.test(String(error)),
      );
    }
    assert.deepEqual([...bucket.objects.keys()], []);
  });
}

test('a device whose clock is wrong signs by the clock of the service, also when one of the two jumps', async () => {
  const bucket = new S3Memory();
  const [log, snapshots] = [open(bucket), s3Snapshots({ ...bucket.options, probe: false })];
  for (const [round, ahead] of [0, 400, -400, 0.02, 3].entries()) {
    bucket.faults.clock = () => Date.now() + ahead * DAY_MS;
    const { requests } = bucket;
    assert.equal(await log.append(bytesOf(`r${round}`), { idempotencyKey: `f:${round}` }), round + 1);
    await snapshots.put(`${round}`, streamOf(bytesOf('object')));
    assert.deepEqual(
      (await log.read(round, 1)).map(({ record }) => textOf(record)),
      [`r${round}`],
    );
    // Each of the two learns it once.
    const first = bucket.requests - requests;
    await snapshots.get(`${round}`);
    assert.ok(first <= 12, `${first} requests`);
    assert.equal(bucket.requests - requests, first + 1);
  }
  // Also requests that were under way when it learnt it.
  bucket.faults.clock = () => Date.now() - DAY_MS;
  await Promise.all(Array.from({ length: 5 }, (_, nth) => snapshots.get(`${nth}`)));
  // Keys that are refused for another reason stay refused.
  const { fetch: send } = bucket.options as { readonly fetch: (request: Request) => Promise<Response> };
  let asked = 0;
  const refusing = s3Log({
    ...bucket.options,
    database: 'notes',
    probe: false,
    fetch: async (request) => {
      asked++;
      await send(request);
      return new Response(null, { status: 403, headers: { date: new Date().toUTCString() } });
    },
  });
  await assert.rejects(refusing.read(0, 1), hasCode('KV_LOG_REFUSED'));
  assert.equal(asked, 1);
});

test('a record without a time is refused also where the bucket was not probed', async () => {
  const bucket = new S3Memory();
  const log = open(bucket);
  await log.append(bytesOf('x'), { idempotencyKey: 'd:1' });
  bucket.faults.lastModified = () => undefined;
  for (const read of [() => log.read(0, 1), () => log.at(1)]) {
    await assert.rejects(
      read(),
      (error) =>
        code('KV_LOG_REFUSED')(error) && /log\/000000000001 .*header Last-Modified is missing/.test(String(error)),
    );
  }
});

test('Node has nothing to say of the listeners of a signal with which many records are read', async () => {
  const bucket = new S3Memory();
  const log = open(bucket);
  await fill(log, 1, 64);
  const warnings: string[] = [];
  const hear = ({ name }: Error): void => void warnings.push(name);
  process.on('warning', hear);
  const { signal } = new AbortController();
  assert.equal((await log.read(0, 64, signal)).length, 64);
  await new Promise((resolve) => setTimeout(resolve));
  process.off('warning', hear);
  assert.deepEqual(warnings, []);
});
