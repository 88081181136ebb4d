// What the provider for Yjs writes, and when: commits, compaction beside other writers, documents
// that are cleared while they are open, failures.
import 'fake-indexeddb/auto';
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { keyCodecs, open, valueCodecs } from 'mangrove-kv';
import type { Database, KvError } from 'mangrove-kv';
import { MangrovePersistence, clearDocument, fetchUpdates, storeState } from '@mangrove-kv/yjs';
import type { MangrovePersistenceOptions, UpdateKey } from '@mangrove-kv/yjs';
import * as original from 'y-indexeddb';
import * as Y from 'yjs';
import { FaultyStorage } from '../../../kv/test/support/faulty-storage.ts';
import { code, rejects, withMemory, withPath } from '../../../kv/test/support/kit.ts';

const UPDATES = { key: keyCodecs.tuple<UpdateKey>(), value: valueCodecs.bytes };
const NEVER = 2 ** 30;

const textOf = (doc: Y.Doc): string => doc.getText('text').toString();
const type = (doc: Y.Doc, text: string): void => doc.getText('text').insert(doc.getText('text').length, text);

/** Opens a document whose errors fail the test, unless they are expected. */
async function openDocument(
  database: MangrovePersistenceOptions['database'],
  name = 'document',
  options: MangrovePersistenceOptions = {},
  doc = new Y.Doc(),
): Promise<MangrovePersistence> {
  const provider = new MangrovePersistence(name, doc, { database, ...options });
  provider.on('error', (error) => assert.fail(error));
  return provider.whenSynced;
}

/** The text of a document as another provider loads it. */
async function storedText(database: MangrovePersistenceOptions['database'], name = 'document'): Promise<string> {
  const provider = await openDocument(database, name);
  await provider.destroy();
  return textOf(provider.doc);
}

/** Keys of a document's entries without its name. */
async function keysOf(db: Database, name = 'document'): Promise<(readonly number[])[]> {
  return db
    .collection('yjs', UPDATES)
    .keys({ prefix: [name] })
    .map(([, ...rest]) => rest as readonly number[])
    .toArray();
}

const versionOf = async (db: Database): Promise<number> => {
  using view = db.snapshot();
  return await view.version;
};

/**
 * Calls `meanwhile` once, after the provider's next read and before it does anything with what it
 * has read. Returns how often it has read since.
 */
async function afterNextRead(provider: MangrovePersistence, meanwhile: () => Promise<unknown>): Promise<() => number> {
  const updates = await fetchUpdates(provider);
  const entries = updates.entries.bind(updates) as (options: object) => ReturnType<typeof updates.entries>;
  let reads = 0;
  Object.assign(updates, {
    entries(options: object) {
      const iterator = entries(options);
      const toArray = iterator.toArray.bind(iterator);
      return Object.assign(iterator, {
        async toArray() {
          const all = await toArray();
          if (reads++ === 0) await meanwhile();
          return all;
        },
      });
    },
  });
  return () => reads;
}

test('the updates of a tick are one commit, and updates from the database are not written again', () =>
  withMemory({}, async (db) => {
    const provider = await openDocument(db);
    const commits = db.collection('yjs', UPDATES).watch();
    for (const text of ['a', 'b', 'c']) type(provider.doc, text);
    assert.deepEqual(
      (await commits.next()).value?.changes.map((change) => change.type),
      ['set', 'set', 'set'],
    );
    await provider.flush();
    type(provider.doc, 'd');
    assert.equal((await commits.next()).value?.changes.length, 1);

    const version = await versionOf(db);
    const reading = await openDocument(db);
    await fetchUpdates(reading);
    await reading.destroy();
    // The document has content, all of which is stored.
    await (await openDocument(db, 'document', {}, reading.doc)).destroy();
    assert.equal(await versionOf(db), version);
    reading.doc.getText('text').delete(0, 1);
    await (await openDocument(db, 'document', {}, reading.doc)).destroy();
    assert.ok((await versionOf(db)) > version);
    await provider.destroy();
    assert.equal(await storedText(db), 'bcd');
  }));

