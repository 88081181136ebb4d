// Unknown options are refused, and `undefined` never means everything.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { test } from 'node:test';
import { destroy, list, open, openSync, recover, restore } from 'mangrove-kv';
import type { Database, Range } from 'mangrove-kv';
import { liveQuery } from 'mangrove-kv/live';
import { code, rejects, withMemory, withPath } from './support/kit.ts';

const KEYS = ['a', 'ab', 'b', 'c'];
const asAny = <T>(value: unknown): T => value as T;

const withKeys = (use: (db: Database<string, number>) => Promise<void>): Promise<void> =>
  withMemory<string, number>({ durability: 'none' }, async (db) => {
    await db.setMany(KEYS.map((key, at) => [key, at]));
    await use(db);
  });

/** Ranges that would cover more than intended. */
const WIDE: unknown[] = [
  { prefix: undefined },
  { gt: undefined },
  { gte: undefined, lt: 'b' },
  { lt: undefined },
  { lte: undefined, prefix: 'a' },
  { start: 'a', end: 'b' },
  { prefx: 'a' },
  ['a'],
  'a',
  5,
  null,
  new Map(),
  new Date(),
  AbortSignal.timeout(60_000),
  [],
];

test('clear removes nothing if its range is invalid', () =>
  withKeys(async (db) => {
    for (const wrong of [...WIDE, { limit: undefined }, { offset: undefined, prefix: 'a' }]) {
      const range = asAny<Range<string>>(wrong);
      await rejects(db.clear(range), 'KV_INVALID_ARGUMENT');
      await rejects(db.collection<string, number>('other').clear(range), 'KV_INVALID_ARGUMENT');
      await rejects(
        db.transaction((tx) => tx.clear(range)),
        'KV_INVALID_ARGUMENT',
      );
      assert.throws(() => db.sync.clear(range), code('KV_INVALID_ARGUMENT'));
      assert.throws(() => db.sync.transaction((tx) => tx.clear(range)), code('KV_INVALID_ARGUMENT'));
      assert.deepEqual(await db.keys().toArray(), KEYS);
    }
    await rejects(db.clear(asAny<Range<string>>(undefined)), 'KV_INVALID_ARGUMENT');
    assert.throws(() => db.sync.clear(asAny<Range<string>>(undefined)), code('KV_INVALID_ARGUMENT'));
    await rejects(
      asAny<{ clear(...args: unknown[]): Promise<void> }>(db).clear({}, { durabilty: 'none' }),
      'KV_INVALID_ARGUMENT',
    );
    assert.deepEqual(await db.keys().toArray(), KEYS);
    await db.clear({ prefix: 'a', limit: Infinity });
    assert.deepEqual(await db.keys().toArray(), ['b', 'c']);
    await db.clear({ lt: 'c' }, { durability: 'relaxed' });
    assert.deepEqual(await db.keys().toArray(), ['c']);
    await db.clear(undefined, { durability: 'none' });
    assert.equal(await db.size, 0);
    await db.set('a', 1);
    await db.clear({});
    await db.set('a', 1);
    await db.clear();
    assert.equal(await db.size, 0);
  }));

