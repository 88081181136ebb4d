// The interface of y-indexeddb: each test runs with y-indexeddb over a fake IndexedDB, and with
// mangrove-kv/yjs in files, so that a program may exchange one for the other.
import 'fake-indexeddb/auto';
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import * as mangrove from '@mangrove-kv/yjs';
import * as original from 'y-indexeddb';
import * as Y from 'yjs';

type StoredKey = string | number | ArrayBuffer | Date;
type Callback = () => void;

/** What programs use of y-indexeddb. Both libraries have to have this type. */
interface Provider {
  readonly doc: Y.Doc;
  readonly name: string;
  readonly db: object | null;
  readonly synced: boolean;
  readonly whenSynced: Promise<Provider>;
  readonly _db: Promise<object>;
  readonly _dbsize: number;
  readonly _destroyed: boolean;
  _storeTimeout: number;
  on(name: 'synced', listener: (provider: Provider) => void): void;
  once(name: 'synced', listener: (provider: Provider) => void): void;
  off(name: 'synced', listener: (provider: Provider) => void): void;
  emit(name: string, args: unknown[]): void;
  destroy(): Promise<void>;
  clearData(): Promise<void>;
  get(key: StoredKey): Promise<StoredKey>;
  set(key: StoredKey, value: StoredKey): Promise<StoredKey>;
  del(key: StoredKey): Promise<undefined>;
}

interface Library<P extends Provider> {
  readonly PREFERRED_TRIM_SIZE: 500;
  readonly IndexeddbPersistence: new (name: string, doc: Y.Doc) => P;
  readonly fetchUpdates: (provider: P, before?: Callback, after?: Callback) => Promise<object>;
  readonly storeState: (provider: P, forceStore?: boolean) => Promise<void>;
  readonly clearDocument: (name: string) => Promise<unknown>;
}

// By default databases are in the working directory.
const before = process.cwd();
const directory = mkdtempSync(join(tmpdir(), 'mangrove-yjs-'));
process.chdir(directory);
after(() => {
  process.chdir(before);
  rmSync(directory, { recursive: true, force: true });
});

const textOf = (doc: Y.Doc): string => doc.getText('text').toString();
const listOf = (doc: Y.Doc): unknown[] => doc.getArray('list').toArray();

/** Waits for something that a library does not report. */
async function until(isDone: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isDone())) await delay(5);
}

