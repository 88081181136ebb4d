// The tracing channel "mangrove-kv:call": which calls are published, in which order, and that tracing changes
// nothing about them.
import assert from 'node:assert/strict';
import { AsyncLocalStorage } from 'node:async_hooks';
import { tracingChannel } from 'node:diagnostics_channel';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { DELETE, KvError, open, openSync } from 'mangrove-kv';
import type { CallTrace, Database } from 'mangrove-kv';
import { withPath } from './support/kit.ts';

const channel = tracingChannel<unknown, CallTrace>('mangrove-kv:call');
const EVENTS = ['start', 'end', 'asyncStart', 'asyncEnd', 'error'] as const;
const MEMORY = { storage: 'memory' } as const;

interface Log {
  /** `event operation` in the order of publication. */
  readonly events: string[];
  /** The messages of `start`, in order. */
  readonly calls: CallTrace[];
}

/** Subscribes during `work`. */
async function logged(work: (log: Log) => unknown): Promise<Log> {
  const log: Log = { events: [], calls: [] };
  const handlers = Object.fromEntries(
    EVENTS.map((event) => [
      event,
      (call: CallTrace) => {
        log.events.push(`${event} ${call.operation}`);
        if (event === 'start') log.calls.push(call);
      },
    ]),
  ) as unknown as Parameters<typeof channel.subscribe>[0];
  channel.subscribe(handlers);
  try {
    await work(log);
  } finally {
    channel.unsubscribe(handlers);
  }
  return log;
}

/** What is the same for all callers of a call. */
const brief = ({ operation, collection, index, scope, isSync, count, items, attempts }: CallTrace): object =>
  JSON.parse(
    JSON.stringify({ operation, collection, index, scope, isSync: isSync || undefined, count, items, attempts }),
  );

test('each call publishes start, end, asyncStart and asyncEnd with one message', async () => {
  const { events, calls } = await logged(async () => {
    const db = await open('traced', MEMORY);
    await db.set('a', 1);
    assert.equal(await db.get('a'), 1);
    await db.close();
  });
  assert.deepEqual(
    events,
    ['open', 'set', 'get', 'close'].flatMap((name) =>
      ['start', 'end', 'asyncStart', 'asyncEnd'].map((e) => `${e} ${name}`),
    ),
  );
  assert.deepEqual(
    calls.map(({ database, persistence }) => [database, persistence]),
    [['traced', undefined], ...Array(3).fill(['traced', 'memory'])],
  );
  assert.deepEqual([calls[2]!.result, 'error' in calls[2]!], [1, false]);
});

test('nothing is published for a database that was opened without subscribers, which has no code for it', async () => {
  const db = await open('x', MEMORY);
  assert.deepEqual(
    Object.getOwnPropertyNames(db).filter((name) => typeof (db as never)[name] === 'function' && name !== 'transact'),
    [],
  );
  const { events } = await logged(async () => {
    await db.set('a', 1);
    await db.transaction((tx) => tx.set('b', 2));
  });
  assert.deepEqual(events, []);
  await db.close();
});

test('a traced database goes on without messages when the last subscriber has gone', async () => {
  let db: Database | undefined;
  const { events } = await logged(async () => {
    db = await open('x', MEMORY);
  });
  await db!.set('a', 1);
  assert.deepEqual(await db!.entries().toArray(), [['a', 1]]);
  assert.equal(events.length, 4);
  const again = await logged(() => db!.get('a'));
  assert.deepEqual(again.events, ['start get', 'end get', 'asyncStart get', 'asyncEnd get']);
  await db!.close();
});

test('collections, indexes, snapshots, batches and the counts of what is given', async () => {
  interface Item {
    readonly tag: string;
  }
  const { calls } = await logged(async (log) => {
    const db = await open('x', MEMORY);
    const items = db.collection<string, Item>('items', { indexes: { byTag: { key: ({ tag }) => tag } } });
    log.calls.length = 0;
    await items.setMany([
      ['a', { tag: 'x' }],
      ['b', { tag: 'y' }],
    ]);
    await items.getMany(new Set(['a']));
    await items.hasMany(['a', 'b', 'c'].values());
    await items.deleteMany(['c']);
    await items.index('byTag').get('x');
    const snapshot = db.snapshot();
    await snapshot.collection(items).count();
    await snapshot.close();
    await db.batch([{ type: 'set', key: 1, value: 1 }]);
    const batch = db.batch();
    batch.set(1, 2).collection(items).delete('b');
    await batch.commit();
    await db.size;
    await db.collections();
    await db.dropCollection('items');
    await db.flush();
    await db.stats();
    await db.verify();
    await db.close();
  });
  assert.deepEqual(calls.map(brief), [
    { operation: 'setMany', collection: 'items', scope: 'database', count: 2 },
    { operation: 'getMany', collection: 'items', scope: 'database', count: 1 },
    { operation: 'hasMany', collection: 'items', scope: 'database' },
    { operation: 'deleteMany', collection: 'items', scope: 'database', count: 1 },
    { operation: 'get', collection: 'items', index: 'byTag', scope: 'database' },
    { operation: 'count', collection: 'items', scope: 'snapshot' },
    { operation: 'close', scope: 'snapshot' },
    { operation: 'batch', scope: 'database', count: 1 },
    { operation: 'batch', scope: 'database', count: 2 },
    { operation: 'count', collection: '', scope: 'database' },
    { operation: 'collections', scope: 'database' },
    { operation: 'dropCollection', collection: 'items', scope: 'database' },
    { operation: 'flush', scope: 'database' },
    { operation: 'stats', scope: 'database' },
    { operation: 'verify', scope: 'database' },
    { operation: 'close', scope: 'database' },
  ]);
});