test('updates are stored by destroy, whenever they were made', () =>
  withPath(async (path) => {
    const provider = await openDocument(path);
    type(provider.doc, 'a');
    provider.doc.destroy();
    assert.equal(await storedText(path), 'a');

    // While the provider is opened, before and after it has read the document.
    for (const wait of [() => undefined, () => Promise.resolve(), () => delay(0), () => delay(2)]) {
      const doc = new Y.Doc();
      const early = new MangrovePersistence('early', doc, { database: path });
      await wait();
      type(doc, 'x');
      await early.destroy();
    }
    assert.equal(await storedText(path, 'early'), 'xxxx');
  }));

test('destroy waits for an opening that it interrupts', async () => {
  for (const wait of [() => undefined, () => Promise.resolve(), () => delay(0)]) {
    const db = await open('test', { storage: 'memory' });
    const errors: unknown[] = [];
    // Both mark the document, one of them in vain: it reads again.
    const providers = [1, 2].map(() => new MangrovePersistence('document', new Y.Doc(), { database: db }));
    for (const provider of providers) provider.on('error', (error) => errors.push(error));
    await wait();
    await Promise.all(providers.map((provider) => provider.destroy()));
    await db.close();
    await delay(5);
    assert.deepEqual(errors, []);
  }
});

test('an update is stored by its tick alone', () =>
  withPath(async (path) => {
    const db = await open(path);
    const provider = await openDocument(db);
    type(provider.doc, 'a');
    // Nothing of the provider is called; the end of the tick has handed the update over.
    await Promise.resolve();
    await db.close();
    assert.equal(await storedText(path), 'a');
  }));

test('destroy and flush make updates survive a power cut', async () => {
  for (const durability of ['relaxed', 'none', 'strict'] as const) {
    const storage = new FaultyStorage();
    const db = await open('test', { storage });
    const provider = await openDocument(db, 'document', { durability });
    for (const end of [() => provider.flush(), () => provider.destroy()]) {
      type(provider.doc, 'a');
      const { flushes } = storage;
      await end();
      assert.ok(storage.flushes > flushes, durability);
    }
    const version = await versionOf(db);
    await provider.destroy();
    assert.equal(await versionOf(db), version);
    await db.close();
  }
});

test('documents of one database do not mix', () =>
  withMemory({}, async (db) => {
    const names = ['', 'a', 'ab', 'a\0', 'ä', '\ud800'];
    for (const name of names) {
      const provider = await openDocument(db, name, { trimSize: 2 });
      type(provider.doc, name);
      type(provider.doc, '!');
      await provider.set('name', name);
      await storeState(provider);
      await provider.destroy();
    }
    await clearDocument('a', { database: db });
    for (const name of names) {
      const provider = await openDocument(db, name);
      assert.deepEqual(
        [textOf(provider.doc), await provider.get('name')],
        name === 'a' ? ['', undefined] : [`${name}!`.replace('\ud800', '\ufffd'), name],
      );
      await provider.destroy();
    }
    const elsewhere = await openDocument(db, 'ab', { collection: 'elsewhere' });
    assert.equal(textOf(elsewhere.doc), '');
    await elsewhere.destroy();
  }));

