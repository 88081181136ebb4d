// Traces: each event, in the situation that it tells of, and who gets them.
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { MessagePort } from 'node:worker_threads';
import { KvError, open, openSync, valueCodecs } from 'mangrove-kv';
import type { Database, OpenOptions, TraceEvent } from 'mangrove-kv';
import { tracerOf } from 'mangrove-kv/internal';
import { KvDatabase } from '../src/api/database.ts';
import { checkOptions } from '../src/api/options.ts';
import { toPlain } from '../src/base/plain-error.ts';
import type { TraceDetail } from '../src/base/trace.ts';
import { Tracer } from '../src/base/tracer.ts';
import type { Scope } from '../src/engine/worker-server.ts';
import { openIn } from '../src/platform/browser.ts';
import { MemoryStorage } from '../src/storage/memory.ts';
import { serveTabs } from '../src/tabs/serve-tabs.ts';
import { SharedTransport } from '../src/tabs/shared-transport.ts';
import type { SharedRequest } from '../src/tabs/shared-transport.ts';
import { Connection } from '../src/wire/connection.ts';
import type { Transport, TransportEvents } from '../src/wire/transport.ts';
import type { WorkerPort } from '../src/wire/worker-transport.ts';
import type { OpenRequest, WorkerMessage } from '../src/wire/worker-protocol.ts';
import { code, withPath } from './support/kit.ts';
import { kinds } from './tabs/operations.ts';
import { make, pass, together } from './tabs/stories.ts';
import type { Tab } from './tabs/tab.ts';

const module = new WebAssembly.Module(readFileSync(new URL('../dist/mangrove_bg.wasm', import.meta.url)));

/** `source event` of each event so far. Waits until all of them were handed out. */
async function namesOf(events: readonly TraceEvent[]): Promise<string[]> {
  await sleep(0);
  return events.map(({ source, event }) => `${source} ${event}`);
}

/** The events without what is the same in all of them. */
async function detailsOf(events: readonly TraceEvent[]): Promise<object[]> {
  await sleep(0);
  return events.map(({ time: _, database: _2, ...detail }) => detail);
}

function collect(): { events: TraceEvent[]; trace: (event: TraceEvent) => void } {
  const events: TraceEvent[] = [];
  return { events, trace: (event) => void events.push(event) };
}

/** Waits for a condition, for so long that only a mistake takes longer. */
async function until(isTrue: () => boolean | Promise<boolean>): Promise<void> {
  for (const end = Date.now() + 20_000; !(await isTrue()); await sleep(5))
    assert.ok(Date.now() < end, 'it takes too long');
}

/** The error of a call that fails. */
async function failureOf(call: Promise<unknown>): Promise<KvError> {
  return call.then(
    () => assert.fail('it did not fail'),
    (error: unknown) => error as KvError,
  );
}

const lastOf = ({ trace }: KvError): object | undefined => trace?.at(-1);