test('reads refuse ranges that would be wider than intended', () =>
  withKeys(async (db) => {
    const snapshot = db.snapshot();
    const [tx, items] = [db.begin(), db.collection<string, number>('items')];
    for (const wrong of WIDE) {
      const range = asAny<Range<string>>(wrong);
      for (const reader of [db, snapshot, tx, items]) {
        for (const name of ['entries', 'keys', 'values'] as const)
          await rejects(reader[name](range).toArray(), 'KV_INVALID_ARGUMENT');
        for (const name of ['first', 'last', 'count'] as const)
          await rejects(reader[name](range), 'KV_INVALID_ARGUMENT');
        await rejects(reader.at(0, range), 'KV_INVALID_ARGUMENT');
        await rejects(reader.rank('a', range), 'KV_INVALID_ARGUMENT');
        await rejects(
          reader.forEach(() => undefined, range),
          'KV_INVALID_ARGUMENT',
        );
        await rejects(reader.prefix('a', range).toArray(), 'KV_INVALID_ARGUMENT');
      }
      for (const reader of [db.sync, snapshot.sync, db.sync.collection(items)]) {
        for (const name of ['entries', 'keys', 'values', 'first', 'last', 'count'] as const) {
          assert.throws(() => reader[name](range), code('KV_INVALID_ARGUMENT'));
        }
        assert.throws(() => reader.at(0, range), code('KV_INVALID_ARGUMENT'));
        assert.throws(() => reader.rank('a', range), code('KV_INVALID_ARGUMENT'));
        assert.throws(() => reader.prefix('a', range), code('KV_INVALID_ARGUMENT'));
      }
      await rejects(db.watch(range).next(), 'KV_INVALID_ARGUMENT');
      assert.throws(() => db.subscribe(range, () => undefined), code('KV_INVALID_ARGUMENT'));
      assert.throws(() => liveQuery(db, range), code('KV_INVALID_ARGUMENT'));
    }
    for (const prefix of [undefined, null, 5]) {
      await rejects(db.prefix(prefix as never).toArray(), 'KV_INVALID_ARGUMENT');
      assert.throws(() => db.sync.prefix(prefix as never), code('KV_INVALID_ARGUMENT'));
    }
    await rejects(db.prefix('a', { prefix: 'b' } as object).toArray(), 'KV_INVALID_ARGUMENT');
    assert.deepEqual(await db.prefix('a', { reverse: true, limit: 1 }).toArray(), [['ab', 1]]);
    tx.rollback();
  }));