test('a document is compacted once it has trimSize updates', () =>
  withMemory({}, async (db) => {
    const provider = await openDocument(db, 'document', { trimSize: 4 });
    provider._storeTimeout = 0;
    for (const text of 'abc') type(provider.doc, text);
    await provider.flush();
    await delay(5);
    assert.equal((await keysOf(db)).length, 4, 'the mark and three updates');
    type(provider.doc, 'd');
    while ((await keysOf(db)).length > 2) await delay(5);
    assert.deepEqual(await keysOf(db), [[], [0]]);
    assert.equal(provider._dbsize, 1);
    await provider.destroy();

    // Left behind by a page that was closed before its compaction.
    const left = await openDocument(db, 'document', { trimSize: NEVER });
    for (const text of 'efg') type(left.doc, text);
    await left.destroy();
    assert.equal((await keysOf(db)).length, 5);
    const next = await openDocument(db, 'document', { trimSize: 4 });
    next._storeTimeout = 0;
    await next.destroy();
    assert.equal((await keysOf(db)).length, 5, 'destroy does not wait for a timer');
    const last = new MangrovePersistence('document', new Y.Doc(), { database: db, trimSize: 4 });
    last._storeTimeout = 0;
    while ((await keysOf(db)).length > 2) await delay(5);
    await last.destroy();
    assert.equal(await storedText(db), 'abcdefg');
  }));

test('a compaction keeps what another provider writes meanwhile', () =>
  withMemory({}, async (db) => {
    const compacting = await openDocument(db);
    const other = await openDocument(db);
    type(compacting.doc, 'a');
    await compacting.flush();
    await afterNextRead(compacting, async () => {
      type(other.doc, 'b');
      await other.flush();
      assert.deepEqual(
        (await keysOf(db)).map(({ length }) => length),
        [0, 3, 3],
      );
    });
    await storeState(compacting);
    assert.deepEqual(
      (await keysOf(db)).map(({ length }) => length),
      [0, 1, 3],
    );
    assert.deepEqual([...(await storedText(db))].sort(), ['a', 'b']);
    await storeState(compacting);
    assert.deepEqual(await keysOf(db), [[], [0]]);
    await Promise.all([compacting.destroy(), other.destroy()]);
    assert.deepEqual([...(await storedText(db))].sort(), ['a', 'b']);
  }));

test('of two compactions at once one starts over', () =>
  withMemory({}, async (db) => {
    for (const isFirst of [true, false]) {
      const compacting = await openDocument(db);
      const other = await openDocument(db);
      // The state that both replace exists only the second time.
      for (const text of isFirst ? 'ab' : 'cd') type(compacting.doc, text);
      await compacting.flush();
      const reads = await afterNextRead(compacting, async () => {
        await storeState(other);
        type(other.doc, isFirst ? '1' : '2');
        await other.flush();
      });
      await storeState(compacting);
      assert.equal(reads(), 2);
      assert.deepEqual(await keysOf(db), [[], [0]]);
      assert.equal(textOf(compacting.doc), isFirst ? 'ab1' : 'ab1cd2', 'a compaction applies what it reads');
      await Promise.all([compacting.destroy(), other.destroy()]);
    }
    assert.equal(await storedText(db), 'ab1cd2');
  }));

test('a compaction does not bring a cleared document back', () =>
  withMemory({}, async (db) => {
    const compacting = await openDocument(db, 'document', { trimSize: 3 });
    compacting._storeTimeout = 0;
    const reads = await afterNextRead(compacting, () => clearDocument('document', { database: db }));
    for (const text of 'abc') type(compacting.doc, text);
    while (reads() < 2) await delay(5);
    await compacting.destroy();
    assert.equal(await storedText(db), '');
  }));

test('a document that is cleared while it is open is stored again as a whole', () =>
  withMemory({}, async (db) => {
    const editing = await openDocument(db);
    type(editing.doc, 'a');
    await editing.flush();
    await (await openDocument(db)).clearData();
    assert.equal(await storedText(db), '');
    // Of the two commits in flight at once each finds that its mark is gone.
    type(editing.doc, 'b');
    await Promise.resolve();
    type(editing.doc, 'c');
    await editing.flush();
    assert.equal(await storedText(db), 'abc');
    type(editing.doc, 'd');
    await clearDocument('document', { database: db });
    type(editing.doc, 'e');
    await editing.destroy();
    assert.equal(await storedText(db), 'abcde');
  }));

