// Archives of databases that devices write over real servers, and databases of an earlier time made
// from them: by the library, and by the command line tool as a process.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { keyCodecs, open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { MemoryLog, MemoryServer, replicate } from '@mangrove-kv/replication';
import type { Seal, Replication } from '@mangrove-kv/replication';
import { archiveLog, restoreArchive } from '@mangrove-kv/replication/archive';
import {
  accountsConfig,
  adminCredentials,
  createAuthority,
  createStreams,
  deviceCredentials,
} from '@mangrove-kv/replication-nats/admin';
import { natsLog } from '@mangrove-kv/replication-nats';
import { s3Archive, s3Log, s3Snapshots } from '@mangrove-kv/replication-s3';
import type { RemoteLog, S3Options } from '@mangrove-kv/replication-s3';
import { hasCode } from './support/log-contract.ts';
import { Cluster } from './support/nats.ts';
import { startMinio } from './support/s3.ts';
import type { S3Server } from './support/s3.ts';

const CLI = fileURLToPath(new URL('../../cli/dist/mangrove-kv.js', import.meta.url));
const collections = { notes: {}, accounts: { mode: 'strict' } } as const;
/** Sealed with it, and given to the tool as a file. */
const SEAL_KEY = Uint8Array.from({ length: 32 }, (_, at) => at * 7);

// Replication keeps no process alive while it waits to try again.
const alive = setInterval(() => undefined, 1000);
let bucket: S3Server;
let cluster: Cluster;
let directory = '';
before(async () => {
  bucket = await startMinio();
  cluster = await Cluster.start();
  await createStreams({ servers: cluster.servers, replicas: 1, shards: 1 });
  directory = mkdtempSync(join(tmpdir(), 'mangrove-archive-'));
});
after(async () => {
  clearInterval(alive);
  await Promise.all([bucket.stop(), cluster.stop()]);
  rmSync(directory, { recursive: true, force: true });
});

/** What the database has, as `dump` of any of its copies would show it. */
async function contentOf(db: Database): Promise<string> {
  const parts = await Promise.all(
    Object.keys(collections).map(async (name) => [
      name,
      await db
        .collection(name)
        .entries({ meta: true })
        .map(({ key, value, expiresAt }) => [key, value, expiresAt])
        .toArray(),
    ]),
  );
  return JSON.stringify(parts, (_, value: unknown) =>
    value instanceof Uint8Array ? Buffer.from(value).toString('base64') : value,
  );
}

interface Point {
  readonly position: number;
  readonly content: string;
}

/** A database that two devices write, what it was at some positions, and everything to restore it. */
interface Written {
  readonly database: string;
  readonly options: S3Options & { readonly database: string };
  readonly seal: Seal | undefined;
  readonly points: readonly Point[];
  readonly log: () => RemoteLog;
}

const until = async (isTrue: () => boolean | Promise<boolean>): Promise<void> => {
  while (!(await isTrue())) await new Promise((resolve) => setTimeout(resolve, 20));
};