describe('open and close', () => {
  test('are traced, with the time and the database', async () => {
    const { events, trace } = collect();
    const before = Date.now();
    const db = await open('here', { storage: 'memory', trace });
    await db.set('a', 1);
    await db.get('a');
    await db.close();
    assert.deepEqual(await detailsOf(events), [
      { source: 'connection', event: 'connected' },
      { source: 'open', event: 'opened', persistence: 'memory' },
      { source: 'connection', event: 'closed' },
    ]);
    for (const { time, database } of events) {
      assert.ok(time >= before && time <= Date.now());
      assert.equal(database, 'here');
    }
  });

  test('are traced by openSync, too', async () => {
    const { events, trace } = collect();
    openSync('here', { storage: 'memory', trace }).close();
    assert.deepEqual(events, [], 'callbacks run later');
    assert.deepEqual(await namesOf(events), ['connection connected', 'open opened', 'connection closed']);
    assert.throws(
      () => openSync('here', { storage: 'opfs', trace }),
      (error: KvError) => {
        assert.deepEqual(
          error.trace?.map(({ event }) => event),
          ['failed'],
        );
        return true;
      },
    );
    assert.deepEqual((await namesOf(events)).slice(3), ['open failed']);
  });

  test('with a schema version are one opening', async () => {
    const { events, trace } = collect();
    const db = await open('here', { storage: 'memory', version: 1, trace });
    assert.deepEqual(await namesOf(events), ['connection connected', 'open opened']);
    await db.close();
  });

  test('that fail have the error', () =>
    withPath(async (path) => {
      const { events, trace } = collect();
      const error = await failureOf(open(path, { create: false, trace }));
      code('KV_NOT_FOUND')(error);
      assert.deepEqual(await detailsOf(events), [{ source: 'open', event: 'failed', error: toPlain(error) }]);
      assert.deepEqual(error.trace, events);
      const reason = new Error('no more');
      assert.equal(await failureOf(open(path, { signal: AbortSignal.abort(reason), trace })), reason);
      assert.ok(!('trace' in reason));
    }));

  test('tell what is used instead of a storage that is not available', async (t) => {
    // Deno has workers as a browser has; this is about a runtime without them.
    const worker = Object.getOwnPropertyDescriptor(globalThis, 'Worker');
    Reflect.deleteProperty(globalThis, 'Worker');
    t.after(() => worker && Object.defineProperty(globalThis, 'Worker', worker));
    const modules = { load: async () => module, ownLazy: undefined };
    const { events, trace } = collect();
    const db = await openIn(modules, 'here', { onUnavailable: 'memory', trace });
    await db.close();
    assert.deepEqual(await namesOf(events), [
      'open fallback',
      'connection connected',
      'open opened',
      'connection closed',
    ]);
    const [fallback] = events as [Extract<TraceEvent, { event: 'fallback' }>];
    assert.equal(fallback.storage, 'memory');
    assert.equal(fallback.error.code, 'KV_UNSUPPORTED');
  });
});

/** A transport whose events the test makes. */
class ScriptedTransport implements Transport {
  readonly takesBuffers = true;
  events: TransportEvents | undefined;
  send(): void {}
  dispose(): void {}
}

function connect(): { events: TraceEvent[]; transport: TransportEvents; db: KvDatabase<unknown, unknown> } {
  const { events, trace } = collect();
  const transport = new ScriptedTransport();
  const db = new KvDatabase<unknown, unknown>(
    new Connection(transport, Infinity, Tracer.of('x', trace)),
    { path: 'x', persistence: 'opfs', durability: 'strict' },
    {},
  );
  return { events, transport: transport.events as TransportEvents, db };
}

