// Reads of an index in the synchronous API: the vocabulary of the asynchronous one, with values.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open, openSync } from 'mangrove-kv';
import type { CollectionOptions, Database, Index, Key, SyncIndex } from 'mangrove-kv';
import { withMemory as withOptions, withPath } from './support/kit.ts';

const withMemory = (use: (db: Database) => Promise<void>): Promise<void> => withOptions({}, use);

interface Note {
  readonly tags: readonly string[];
  readonly due: number;
}

const INDEXES = {
  byTag: { key: (note: Note) => note.tags as string[], multi: true },
  byDue: { key: (note: Note, id: string) => [note.due > 5, note.due, id.length] },
} satisfies CollectionOptions<string, Note>['indexes'];

const entriesOf = (count: number): [string, Note][] =>
  Array.from({ length: count }, (_, at) => [
    `k${at}`,
    { due: at % 10, tags: [`t${at % 3}`, ...(at % 7 === 0 ? ['seven'] : [])] },
  ]);

/** Checks that every call of both finds the same. */
async function checkSame(index: Index<string, Note>, sync: SyncIndex<string, Note>): Promise<void> {
  assert.equal(sync.name, index.name);
  const options = [
    undefined,
    {},
    { eq: 't1' },
    { eq: 'none' },
    { prefix: 't' },
    { gt: 't0', lte: 't2' },
    { gte: 't1', reverse: true },
    { offset: 3, limit: 5 },
    { reverse: true, offset: 2, limit: 4 },
    { lt: 't2', limit: 0 },
    { eq: [false, 3, 2] },
    { prefix: [true], limit: 3 },
    { gt: 'z', lt: 'a' },
    { offset: 1000 },
  ] as const;
  for (const each of options) {
    const context = JSON.stringify(each);
    assert.deepEqual([...sync.entries(each)], await index.entries(each).toArray(), context);
    assert.deepEqual(
      [...sync.entries({ ...each, meta: true })],
      await index.entries({ ...each, meta: true }).toArray(),
      context,
    );
    assert.deepEqual([...sync.keys(each)], await index.keys(each).toArray(), context);
    assert.deepEqual([...sync.values(each)], await index.values(each).toArray(), context);
    assert.deepEqual(
      [sync.first(each), sync.last(each), sync.count(each)],
      await Promise.all([index.first(each), index.last(each), index.count(each)]),
      context,
    );
    for (const at of [0, 1, 4, -1, -2, -5, 10_000, -10_000])
      assert.deepEqual(sync.at(at, each), await index.at(at, each), `${context} at ${at}`);
    for (const key of ['t1', 'zz', [true, 7]] as Key[])
      assert.equal(sync.rank(key, each), await index.rank(key, each), `${context} rank ${String(key)}`);
  }
  for (const key of ['t2', 'none', [false, 3, 2]] as Key[]) assert.deepEqual(sync.get(key), await index.get(key));
  assert.deepEqual([...sync], await index.entries().toArray());
}

test('an index reads the same synchronously', () =>
  withMemory(async (db) => {
    const notes = db.collection<string, Note>('notes', { indexes: INDEXES });
    const sync = db.sync.collection(notes);
    await checkSame(notes.index('byTag'), sync.index('byTag'));
    await notes.setMany(entriesOf(300));
    assert.equal(sync.index('byTag').count(), 343);
    for (const name of ['byTag', 'byDue']) await checkSame(notes.index(name), sync.index(name));
    await notes.set('expires', { due: 1, tags: ['soon'] }, { expireIn: 60_000 });
    const [found] = sync.index('byTag').entries({ eq: 'soon', meta: true });
    assert.equal(found?.expiresAt, (await notes.getEntry('expires'))?.expiresAt);
    // Iterators are JavaScript's own, and see the state at the call.
    const iterator = sync.index('byDue').keys();
    sync.clear();
    assert.equal([...iterator].length, 301);
    assert.deepEqual([...sync.index('byDue').keys()], []);
  }));