test('updates that wait for others survive compactions', () =>
  withMemory({}, async (db) => {
    const source = new Y.Doc();
    const updates: Uint8Array[] = [];
    source.on('update', (update: Uint8Array) => updates.push(update));
    for (const text of 'abc') type(source, text);
    source.getText('text').delete(0, 1);
    const [first, ...rest] = updates as [Uint8Array, ...Uint8Array[]];
    const ahead = new Y.Doc();
    for (const update of rest) Y.applyUpdate(ahead, update);
    const provider = await openDocument(db, 'document', {}, ahead);
    await storeState(provider);
    await provider.destroy();
    assert.equal(await storedText(db), '');
    const late = await openDocument(db);
    Y.applyUpdate(late.doc, first);
    await storeState(late);
    await late.destroy();
    assert.equal(await storedText(db), 'bc');
  }));

test('observers may change the document while it is loaded, and what they throw is not lost', () =>
  withMemory({}, async (db) => {
    const first = await openDocument(db);
    type(first.doc, 'a');
    await first.destroy();
    const uncaught: unknown[] = [];
    const { reportError } = globalThis;
    globalThis.reportError = (error) => void uncaught.push(error);
    const doc = new Y.Doc();
    const boom = new Error('of an observer');
    doc.getText('text').observe(({ transaction }) => {
      if (transaction.local) return;
      type(doc, 'b');
      throw boom;
    });
    const provider = new MangrovePersistence('document', doc, { database: db });
    provider.on('synced', () => {
      throw boom;
    });
    await provider.whenSynced;
    globalThis.reportError = reportError;
    assert.deepEqual(uncaught, [boom, boom]);
    await provider.destroy();
    assert.equal(await storedText(db), 'ab');
  }));

test('an error is an event and rejects, and nothing is unhandled', () =>
  withPath(async (path) => {
    writeFileSync(path, 'a file where a directory should be');
    const doc = new Y.Doc();
    const provider = new MangrovePersistence('document', doc, { database: join(path, 'deeper') });
    const errors: KvError[] = [];
    provider.on('error', (error) => void errors.push(error));
    await assert.rejects(provider.whenSynced, (error) => error === errors[0]);
    await assert.rejects(fetchUpdates(provider), (error) => error === errors[0]);
    await assert.rejects(provider.get('a'), (error) => error === errors[0]);
    // Nothing was to be stored.
    const empty = new MangrovePersistence('document', new Y.Doc(), { database: join(path, 'deeper') });
    await empty.destroy();
    // Nobody listens to these.
    type(doc, 'a');
    doc.destroy();
    await delay(5);
    await assert.rejects(provider.destroy(), (error) => error === errors[0]);
    assert.equal(errors.length, 1);
    new MangrovePersistence('document', doc, { database: join(path, 'deeper') }).destroy().catch(() => undefined);
  }));

test('updates that do not fit are stored once there is room, in order', async () => {
  const storage = new FaultyStorage();
  const db = await open('test', { storage });
  const provider = new MangrovePersistence('document', new Y.Doc(), { database: db });
  const errors: string[] = [];
  provider.on('error', (error) => void errors.push(error.code));
  await provider.whenSynced;
  type(provider.doc, 'a');
  await provider.flush();
  storage.roomBytes = 0;
  const large = Array.from({ length: 20_000 }, (_, index) => String.fromCharCode(97 + ((index * index) % 26))).join('');
  let text = 'a';
  while (errors.length === 0) {
    type(provider.doc, large);
    text += large;
    await delay(0);
  }
  assert.equal(errors[0], 'KV_QUOTA_EXCEEDED');
  await rejects(provider.flush(), 'KV_QUOTA_EXCEEDED');
  storage.roomBytes = Infinity;
  await provider.flush();
  assert.equal(await storedText(db), text);

  // A second after a retryable error the provider tries again without being asked.
  storage.roomBytes = 0;
  errors.length = 0;
  while (errors.length === 0) {
    type(provider.doc, large);
    text += large;
    await delay(0);
  }
  storage.roomBytes = Infinity;
  while ((await storedText(db)) !== text) await delay(50);
  await provider.destroy();
  await db.close();
});