test('a transaction contains its calls and its commit, and counts its attempts', async () => {
  const { events, calls } = await logged(async (log) => {
    const db = await open<string, number>('x', MEMORY);
    const other = db.collection<string, number>('other');
    await db.set('a', 1);
    log.events.length = log.calls.length = 0;
    let isFirst = true;
    await db.transaction(async (tx) => {
      const a = (await tx.get('a')) ?? 0;
      if (isFirst) {
        isFirst = false;
        // Another commit, so that this one fails and is tried again.
        await db.set('a', 5);
      }
      await tx.collection(other).set('sum', a + 1);
    });
    assert.equal(await other.get('sum'), 6);
  });
  assert.deepEqual(
    calls.map(({ operation, scope }) => `${scope} ${operation}`),
    [
      'database transaction',
      'transaction get',
      'database set',
      'transaction set',
      'transaction commit',
      'transaction get',
      'transaction set',
      'transaction commit',
      'database get',
    ],
  );
  assert.equal(calls[0]!.attempts, 2);
  assert.equal((calls[4]!.error as KvError).code, 'KV_CONFLICT');
  assert.ok(events.indexOf('asyncEnd transaction') > events.lastIndexOf('asyncEnd commit'));
});

test('a transaction that is begun, and one that returns its outcome', async () => {
  const { calls } = await logged(async (log) => {
    const db = await open<string, number>('x', MEMORY);
    log.calls.length = 0;
    const tx = db.begin();
    await tx.set('a', 1);
    await tx.tryCommit();
    const outcome = await db.tryTransaction((inner) => inner.rollback());
    assert.equal(outcome.ok, false);
    await db.update('a', (old = 0) => old + 1);
    await db.update('a', () => DELETE);
  });
  assert.deepEqual(
    calls.map(({ operation, scope, attempts }) => [scope, operation, attempts]),
    [
      ['transaction', 'set', undefined],
      ['transaction', 'commit', undefined],
      ['database', 'tryTransaction', 1],
      ['database', 'update', undefined],
      ['database', 'update', undefined],
    ],
  );
});

test('an iterator is one call, from its creation to its end, with the number of its items', async () => {
  const { events, calls } = await logged(async (log) => {
    const db = await open<number, number>('x', MEMORY);
    await db.setMany(Array.from({ length: 300 }, (_, at) => [at, at] as const));
    log.events.length = log.calls.length = 0;
    for await (const [key] of db) if (key === 9) break;
    assert.equal((await db.keys().toArray()).length, 300);
    assert.deepEqual(
      await db
        .values({ limit: 3 })
        .map((value) => value * 2)
        .toArray(),
      [0, 2, 4],
    );
    const some = db.entries({ gte: 298 });
    assert.equal((await some.nextMany(2)).length, 2);
    assert.equal((await some.next()).done, true);
    await some.return();
    const failing = db.entries({ limit: -1 });
    await assert.rejects(failing.next(), { code: 'KV_INVALID_ARGUMENT' });
    await db.close();
  });
  assert.deepEqual(
    calls.map(({ operation, items }) => [operation, items]),
    [
      ['entries', 10],
      ['keys', 300],
      ['values', 3],
      ['entries', 2],
      ['entries', 0],
      ['close', undefined],
    ],
  );
  assert.deepEqual(
    events.filter((event) => /entries/.test(event)),
    [
      ...Array(2).fill(['start entries', 'end entries', 'asyncStart entries', 'asyncEnd entries']).flat(),
      ...['start entries', 'end entries', 'error entries', 'asyncStart entries', 'asyncEnd entries'],
    ],
  );
  assert.equal((calls[4]!.error as KvError).code, 'KV_INVALID_ARGUMENT');
});

test('errors are published, and reach the caller', async () => {
  const { events, calls } = await logged(async (log) => {
    const db = await open('x', MEMORY);
    log.events.length = log.calls.length = 0;
    const refused = db.set(undefined as never, 1);
    await assert.rejects(refused, { code: 'KV_INVALID_KEY' });
    await assert.rejects(
      db.transaction(() => {
        throw new TypeError('of the callback');
      }),
      TypeError,
    );
    await assert.rejects(open('x', { ...MEMORY, create: false }), { code: 'KV_NOT_FOUND' });
    await db.close();
  });
  assert.deepEqual(
    events.filter((event) => !/close/.test(event)),
    ['set', 'transaction', 'open'].flatMap((name) => [
      ...(['start', 'end', 'error', 'asyncStart', 'asyncEnd'] as const).map((event) => `${event} ${name}`),
    ]),
  );
  assert.deepEqual(
    calls.slice(0, 3).map(({ error }) => (error as Partial<KvError>).code ?? (error as Error).name),
    ['KV_INVALID_KEY', 'TypeError', 'KV_NOT_FOUND'],
  );
});