test('snapshots and transactions have the index of their state', () =>
  withMemory(async (db) => {
    const notes = db.collection<string, Note>('notes', { indexes: INDEXES });
    await notes.setMany(entriesOf(30));
    using async = db.snapshot();
    using snapshot = db.sync.snapshot();
    db.sync.collection(notes).set('new', { due: 3, tags: ['t1'] });
    await checkSame(async.collection(notes).index('byTag'), snapshot.collection(notes).index('byTag'));
    assert.equal(snapshot.collection(notes).index('byTag').count({ eq: 't1' }), 10);
    assert.equal(async.sync.collection(notes).index('byTag').count({ eq: 't1' }), 10);
    db.sync.transaction((tx) => {
      const inner = tx.collection(notes);
      inner.set('own', { due: 3, tags: ['t1', 'own'] });
      inner.delete('k1');
      const index = inner.index('byTag');
      assert.equal(index.count({ eq: 't1' }), 11);
      assert.deepEqual(index.last()?.key, 'k8');
      assert.deepEqual([...index.keys({ eq: 'own' })], ['own']);
      assert.deepEqual(index.at(-1, { eq: 't1', limit: 2 })?.key, 'k13');
      assert.equal(index.rank('t0'), 6);
    });
    assert.equal(db.sync.collection(notes).index('byTag').get('own')?.due, 3);
    assert.throws(
      () =>
        db.sync.transaction((tx) => {
          tx.collection(notes).set('gone', { due: 1, tags: ['gone'] });
          throw new Error('rolled back');
        }),
      /rolled back/,
    );
    assert.equal(db.sync.collection(notes).index('byTag').count({ eq: 'gone' }), 0);
    assert.deepEqual((await db.verify()).problems, []);
  }));

test('a database that was opened synchronously has indexes', () =>
  withPath(async (path) => {
    const entries = entriesOf(3000);
    const bare = openSync(path);
    bare.collection<string, Note>('full').setMany(entries);
    bare.close();
    const db = openSync(path);
    const notes = db.collection<string, Note>('notes', { indexes: INDEXES });
    notes.setMany(entries);
    assert.equal(notes.index('byTag').count({ eq: 'seven' }), 429);
    const full = db.collection<string, Note>('full', { indexes: { byTag: INDEXES.byTag } });
    // It is built when the program lets the event loop turn.
    assert.throws(() => full.index('byTag').count(), { code: 'KV_INDEX_INCOMPLETE' });
    assert.throws(() => full.index('byTag').entries(), { code: 'KV_INDEX_INCOMPLETE' });
    db.close();
    const later = await open(path);
    const declared = later.collection<string, Note>('full', { indexes: { byTag: INDEXES.byTag } });
    await declared.buildIndexes();
    assert.equal(later.sync.collection(declared).index('byTag').count({ eq: 'seven' }), 429);
    assert.deepEqual((await later.verify()).problems, []);
    await later.close();
  }));

test('what cannot be read is refused as in the asynchronous API', () =>
  withMemory(async (db) => {
    const notes = db.collection<string, Note>('notes', { indexes: INDEXES });
    await notes.set('a', { due: 1, tags: [] });
    const sync = db.sync.collection(notes);
    const refused = { code: 'KV_INVALID_ARGUMENT' };
    assert.throws(() => sync.index('byNothing'), refused);
    assert.throws(() => db.sync.collection('notes').index('byTag'), refused);
    const index = sync.index('byTag');
    assert.throws(() => index.count({ eq: 'a', gt: 'b' }), refused);
    assert.throws(() => index.entries({ prefx: 'a' } as never), refused);
    assert.throws(() => index.keys({ meta: true } as never), refused);
    assert.throws(() => index.count({ signal: new AbortController().signal } as never), refused);
    assert.throws(() => index.at(1.5), refused);
    assert.throws(() => index.rank({} as never), { code: 'KV_INVALID_KEY' });
    const snapshot = db.sync.snapshot();
    const closed = snapshot.collection(notes).index('byTag');
    snapshot.close();
    assert.throws(() => closed.count(), { code: 'KV_CLOSED' });
    assert.throws(() => closed.entries(), { code: 'KV_CLOSED' });
  }));
