// Spans in the real SDK of OpenTelemetry, with its in-memory exporter.
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, beforeEach, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { SpanKind, SpanStatusCode, context, trace } from '@opentelemetry/api';
import { registerInstrumentations } from '@opentelemetry/instrumentation';
import type { Instrumentation } from '@opentelemetry/instrumentation';
import { InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';
import type { ReadableSpan } from '@opentelemetry/sdk-trace-base';
import { NodeTracerProvider } from '@opentelemetry/sdk-trace-node';
import {
  ATTR_DB_COLLECTION_NAME,
  ATTR_DB_NAMESPACE,
  ATTR_DB_OPERATION_BATCH_SIZE,
  ATTR_DB_OPERATION_NAME,
  ATTR_DB_RESPONSE_STATUS_CODE,
  ATTR_DB_SYSTEM_NAME,
  ATTR_ERROR_TYPE,
} from '@opentelemetry/semantic-conventions';
import { ATTR_DB_RESPONSE_RETURNED_ROWS } from '@opentelemetry/semantic-conventions/incubating';
import { MangroveInstrumentation } from '@mangrove-kv/opentelemetry';
import { open, openSync } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';

const exporter = new InMemorySpanExporter();
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
provider.register();
const app = trace.getTracer('app');

let instrumentation: MangroveInstrumentation | undefined;
const databases: Database<never, never>[] = [];

beforeEach(() => exporter.reset());
afterEach(async () => {
  instrumentation?.disable();
  instrumentation = undefined;
  for (const db of databases.splice(0)) await db.close();
});
after(() => provider.shutdown());

async function openMemory(name = 'spans'): Promise<Database<string, number>> {
  const db = await open<string, number>(name, { storage: 'memory' });
  databases.push(db as never);
  return db;
}

const spans = (): ReadableSpan[] => exporter.getFinishedSpans();
const names = (): string[] => spans().map(({ name }) => name);
const span = (name: string): ReadableSpan => {
  const found = spans().filter((each) => each.name === name);
  assert.equal(found.length, 1, `${name} among ${names().join()}`);
  return found[0]!;
};
const parentOf = ({ parentSpanContext }: ReadableSpan): string | undefined =>
  spans().find((each) => each.spanContext().spanId === parentSpanContext?.spanId)?.name;

test('a span has the attributes of the semantic conventions', async () => {
  instrumentation = new MangroveInstrumentation();
  const db = await openMemory();
  const notes = db.collection<string, number>('notes');
  await notes.setMany([
    ['a', 1],
    ['b', 2],
  ]);
  await notes.getMany(['a', 'x']);
  await notes.get('a');
  await db.get('none');
  await notes.keys({ limit: 1 }).toArray();
  await db.flush();
  const common = { [ATTR_DB_SYSTEM_NAME]: 'mangrove-kv', [ATTR_DB_NAMESPACE]: 'spans' };
  const inMemory = { ...common, 'mangrove_kv.persistence': 'memory' };
  const ofNotes = { ...inMemory, [ATTR_DB_COLLECTION_NAME]: 'notes' };
  assert.deepEqual(
    spans().map(({ name, attributes }) => [name, attributes]),
    [
      ['open spans', { ...common, [ATTR_DB_OPERATION_NAME]: 'open' }],
      ['setMany notes', { ...ofNotes, [ATTR_DB_OPERATION_NAME]: 'setMany', [ATTR_DB_OPERATION_BATCH_SIZE]: 2 }],
      [
        'getMany notes',
        {
          ...ofNotes,
          [ATTR_DB_OPERATION_NAME]: 'getMany',
          [ATTR_DB_OPERATION_BATCH_SIZE]: 2,
          [ATTR_DB_RESPONSE_RETURNED_ROWS]: 1,
        },
      ],
      ['get notes', { ...ofNotes, [ATTR_DB_OPERATION_NAME]: 'get', [ATTR_DB_RESPONSE_RETURNED_ROWS]: 1 }],
      ['get spans', { ...inMemory, [ATTR_DB_OPERATION_NAME]: 'get', [ATTR_DB_RESPONSE_RETURNED_ROWS]: 0 }],
      ['keys notes', { ...ofNotes, [ATTR_DB_OPERATION_NAME]: 'keys', [ATTR_DB_RESPONSE_RETURNED_ROWS]: 1 }],
      ['flush spans', { ...inMemory, [ATTR_DB_OPERATION_NAME]: 'flush' }],
    ],
  );
  assert.equal(span('get notes').kind, SpanKind.INTERNAL);
  assert.equal(span('get notes').status.code, SpanStatusCode.UNSET);
  assert.deepEqual(
    [span('get notes').instrumentationScope.name, span('get notes').instrumentationScope.version],
    [instrumentation.instrumentationName, instrumentation.instrumentationVersion],
  );
  // Neither keys nor values.
  await db.set('secret-key', 12345);
  assert.doesNotMatch(
    JSON.stringify(spans().map(({ name, attributes, events }) => [name, attributes, events])),
    /secret|12345/,
  );
});

test('spans are children of the active span, those within a transaction of the transaction', async () => {
  instrumentation = new MangroveInstrumentation();
  const db = await openMemory();
  await app.startActiveSpan('request', async (request) => {
    await db.set('a', 1);
    await db.transaction(async (tx) => {
      await sleep(1);
      const value = (await tx.get('a')) ?? 0;
      await app.startActiveSpan('work', async (work) => {
        await tx.collection<string, number>('other').set('b', value + 1);
        work.end();
      });
    });
    request.end();
  });
  await db.get('a');
  assert.deepEqual(
    spans()
      .map((each) => [each.name, parentOf(each)])
      .sort(),
    [
      ['commit spans', 'transaction spans'],
      ['get spans', undefined],
      ['get spans', 'transaction spans'],
      ['open spans', undefined],
      ['request', undefined],
      ['set other', 'work'],
      ['set spans', 'request'],
      ['transaction spans', 'request'],
      ['work', 'transaction spans'],
    ].sort(),
  );
  assert.equal(span('transaction spans').attributes['mangrove_kv.transaction.attempts'], 1);
  assert.equal(span('commit spans').attributes['mangrove_kv.scope'], 'transaction');
  assert.equal(trace.getSpan(context.active()), undefined);
});

test('a transaction that is tried again is one span with several commits', async () => {
  instrumentation = new MangroveInstrumentation();
  const db = await openMemory();
  let isFirst = true;
  await db.transaction(async (tx) => {
    await tx.get('a');
    if (isFirst) await db.set('a', 5);
    isFirst = false;
    await tx.set('b', 1);
  });
  assert.equal(span('transaction spans').attributes['mangrove_kv.transaction.attempts'], 2);
  assert.equal(span('transaction spans').status.code, SpanStatusCode.UNSET);
  const commits = spans().filter(({ name }) => name === 'commit spans');
  assert.deepEqual(
    commits.map(({ attributes }) => attributes[ATTR_ERROR_TYPE]),
    ['KV_CONFLICT', undefined],
  );
});

test('an error is the status of its span, with its code and as an event', async () => {
  instrumentation = new MangroveInstrumentation();
  const db = await openMemory();
  await assert.rejects(db.set(undefined as never, 1), { code: 'KV_INVALID_KEY' });
  await assert.rejects(
    db.transaction(() => {
      throw new RangeError('of the application');
    }),
    RangeError,
  );
  await assert.rejects(open('missing', { storage: 'memory', create: false }), { code: 'KV_NOT_FOUND' });
  const failed = span('set spans');
  assert.equal(failed.status.code, SpanStatusCode.ERROR);
  assert.match(failed.status.message ?? '', /key/);
  assert.deepEqual(
    [failed.attributes[ATTR_ERROR_TYPE], failed.attributes[ATTR_DB_RESPONSE_STATUS_CODE]],
    ['KV_INVALID_KEY', 'KV_INVALID_KEY'],
  );
  assert.equal(failed.events[0]?.name, 'exception');
  const transaction = span('transaction spans');
  assert.deepEqual(
    [transaction.status, transaction.attributes[ATTR_ERROR_TYPE], transaction.attributes[ATTR_DB_RESPONSE_STATUS_CODE]],
    [{ code: SpanStatusCode.ERROR, message: 'of the application' }, 'RangeError', undefined],
  );
  assert.equal(span('open missing').attributes[ATTR_ERROR_TYPE], 'KV_NOT_FOUND');
});

test('nothing is recorded before it is enabled, after it is disabled, or of databases opened before', async () => {
  const early = await openMemory('early');
  await early.set('a', 1);
  instrumentation = new MangroveInstrumentation({ enabled: false });
  await (await openMemory('before')).set('a', 1);
  assert.deepEqual(names(), []);
  instrumentation.enable();
  instrumentation.enable();
  await early.set('a', 2);
  const db = await openMemory('within');
  await db.set('a', 1);
  instrumentation.disable();
  instrumentation.disable();
  await db.set('a', 2);
  await openMemory('afterwards');
  assert.deepEqual(names(), ['open within', 'set within']);
  instrumentation.enable();
  await db.get('a');
  assert.deepEqual(names().slice(2), ['get within']);
});

test('filter and requireParentSpan choose what is recorded', async () => {
  instrumentation = new MangroveInstrumentation({
    requireParentSpan: true,
    filter: ({ operation, collection }) => {
      if (operation === 'has') throw new Error('of the filter');
      return collection !== 'noise';
    },
  });
  const db = await openMemory();
  await db.set('a', 1);
  await app.startActiveSpan('request', async (request) => {
    await db.collection<string, number>('noise').set('a', 1);
    assert.equal(await db.has('a'), true);
    await db.get('a');
    request.end();
  });
  assert.deepEqual(names(), ['get spans', 'request']);
  instrumentation.setConfig({});
  assert.deepEqual(instrumentation.getConfig(), { enabled: true, requireParentSpan: false, filter: undefined });
  await db.get('a');
  assert.deepEqual(names(), ['get spans', 'request', 'get spans']);
});

test('wrong options are refused', () => {
  for (const wrong of [{ requireParent: true }, { enabled: 1 }, { requireParentSpan: 'yes' }, { filter: /x/ }])
    assert.throws(() => new MangroveInstrumentation(wrong as object), { code: 'KV_INVALID_ARGUMENT' });
});

test('the synchronous API, in files', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'mangrove-spans-'));
  const path = join(directory, 'db');
  try {
    instrumentation = new MangroveInstrumentation();
    const db = openSync<string, number>(path);
    app.startActiveSpan('request', (request) => {
      db.set('a', 1);
      db.transaction((tx) => tx.set('b', 2));
      assert.deepEqual([...db.keys()], ['a', 'b']);
      assert.throws(() => db.set(undefined as never, 1));
      request.end();
    });
    db.close();
    assert.deepEqual(
      spans().map((each) => [each.name.replace(path, 'db'), parentOf(each)?.replace(path, 'db')]),
      [
        ['open db', undefined],
        ['set db', 'request'],
        ['set db', 'transaction db'],
        ['transaction db', 'request'],
        ['keys db', 'request'],
        ['set db', 'request'],
        ['request', undefined],
        ['close db', undefined],
      ],
    );
    assert.equal(spans()[5]!.attributes[ATTR_ERROR_TYPE], 'KV_INVALID_KEY');
    assert.equal(spans()[4]!.attributes[ATTR_DB_RESPONSE_RETURNED_ROWS], 2);
    assert.equal(spans()[1]!.kind, SpanKind.CLIENT);
  } finally {
    await rm(directory, { recursive: true });
  }
});

test('it is registered as other instrumentations are, with a provider of its own', async () => {
  const other = new InMemorySpanExporter();
  const own = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(other)] });
  instrumentation = new MangroveInstrumentation();
  const asOthers: Instrumentation = instrumentation;
  const unload = registerInstrumentations({ instrumentations: [asOthers], tracerProvider: own });
  const db = await openMemory();
  await db.set('a', 1);
  unload();
  await db.set('b', 1);
  assert.deepEqual(
    other.getFinishedSpans().map(({ name }) => name),
    ['open spans', 'set spans'],
  );
  assert.deepEqual(names(), []);
  await own.shutdown();
});