test('a write of a transaction that nobody awaits still fails its commit', async () => {
  await logged(async () => {
    const db = await open<string, number>('x', MEMORY);
    await assert.rejects(
      db.transaction((tx) => {
        void tx.set('a', 1);
        void tx.set(undefined as never, 2);
      }),
      { code: 'KV_INVALID_KEY' },
    );
    // One whose failure is handled does not.
    await db.transaction(async (tx) => {
      await tx.set('b', 1);
      await tx.set(undefined as never, 2).catch(() => undefined);
    });
    assert.deepEqual(await db.keys().toArray(), ['b']);
    await db.close();
  });
});

test('a rejection that nobody handles stays unhandled', async () => {
  const seen: unknown[] = [];
  const listener = (error: unknown): void => void seen.push(error);
  // The runner listens, too, and would fail this test.
  const others = process.rawListeners('unhandledRejection');
  process.removeAllListeners('unhandledRejection');
  process.on('unhandledRejection', listener);
  try {
    await logged(async () => {
      const db = await open('x', MEMORY);
      void db.set(undefined as never, 1);
      await sleep(5);
      await db.close();
    });
  } finally {
    process.removeListener('unhandledRejection', listener);
    for (const each of others) process.on('unhandledRejection', each as never);
  }
  assert.deepEqual(
    seen.map((error) => (error as KvError).code),
    ['KV_INVALID_KEY'],
  );
});

test('the synchronous API publishes start and end', () =>
  withPath(async (path) => {
    const { events, calls } = await logged((log) => {
      const db = openSync<string, number>(path);
      assert.equal(log.calls[0]!.isSync, true);
      log.events.length = log.calls.length = 0;
      db.set('a', 1).set('b', 2);
      assert.equal(db.get('a'), 1);
      assert.deepEqual([...db.keys()], ['a', 'b']);
      assert.equal(
        db.transaction((tx) => {
          tx.set('c', 3);
          return tx.collection<string, number>('other').getMany(['x', 'y']).length;
        }),
        2,
      );
      assert.throws(() => db.set(undefined as never, 1), KvError);
      assert.throws(() => db.entries({ limit: -1 }), KvError);
      const snapshot = db.snapshot();
      assert.equal(snapshot.count(), 3);
      snapshot.close();
      db.close();
    });
    assert.deepEqual(calls.map(brief), [
      { operation: 'set', collection: '', scope: 'database', isSync: true },
      { operation: 'set', collection: '', scope: 'database', isSync: true },
      { operation: 'get', collection: '', scope: 'database', isSync: true },
      { operation: 'keys', collection: '', scope: 'database', isSync: true, items: 2 },
      { operation: 'transaction', scope: 'database', isSync: true, attempts: 1 },
      { operation: 'set', collection: '', scope: 'transaction', isSync: true },
      { operation: 'getMany', collection: 'other', scope: 'transaction', isSync: true, count: 2 },
      { operation: 'set', collection: '', scope: 'database', isSync: true },
      { operation: 'entries', collection: '', scope: 'database', isSync: true, items: 0 },
      { operation: 'count', collection: '', scope: 'snapshot', isSync: true },
      { operation: 'close', scope: 'snapshot', isSync: true },
      { operation: 'close', scope: 'database', isSync: true },
    ]);
    assert.deepEqual(
      events.filter((event) => / (?:keys|entries|transaction)$/.test(event)),
      [
        'start keys',
        'end keys',
        'start transaction',
        'end transaction',
        'start entries',
        'error entries',
        'end entries',
      ],
    );
    assert.equal(calls[0]!.database, path);
  }));

test('a subscriber may run a call with its callbacks in a context of its own', async () => {
  const storage = new AsyncLocalStorage<string>();
  const wrapped: string[] = [];
  channel.start.bindStore(storage, ({ operation }) => `${storage.getStore() ?? ''}/${operation}`);
  const onStart = (call: CallTrace): void => {
    const { run } = call;
    call.run = () => {
      wrapped.push(storage.getStore() ?? '');
      return run();
    };
  };
  const noted: string[] = [];
  const onEnd = (): void => void noted.push(storage.getStore() ?? '');
  channel.start.subscribe(onStart as never);
  channel.end.subscribe(onEnd);
  try {
    const db = await open<string, number>('x', MEMORY);
    noted.length = wrapped.length = 0;
    await db.transaction(async (tx) => {
      await sleep(1);
      await tx.set('a', 1);
    });
    assert.equal(storage.getStore(), undefined);
    await db.close();
  } finally {
    channel.start.unbindStore(storage);
    channel.start.unsubscribe(onStart as never);
    channel.end.unsubscribe(onEnd);
  }
  assert.deepEqual(wrapped, ['/transaction', '/transaction/set', '/transaction/commit', '/close']);
  assert.deepEqual(noted, ['/transaction', '/transaction/set', '/transaction/commit', '/close']);
});
