// Every public call with arguments that it does not accept: it fails with a KvError, thrown or
// rejected as fits the call. A new method needs a row here.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import * as api from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { MangroveStorageAdapter } from '@mangrove-kv/automerge';
import * as durableObject from 'mangrove-kv/durable-object';
import { KeyvMangrove } from '@mangrove-kv/keyv';
import { MangroveLevel } from '@mangrove-kv/level';
import { liveQuery, liveValue, liveWindow } from 'mangrove-kv/live';
import * as migrate from '@mangrove-kv/migrate';
import { mangroveDriver } from '@mangrove-kv/unstorage';
import * as yjs from '@mangrove-kv/yjs';
import * as Y from 'yjs';
import { rejects, withMemory } from './support/kit.ts';

type Arguments = readonly unknown[];
/** Arguments that a call refuses, or the reason why it refuses none. */
type Row = readonly Arguments[] | string;
type Rows = Readonly<Record<string, Row>>;

const NOTHING = 'takes nothing';
const PLATFORM = 'of the platform, which checks its own arguments';
const NO_OPTIONS: Arguments = [
  null,
  5,
  'x',
  true,
  [],
  ['x'],
  new Map(),
  new Date(),
  Symbol('x'),
  5n,
  () => 1,
  { nonsense: 1 },
];
const NO_KEYS: Arguments = [undefined, NaN, {}, () => 1, Symbol('x'), [undefined]];
const NO_LIST: Arguments = [undefined, null, 5, {}, 'ab', true, new Date(), () => 1, Symbol('x')];
const NO_FUNCTION: Arguments = [undefined, null, 5, 'x', {}];
const NO_COUNT: Arguments = [undefined, null, -1, 1.5, NaN, '5', 5n, {}];
const NO_NAME: Arguments = [undefined, null, 5, '', {}, [], Symbol('x'), '\ud800'];

const each = (values: Arguments, ...rest: unknown[]): Arguments[] => values.map((value) => [value, ...rest]);
/** Valid arguments and invalid options. */
const withOptions = (...right: unknown[]): Arguments[] =>
  [...NO_OPTIONS, { signal: 5 }, { signal: null }].map((options) => [...right, options]);
const withWriteOptions = (...right: unknown[]): Arguments[] => [
  ...withOptions(...right),
  [...right, { durability: 'sync' }],
  [...right, { durability: null }],
];
const withSetOptions = (...right: unknown[]): Arguments[] => [
  ...withWriteOptions(...right),
  [...right, { expireIn: '5' }],
  [...right, { expireAt: 'x' }],
];

const RANGES: Arguments[] = [
  ...each(NO_OPTIONS),
  [{ gt: undefined }],
  [{ prefix: undefined }],
  [{ prefix: 5 }],
  [{ gte: NaN }],
  [{ lt: {} }],
  [{ limit: -1 }],
  [{ limit: null }],
  [{ offset: '1' }],
  [{ reverse: 1 }],
];
const ASYNC_RANGES: Arguments[] = [...RANGES, [{ signal: 5 }]];
const after = (first: unknown, rows: readonly Arguments[]): Arguments[] => rows.map((row) => [first, ...row]);

const reads = (ranges: readonly Arguments[]): Rows => ({
  get: each(NO_KEYS),
  getEntry: each(NO_KEYS),
  has: each(NO_KEYS),
  getMany: [...each(NO_LIST), [[NaN]], [[undefined]]],
  hasMany: [...each(NO_LIST), [[NaN]], [[undefined]]],
  entries: ranges,
  keys: ranges,
  values: ranges,
  first: ranges,
  last: ranges,
  count: ranges,
  prefix: [
    ...each([undefined, null, 5, {}, new Date()]),
    ...after(
      'a',
      ranges.filter(([range]) => Object(range) !== range || !('prefix' in (range as object))),
    ),
    ['a', { prefix: 'b' }],
  ],
  at: [...each([undefined, null, 1.5, NaN, '1', 1n, Infinity]), ...after(0, ranges)],
  rank: [...each(NO_KEYS), ...after('a', ranges)],
});

