// Databases of an earlier time: every position of a log against what a device had there.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { archiveLog, archiveSnapshot, restoreArchive } from '../src/archive/index.ts';
import type { ArchiveRestoreOptions, ArchivedSnapshot, LogArchive, RestorePlan } from '../src/archive/index.ts';
import { PlanLog } from '../src/archive/plan-log.ts';
import { toStream } from '../src/wire.ts';
import type { Seal } from '../src/wire.ts';
import { MemoryLog, MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import { logTruncated, logUnavailable } from '../src/remote-log.ts';
import type { LoggedRecord, RemoteLog, SnapshotStore } from '../src/remote-log.ts';
import { Device, converge } from './device.ts';

const collections = {
  notes: {},
  accounts: {
    mode: 'strict',
    indexes: { owner: { key: (account: { readonly owner: string }) => account.owner, unique: true } },
  },
} as const;
const hasCode =
  (code: string, message?: RegExp) =>
  (error: { code?: string; message?: string }): boolean =>
    error.code === code && (message === undefined || message.test(error.message ?? ''));

/** An archive in memory, of records that were read from a log. */
class MemoryArchive implements LogArchive {
  readonly snapshots = new MemorySnapshotStore();
  records: LoggedRecord[] = [];
  readonly noted = new Map<number, ArchivedSnapshot>();

  async position(): Promise<number> {
    return this.records.at(-1)?.position ?? 0;
  }

  async archive(log: RemoteLog, { after = 0 }: { readonly after?: number } = {}): Promise<number> {
    for (let last = Math.max(after, await this.position()); ; ) {
      const more = await log.read(last, 7);
      if (more.length === 0) return last;
      this.records.push(...more);
      last = await this.position();
    }
  }

  async snapshotAt(position: number): Promise<ArchivedSnapshot | undefined> {
    return this.noted.get(position);
  }

  async addSnapshot(snapshot: ArchivedSnapshot): Promise<void> {
    this.noted.set(snapshot.position, snapshot);
  }

  plan(
    upTo: number,
    snapshot = [...this.noted.values()].filter(({ position }) => position <= upTo).at(-1),
  ): RestorePlan {
    const records = this.records.filter(({ position }) => position > (snapshot?.position ?? 0) && position <= upTo);
    return { snapshot, snapshots: this.snapshots, records: each(records) };
  }
}

async function* each<T>(items: readonly T[]): AsyncGenerator<T> {
  yield* items;
}

async function makeSeal(database = 'notes'): Promise<Seal> {
  return {
    key: (await crypto.subtle.generateKey({ name: 'AES-GCM', length: 256 }, false, [
      'encrypt',
      'decrypt',
    ])) as CryptoKey,
    database,
  };
}

const toText = (_: string, value: unknown): unknown =>
  value instanceof Uint8Array ? Buffer.from(value).toString('base64') : value;

async function contentOf(db: Database): Promise<string> {
  const parts: unknown[] = [];
  for (const name of Object.keys(collections)) {
    const entries: unknown[] = [];
    for await (const { key, value, expiresAt } of db.collection(name).entries({ meta: true }))
      entries.push([key, value, expiresAt]);
    parts.push([name, entries]);
  }
  return JSON.stringify(parts, toText);
}

async function restored(
  plan: RestorePlan,
  options: Partial<ArchiveRestoreOptions> = {},
): Promise<{ readonly db: Database; readonly report: Awaited<ReturnType<typeof restoreArchive>> }> {
  const db = await open('restored', { storage: 'memory' });
  const report = await restoreArchive(db as never, { plan, collections, ...options });
  return { db, report };
}

const random =
  (seed: number) =>
  (limit: number): number => {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    return Math.floor((seed / 0x100000000) * limit);
  };

async function strict(device: Device, key: string, value: unknown): Promise<void> {
  const { runStrict } = await import('../src/strict.ts');
  await runStrict(
    device.replica,
    async (tx) => {
      await tx
        .collection(device.db.collection('accounts', { indexes: collections.accounts.indexes as never }) as never)
        .set(key as never, value as never);
    },
    {},
    {},
  );
}

for (const isSealed of [false, true]) {
  test(`each position of a log is restored as a device had it${isSealed ? ', sealed' : ''}`, async () => {
    const seal = isSealed ? await makeSeal() : undefined;
    const server = new MemoryServer();
    const snapshots = new MemorySnapshotStore();
    const options = { snapshots, collections, seal };
    const [one, two, observer] = [
      await Device.start(server, options),
      await Device.start(server, options),
      await Device.start(server, options),
    ];
    const archive = new MemoryArchive();
    const filled = { log: new MemoryLog(server), archive, snapshots, seal };
    /** What the device that only reads had at each position. */
    const model = new Map<number, string>();
    const next = random(isSealed ? 7 : 3);
    for (let round = 0; round < 24; round++) {
      const device = next(2) === 0 ? one : two;
      const notes = device.db.collection('notes');
      const key = `n${next(12)}`;
      const what = next(9);
      if (what === 0) await notes.delete(key);
      else if (what === 1) await notes.clear({ gte: 'n1', lt: 'n3' });
      else if (what === 2) await notes.set(key, round, { expireIn: 3_600_000 });
      // In the object store, and in several records.
      else if (what === 3)
        await notes.set(
          key,
          new Uint8Array(300_000).map((_, at) => (at * 31 + round) & 255),
        );
      else if (what === 4)
        await notes.setMany(
          Array.from(
            { length: 18 },
            (_, at) => [`n${at}`, crypto.getRandomValues(new Uint8Array(60_000)).fill(round, 0, 100)] as const,
          ),
        );
      else if (what === 5) await strict(device, `a${next(4)}`, { owner: `o${round}`, balance: round });
      else await notes.set(key, { round, by: device === one ? 1 : 2 });
      await device.exchange();
      if (next(4) === 0) await converge([one, two]);
      await observer.exchange();
      model.set((await observer.replica.state()).cursor.position, await contentOf(observer.db));
      if (round === 9 || round === 17) await two.replica.compact();
      if (round % 4 === 3) await archiveLog({ ...filled, snapshot: true });
    }
    await archiveLog(filled);
    assert.ok(archive.noted.size >= 2, 'both snapshots are in the archive');
    // Devices delete the older one.
    assert.ok((await snapshots.list('snapshot/')).length <= 2);
    for (const old of await snapshots.list('snapshot/')) await snapshots.delete(old);
    let withSnapshot = 0;
    for (const [position, wanted] of model) {
      const { db, report } = await restored(archive.plan(position), { snapshots, seal });
      assert.equal(await contentOf(db), wanted, `position ${position}`);
      assert.equal(report.position, position);
      assert.ok((await db.verify()).ok);
      const accounts = db.collection<string, { readonly owner: string }>('accounts', {
        indexes: collections.accounts.indexes as never,
      });
      const owners = await accounts
        .values()
        .map(({ owner }) => owner)
        .toArray();
      assert.deepEqual(
        (await accounts.index('owner').entries().toArray()).map(({ indexKey }) => indexKey as unknown),
        owners.sort(),
      );
      assert.deepEqual(Object.values(report.collections), [
        await db.collection('notes').size,
        await db.collection('accounts').size,
      ]);
      assert.deepEqual([report.unlisted, report.skipped], [[], []]);
      if (report.snapshot !== undefined) withSnapshot++;
      await db.close();
    }
    assert.ok(withSnapshot > 3 && withSnapshot < model.size);
    // Without the snapshots, from the first record on.
    const last = Math.max(...model.keys());
    const { db } = await restored({ snapshot: undefined, records: each(archive.records) }, { snapshots, seal });
    assert.equal(await contentOf(db), model.get(last));
    await Promise.all([db.close(), one.stop(), two.stop(), observer.stop()]);
  });
}

async function small(): Promise<{
  readonly server: MemoryServer;
  readonly device: Device;
  readonly archive: MemoryArchive;
  readonly snapshots: SnapshotStore;
}> {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const device = await Device.start(server, { snapshots, collections });
  for (let at = 0; at < 10; at++) {
    await device.db.collection('notes').set(`n${at}`, at);
    await device.exchange();
  }
  await strict(device, 'ada', { owner: 'ada' });
  const archive = new MemoryArchive();
  await archiveLog({ log: new MemoryLog(server), archive, snapshots });
  return { server, device, archive, snapshots };
}

test('the result is a plain database, which can be replicated as a new one', async () => {
  const { device, archive } = await small();
  const { db } = await restored(archive.plan(Infinity));
  assert.deepEqual(await db.collections(), ['accounts', 'notes']);
  const isOwn = ({ name }: { readonly name: string }): boolean => name.startsWith('mangrove:');
  assert.ok((await device.db.layout()).collections.some(isOwn));
  assert.deepEqual((await db.layout()).collections.filter(isOwn), []);
  const wanted = await contentOf(db);
  const server = new MemoryServer();
  const again = await Device.adopt(server, { collections: { notes: {} } }, db);
  const other = await Device.start(server, { collections: { notes: {} } });
  await converge([again, other]);
  assert.equal(await other.digest(), await again.digest());
  assert.equal(await contentOf(db), wanted);
  await Promise.all([device.stop(), again.stop(), other.stop()]);
});

test('a database that is not new is refused and stays as it is', async () => {
  const { device, archive } = await small();
  const db = await open('used', { storage: 'memory' });
  await db.collection('notes').set('mine', 1);
  await assert.rejects(
    restoreArchive(db as never, { plan: archive.plan(Infinity), collections }),
    hasCode('KV_INVALID_ARGUMENT', /new database/),
  );
  assert.deepEqual(await db.collection('notes').entries().toArray(), [['mine', 1]]);
  await db.close();
  await assert.rejects(
    restoreArchive(device.db as never, { plan: archive.plan(Infinity), collections: { others: {} } }),
    hasCode('KV_INVALID_ARGUMENT', /replicated/),
  );
  await device.stop();
});

test('arguments are checked', async () => {
  const db = await open('checked', { storage: 'memory' });
  const plan: RestorePlan = { snapshot: undefined, records: each<LoggedRecord>([]) };
  for (const options of [
    undefined,
    null,
    {},
    { plan },
    { plan: {}, collections },
    { plan, collections: {} },
    { plan, collections: { 'mangrove:x': {} } },
  ]) {
    await assert.rejects(restoreArchive(db as never, options as never), hasCode('KV_INVALID_ARGUMENT'));
  }
  await assert.rejects(restoreArchive(undefined as never, { plan, collections }), hasCode('KV_INVALID_ARGUMENT'));
  const filled = {
    log: new MemoryLog(new MemoryServer()),
    archive: new MemoryArchive(),
    snapshots: new MemorySnapshotStore(),
  };
  for (const options of [
    undefined,
    null,
    {},
    { ...filled, log: undefined },
    { ...filled, archive: {} },
    { ...filled, snapshots: 5 },
  ]) {
    await assert.rejects(archiveLog(options as never), hasCode('KV_INVALID_ARGUMENT'));
    await assert.rejects(archiveSnapshot(options as never), hasCode('KV_INVALID_ARGUMENT'));
  }
  const report = await restoreArchive(db as never, { plan, collections });
  assert.deepEqual(
    [report.position, report.serverTime, report.records, report.collections],
    [0, 0, 0, { notes: 0, accounts: 0 }],
  );
  await db.close();
});

test('what is not restored is told', async () => {
  const { device, archive } = await small();
  const { db, report } = await restored(archive.plan(Infinity), { collections: { notes: {} } });
  assert.deepEqual(report.unlisted, ['accounts']);
  await db.close();
  const wrong = { notes: {}, accounts: {} };
  await assert.rejects(
    restored(archive.plan(Infinity), { collections: wrong }),
    hasCode('KV_REPLICATION_MODE', /"strict"/),
  );
  // That is no damage.
  await assert.rejects(
    restored(archive.plan(Infinity), { collections: wrong, skipDamaged: true }),
    hasCode('KV_REPLICATION_MODE', /"strict"/),
  );
  await device.stop();
});

test('damage and gaps end a restore, unless they are to be passed over', async () => {
  const { device, archive } = await small();
  const whole = archive.records;
  const damaged = whole.map((each, at) =>
    at === 4 ? { ...each, record: each.record.map((byte, index) => (index === 20 ? byte ^ 1 : byte)) } : each,
  );
  const lacking = whole.filter((_, at) => at !== 4);
  for (const [records, code] of [
    [damaged, 'KV_CORRUPT'],
    [lacking, 'KV_REPLICATION_GAP'],
  ] as const) {
    archive.records = [...records];
    await assert.rejects(restored(archive.plan(Infinity)), hasCode(code, /skipDamaged/));
    const { db, report } = await restored(archive.plan(Infinity), { skipDamaged: true });
    assert.ok(report.skipped.length > 0);
    assert.deepEqual(await db.collection('notes').keys().toArray(), [
      'n0',
      'n1',
      'n2',
      'n3',
      'n5',
      'n6',
      'n7',
      'n8',
      'n9',
    ]);
    await db.close();
  }
  await device.stop();
});

test('a wrong seal restores nothing', async () => {
  const { device, archive } = await small();
  await assert.rejects(restored(archive.plan(Infinity), { seal: await makeSeal() }), hasCode('KV_CORRUPT'));
  await device.stop();
});

test('failures that pass are waited for, others are not', async () => {
  const { server, device, archive, snapshots } = await small();
  await device.db.collection('notes').set('large', new Uint8Array(300_000));
  await device.exchange();
  await archiveLog({ log: new MemoryLog(server), archive, snapshots });
  const failing = (times: number): SnapshotStore =>
    ({
      get: async (key: string) => {
        if (times-- > 0) throw logUnavailable('no answer');
        return snapshots.get(key);
      },
    }) as Partial<SnapshotStore> as SnapshotStore;
  const { db } = await restored(archive.plan(Infinity), { snapshots: failing(1) });
  assert.equal(await contentOf(db), await contentOf(device.db));
  await db.close();
  const stop = new AbortController();
  const refusing: SnapshotStore = {
    ...failing(0),
    get: async () => {
      stop.abort(new Error('enough'));
      throw logUnavailable('no answer');
    },
  };
  await assert.rejects(restored(archive.plan(Infinity), { snapshots: refusing, signal: stop.signal }), /enough/);
  // A plan cannot go on behind a failure: what came after it would be passed over.
  async function* broken(): AsyncGenerator<LoggedRecord> {
    yield* archive.records.slice(0, 3);
    throw logUnavailable('no answer');
  }
  await assert.rejects(
    restored({ snapshot: undefined, records: broken() }, { snapshots }),
    hasCode('KV_LOG_UNAVAILABLE'),
  );
  await device.stop();
});

test('what has expired since is not restored, with and without a snapshot', async () => {
  const { server, device, archive, snapshots } = await small();
  const notes = device.db.collection('notes');
  await notes.set('short', 1, { expireIn: 1 });
  await notes.set('long', 1, { expireIn: 3_600_000 });
  await device.exchange();
  await archiveLog({ log: new MemoryLog(server), archive, snapshots });
  while (await notes.has('short')) await new Promise((resolve) => setTimeout(resolve, 2));
  await device.replica.compact();
  await archiveLog({ log: new MemoryLog(server), archive, snapshots, snapshot: true });
  const plans = [archive.plan(Infinity), { snapshot: undefined, records: each(archive.records) }];
  assert.deepEqual(
    plans.map(({ snapshot }) => snapshot === undefined),
    [false, true],
  );
  for (const plan of plans) {
    const { db } = await restored(plan, { snapshots });
    assert.deepEqual(
      [await db.collection('notes').has('short'), await db.collection('notes').has('long')],
      [false, true],
    );
    assert.equal(await contentOf(db), await contentOf(device.db));
    await db.close();
  }
  await device.stop();
});

test('a large value that is missing ends a restore', async () => {
  const server = new MemoryServer();
  const snapshots = new MemorySnapshotStore();
  const device = await Device.start(server, { snapshots, collections });
  await device.db.collection('notes').set('large', new Uint8Array(300_000));
  await device.exchange();
  const archive = new MemoryArchive();
  await archiveLog({ log: new MemoryLog(server), archive, snapshots });
  await assert.rejects(restored(archive.plan(Infinity)), hasCode('KV_NOT_FOUND', /option `snapshots`/));
  const { db } = await restored(archive.plan(Infinity), { snapshots });
  assert.equal(((await db.collection('notes').get('large')) as Uint8Array).length, 300_000);
  await db.close();
  for (const key of await snapshots.list('blob/')) await snapshots.delete(key);
  await assert.rejects(restored(archive.plan(Infinity), { snapshots }), hasCode('KV_NOT_FOUND', /blob/));
  await device.stop();
});

test('a restore that is ended says so in the database, which is refused afterwards', async () => {
  const { device, archive } = await small();
  const db = await open('ended', { storage: 'memory' });
  const stop = new AbortController();
  await assert.rejects(
    restoreArchive(db as never, {
      plan: archive.plan(Infinity),
      collections,
      signal: stop.signal,
      onProgress: () => stop.abort(new Error('ended')),
    }),
    /ended/,
  );
  await assert.rejects(
    restoreArchive(db as never, { plan: archive.plan(Infinity), collections }),
    hasCode('KV_INVALID_ARGUMENT'),
  );
  await Promise.all([db.close(), device.stop()]);
});

test('records that were purged before they were archived are a gap', async () => {
  const { server, device, archive, snapshots } = await small();
  const before = await archive.position();
  for (let round = 0; round < 3; round++) {
    await device.db.collection('notes').set('more', round);
    await device.exchange();
    await device.replica.compact();
  }
  await device.db.collection('notes').set('last', 1);
  await device.exchange();
  const filled = { log: new MemoryLog(server), archive, snapshots };
  const { gap, snapshot, position } = await archiveLog(filled);
  assert.deepEqual(gap, { after: before, upTo: snapshot?.position });
  assert.ok(position > (snapshot?.position ?? Infinity));
  assert.deepEqual((await archiveLog(filled)).gap, undefined);
  const { db } = await restored(archive.plan(Infinity));
  assert.equal(await contentOf(db), await contentOf(device.db));
  await assert.rejects(
    archiveLog({
      ...filled,
      archive: new MemoryArchive(),
      log: {
        ...new MemoryLog(server),
        read: () => Promise.reject(logTruncated('purged')),
        manifest: async () => undefined,
      } as unknown as RemoteLog,
    }),
    hasCode('KV_LOG_TRUNCATED'),
  );
  await Promise.all([db.close(), device.stop()]);
});

test('copying a snapshot can be interrupted and repeated', async () => {
  const { server, device, snapshots } = await small();
  await device.replica.compact();
  const log = new MemoryLog(server);
  const archive = new MemoryArchive();
  const [key = ''] = await snapshots.list('snapshot/');
  // Killed between the copy and the note.
  const stream = await snapshots.get(key);
  await archive.snapshots.put(key, stream as ReadableStream<Uint8Array>);
  const found = await archiveSnapshot({ log, archive, snapshots: new MemorySnapshotStore() });
  assert.equal(found?.key, key);
  assert.deepEqual(await archiveSnapshot({ log, archive, snapshots }), found);
  assert.deepEqual([...archive.noted.values()], [found]);
  // Noted, and copied by nobody.
  const other = new MemoryArchive();
  await other.addSnapshot(found as ArchivedSnapshot);
  await Promise.all([1, 2, 3].map(() => archiveSnapshot({ log, archive: other, snapshots })));
  assert.deepEqual(await other.snapshots.list(''), [key]);
  // Damaged: nothing is archived.
  const damaged = new MemorySnapshotStore();
  await damaged.put(key, toStream(new Uint8Array(100).fill(1)));
  const empty = new MemoryArchive();
  await assert.rejects(archiveSnapshot({ log, archive: empty, snapshots: damaged }), hasCode('KV_CORRUPT'));
  await assert.rejects(
    archiveSnapshot({ log, archive: empty, snapshots: new MemorySnapshotStore() }),
    hasCode('KV_NOT_FOUND'),
  );
  assert.deepEqual([await empty.snapshots.list(''), empty.noted.size], [[], 0]);
  await device.stop();
});

test('a snapshot that is not of the position for which it was noted is refused', async () => {
  const { server, device, archive, snapshots } = await small();
  await device.replica.compact();
  const found = (await archiveSnapshot({ log: new MemoryLog(server), archive, snapshots })) as ArchivedSnapshot;
  await assert.rejects(
    restored(archive.plan(Infinity, { ...found, position: found.position - 1 })),
    hasCode('KV_CORRUPT', /position/),
  );
  await device.stop();
});

test('the log of a plan serves records in order, again until they are applied, and cannot be written', async () => {
  const records: LoggedRecord[] = Array.from({ length: 5 }, (_, at) => ({
    position: 10 * (at + 1),
    serverTime: at,
    record: new Uint8Array([at]),
  }));
  const log = new PlanLog({ snapshot: undefined, records: each(records) }, undefined);
  assert.deepEqual(await log.read(0, 2), records.slice(0, 2));
  assert.deepEqual(await log.read(0, 3), records.slice(0, 3));
  assert.equal(log.countUpTo(0), 0);
  assert.deepEqual(await log.read(20, 2), records.slice(2, 4));
  assert.equal(log.countUpTo(40), 4);
  assert.deepEqual(await log.read(40, 9), records.slice(4));
  assert.deepEqual(await log.read(50, 9), []);
  assert.equal(await log.manifest(), undefined);
  for (const call of [log.append(), log.replaceManifest(), log.purge(), log.at()])
    await assert.rejects(call, hasCode('KV_LOG_REFUSED'));
  const backwards = new PlanLog({ snapshot: undefined, records: each([...records].reverse()) }, undefined);
  await assert.rejects(backwards.read(0, 2), hasCode('KV_CORRUPT'));
  assert.equal((await backwards.read(0, 1)).length, 1);
  await assert.rejects(backwards.read(50, 1), hasCode('KV_CORRUPT'), 'it does not go on behind a failure');
});