async function write(database: string, kind: 'nats' | 's3', isSealed: boolean): Promise<Written> {
  const options = { ...bucket.options, database, prefix: `${database}/` };
  const seal = isSealed
    ? { database, key: await crypto.subtle.importKey('raw', SEAL_KEY, 'AES-GCM', false, ['encrypt', 'decrypt']) }
    : undefined;
  const log = (device = 'archive'): RemoteLog =>
    kind === 's3'
      ? s3Log({ ...options, pollInterval: 50 })
      : natsLog({ servers: cluster.servers, database, device, shards: 1 });
  const devices: { readonly db: Database; readonly replication: Replication }[] = [];
  for (const name of ['one', 'two', 'observer']) {
    const db = await open(name, { storage: 'memory', feed: true });
    devices.push({
      db,
      replication: await replicate(db, {
        log: log(`${database}-${name}`),
        snapshots: s3Snapshots(options),
        collections,
        seal,
      }),
    });
  }
  const observer = devices[2] as (typeof devices)[number];
  const archive = s3Archive(options);
  const filled = { archive, snapshots: s3Snapshots(options), seal };
  const points: Point[] = [];
  const archiving = async (snapshot: boolean): Promise<void> => {
    const from = log();
    // Several at once.
    await Promise.all([1, 2].map(() => archiveLog({ ...filled, log: from, snapshot })));
    await from.close();
  };
  for (let round = 0; round < 14; round++) {
    const { db, replication } = devices[round % 2] as (typeof devices)[number];
    const notes = db.collection('notes');
    if (round % 7 === 3)
      await notes.set(
        `large ${round % 2}`,
        new Uint8Array(300_000).map((_, at) => (at * 31 + round) & 255),
      );
    else if (round % 7 === 4)
      await replication.transaction((tx) =>
        tx.collection<string, number>('accounts').update('balance', (old = 0) => old + round),
      );
    else if (round % 7 === 5) await notes.delete(`n${round - 4}`);
    else if (round % 7 === 6) await notes.set(`n${round}`, { round }, { expireIn: 86_400_000 });
    else await notes.set(`n${round % 5}`, { round, text: 'x'.repeat(round * 10) });
    await replication.flush();
    await until(() => observer.replication.state.position >= replication.state.position);
    points.push({ position: observer.replication.state.position, content: await contentOf(observer.db) });
    // Twice in a row: the log loses what is archived, and the first snapshot is deleted.
    if (round === 6 || round === 9 || round === 11) {
      await archiving(round !== 6);
      for (const each of devices) await each.replication.flush();
      await observer.replication.compact();
    }
  }
  await archiving(true);
  for (const { db, replication } of devices) {
    await replication.close();
    await db.close();
  }
  return { database, options, seal, points, log };
}

for (const [kind, isSealed] of [
  ['nats', false],
  ['nats', true],
  ['s3', false],
] as const) {
  test(`a database is restored as it was at each position: ${kind}${isSealed ? ', sealed' : ''}`, async () => {
    const { options, seal, points, log } = await write(`library-${kind}-${isSealed}`, kind, isSealed);
    const live = log();
    await assert.rejects(live.read(0, 10), hasCode('KV_LOG_TRUNCATED'), 'the log was purged');
    await live.close();
    const archive = s3Archive(options);
    let withSnapshot = 0;
    for (const { position, content } of points) {
      const db = await open('restored', { storage: 'memory' });
      const report = await restoreArchive(db as never, {
        plan: await archive.restore({ position }),
        snapshots: s3Snapshots(options),
        collections,
        seal,
      });
      assert.equal(await contentOf(db), content, `position ${position}`);
      assert.equal(report.position, position);
      assert.equal(report.hasMore, position !== points.at(-1)?.position);
      if (report.snapshot !== undefined) withSnapshot++;
      await db.close();
    }
    assert.ok(withSnapshot > 0 && withSnapshot < points.length);
  });
}