const RENAMES: Arguments[] = [...each(NO_NAME, 'to'), ...each(NO_NAME).map(([to]) => ['from', to])];
const SYNC_READS: Rows = { ...reads(RANGES), index: [...each(NO_NAME), ['none']] };
const READS: Rows = {
  ...reads(ASYNC_RANGES),
  index: [...each(NO_NAME), ['none']],
  forEach: [...each(NO_FUNCTION), ...after(() => 1, ASYNC_RANGES)],
  // The codec has no parts.
  getRange: [...each(NO_KEYS), ['a', 0, 1]],
  getStream: [...each(NO_KEYS), ['a']],
  inParts: 'internal',
};
const STREAMS: Rows = {
  setStream: [...each(NO_KEYS, []), ...each([undefined, null, 5, 'x', []]).map(([stream]) => ['a', stream])],
};

const writes = (ranges: readonly Arguments[]): Rows => ({
  set: [...each(NO_KEYS, 1), ['a', undefined], ['a', () => 1], ...withSetOptions('a', 1)],
  setMany: [
    ...each(NO_LIST),
    ...each([[5], [null], [{ key: 1, value: 2 }], ['ab'], [[NaN, 1]], [['a']], { a: 1 }]),
    ...withSetOptions([['a', 1]]),
  ],
  delete: [...each(NO_KEYS), ...withWriteOptions('a')],
  deleteMany: [...each(NO_LIST), [[NaN]], ...withWriteOptions(['a'])],
  clear: [
    [undefined],
    ...ranges,
    [{ limit: undefined }],
    [{ offset: undefined }],
    ...withWriteOptions({}),
    ...withWriteOptions(undefined),
  ],
  getOrInsert: [...each(NO_KEYS, 1), ['b', undefined], ...withSetOptions('a', 1)],
  getOrInsertComputed: [
    ...each(NO_KEYS, () => 1),
    ...each(NO_FUNCTION).map(([fn]) => ['b', fn]),
    ['b', () => undefined],
    ...withSetOptions('b', () => 1),
  ],
  update: [
    ...each(NO_KEYS, () => 1),
    ...each(NO_FUNCTION).map(([fn]) => ['a', fn]),
    ['a', () => undefined],
    ...withSetOptions('a', () => 1),
  ],
});

const MAINTENANCE: Arguments[] = [...withOptions(), [{ onProgress: 5 }], [{ onProgress: null }]];
const TRANSACTION: Arguments[] = [
  ...withWriteOptions(),
  [{ mode: 'write' }],
  [{ mode: null }],
  [{ isolation: 'none' }],
  [{ maxRetries: -1 }],
  [{ maxRetries: '5' }],
  [{ timeout: -1 }],
  [{ timeout: null }],
];
const COLLECTION: Arguments[] = [
  ...each(NO_OPTIONS),
  [{ key: 5 }],
  [{ key: null }],
  [{ value: 'json' }],
  [{ value: null }],
  [{ expireIn: -1 }],
  [{ expireIn: null }],
  [{ schema: 5 }],
  [{ schema: null }],
];
const NO_COLLECTION: Arguments = [...NO_NAME, { name: 'x' }];
const OPERATIONS: Arguments = [
  5,
  null,
  'x',
  {},
  { type: 'put', key: 1, value: 1 },
  { type: 'set', key: 1 },
  { type: 'set', key: NaN, value: 1 },
  { type: 'set', key: 1, value: 1, ttl: 5 },
  { type: 'set', key: 1, value: 1, collection: 5 },
  { type: 'set', key: 1, value: 1, collection: null },
  { type: 'delete' },
  { type: 'delete', key: 1, value: 1 },
  { type: 'check', key: 1, version: 'x' },
  { type: 'check', key: 1, version: -1 },
  { type: 'constructor' },
  [],
];
const WATCH: Arguments[] = [
  ...RANGES.filter(([range]) => Object(range) !== range || !('signal' in (range as object))),
  [{ initial: 1 }],
  [{ limit: 1 }],
  [{ signal: 5 }],
];