/** Each call with an option that it does not have, and what its error must name. */
const MISSPELT: Record<string, [call: (db: Database) => unknown, message: RegExp]> = {
  'set: ttl': [(db) => db.set('a', 1, { ttl: 5 } as object), /unknown option "ttl" of set; it takes .*expireIn/],
  'set: durabilty': [
    (db) => db.set('a', 1, { durabilty: 'none' } as object),
    /"durabilty" of set; did you mean "durability"\?/,
  ],
  'setMany': [(db) => db.setMany([], { expirein: 5 } as object), /did you mean "expireIn"/],
  'delete': [(db) => db.delete('a', { expireIn: 5 } as object), /unknown option "expireIn" of delete/],
  'deleteMany': [(db) => db.deleteMany([], { ttl: 5 } as object), /"ttl" of deleteMany/],
  'getOrInsert': [(db) => db.getOrInsert('a', 1, { ttl: 5 } as object), /of getOrInsert/],
  'getOrInsertComputed': [(db) => db.getOrInsertComputed('a', () => 1, { ttl: 5 } as object), /of getOrInsertComputed/],
  'update': [(db) => db.update('a', () => 1, { ttl: 5 } as object), /of update/],
  'clear: start': [(db) => db.clear({ start: 'a' } as object), /unknown option "start" of clear; it takes gt, gte/],
  'clear: prefx': [
    (db) => db.clear({ prefx: 'a' } as object),
    /unknown option "prefx" of clear; did you mean "prefix"\?/,
  ],
  'entries': [(db) => db.entries({ revers: true } as object).next(), /of entries; did you mean "reverse"/],
  'keys': [(db) => db.keys({ Limit: 1 } as object).toArray(), /of keys; did you mean "limit"/],
  'rank': [(db) => db.rank('a', { limit: 1 } as object), /"limit" of rank/],
  'nextExpiry': [(db) => db.nextExpiry({ limit: 1 } as object), /"limit" of nextExpiry/],
  'watch': [(db) => db.watch({ intial: true } as object).next(), /of watch; did you mean "initial"/],
  'watch: limit': [(db) => db.watch({ limit: 1 } as object).next(), /"limit" of watch/],
  'subscribe': [(db) => db.subscribe({ initial: true } as object, () => undefined), /"initial" of subscribe/],
  'changes': [(db) => db.changes({ sinse: 1 } as object).next(), /of changes; did you mean "since"/],
  'collection: keyEncoding': [
    (db) => db.collection('c', { keyEncoding: 'json' } as object),
    /"keyEncoding" of collection; did you mean "key"/,
  ],
  'collection: ttl': [(db) => db.collection('c', { ttl: 1 } as object), /"ttl" of collection; it takes .*expireIn/],
  'transaction: retries': [
    (db) => db.transaction(() => 1, { retries: 1 } as object),
    /"retries" of transaction; did you mean "maxRetries"/,
  ],
  'tryTransaction': [(db) => db.tryTransaction(() => 1, { readOnly: true } as object), /"readOnly" of tryTransaction/],
  'begin': [(db) => db.begin({ isolationLevel: 'snapshot' } as object), /of begin; did you mean "isolation"/],
  'transaction.set': [(db) => db.transaction((tx) => tx.set('a', 1, { ttl: 1 } as object)), /"ttl" of set/],
  'transaction.commit': [(db) => db.begin().commit({ sync: true } as object), /"sync" of commit/],
  'batch(ops)': [(db) => db.batch([], { sync: true } as object), /"sync" of batch/],
  'an operation to set': [(db) => db.batch([{ type: 'set', key: 1, value: 1, ttl: 1 } as never]), /"ttl" of set/],
  'an operation to delete': [(db) => db.batch([{ type: 'delete', key: 1, value: 1 } as never]), /"value" of delete/],
  'an operation to check': [
    (db) => db.batch([{ type: 'check', key: 1, versoin: 1 } as never]),
    /"versoin" of check; did you mean "version"/,
  ],
  'batch().set': [(db) => db.batch().set('a', 1, { durability: 'none' } as object), /"durability" of set/],
  'batch().commit': [(db) => db.batch().commit({ sync: true } as object), /"sync" of commit/],
  'flush': [(db) => db.flush({ timeout: 5 } as object), /of flush/],
  'purgeExpired': [(db) => db.purgeExpired({ limit: 5 } as object), /of purgeExpired/],
  'verify': [(db) => db.verify({ onprogress: () => 1 } as object), /of verify; did you mean "onProgress"/],
  'reencrypt': [(db) => db.reencrypt({ slices: 5 } as object), /of reencrypt/],
  'compact': [(db) => db.compact({ slices: 5 } as object), /of compact/],
  'layout': [(db) => db.layout({ maxExtent: 5 } as object), /of layout; did you mean "maxExtents"/],
  'backup': [
    (db) =>
      db
        .backup({ since: 5 } as object)
        .getReader()
        .read(),
    /of backup/,
  ],
  'liveQuery': [(db) => liveQuery(db, { signal: AbortSignal.timeout(60_000) } as object), /"signal" of liveQuery/],
  'sync: entries': [(db) => db.sync.entries({ signal: AbortSignal.timeout(60_000) } as object), /"signal" of entries/],
  'sync: set': [(db) => db.sync.set('a', 1, { ttl: 1 } as object), /"ttl" of set/],
  'sync: collection': [(db) => db.sync.collection('c', { ttl: 1 } as object), /"ttl" of collection/],
  'sync: transaction': [(db) => db.sync.transaction(() => 1, { retries: 1 } as object), /"retries" of transaction/],
  'open: readonly': [
    () => open('x', { storage: 'memory', readonly: true } as object),
    /"readonly" of open; did you mean "readOnly"/,
  ],
  'open: a property of every object': [
    () => open('x', { storage: 'memory', toString: 1 } as object),
    /"toString" of open/,
  ],
  'open: feed': [() => open('x', { storage: 'memory', feed: { retain: 5 } as object }), /"retain" of feed/],
  'openSync': [() => openSync('x', { storage: 'memory', keyCodec: 5 } as object), /of openSync|of open/],
  'destroy': [() => destroy('x', { force_: true } as object), /of destroy/],
  'list': [() => list({ path: '.' } as object), /of list/],
  'restore': [() => restore('x', new Blob([]), { overwrit: true } as object), /of restore; did you mean "overwrite"/],
  'recover': [() => recover('x', 'y', { overwrite: true } as object), /of recover/],
};