describe('a connection', () => {
  test('that is lost tells why', async () => {
    const { events, transport, db } = connect();
    const call = db.get('a');
    await sleep(0);
    const failure = new KvError('KV_IO', 'the worker failed');
    transport.fail(failure);
    for (const each of [call, db.get('b')]) assert.deepEqual((await failureOf(each)).trace, events);
    assert.deepEqual(await detailsOf(events), [
      { source: 'connection', event: 'connected' },
      { source: 'connection', event: 'lost', error: toPlain(failure) },
    ]);
  });

  test('tells of refused messages', async () => {
    const { events, transport, db } = connect();
    const call = db.get('a');
    await sleep(0);
    const failure = new KvError('KV_TIMEOUT', 'no tab answered');
    transport.refuse(failure, 1);
    assert.equal(lastOf(await failureOf(call)), events[1]);
    assert.deepEqual((await detailsOf(events))[1], {
      source: 'connection',
      event: 'refused',
      count: 1,
      error: toPlain(failure),
    });
  });

  test('tells of failures of background work', async () => {
    const { events, transport, db } = connect();
    const reported: KvError[] = [];
    db.addEventListener('error', (event) => reported.push((event as Event & { error: KvError }).error));
    const failure = new KvError('KV_IO', 'the disk is gone');
    transport.backgroundError(failure);
    assert.deepEqual((await detailsOf(events))[1], {
      source: 'connection',
      event: 'background-error',
      error: toPlain(failure),
    });
    assert.equal(lastOf(reported[0] as KvError), events[1]);
  });

  test('tells of handles that it closes because they are idle', async () => {
    const { events, trace } = collect();
    const db = await open('x', { storage: 'memory', idleTimeout: 5, trace });
    const snapshot = db.snapshot();
    await snapshot.get('a');
    await until(() => events.at(-1)?.event === 'idle-closed');
    assert.equal((events.at(-1) as { handle?: string }).handle, 'snapshot');
    assert.equal(lastOf(await failureOf(snapshot.get('a'))), events.at(-1));
    await db.close();
  });

  test('attaches the events to what the engine, or a closed database, refuses', async () => {
    const { events, trace } = collect();
    const db = await open('x', { storage: 'memory', trace });
    await db.collection('numbers', { value: valueCodecs.bytes }).set('a', new Uint8Array(1));
    const errors = [await failureOf(db.collection('numbers').get('a'))];
    assert.throws(
      () => db.sync.collection('numbers').get('a'),
      (error: KvError) => errors.push(error) > 0,
    );
    await db.close();
    errors.push(await failureOf(db.get('a')));
    await sleep(0);
    assert.deepEqual(
      errors.map(({ code }) => code),
      ['KV_CODEC_MISMATCH', 'KV_CODEC_MISMATCH', 'KV_CLOSED'],
    );
    assert.deepEqual(
      errors.map((error) => error.trace),
      [events.slice(0, 2), events.slice(0, 2), events],
    );
    // `trace` is not enumerable: printing an error does not print its trace.
    for (const error of errors) assert.ok(!Object.keys(error).includes('trace'));
  });
});