const COLLECTION_ROWS: Rows = {
  ...READS,
  ...writes(ASYNC_RANGES),
  ...STREAMS,
  watch: WATCH,
  nextExpiry: WATCH.filter(([range]) => !('initial' in Object(range))),
  buildIndexes: MAINTENANCE,
  dropIndex: each(NO_NAME),
  subscribe: [...each(NO_FUNCTION).map(([fn]) => [{}, fn]), ...WATCH.map(([range]) => [range, () => 1])],
};

const DATABASE: Rows = {
  ...COLLECTION_ROWS,
  collection: [...each(NO_NAME.filter((name) => name !== '')), ...after('c', COLLECTION)],
  collections: NOTHING,
  dropCollection: each(NO_NAME),
  renameCollection: RENAMES,
  batch: [[undefined], ...each(NO_LIST.slice(1)), ...OPERATIONS.map((op) => [[op]]), ...withWriteOptions([])],
  transaction: [...each(NO_FUNCTION), ...after(() => 1, TRANSACTION)],
  tryTransaction: [...each(NO_FUNCTION), ...after(() => 1, TRANSACTION)],
  begin: TRANSACTION,
  refresh: NOTHING,
  purgeExpired: withOptions(),
  changes: [...withOptions(), [{ since: -1 }], [{ since: 'x' }], [{ since: null }]],
  snapshot: NOTHING,
  flush: withOptions(),
  stats: NOTHING,
  layout: [...MAINTENANCE, [{ maxExtents: -1 }], [{ maxExtents: 'x' }]],
  changeKey: [
    [],
    [null],
    [5],
    [{}],
    [{ key: new Uint8Array(31) }],
    [{ passphrase: '' }],
    [{ key: new Uint8Array(32), pasphrase: '' }],
  ],
  verify: MAINTENANCE,
  compact: MAINTENANCE,
  reencrypt: MAINTENANCE,
  backup: MAINTENANCE,
  close: NOTHING,
  addEventListener: PLATFORM,
  removeEventListener: PLATFORM,
  dispatchEvent: PLATFORM,
  transact: 'internal',
  clearPart: 'internal',
  guard: 'internal',
  writeBatch: 'internal',
  writing: 'internal',
};
const INTERNAL: Rows = { clearPart: 'internal', guard: 'internal', writeBatch: 'internal', writing: 'internal' };

const SNAPSHOT: Rows = { ...READS, collection: each(NO_COLLECTION), close: NOTHING };
const TRANSACTION_ROWS: Rows = {
  ...READS,
  ...writes(ASYNC_RANGES),
  ...STREAMS,
  ...INTERNAL,
  collection: each(NO_COLLECTION),
  dropCollection: each(NO_NAME),
  renameCollection: RENAMES,
  savepoint: NOTHING,
  commit: withWriteOptions(),
  tryCommit: withWriteOptions(),
  rollback: 'any reason will do',
};
const BATCH: Rows = {
  set: [
    ...each(NO_KEYS, 1),
    ['a', undefined],
    ...each(NO_OPTIONS).map(([options]) => ['a', 1, options]),
    ['a', 1, { expireIn: '5' }],
  ],
  delete: each(NO_KEYS),
  check: [...each(NO_KEYS, 1), ...each(NO_COUNT.slice(2)).map(([version]) => ['a', version])],
  collection: each(NO_COLLECTION),
  commit: withWriteOptions(),
  tryCommit: withWriteOptions(),
};
const ITERATOR: Rows = {
  next: NOTHING,
  return: NOTHING,
  toArray: NOTHING,
  nextMany: each(NO_COUNT),
  take: each(NO_COUNT),
  drop: each(NO_COUNT),
  seek: each([undefined, NaN, {}, Symbol('x')]),
  map: each(NO_FUNCTION),
  filter: each(NO_FUNCTION),
  forEach: each(NO_FUNCTION),
  some: each(NO_FUNCTION),
  every: each(NO_FUNCTION),
  find: each(NO_FUNCTION),
  flatMap: each(NO_FUNCTION),
  reduce: each(NO_FUNCTION),
  interruptible: 'internal',
};
const SYNC_DATABASE: Rows = {
  ...SYNC_READS,
  ...writes(RANGES),
  collection: [...each(NO_COLLECTION), ...after('c', COLLECTION)],
  transaction: [...each(NO_FUNCTION), [async () => 1], ...withWriteOptions(() => 1)],
  snapshot: NOTHING,
  flush: NOTHING,
  close: NOTHING,
};
const SYNC_SNAPSHOT: Rows = { ...SYNC_READS, collection: each(NO_COLLECTION) };