interface Ran {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

/** Starts the tool with the keys of the bucket in its environment. */
function start(
  args: readonly string[],
  env: Record<string, string> = {},
): { readonly child: ReturnType<typeof spawn>; readonly ended: Promise<Ran> } {
  const { accessKeyId, secretAccessKey } = bucket.options.credentials as {
    accessKeyId: string;
    secretAccessKey: string;
  };
  const child = spawn(process.execPath, [CLI, ...args], {
    env: {
      ...process.env,
      NODE_OPTIONS: '--experimental-websocket --no-warnings',
      AWS_ACCESS_KEY_ID: accessKeyId,
      AWS_SECRET_ACCESS_KEY: secretAccessKey,
      ...env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const printed = ['', ''];
  for (const [at, stream] of [child.stdout, child.stderr].entries())
    stream.on('data', (bytes) => {
      printed[at] += String(bytes);
    });
  const ended = once(child, 'close').then(([code]) => ({
    code: code as number | null,
    out: printed[0] as string,
    err: printed[1] as string,
  }));
  return { child, ended };
}

const run = (args: readonly string[], env: Record<string, string> = {}): Promise<Ran> => start(args, env).ended;

async function ok(args: readonly string[]): Promise<Record<string, unknown>> {
  const { code, out, err } = await run(args);
  assert.equal(code, 0, err);
  assert.equal(out.split('\n').length, 2, out);
  return JSON.parse(out) as Record<string, unknown>;
}

async function fails(
  args: readonly string[],
  code: string,
  message: RegExp,
  env: Record<string, string> = {},
): Promise<void> {
  const ran = await run(args, env);
  assert.deepEqual([ran.code, ran.out], [code === 'KV_CORRUPT' ? 2 : 1, ''], ran.err);
  assert.ok(ran.err.startsWith(`mangrove: ${code}: `), ran.err);
  assert.match(ran.err, message);
  assert.equal(ran.err.trimEnd().split('\n').length, 1, ran.err);
}

const bucketArgs = ({ options: { endpoint, bucket: name, prefix = '' } }: Written): string[] => [
  '--endpoint',
  endpoint,
  '--bucket',
  name,
  '--prefix',
  prefix,
];
const collectionArgs = ['--collection', 'notes', '--collection', 'accounts:strict'];

async function contentAt(path: string, options: object = {}): Promise<string> {
  const db = await open(path, { create: false, ...options });
  assert.ok((await db.verify()).ok);
  const content = await contentOf(db);
  await db.close();
  return content;
}

test('the tool archives and restores', async () => {
  const written = await write('tool', 'nats', true);
  const { database, options, points } = written;
  const [sealFile, keyFile] = [join(directory, 'seal'), join(directory, 'key')];
  writeFileSync(sealFile, SEAL_KEY);
  const key = crypto.getRandomValues(new Uint8Array(32));
  writeFileSync(keyFile, `${Buffer.from(key).toString('hex')}\n`);
  const logArgs = [...cluster.servers.flatMap((server) => ['--nats', server]), '--seal-file', sealFile, '--snapshot'];
  const last = points.at(-1) as Point;
  const archived = await ok(['archive', database, ...bucketArgs(written), ...logArgs]);
  assert.deepEqual([archived['from'], archived['position'], archived['gap']], [last.position, last.position, null]);
  // Two at once, into an archive that knows nothing yet: the beginning of the log is gone.
  const fresh = { ...written, options: { ...options, prefix: 'fresh/' } };
  const gone = await run(['archive', database, ...bucketArgs(fresh), ...logArgs]);
  assert.deepEqual([gone.code, gone.out], [1, ''], 'its store has no snapshot');
  assert.match(gone.err, /^mangrove: KV_NOT_FOUND: /);

  const restoring = ['--database', database, ...bucketArgs(written), ...collectionArgs, '--seal-file', sealFile];
  for (const [at, { position, content }] of [points[2], points[8], last].entries() as Iterable<[number, Point]>) {
    const target = join(directory, `position-${at}`);
    const report = await ok(['restore', target, '--at-position', String(position), ...restoring]);
    assert.equal(await contentAt(target), content);
    assert.equal(report['position'], position);
    assert.deepEqual([report['unlisted'], report['skipped']], [[], []]);
    assert.equal(
      (report['collections'] as Record<string, number>)['notes'],
      (JSON.parse(content) as [string, unknown[]][])[0]?.[1].length,
    );
  }
  // By time: that of a record is in the report, and includes the record.
  const middle = points[5] as Point;
  const { time } = await ok(['restore', join(directory, 'middle'), `--at-position=${middle.position}`, ...restoring]);
  const target = join(directory, 'new', 'encrypted');
  const report = await ok(['restore', target, '--at', String(time), ...restoring, '--key-file', keyFile]);
  assert.deepEqual([report['position'], report['time'], report['hasMore']], [middle.position, time, true]);
  assert.equal(await contentAt(target, { encryption: { key } }), middle.content);
  await assert.rejects(open(target), hasCode('KV_WRONG_KEY'));

  // A later time than that of the last record: it may be that not everything was archived.
  const late = await run(['restore', join(directory, 'late'), '--at', '2999-01-01T00:00:00+02:00', ...restoring]);
  assert.equal(late.code, 0);
  assert.match(late.err, /the archive ends at position/);
  assert.equal(await contentAt(join(directory, 'late')), last.content);
  // Not listed, or in the wrong mode.
  const partial = await run([
    'restore',
    join(directory, 'partial'),
    '--at-position',
    String(middle.position),
    ...restoring.filter((arg, index, all) => arg !== 'accounts:strict' && all[index + 1] !== 'accounts:strict'),
  ]);
  assert.equal(partial.code, 0, partial.err);
  assert.match(partial.err, /not restored.*"accounts"/);
  await fails(
    [
      'restore',
      join(directory, 'mode'),
      '--at-position',
      String(middle.position),
      ...restoring.map((arg) => (arg === 'accounts:strict' ? 'accounts' : arg)),
    ],
    'KV_REPLICATION_MODE',
    /"strict"/,
  );
  // Another key opens nothing.
  writeFileSync(sealFile, SEAL_KEY.slice(0, 16));
  await fails(
    ['restore', join(directory, 'wrong'), '--at-position', String(middle.position), ...restoring],
    'KV_CORRUPT',
    /seal|key/,
  );
  assert.deepEqual(
    readdirSync(directory).filter(
      (name) => name.includes('restoring') || name.includes('wrong') || name.includes('mode'),
    ),
    [],
  );
});

test('the tool restores keys of both modes in one collection', async () => {
  const server = new MemoryServer();
  const source = await open('source', { storage: 'memory', feed: true });
  const [shop, names] = [
    source.collection<readonly string[], number>('shop'),
    source.collection<string, number>('names', { key: keyCodecs.string }),
  ];
  const replication = await replicate(source, {
    log: new MemoryLog(server),
    collections: {
      shop: { prefixModes: [{ prefix: ['stock'], mode: 'strict' }] },
      names: { mode: 'strict', key: keyCodecs.string, prefixModes: [{ prefix: 'n:', mode: 'merge' }] },
    },
  });
  await shop.set(['note', 'x'], 1);
  await names.set('n:1', 2);
  await replication.transaction(async (tx) => {
    await tx.collection(shop).set(['stock', 'apple'], 3);
    await tx.collection(names).set('a:1', 4);
  });
  await replication.flush();
  const options = { ...bucket.options, database: 'both', prefix: 'both/' };
  const position = await s3Archive(options).archive(new MemoryLog(server));
  const content = await contentOf(source);
  await replication.close();
  await source.close();
  const place = [
    '--at-position',
    String(position),
    '--database',
    'both',
    '--endpoint',
    options.endpoint,
    '--bucket',
    options.bucket,
    '--prefix',
    options.prefix,
    '--collection',
    'shop',
    '--collection',
    'names:strict:key=string',
  ];
  const target = join(directory, 'both');
  await fails(
    ['restore', target, ...place, '--prefix-mode', 'shop:strict:["stock"]'],
    'KV_REPLICATION_MODE',
    /"names"/,
  );
  await fails(['restore', target, ...place, '--prefix-mode', 'names:merge:"n:"'], 'KV_REPLICATION_MODE', /"shop"/);
  const report = await ok([
    'restore',
    target,
    ...place,
    '--prefix-mode',
    'shop:strict:["stock"]',
    '--prefix-mode',
    'names:merge:"n:"',
  ]);
  assert.deepEqual(report['collections'], { shop: 2, names: 2 });
  assert.equal(await contentAt(target), content);
});

test('a restore that is killed leaves no target, and works when it is run again', async () => {
  // Several batches of records, so that there is something to interrupt.
  const server = new MemoryServer();
  const source = await open('source', { storage: 'memory', feed: true });
  const replication = await replicate(source, { log: new MemoryLog(server), collections: { notes: {} } });
  for (let at = 0; at < 1500; at++) {
    await source.collection('notes').set(`n${at % 700}`, { at });
    await replication.flush();
  }
  const options = { ...bucket.options, database: 'killed', prefix: 'killed/' };
  const position = await s3Archive(options).archive(new MemoryLog(server));
  const content = await contentOf(source);
  await replication.close();
  await source.close();
  const target = join(directory, 'killed');
  const args = [
    'restore',
    target,
    '--at-position',
    String(position),
    '--database',
    'killed',
    '--endpoint',
    options.endpoint,
    '--bucket',
    options.bucket,
    '--prefix',
    options.prefix,
    '--collection',
    'notes',
    '--progress',
  ];
  const remains = (): string[] => readdirSync(directory).filter((name) => name.startsWith('killed.restoring-'));
  for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
    const { child, ended } = start(args);
    // The first report: something is restored.
    await once(child.stderr as NodeJS.ReadableStream, 'data');
    child.kill(signal);
    const { code, err } = await ended;
    // It may have ended before, on a machine that is busy with other things.
    if (code === 0) rmSync(target, { recursive: true });
    else if (signal === 'SIGTERM') assert.match(err, /mangrove: KV_CLOSED: ended by SIGTERM/);
    assert.equal(existsSync(target), false);
    if (signal === 'SIGKILL') for (const name of remains()) rmSync(join(directory, name), { recursive: true });
    assert.deepEqual(remains(), [], 'a run that can clean up does');
  }
  await ok(args);
  assert.equal(await contentAt(target), content);
  // It exists now, and is not touched.
  await fails(args, 'KV_EXISTS', /exists already/);
  assert.equal(await contentAt(target), content);
  const empty = join(directory, 'empty');
  mkdirSync(empty);
  await fails(
    args.map((arg) => (arg === target ? empty : arg)),
    'KV_EXISTS',
    /exists already/,
  );
  assert.deepEqual(readdirSync(empty), []);
});

test('an archive that is killed is continued', async () => {
  const options = { ...bucket.options, database: 'many', prefix: 'many/' };
  const log = s3Log(options);
  for (let seq = 1; seq <= 150; seq++)
    await log.append(new Uint8Array(60_000).fill(seq), { idempotencyKey: `a:${seq}` });
  const args = [
    'archive',
    'many',
    '--endpoint',
    options.endpoint,
    '--bucket',
    options.bucket,
    '--prefix',
    'many/',
    '--s3-log',
  ];
  const archive = s3Archive(options);
  const { child, ended } = start(args);
  await Promise.race([ended, until(async () => (await archive.position()) > 0)]);
  child.kill('SIGKILL');
  await ended;
  const { position } = await ok(args);
  assert.equal(position, 150);
  const found: number[] = [];
  for await (const record of (await archive.restore()).records) found.push(record.record[0] as number);
  assert.deepEqual(
    found,
    Array.from({ length: 150 }, (_, at) => at + 1),
  );
  // A segment that is missing, and a position that is not there yet.
  const { AwsClient } = await import('aws4fetch');
  const { accessKeyId, secretAccessKey } = options.credentials as { accessKeyId: string; secretAccessKey: string };
  const client = new AwsClient({ accessKeyId, secretAccessKey, service: 's3', region: 'us-east-1' });
  const listing = await (
    await client.fetch(
      `${options.endpoint}/${options.bucket}?list-type=2&prefix=${encodeURIComponent('many/database/many/archive/segment/')}`,
    )
  ).text();
  const segments = [...listing.matchAll(/<Key>([^<]*)<\/Key>/g)].map(([, key = '']) => key);
  assert.ok(segments.length >= 2, listing);
  await client.fetch(`${options.endpoint}/${options.bucket}/${segments[0]}`, { method: 'DELETE' });
  const restoring = [
    '--database',
    'many',
    '--endpoint',
    options.endpoint,
    '--bucket',
    options.bucket,
    '--prefix',
    'many/',
    '--collection',
    'notes',
  ];
  await fails(['restore', join(directory, 'hole'), '--at-position', '150', ...restoring], 'KV_NOT_FOUND', /archive/);
  await fails(['restore', join(directory, 'beyond'), '--at-position', '4000', ...restoring], 'KV_NOT_FOUND', /archive/);
  assert.deepEqual(
    readdirSync(directory).filter((name) => /hole|beyond/.test(name)),
    [],
  );
  await log.close();
});

test('a log that lost its history is not archived behind what it lost', async () => {
  const options = { ...bucket.options, database: 'lost', prefix: 'lost/' };
  const [log, other] = [s3Log(options), s3Log({ ...options, database: 'lost too' })];
  const archive = s3Archive(options);
  for (let seq = 1; seq <= 3; seq++) await log.append(new Uint8Array([seq]), { idempotencyKey: `a:${seq}` });
  assert.equal(await archive.archive(log), 3);
  for (let seq = 1; seq <= 5; seq++) {
    // First it is shorter, then it has something else.
    if (seq === 2 || seq === 5) await assert.rejects(archive.archive(other), hasCode('KV_LOG_CONFLICT'));
    await other.append(new Uint8Array([10 + seq]), { idempotencyKey: `b:${seq}` });
  }
  assert.equal(await archive.position(), 3);
});

test('an archive that ends with a strict record, before which others wrote to the stream, is continued', async () => {
  const archive = s3Archive({ ...bucket.options, database: 'shared', prefix: 'shared/' });
  const [log, other] = ['shared', 'another'].map((database) =>
    natsLog({ servers: cluster.servers, database, device: 'one', shards: 1 }),
  ) as [RemoteLog, RemoteLog];
  const first = await log.append(new Uint8Array([1]), { idempotencyKey: 'one:1' });
  await other.append(new Uint8Array([2]), { idempotencyKey: 'one:1' });
  const second = await log.append(new Uint8Array([3]), { idempotencyKey: 'one:2', expect: first });
  assert.ok(second > first + 1);
  for (let times = 0; times < 2; times++) assert.equal(await archive.archive(log), second);
  // Purged up to where the archive ends, then beyond.
  const third = await log.append(new Uint8Array([4]), { idempotencyKey: 'one:3' });
  await log.purge(second);
  assert.equal(await archive.archive(log), third);
  for (let seq = 4; seq <= 6; seq++) await log.append(new Uint8Array([seq]), { idempotencyKey: `one:${seq}` });
  await log.purge(third + 1);
  await assert.rejects(archive.archive(log), hasCode('KV_LOG_TRUNCATED'));
  await assert.rejects(archive.archive(other), hasCode('KV_LOG_CONFLICT'));
  await Promise.all([log.close(), other.close()]);
});

test('the tool shows servers the credentials of a file', async () => {
  const authority = createAuthority();
  const guarded = await Cluster.start({ accounts: await accountsConfig(authority) });
  try {
    const { servers } = guarded;
    await createStreams({
      servers,
      replicas: 1,
      credentials: await adminCredentials({ signer: authority.streams, expiresIn: 600 }),
    });
    const issue = (device: string) =>
      deviceCredentials({ signer: authority.devices, database: 'guarded', device, expiresIn: 600 }) as Promise<{
        readonly jwt: string;
        readonly seed: string;
      }>;
    const log = natsLog({
      servers,
      database: 'guarded',
      device: 'one',
      apiPrefix: 'replication.API',
      credentials: await issue('one'),
    });
    for (let seq = 1; seq <= 3; seq++) await log.append(new Uint8Array([seq]), { idempotencyKey: `one:${seq}` });
    const file = join(directory, 'credentials');
    const { endpoint, bucket: name } = bucket.options;
    const args = [
      'archive',
      'guarded',
      '--endpoint',
      endpoint,
      '--bucket',
      name,
      '--prefix',
      'guarded/',
      ...servers.flatMap((server) => ['--nats', server]),
      '--nats-api-prefix',
      'replication.API',
      '--nats-credentials',
      file,
    ];
    const { jwt, seed } = await issue('archive');
    writeFileSync(
      file,
      `-----BEGIN NATS USER JWT-----\n${jwt}\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n${seed}\n------END USER NKEY SEED------\n`,
    );
    const { from, position } = await ok(args);
    assert.ok(from === 0 && Number(position) >= 3);
    await log.append(new Uint8Array([4]), { idempotencyKey: 'one:4' });
    writeFileSync(file, JSON.stringify(await issue('reader')));
    assert.equal((await ok([...args, '--nats-device', 'reader']))['from'], position);
    // Those of another device.
    assert.match((await run([...args, '--nats-device', 'one'])).err, /^mangrove: KV_LOG_/);
    writeFileSync(file, '{"jwt":5}');
    await fails(args, 'KV_INVALID_ARGUMENT', /credentials/);
    await log.close();
  } finally {
    await guarded.stop();
  }
});

test('arguments of the tool', async () => {
  const place = ['--database', 'd', '--bucket', 'b', '--endpoint', 'http://127.0.0.1:9', '--collection', 'notes'];
  const target = join(directory, 'never');
  for (const [args, message] of [
    [['restore', target, '--at', '2026-11-25T12:00:00', ...place], /zone/],
    [['restore', target, '--at', 'yesterday', ...place], /zone/],
    [['restore', target, '--at', '2026-02-30T12:00:00Z', ...place], /zone/],
    [['restore', target, '--at=2026-11-25', ...place], /zone/],
    [['restore', target, '--at-position', '-1', ...place], /at-position/],
    [['restore', target, '--at-position', '1.5', ...place], /at-position/],
    [['restore', target, '--at-position', '1', '--at', '2026-11-25T12:00:00Z', ...place], /one of the two/],
    [['restore', '--at-position', '1', ...place], /directory/],
    [['restore', target, 'another', '--at-position', '1', ...place], /too many/],
    [['restore', target, '--at-position', '1', ...place.slice(0, 6)], /--collection is missing/],
    [['restore', target, '--at-position', '1', ...place, '--collection', 'notes:strict'], /twice/],
    [['restore', target, '--at-position', '1', ...place, '--prefix-mode', 'notes:lax:"a"'], /NAME:strict:PREFIX/],
    [['restore', target, '--at-position', '1', ...place, '--prefix-mode', 'other:strict:"a"'], /does not name "other"/],
    [['restore', target, '--at-position', '1', ...place, '--prefix-mode', 'notes:strict:a'], /JSON/],
    [['restore', target, '--at-position', '1', ...place, '--prefix-mode', 'notes:strict:1'], /no such prefix/],
    [
      [
        'restore',
        target,
        '--at-position',
        '1',
        ...place.slice(0, 6),
        '--collection',
        'notes:key=int53',
        '--prefix-mode',
        'notes:strict:"1"',
      ],
      /no such prefix/,
    ],
    [['restore', target, '--at-position', '1', ...place.slice(2)], /--database/],
    [['restore', target, '--at-position', '1', '--colection', 'x', ...place], /colection/],
    [['archive', '--bucket', 'b', '--endpoint', 'http://127.0.0.1:9', '--s3-log'], /name of the database/],
    [['archive', 'd', '--bucket', 'b', '--endpoint', 'http://127.0.0.1:9'], /--nats URL or/],
    [['archive', 'd', '--endpoint', 'http://127.0.0.1:9', '--s3-log'], /--bucket/],
    [['archive', 'd', '--bucket', 'b', '--endpoint', 'nowhere', '--s3-log'], /endpoint/],
    [['archive', 'd', '--bucket', 'b', '--endpoint', 'http://127.0.0.1:9', '--s3-log', '--seal-file', CLI], /file|key/],
  ] as const) {
    await fails(args, 'KV_INVALID_ARGUMENT', message);
  }
  await fails(
    ['archive', 'd', '--bucket', 'b', '--endpoint', 'http://127.0.0.1:9', '--s3-log'],
    'KV_INVALID_ARGUMENT',
    /AWS_SECRET_ACCESS_KEY/,
    { AWS_SECRET_ACCESS_KEY: '' },
  );
  for (const [args, wanted] of [
    [['archive', '--help'], '--nats URL'],
    [['restore', '--at', '--help'], '--at TIME'],
    [['restore', '--help'], '--incremental'],
    [['--help'], 'archive'],
  ] as const) {
    const { code, out } = await run(args);
    assert.equal(code, 0);
    assert.ok(out.includes(wanted), out);
  }
  // Without --at it stays the verb that reads backups.
  await fails(['restore', join(directory, 'no backup'), target], 'KV_IO', /no backup/);
  assert.equal(existsSync(target), false);
});