describe('tabs', () => {
  const eventsOf = ({ traces }: Tab): string[] =>
    traces.map((detail) => ('reason' in detail ? `${detail.event} ${detail.reason}` : detail.event));
  const termsOf = ({ traces }: Tab): number[] => traces.map((detail) => (detail as { term: number }).term);

  test('tell who leads, whom they follow, and that a leader resigned', () => {
    const world = make();
    const [first, second, third] = together(world, {}, {}) as [Tab, Tab, Tab];
    assert.deepEqual(eventsOf(first), ['leads', 'served']);
    assert.deepEqual(eventsOf(second), ['follows', 'served']);
    first.leave();
    pass(world);
    assert.deepEqual(eventsOf(first), ['leads', 'served', 'leader-lost resigned']);
    assert.deepEqual(eventsOf(second), ['follows', 'served', 'leader-lost resigned', 'leads']);
    assert.deepEqual(eventsOf(third), ['follows', 'served', 'leader-lost resigned', 'follows']);
    const [before, , , after] = termsOf(second) as [number, number, number, number];
    assert.ok(before < after);
    assert.deepEqual(termsOf(third), [before, before, before, after]);
  });

  test('tell that a leader ended without a word', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    world.kill(first);
    pass(world, 5000);
    assert.deepEqual(eventsOf(second), ['follows', 'served', 'leader-lost gone', 'leads']);
  });

  test('tell that one takes over from a silent one', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    world.freeze(first);
    world.run(20_000, () => world.counts.steals > 0);
    world.thaw(first);
    pass(world, 5000);
    assert.deepEqual(eventsOf(second), ['follows', 'served', 'steals', 'leader-lost gone', 'leads']);
    assert.deepEqual(eventsOf(first), ['leads', 'served', 'leader-lost stolen', 'follows']);
  });

  test('tell that an engine crashed', () => {
    const world = make();
    const [first, second] = together(world, {}) as [Tab, Tab];
    second.push(kinds.poison);
    pass(world, 5000);
    assert.deepEqual(eventsOf(first).slice(2, 4), ['leader-lost crashed', 'leads']);
    assert.deepEqual(eventsOf(second).slice(2, 4), ['leader-lost crashed', 'follows']);
  });

  for (const reason of ['leader', 'version', 'maintenance'] as const) {
    test(`tell that somebody waits: ${reason}`, async () => {
      const { events, transport } = connect();
      transport.blocked(reason);
      assert.deepEqual((await detailsOf(events))[1], { source: 'tabs', event: 'blocked', reason });
    });
  }

  test('tell of an open that waits in the same thread', () =>
    withPath(async (path) => {
      const { events, trace } = collect();
      const db = await open(path, { share: false, trace });
      await failureOf(open(path, { share: false, lockTimeout: 1 }));
      assert.deepEqual((await detailsOf(events)).at(-1), { source: 'tabs', event: 'blocked', reason: 'open' });
      await db.close();
    }));

  test('trace in the worker, if the page wants that', async (context) => {
    // Grants every lock at once.
    const locks = {
      request: async (_name: string, _options: object, granted: (lock: object) => unknown) => granted({}),
      query: async () => ({}),
    };
    const navigator = Object.getOwnPropertyDescriptor(globalThis, 'navigator');
    Object.defineProperty(globalThis, 'navigator', { value: { locks }, configurable: true });
    context.after(() =>
      navigator === undefined
        ? Reflect.deleteProperty(globalThis, 'navigator')
        : Object.defineProperty(globalThis, 'navigator', navigator),
    );
    // Only the end of a worker ends its ports.
    context.mock.method(MessagePort.prototype, 'ref', () => undefined);
    const request: OpenRequest = {
      module,
      storage: 'opfs',
      name: 'x',
      lockTimeoutMs: 1000,
      engine: checkOptions({}).engine,
      tabs: { client: 'a', isVisible: true, isAgain: false },
    };
    for (const isTraced of [true, false]) {
      const posted: WorkerMessage[] = [];
      const scope: Scope = { onmessage: null, onmessageerror: null, postMessage: (message) => posted.push(message) };
      assert.ok(serveTabs({ ...request, isTraced }, async () => new MemoryStorage(), scope));
      const has = (wanted: string): boolean => posted.some((each) => 'type' in each && each.type === wanted);
      await until(() => has('opened'));
      scope.onmessage?.({ data: { type: 'leave' } });
      await until(() => has('left'));
      const traces = posted.flatMap((each) => ('type' in each && each.type === 'trace' ? [each.detail] : []));
      assert.deepEqual(
        traces.map(({ event }) => event),
        isTraced ? ['leads', 'served', 'leader-lost'] : [],
      );
      for (const { time = 0 } of traces) assert.ok(Math.abs(time - Date.now()) < 10_000);
    }
  });

  test('send their traces from the worker, before the database is open, too', async () => {
    const port: WorkerPort = {
      onmessage: null,
      onerror: null,
      onmessageerror: null,
      postMessage: (message) => posted.push(message),
      terminate: () => undefined,
    };
    const posted: unknown[] = [];
    const told: TraceDetail[] = [];
    const opening = SharedTransport.openShared(
      () => port,
      Promise.resolve({ isTraced: true } as SharedRequest),
      undefined,
      (detail) => told.push(detail),
    );
    const say = (data: WorkerMessage): void => port.onmessage?.({ data });
    await sleep(0);
    const detail = { source: 'tabs', event: 'leads', term: 5, time: 7 } as const;
    say({ type: 'trace', detail });
    assert.deepEqual(told, [detail]);
    assert.equal((posted[0] as SharedRequest).isTraced, true);
    say({ type: 'failed', error: toPlain(new Error('end of the test')) });
    await failureOf(opening);
  });
});