/** Prototypes that the runtime gives to each object, or to each iterator. */
const RUNTIME_PROTOTYPES = new Set<object>([
  Object.prototype,
  ...('Iterator' in globalThis
    ? [(globalThis as unknown as { Iterator: { prototype: object } }).Iterator.prototype]
    : []),
]);

/** The names of an object's methods, including inherited ones. */
function methodsOf(object: object): string[] {
  const names = new Set<string>();
  for (
    let at: object | null = object;
    at !== null && !RUNTIME_PROTOTYPES.has(at);
    at = Object.getPrototypeOf(at) as object | null
  ) {
    for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(at))) {
      if (typeof value === 'function' && name !== 'constructor') names.add(name);
    }
  }
  return [...names].sort();
}

interface Thrown {
  readonly how: 'thrown' | 'rejected';
  readonly error: unknown;
}

/** How a call fails, also through the iterator or stream that it returns. */
async function outcomeOf(call: () => unknown): Promise<Thrown | undefined> {
  let given: unknown;
  try {
    given = call();
  } catch (error) {
    return { how: 'thrown', error };
  }
  try {
    const { next, getReader } = (given ?? {}) as Partial<AsyncIterator<unknown> & ReadableStream>;
    if (typeof getReader === 'function') await (given as ReadableStream).getReader().read();
    else if (typeof next === 'function') await (given as AsyncIterator<unknown>).next();
    else await given;
    return undefined;
  } catch (error) {
    return { how: 'rejected', error };
  }
}

const show = (args: Arguments): string =>
  args
    .map((value) =>
      typeof value === 'object' && value !== null
        ? JSON.stringify(value, (_, part: unknown) =>
            typeof part === 'bigint' ? `${part}n` : part === undefined ? 'undefined' : part,
          )
        : String(value),
    )
    .join(', ');

/**
 * Calls every method of what `make` returns with arguments that it refuses; `throwing` names the
 * methods that return no promise.
 */
async function checkAll(
  rows: Rows,
  make: () => object,
  throwing: readonly string[] | 'all',
  allowed: readonly string[] = [],
): Promise<void> {
  assert.deepEqual(
    methodsOf(make()).filter((name) => !(name in rows)),
    [],
    'methods without a row',
  );
  const wrong: string[] = [];
  for (const [name, row] of Object.entries(rows)) {
    if (typeof row === 'string') continue;
    for (const args of row) {
      const object = make() as Record<string, (...args: unknown[]) => unknown>;
      const what = `${name}(${show(args)})`;
      const outcome = await outcomeOf(() =>
        (object[name] as (...given: unknown[]) => unknown).apply(object, [...args]),
      );
      const { code, name: kind, message } = (outcome?.error ?? {}) as Partial<api.KvError>;
      const how = throwing === 'all' || throwing.includes(name) ? 'thrown' : 'rejected';
      if (outcome === undefined) wrong.push(`${what} is accepted`);
      else if (
        kind !== 'KvError' ||
        !['KV_INVALID_ARGUMENT', 'KV_INVALID_KEY', 'KV_INVALID_VALUE', ...allowed].includes(String(code))
      )
        wrong.push(`${what}: ${String(outcome.error)}`);
      else if (outcome.how !== how) wrong.push(`${what} has ${outcome.how}: ${message}`);
    }
  }
  assert.deepEqual(wrong, []);
}

const WITHOUT_PROMISE = [
  'collection',
  'index',
  'begin',
  'subscribe',
  'seek',
  'map',
  'filter',
  'take',
  'drop',
  'flatMap',
];
const withDatabase = (use: (db: Database) => Promise<void>): Promise<void> =>
  withMemory({ durability: 'none' }, async (db) => {
    await db.set('a', 1);
    await use(db);
    assert.deepEqual(await db.entries().toArray(), [['a', 1]], 'nothing was changed');
    assert.deepEqual(await db.collections(), []);
  });