for (const [name, [call, message]] of Object.entries(MISSPELT)) {
  test(`an unknown option is named: ${name}`, () =>
    withMemory({}, async (db) => {
      const error: unknown = await Promise.resolve()
        .then(() => call(db))
        .then(
          () => assert.fail('it was accepted'),
          (reason: unknown) => reason,
        );
      code('KV_INVALID_ARGUMENT')(error);
      assert.match((error as Error).message, message);
      assert.equal(await db.size, 0);
    }));
}

test('undefined options mean the default, and options without a prototype or inherited ones count', () =>
  withMemory({}, async (db) => {
    await db.set('a', 1, { durability: undefined, signal: undefined, expireIn: undefined, expireAt: undefined });
    await db.set('b', 1, Object.assign(Object.create(null), { expireIn: 60_000 }));
    await db.set('c', 1, Object.create({ expireIn: 60_000 }));
    for (const key of ['b', 'c']) assert.ok((await db.getEntry(key))?.expiresAt);
    await rejects(db.set('d', 1, Object.create({ ttl: 1 })), 'KV_INVALID_ARGUMENT');
  }));

/**
 * Values that an option of open may not have; null and objects of the wrong kind are tried with
 * each.
 */
const WRONG: Record<string, unknown[]> = {
  storage: ['disk', 5, true, {}, { open() {}, list() {} }],
  create: ['yes', 1, 0],
  exclusive: ['yes', 1],
  readOnly: ['yes', 1],
  onUnavailable: ['ignore', true],
  lockTimeout: [-1, 1.5, '5', NaN, true, 5n],
  idleTimeout: [-1, 1.5, '5', NaN, true, 5n],
  thread: ['main', true],
  durability: ['sync', true, 1],
  cacheBytes: [-1, 1.5, '5', NaN, Infinity, 2 ** 32, 5n],
  compression: [false, true, 'gzip', '', 5, 5n, Symbol('lz4'), ['lz4'], new String('lz4')],
  advanced: [
    'x',
    5,
    { unitByte: 512 },
    ...[-1, 1.5, '4096', 1000, 2 ** 32, 5n].map((unitBytes) => ({ unitBytes })),
    ...[-1, 1.5, '4096', 1, 2 ** 32, 5n].map((nodeBytes) => ({ nodeBytes })),
  ],
  feed: ['yes', 1, { retainCommits: 0 }, { retainCommits: '5' }, { retainCommits: -1 }, { retainCommits: null }, []],
  trace: ['yes', 1, {}],
  signal: ['now', 5, true, new AbortController()],
  wasm: [5, true],
  worker: [5, true],
  key: ['json', 5, { id: 'x' }, { id: '', encode() {}, decode() {} }],
  value: ['json', 5, { id: 'x' }],
  expireIn: [-1, NaN, '5', 5n, true],
  schema: ['x', 5, { '~standard': {} }],
};

test('open refuses wrong values of options', async () => {
  for (const [name, values] of Object.entries(WRONG)) {
    for (const value of [
      ...values,
      null,
      Symbol('x'),
      new Map(),
      name === 'worker' || name === 'wasm' || name === 'trace' ? 5 : () => 5,
    ]) {
      if (name === 'signal' && value === undefined) continue;
      const options = { storage: 'memory', [name]: value } as object;
      await assert.rejects(open('x', options), code('KV_INVALID_ARGUMENT'), `${name}: ${String(value)}`);
      assert.throws(() => openSync('x', options), code('KV_INVALID_ARGUMENT'), `${name}: ${String(value)}`);
    }
  }
  for (const options of [null, 5, 'memory', [], new Map()] as never[])
    await rejects(open('x', options), 'KV_INVALID_ARGUMENT');
});