describe('merges', () => {
  for (const thread of ['same', 'worker'] as const) {
    test(`tell when they start and end, ${thread} thread`, () =>
      withPath(async (path) => {
        const { events, trace } = collect();
        const db = await open<number, string>(path, { thread, trace });
        const before = Date.now();
        // In scattered order, so that every leaf gets some.
        for (const text of ['first', 'second']) {
          await db.setMany(
            Array.from({ length: 20_000 }, (_, number) => [(number * 7919) % 20_000, `${text} ${number}`] as const),
            { durability: 'relaxed' },
          );
          await until(async () => (await db.stats()).dirtySize === 0);
        }
        await until(() => events.at(-1)?.event === 'ended');
        const [started, ended] = events.slice(-2) as [TraceEvent, Extract<TraceEvent, { event: 'ended' }>];
        assert.equal(started.event, 'started');
        assert.ok(ended.slices > 1 && ended.milliseconds > 0 && ended.version > 0);
        for (const { time, database } of [started, ended])
          assert.ok(time >= before && time <= Date.now() && database === path);
        await db.close();
      }));
  }
});

/** Opens, makes 300 events, and closes. */
async function busy(options: OpenOptions): Promise<Database> {
  const db = await open('x', { storage: 'memory', ...options });
  const tracer = tracerOf(db);
  for (let records = 0; records < 300; records++) tracer?.record({ source: 'replication', event: 'repair', records });
  await db.close();
  return db;
}

describe('who gets traces', () => {
  test('nobody, unless somebody wants them', async () => {
    for (const trace of [undefined, false]) {
      const db = await open('x', { storage: 'memory', trace });
      assert.equal(tracerOf(db), undefined);
      await db.close();
      const error = await failureOf(db.get('a'));
      assert.ok(!Object.hasOwn(error, 'trace'));
    }
  });

  test('errors get the newest 200, which survive JSON and structured clone', async () => {
    const { trace = [] } = await failureOf((await busy({ trace: true })).get('a'));
    assert.equal(trace.length, 200);
    assert.equal(trace.at(-1)?.event, 'closed');
    assert.deepEqual(
      trace.slice(0, -1).map((each) => (each as { records?: number }).records),
      Array.from({ length: 199 }, (_, at) => at + 101),
    );
    assert.deepEqual(JSON.parse(JSON.stringify(trace)), trace);
    assert.deepEqual(structuredClone(trace), trace);
  });

  test('a callback that throws, rejects, waits or is slow disturbs nothing', async () => {
    let calls = 0;
    const callbacks: ((event: TraceEvent) => void)[] = [
      () => {
        throw new Error('of the callback');
      },
      () => Promise.reject(new Error('of the callback')),
      () => new Promise(() => {}),
      () => {
        for (const end = Date.now() + 2; Date.now() < end; );
      },
    ];
    for (const callback of callbacks) {
      calls = 0;
      const db = await busy({
        trace: (event) => {
          calls++;
          return callback(event);
        },
      });
      assert.equal((await failureOf(db.get('a'))).trace?.length, 200);
      await sleep(0);
      assert.equal(calls, 303);
    }
  });

  test('a callback may use the database, and close it', async () => {
    const closed: Promise<void>[] = [];
    let db: Database | undefined;
    db = await open('x', {
      storage: 'memory',
      trace: ({ event }) => void (event === 'blocked' && closed.push((db as Database).close())),
    });
    tracerOf(db)?.record({ source: 'tabs', event: 'blocked', reason: 'open' });
    await sleep(0);
    await Promise.all(closed);
    assert.equal(db.status, 'closed');
  });

  test('subscribers of the diagnostics channel get them, without the option, too', async () => {
    const seen: unknown[] = [];
    const hear = (message: unknown): void => void seen.push(message);
    subscribe('mangrove-kv', hear);
    try {
      const db = await open('x', { storage: 'memory' });
      await db.close();
      assert.deepEqual(await namesOf(seen as TraceEvent[]), [
        'connection connected',
        'open opened',
        'connection closed',
      ]);
      assert.deepEqual((await failureOf(db.get('a'))).trace, seen);
    } finally {
      unsubscribe('mangrove-kv', hear);
    }
    const { length } = seen;
    await busy({ trace: true });
    await sleep(0);
    assert.equal(seen.length, length);
  });
});