test('a database checks arguments', () => withDatabase((db) => checkAll(DATABASE, () => db, WITHOUT_PROMISE)));
test('a collection checks arguments', () =>
  withDatabase((db) =>
    checkAll({ ...COLLECTION_ROWS, ...INTERNAL, transact: 'internal' }, () => db.collection('c'), WITHOUT_PROMISE),
  ));
test('an index checks arguments', () =>
  withMemory({}, async (db) => {
    const ranges = [...ASYNC_RANGES, [{ eq: undefined }], [{ eq: NaN }], [{ eq: 1, gt: 0 }], [{ eq: 1, prefix: [1] }]];
    const rows: Rows = {
      entries: ranges,
      keys: ranges,
      values: ranges,
      first: ranges,
      last: ranges,
      count: ranges,
      get: each(NO_KEYS),
      at: [...each([undefined, null, 1.5, NaN, '1', 1n, Infinity]), ...after(0, ranges)],
      rank: [...each(NO_KEYS), ...after('a', ranges)],
      nextExpiry: [],
      watch: [
        ...ranges.filter(
          ([range]) => !('reverse' in Object(range) || 'limit' in Object(range) || 'offset' in Object(range)),
        ),
        [{ reverse: true }],
        [{ limit: 1 }],
      ],
    };
    const indexed = db.collection('c', { indexes: { by: { key: () => 1 } } });
    await checkAll(rows, () => indexed.index('by'), WITHOUT_PROMISE);
    await checkAll(
      {
        index: [
          ['by', 5],
          ['by', null],
          ['by', { whenIncomplete: 'x' }],
          ['by', { when: 'wait' }],
        ],
      },
      () => ({ index: (name: string, options: object) => indexed.index(name, options) }),
      'all',
    );
    const { watch: _, nextExpiry: __, ...plain } = rows;
    const [sync, signals] = [
      db.sync.collection(indexed),
      (args: Arguments) => args.some((arg) => 'signal' in Object(arg)),
    ];
    const replicationRows = Object.fromEntries(
      Object.entries(plain).map(([name, row]) => [name, (row as Arguments[]).filter((args) => !signals(args))]),
    );
    await checkAll(replicationRows, () => sync.index('by'), 'all');
  }));
test('a snapshot checks arguments', () =>
  withDatabase((db) => checkAll(SNAPSHOT, () => db.snapshot(), WITHOUT_PROMISE)));
test('a transaction checks arguments', () =>
  withDatabase(async (db) => {
    const tx = db.begin();
    await tx.set('a', 1);
    await checkAll(TRANSACTION_ROWS, () => tx, WITHOUT_PROMISE);
    tx.rollback();
  }));
test('a collection of a transaction checks arguments', () =>
  withDatabase(async (db) => {
    const tx = db.begin();
    await checkAll(
      { ...READS, ...writes(ASYNC_RANGES), ...STREAMS, ...INTERNAL },
      () => tx.collection('c'),
      WITHOUT_PROMISE,
    );
    tx.rollback();
  }));
test('a savepoint takes no arguments', () =>
  withDatabase(async (db) => {
    const tx = db.begin();
    await checkAll({ rollback: NOTHING }, () => tx.savepoint(), []);
    tx.rollback();
  }));
test('a batch checks arguments', () =>
  withDatabase((db) => checkAll(BATCH, () => db.batch(), ['set', 'delete', 'check', 'collection'])));
test('an iterator checks arguments', () =>
  withDatabase(async (db) => {
    // What the callback of flatMap returns is checked when it is called.
    await checkAll(ITERATOR, () => db.entries(), WITHOUT_PROMISE);
    for (const given of [5, undefined, {}])
      await rejects(
        db
          .entries()
          .flatMap(() => given as never)
          .next(),
        'KV_INVALID_ARGUMENT',
      );
  }));
test('an iterator of an iterator checks arguments', () =>
  withDatabase((db) => checkAll(ITERATOR, () => db.entries().map((entry) => entry), WITHOUT_PROMISE)));
test('an iterator of commits takes no arguments', () =>
  withDatabase((db) => checkAll({ next: NOTHING, return: NOTHING, look: NOTHING }, () => db.watch(), [])));