test('when the database ends, another provider stores the document', () =>
  withPath(async (path) => {
    const db = await open(path);
    const provider = new MangrovePersistence('document', new Y.Doc(), { database: db });
    const errors: string[] = [];
    provider.on('error', (error) => void errors.push(error.code));
    await provider.whenSynced;
    type(provider.doc, 'a');
    await provider.flush();
    await db.close();
    type(provider.doc, 'b');
    await rejects(provider.flush(), 'KV_CLOSED');
    assert.deepEqual([...new Set(errors)], ['KV_CLOSED']);
    await rejects(provider.destroy(), 'KV_CLOSED');
    await (await openDocument(path, 'document', {}, provider.doc)).destroy();
    assert.equal(await storedText(path), 'ab');
  }));

test('providers with the same name of a database share it until the last is destroyed', () =>
  withPath(async (path) => {
    const [first, second] = [await openDocument(path, 'first'), await openDocument(path, 'second')];
    assert.equal(first.db, second.db);
    await first.destroy();
    await first.destroy();
    type(second.doc, 'a');
    await second.flush();
    await rejects(open(path, { lockTimeout: 0, share: false }), 'KV_LOCKED');
    // Opened again while it is being closed.
    const closing = second.destroy();
    const third = new MangrovePersistence('second', new Y.Doc(), { database: path });
    await Promise.all([closing, third.whenSynced]);
    assert.equal(textOf(third.doc), 'a');
    // A database that ends is not used again.
    await third.db?.close();
    const fourth = await openDocument(path, 'second');
    assert.notEqual(fourth.db, third.db);
    await third.destroy();
    await fourth.destroy();
    await (await open(path, { lockTimeout: 0 })).close();
  }));

test('a database may be opened by the program, also meanwhile', () =>
  withMemory<string, number>({}, async (db) => {
    const provider = await openDocument(Promise.resolve(db as never));
    type(provider.doc, 'a');
    await provider.destroy();
    assert.equal(await storedText(db as never), 'a');
    await rejects(
      new MangrovePersistence('document', new Y.Doc(), { database: Promise.resolve({} as Database) }).whenSynced,
      'KV_INVALID_ARGUMENT',
    );
    await rejects(
      new MangrovePersistence('x'.repeat(5000), new Y.Doc(), { database: db as never }).whenSynced,
      'KV_KEY_TOO_LARGE',
    );
  }));

test('what is stored otherwise is refused and kept', () =>
  withMemory({}, async (db) => {
    const updates = db.collection('yjs', UPDATES);
    await updates.set(['newer'], Uint8Array.of(2));
    await rejects(new MangrovePersistence('newer', new Y.Doc(), { database: db }).whenSynced, 'KV_VERSION_UNSUPPORTED');
    await updates.setMany([
      [['damaged'], Uint8Array.of(1)],
      [['damaged', 1, 2, 3], Uint8Array.of(255)],
    ]);
    await assert.rejects(
      new MangrovePersistence('damaged', new Y.Doc(), { database: db }).whenSynced,
      (error: KvError) => code('KV_CORRUPT')(error) && /"damaged", at \[1, 2, 3\]/.test(error.message),
    );
    assert.equal(await updates.count({ prefix: ['damaged'] }), 2);
  }));

test('a document of y-indexeddb moves when it is loaded by both once', () =>
  withMemory({}, async (db) => {
    const old = await new original.IndexeddbPersistence('moved', new Y.Doc()).whenSynced;
    type(old.doc, 'old');
    await old.destroy();

    const doc = new Y.Doc();
    const from = await new original.IndexeddbPersistence('moved', doc).whenSynced;
    await (await openDocument(db, 'moved', {}, doc)).flush();
    await from.clearData();
    doc.destroy();
    assert.equal(await storedText(db, 'moved'), 'old');
  }));