test('storage buckets are refused outside browsers, and nothing is created', () =>
  withPath(async (path) => {
    const bucket = 'drafts';
    await rejects(open(path, { bucket }), 'KV_UNSUPPORTED');
    await rejects(open('x', { bucket: { name: bucket }, storage: 'memory' }), 'KV_UNSUPPORTED');
    assert.throws(() => openSync(path, { bucket }), code('KV_UNSUPPORTED'));
    await rejects(destroy(path, { bucket }), 'KV_UNSUPPORTED');
    await rejects(list({ bucket }), 'KV_UNSUPPORTED');
    await rejects(restore(path, new Uint8Array(1), { bucket }), 'KV_UNSUPPORTED');
    await rejects(recover(path, `${path}-new`, { bucket }), 'KV_UNSUPPORTED');
    assert.equal(existsSync(path), false);
    const db = await open('x', { storage: 'memory' });
    assert.equal(db.bucket, undefined);
    await db.close();
  }));

test('values from a custom storage that the engine cannot use are refused', async () => {
  const file = { read() {}, write() {}, flush() {}, size: () => 0, truncate() {}, close() {} };
  for (const reserveBytes of ['5', -1, NaN, {}, 5n] as never[]) {
    await rejects(
      open('x', { storage: { open: () => file, list: () => [], remove() {}, reserveBytes } }),
      'KV_INVALID_ARGUMENT',
    );
  }
  for (const size of ['5', -1, NaN, {}, 5n, undefined] as never[]) {
    await rejects(
      open('x', { storage: { open: () => ({ ...file, size: () => size }), list: () => ['data'], remove() {} } }),
      'KV_IO',
    );
  }
  for (const broken of [undefined, null, 5, {}] as never[]) {
    await rejects(open('x', { storage: { open: () => broken, list: () => [], remove() {} } }), 'KV_IO');
  }
});

test('expiry is a number of milliseconds, a date, or never', () =>
  withMemory({}, async (db) => {
    const short = db.collection('short', { expireIn: 60_000 });
    for (const expireIn of [null, -1, NaN, '5', 5n, {}, new Date(), 1e300]) {
      await rejects(db.set('a', 1, { expireIn } as never), 'KV_INVALID_ARGUMENT');
      assert.throws(() => db.batch().set('a', 1, { expireIn } as never), code('KV_INVALID_ARGUMENT'));
      await rejects(db.batch([{ type: 'set', key: 'a', value: 1, expireIn } as never]), 'KV_INVALID_ARGUMENT');
      assert.throws(() => db.sync.set('a', 1, { expireIn } as never), code('KV_INVALID_ARGUMENT'));
      await rejects(
        db.update('a', () => 1, { expireIn } as never),
        'KV_INVALID_ARGUMENT',
      );
      assert.throws(() => db.sync.update('a', () => 1, { expireIn } as never), code('KV_INVALID_ARGUMENT'));
    }
    for (const expireAt of [null, true, '2030-01-01', NaN, Infinity, -Infinity, new Date(NaN), {}, 5n]) {
      await rejects(db.set('a', 1, { expireAt } as never), 'KV_INVALID_ARGUMENT');
    }
    await rejects(db.set('a', 1, { expireIn: 5, expireAt: 5 }), 'KV_INVALID_ARGUMENT');
    assert.equal(await db.size, 0);
    const before = Date.now();
    await db.set('a', 1, { expireIn: 60_000.25 });
    const { expiresAt } = (await db.getEntry('a')) ?? {};
    assert.ok(Number.isSafeInteger(expiresAt) && (expiresAt ?? 0) >= before + 60_001, 'up to a whole millisecond');
    await db.set('b', 1, { expireAt: before + 60_000.5 });
    assert.equal((await db.getEntry('b'))?.expiresAt, before + 60_001);
    await short.set('never', 1, { expireIn: Infinity });
    assert.equal((await short.getEntry('never'))?.expiresAt, undefined);
    await short.set('soon', 1, { expireIn: undefined });
    assert.ok((await short.getEntry('soon'))?.expiresAt);
  }));