test('a subscription takes no arguments', () =>
  withDatabase((db) => checkAll({ unsubscribe: NOTHING }, () => db.subscribe({}, () => undefined), [])));
test('the synchronous API checks arguments', () => withDatabase((db) => checkAll(SYNC_DATABASE, () => db.sync, 'all')));
test('a collection of the synchronous API checks arguments', () =>
  withDatabase((db) => checkAll({ ...SYNC_READS, ...writes(RANGES) }, () => db.sync.collection('c'), 'all')));
test('the synchronous view of a snapshot checks arguments', () =>
  withDatabase((db) => checkAll(SYNC_SNAPSHOT, () => db.snapshot().sync, 'all')));
test('a snapshot of the synchronous API checks arguments', () =>
  withDatabase(async (db) => {
    using snapshot = db.sync.snapshot();
    await checkAll({ ...SYNC_SNAPSHOT, close: NOTHING }, () => snapshot, 'all');
  }));
test('a synchronous transaction checks arguments', () =>
  withDatabase(async (db) => {
    const rows = { ...SYNC_READS, ...writes(RANGES), collection: each(NO_COLLECTION) };
    for (const [name, row] of Object.entries(rows)) {
      for (const args of row as readonly Arguments[]) {
        assert.throws(
          () =>
            db.sync.transaction((tx) => {
              (tx as unknown as Record<string, (...args: unknown[]) => unknown>)[name]?.(...args);
            }),
          (error: api.KvError) => error.name === 'KvError' && error.code.startsWith('KV_INVALID_'),
          `${name}(${show(args)})`,
        );
      }
    }
    db.sync.transaction((tx) =>
      assert.deepEqual(
        methodsOf(tx).filter((name) => !(name in rows)),
        [],
      ),
    );
  }));
test('a synchronous iterator takes no arguments', () =>
  withDatabase((db) => checkAll({ next: NOTHING, return: NOTHING, look: NOTHING }, () => db.sync.entries(), 'all')));

const PATHS: Arguments = [undefined, null, 5, {}, [], true];
const OPEN: Arguments[] = [...withWriteOptions('x'), ['x', { storage: 'disk' }], ['x', { compression: false }]];
test('the functions of the package check arguments', () =>
  withDatabase(async () => {
    const rows: Rows = {
      open: [...each(PATHS), ...OPEN],
      openSync: [...each(PATHS), ...OPEN],
      destroy: [...each(PATHS), ...withOptions('x'), ['x', { storage: 'opfs' }]],
      list: [...withOptions(), [{ storage: 5 }]],
      restore: [
        ...each(PATHS, new Blob([])),
        ...each([undefined, null, 5, {}]).map(([backup]) => ['x', backup]),
        ...withOptions('x', new Blob([])),
        ['x', new Blob([]), { overwrite: 1 }],
        ['x', new Blob([]), { wasm: 5 }],
        ['x', new Blob([]), { onProgress: 5 }],
      ],
      recover: [
        ...each(PATHS, 'y'),
        ...each(PATHS).map(([into]) => ['x', into]),
        ...withOptions('x', 'y'),
        ['x', 'y', { storage: 5 }],
        ['x', 'y', { onProgress: 5 }],
      ],
      checkSupport: NOTHING,
      persist: NOTHING,
      estimate: NOTHING,
      compareKeys: [...each(NO_KEYS, 1), ...each(NO_KEYS).map(([key]) => [1, key])],
      KvError: 'an error',
    };
    await checkAll(rows, () => ({ ...api }), ['openSync', 'compareKeys']);
  }));

test('live queries check arguments', () =>
  withDatabase(async (db) => {
    const ranges = [
      ...each([undefined, null, 5, 'x', {}]),
      ...after(
        db,
        RANGES.filter(
          ([range]) => Object(range) !== range || Object.values(range as object).every((value) => value === undefined),
        ),
      ),
    ];
    const rows: Rows = {
      liveQuery: ranges,
      liveWindow: ranges,
      liveValue: [
        ...each([undefined, null, 5, 'x', {}], () => 1),
        ...each([undefined, null, 5, 'x', {}]).map(([read]) => [db, read]),
      ],
    };
    await checkAll(rows, () => ({ liveQuery, liveWindow, liveValue }), 'all');
  }));