function testLibrary<P extends Provider>(
  name: string,
  { IndexeddbPersistence, PREFERRED_TRIM_SIZE, clearDocument, fetchUpdates, storeState }: Library<P>,
): void {
  const open = async (document: string, doc = new Y.Doc()): Promise<P> =>
    (await new IndexeddbPersistence(document, doc).whenSynced) as P;
  const stored = async (document: string): Promise<Y.Doc> => {
    const provider = await open(document);
    await provider.destroy();
    return provider.doc;
  };

  test(`${name}: a document comes back`, async () => {
    const doc = new Y.Doc();
    const provider = new IndexeddbPersistence('comes back', doc);
    assert.deepEqual(
      [provider.doc, provider.name, provider.db, provider.synced, provider._destroyed],
      [doc, 'comes back', null, false, false],
    );
    const seen: unknown[] = [];
    provider.on('synced', (synced) => void seen.push(synced === provider, synced.synced));
    assert.equal(await provider.whenSynced, provider);
    assert.deepEqual([seen, provider.synced, provider.db === (await provider._db)], [[true, true], true, true]);
    doc.getText('text').insert(0, 'kept');
    await provider.destroy();
    assert.equal(provider._destroyed, true);
    assert.equal(textOf(await stored('comes back')), 'kept');
  });

  test(`${name}: what is in the document before it is loaded is stored too`, async () => {
    const first = new Y.Doc();
    first.getArray('list').insert(0, [0]);
    const provider = await open('before', first);
    first.getArray('list').insert(0, [1]);
    const second = new Y.Doc();
    let seen: unknown[] = [];
    const loading = new IndexeddbPersistence('before', second);
    second.getArray('list').observe((_, { local, origin }) => void (seen = [local, origin === loading]));
    await loading.whenSynced;
    assert.deepEqual(
      [listOf(second), seen],
      [
        [1, 0],
        [false, true],
      ],
    );
    await Promise.all([provider.destroy(), loading.destroy()]);
  });

  test(`${name}: fetchUpdates applies what another provider has stored`, async () => {
    const writing = await open('fetch');
    const reading = await open('fetch');
    writing.doc.getArray('list').insert(0, [1, 2]);
    assert.deepEqual(listOf(reading.doc), []);
    const order: unknown[] = [];
    reading.doc.on('update', (_: Uint8Array, origin: unknown) => void order.push(origin === reading));
    await fetchUpdates(
      reading,
      () => order.push('before'),
      () => order.push('after'),
    );
    assert.deepEqual(
      [listOf(reading.doc), order],
      [
        [1, 2],
        ['before', true, 'after'],
      ],
    );
    await Promise.all([writing.destroy(), reading.destroy()]);
  });

  test(`${name}: many updates are stored as one`, async () => {
    const writing = await open('merge');
    writing._storeTimeout = 0;
    const reading = await open('merge');
    for (let index = 0; index < PREFERRED_TRIM_SIZE + 1; index++) writing.doc.getArray('list').insert(index, [index]);
    await until(() => writing._dbsize === 1);
    await fetchUpdates(reading);
    assert.deepEqual(
      listOf(reading.doc),
      Array.from({ length: PREFERRED_TRIM_SIZE + 1 }, (_, index) => index),
    );
    assert.equal(reading._dbsize, 1);
    await Promise.all([writing.destroy(), reading.destroy()]);
    assert.equal(listOf(await stored('merge')).length, PREFERRED_TRIM_SIZE + 1);
  });

  test(`${name}: many updates of two providers are stored as few`, async () => {
    const both = [await open('both'), await open('both')] as const;
    for (const [side, provider] of both.entries()) {
      provider._storeTimeout = 0;
      for (let index = 0; index < PREFERRED_TRIM_SIZE + 1; index++)
        provider.doc.getArray('list').insert(index, [`${side} ${index}`]);
    }
    await until(async () => {
      for (const provider of both) await fetchUpdates(provider);
      return both.every(({ _dbsize: size }) => size < 10);
    });
    assert.deepEqual(listOf(both[0].doc), listOf(both[1].doc));
    assert.equal(listOf(both[0].doc).length, 2 * (PREFERRED_TRIM_SIZE + 1));
    await Promise.all(both.map((provider) => provider.destroy()));
    assert.deepEqual(listOf(await stored('both')), listOf(both[0].doc));
  });

  test(`${name}: storeState stores one state`, async () => {
    const provider = await open('state');
    for (let index = 0; index < 5; index++) provider.doc.getArray('list').insert(index, [index]);
    await storeState(provider, false);
    await fetchUpdates(provider);
    assert.ok(provider._dbsize >= 5, 'nothing is forced');
    await storeState(provider);
    await until(() => provider._dbsize === 1);
    await provider.destroy();
    assert.deepEqual(listOf(await stored('state')), [0, 1, 2, 3, 4]);
  });

  test(`${name}: custom values`, async () => {
    const provider = new IndexeddbPersistence('custom', new Y.Doc());
    const other = new IndexeddbPersistence('custom 2', new Y.Doc());
    const date = new Date(5);
    const values: [StoredKey, unknown][] = [
      ['a', 4],
      [4, 'meta!'],
      ['object', { a: [4] }],
      [date, false],
      [new Uint8Array([1, 2]).buffer, new Uint8Array([3])],
      ['', ''],
    ];
    for (const [key, value] of values) void provider.set(key, value as StoredKey);
    for (const [key, value] of values) assert.deepEqual(await provider.get(key), value);
    assert.equal(await provider.set('a', 5), 'a');
    assert.equal(await other.get('a'), undefined);
    assert.equal(await provider.del('a'), undefined);
    assert.equal(await provider.del('a'), undefined);
    assert.equal(await provider.get('a'), undefined);
    void provider.set('late', 1);
    await Promise.all([provider.destroy(), other.destroy()]);
    await assert.rejects(async () => provider.get('late'));
    const again = await open('custom');
    assert.deepEqual([await again.get('late'), await again.get(4), await again.get(date)], [1, 'meta!', false]);
    await again.destroy();
  });

  test(`${name}: a provider that is destroyed at once is never synced`, async () => {
    const provider = new IndexeddbPersistence('early', new Y.Doc());
    let isSynced = false;
    provider.on('synced', () => void (isSynced = true));
    void provider.whenSynced.then(() => void (isSynced = true));
    await Promise.all([provider.destroy(), provider.destroy()]);
    await stored('early');
    assert.deepEqual([isSynced, provider.synced], [false, false]);
  });

  test(`${name}: destroying the document destroys the provider`, async () => {
    const provider = await open('document');
    const { doc, destroy } = provider;
    doc.getText('text').insert(0, 'before');
    doc.destroy();
    assert.equal(provider._destroyed, true);
    doc.getText('text').insert(0, 'after ');
    await destroy();
    assert.equal(textOf(await stored('document')), 'before');
  });

  test(`${name}: clearData and clearDocument remove everything of one document`, async () => {
    for (const document of ['cleared', 'cleared too', 'not cleared']) {
      const provider = await open(document);
      provider.doc.getText('text').insert(0, document);
      await provider.set('key', document);
      await provider.destroy();
    }
    await (await open('cleared')).clearData();
    await clearDocument('cleared too');
    await clearDocument('never stored');
    for (const [document, left] of [
      ['cleared', ''],
      ['cleared too', ''],
      ['not cleared', 'not cleared'],
    ] as const) {
      const provider = await open(document);
      assert.equal(textOf(provider.doc), left);
      assert.equal(await provider.get('key'), left === '' ? undefined : left);
      await provider.destroy();
    }
  });

  test(`${name}: listeners`, async () => {
    const provider = new IndexeddbPersistence('listeners', new Y.Doc());
    const seen: string[] = [];
    const removed = (): void => void seen.push('removed');
    provider.on('synced', removed);
    provider.off('synced', removed);
    provider.once('synced', () => void seen.push('once'));
    provider.on('synced', () => void seen.push('each'));
    await provider.whenSynced;
    provider.emit('synced', [provider]);
    assert.deepEqual(seen, ['once', 'each', 'each']);
    await provider.destroy();
  });

  test(`${name}: a document has subdocuments of its own`, async () => {
    const provider = await open('outer');
    const inner = new Y.Doc();
    provider.doc.getMap('docs').set('inner', inner);
    inner.getText('text').insert(0, 'not in the outer document');
    await provider.destroy();
    const again = (await stored('outer')).getMap('docs').get('inner') as Y.Doc;
    assert.deepEqual([again.guid, textOf(again)], [inner.guid, '']);
  });
}

// The same type, and so the same code, for both: that it compiles is part of the test.
testLibrary('y-indexeddb', original);
testLibrary('@mangrove-kv/yjs', mangrove);

test('both names are the same class', () => {
  assert.equal(mangrove.IndexeddbPersistence, mangrove.MangrovePersistence);
});