test('a database in a Durable Object checks arguments', async () => {
  const rows: Rows = {
    open: [...each([undefined, null, 5, {}, { sql: {} }]), ...after({ sql: { exec: () => [] } }, withWriteOptions())],
  };
  await checkAll(rows, () => ({ open: durableObject.open }), []);
});

const NO_DATABASE: Arguments = [undefined, null, 5, './path', {}];
test('migrations check arguments', () =>
  withDatabase(async (db) => {
    const storage = { length: 0, getItem: () => null, key: () => null };
    const rows: Rows = {
      migrateIndexedDB: [
        ...each(NO_DATABASE, { name: 'x' }),
        [db],
        ...withOptions(db),
        [db, {}],
        [db, { name: 5 }],
        [db, { name: 'x', indexedDB: 5 }],
        [db, { name: 'x', batchSize: 0, indexedDB: { open() {} } }],
        [db, { name: 'x', stores: 'x', indexedDB: { open() {} } }],
        [db, { name: 'x', into: 5, indexedDB: { open() {} } }],
        [db, { name: 'x', transform: 5 }],
      ],
      dexieIndexes: [...each([undefined, null, 5, {}]), ['id, [a+b']],
      indexesOf: [...each([null, 5, 'x']), [{ a: 5 }]],
      migrateLocalStorage: [
        ...each(NO_DATABASE, { storage }),
        ...withOptions(db),
        [db, { storage: 5 }],
        [db, { storage, prefix: 5 }],
        [db, { storage, transform: 5 }],
        [db, { storage, onProgress: 5 }],
        [db, { storage, into: 5 }],
      ],
    };
    await checkAll(rows, () => ({ ...migrate }), ['dexieIndexes', 'indexesOf']);
    const { localStorage, indexedDB } = globalThis as { localStorage?: unknown; indexedDB?: unknown };
    if (localStorage === undefined)
      await assert.rejects(migrate.migrateLocalStorage(db), { name: 'KvError', code: 'KV_UNSUPPORTED' });
    if (indexedDB === undefined)
      await assert.rejects(migrate.migrateIndexedDB(db, { name: 'x' }), { name: 'KvError', code: 'KV_UNSUPPORTED' });
  }));

test('adapters check arguments', () =>
  withDatabase(async (db) => {
    const of = db as never;
    const rows: Rows = {
      KeyvMangrove: each(NO_DATABASE),
      MangroveStorageAdapter: each(NO_DATABASE),
      mangroveDriver: [...each(NO_DATABASE), [{ collection: './path' }], [{ collection: db, base: 'x' }]],
      MangroveLevel: [
        ...each([undefined, null, 5, {}]),
        ...[null, 5, 'x', { durabilty: 'none' }, { cachebytes: 5 }].map((options) => ['x', options]),
      ],
    };
    const make = {
      KeyvMangrove: (collection: never) => new KeyvMangrove(collection),
      MangroveStorageAdapter: (collection: never) => new MangroveStorageAdapter(collection),
      mangroveDriver,
      MangroveLevel: (location: never, options: never) => new MangroveLevel(location, options),
    };
    await checkAll(rows, () => make, 'all');
    const keys = each(NO_KEYS);
    const keyv: Rows = {
      get: keys,
      has: keys,
      delete: keys,
      getMany: each(NO_LIST),
      hasMany: each(NO_LIST),
      deleteMany: each(NO_LIST),
      set: [...each(NO_KEYS, 1), ['a', undefined], ['a', () => 1]],
      setMany: [...each(NO_LIST), [[5]], [[null]], [[{}]]],
      clear: NOTHING,
      iterator: NOTHING,
    };
    await checkAll(keyv, () => new KeyvMangrove(of), []);
    const driver: Rows = {
      getInstance: NOTHING,
      hasItem: keys,
      getItem: keys,
      getItemRaw: keys,
      removeItem: keys,
      getMeta: keys,
      setItem: [...each(NO_KEYS, '1'), ['a', undefined], ['a', '1', { ttl: 'x' }]],
      setItemRaw: [...each(NO_KEYS, '1'), ['a', undefined], ['a', '1', { ttl: NaN }]],
      getItems: [...each(NO_LIST), [[5]], [[null]]],
      setItems: [...each(NO_LIST), [[5]], [[null]], [[{ key: 'a' }]]],
      getKeys: each([null, 5, {}]),
      clear: each([null, 5, {}]),
    };
    await checkAll(driver, () => mangroveDriver({ collection: of }), []);
    const automerge: Rows = {
      load: keys,
      save: [...each(NO_KEYS, new Uint8Array()), [['a'], undefined]],
      remove: keys,
      loadRange: each([undefined, null, 5, {}]),
      removeRange: each([undefined, null, 5, {}]),
    };
    await checkAll(automerge, () => new MangroveStorageAdapter(of), []);
  }));

test('the provider for Yjs checks arguments', () =>
  withDatabase(() =>
    withMemory({}, async (db) => {
      const doc = new Y.Doc();
      const options: Arguments = [
        ...NO_OPTIONS,
        { collection: 5 },
        { collection: '' },
        { collection: null },
        { durability: 'sync' },
        { durability: null },
      ];
      const places: Arguments = [null, 5, {}, [], true].map((database) => ({ database }));
      const names: Arguments = [undefined, null, 5, {}, []];
      const providers = each([undefined, null, 5, 'x', {}]);
      const rows: Rows = {
        MangrovePersistence: [
          ...each(names, doc),
          ...each([undefined, null, 5, 'x', {}]).map(([none]) => ['x', none]),
          ...each([
            ...options,
            ...places,
            { trimSize: 1 },
            { trimSize: 2.5 },
            { trimSize: '5' },
            { trimSize: null },
          ]).map(([given]) => ['x', doc, given]),
        ],
        clearDocument: [
          ...each(names),
          ...each([...options, ...places, { trimSize: 5 }]).map(([given]) => ['x', given]),
        ],
        fetchUpdates: providers,
        storeState: providers,
      };
      const { clearDocument, fetchUpdates, storeState } = yjs;
      const MangrovePersistence = (name: never, of: never, given: never) =>
        new yjs.MangrovePersistence(name, of, given);
      await checkAll(rows, () => ({ MangrovePersistence, clearDocument, fetchUpdates, storeState }), [
        'MangrovePersistence',
      ]);
      const provider = await new yjs.MangrovePersistence('x', doc, { database: db }).whenSynced;
      const listeners = each(NO_FUNCTION).map(([fn]) => ['synced', fn]);
      const methods: Rows = {
        get: each(NO_KEYS),
        del: each(NO_KEYS),
        set: [...each(NO_KEYS, 1), ['a', undefined], ['a', () => 1]],
        on: listeners,
        once: listeners,
        off: 'nothing to remove',
        emit: 'any arguments will do',
        clearData: NOTHING,
        destroy: NOTHING,
        flush: NOTHING,
        _storeUpdate: 'called by the document',
        _fetch: 'internal',
        _compact: 'internal',
      };
      await checkAll(methods, () => provider, ['on', 'once']);
      assert.equal(doc.store.clients.size, 0);
      await provider.destroy();
    }),
  ));

test('Level maps compression, and leaves unknown options to hooks', async () => {
  createRequire(import.meta.url).resolve('abstract-level');
  const tuned = {
    cacheSize: 5,
    maxOpenFiles: 5,
    blockSize: 5,
    writeBufferSize: 5,
    blockRestartInterval: 5,
    maxFileSize: 5,
    multithreading: true,
    prefix: 'x',
    version: 1,
    storeEncoding: 'view',
    userland: 1,
  };
  for (const compression of [true, false, 'lz4', 'none', undefined] as const) {
    const level = new MangroveLevel('x', {
      storage: 'memory',
      compression: compression as boolean,
      ...tuned,
    } as object);
    await level.put('a', 'b');
    assert.equal(await level.get('a'), 'b');
    await level.close();
  }
  for (const compression of ['gzip', 5, null]) {
    const level = new MangroveLevel('x', { storage: 'memory', compression } as object);
    await assert.rejects(level.open(), (error: Error) => (error.cause as api.KvError).code === 'KV_INVALID_ARGUMENT');
  }
});
