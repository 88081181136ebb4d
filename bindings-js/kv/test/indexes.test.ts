// Indexes: they hold what their functions say of every entry, whatever wrote it, and read like a
// collection.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compareKeys as compare, open } from 'mangrove-kv';
import type { Collection, CollectionOptions, Database, Index, Key } from 'mangrove-kv';
import { rejects, withMemory as withOptions, withPath } from './support/kit.ts';

const withMemory = (use: (db: Database) => Promise<void>): Promise<void> => withOptions({}, use);

const codeOf = (error: unknown): unknown => (error as { code?: unknown }).code;

interface Note {
  readonly author?: string;
  readonly tags: readonly string[];
  readonly due: number;
  readonly email?: string;
}

type Notes = Collection<string, Note>;

const INDEXES = {
  byAuthor: { key: (note: Note) => note.author },
  byTag: { key: (note: Note) => note.tags as string[], multi: true },
  byDue: { key: (note: Note, id: string) => [note.due > 5, note.due, id.length] },
  byEmail: { key: (note: Note) => note.email, unique: true },
} satisfies CollectionOptions<string, Note>['indexes'];

const notesOf = (db: Database): Notes => db.collection<string, Note>('notes', { indexes: INDEXES });

const note = (due: number, more: Partial<Note> = {}): Note => ({ due, tags: [], ...more });

const seen = (index: Index<string, Note>): Promise<[Key, string][]> =>
  index
    .entries()
    .map(({ indexKey, key }): [Key, string] => [indexKey, key])
    .toArray();

/** What an index has to hold, computed from the entries. */
async function expected(notes: Notes, name: keyof typeof INDEXES): Promise<[Key, string][]> {
  const { key, multi } = INDEXES[name] as { key: (note: Note, id: string) => Key | undefined; multi?: boolean };
  const found: [Key, string][] = [];
  for await (const [id, value] of notes) {
    const keys = key(value, id);
    if (keys === undefined) continue;
    for (const each of new Set(multi ? (keys as Key[]) : [keys])) found.push([each, id]);
  }
  return found.sort(([a, first], [b, second]) => compare(a, b) || compare(first, second));
}

async function checkAll(db: Database, notes: Notes): Promise<void> {
  for (const name of Object.keys(INDEXES) as (keyof typeof INDEXES)[]) {
    assert.deepEqual(await seen(notes.index(name)), await expected(notes, name), name);
  }
  assert.deepEqual((await db.verify()).problems, []);
}

test('every kind of write keeps the indexes right', () =>
  withMemory(async (db) => {
    const notes = notesOf(db);
    await notes.set('a', note(1, { author: 'ann', tags: ['x', 'y', 'x'] }));
    await notes.setMany([
      ['b', note(2, { author: 'bob', tags: ['y'] })],
      ['c', note(9, { email: 'c@d' })],
      ['dd', note(9)],
    ]);
    await checkAll(db, notes);
    await notes.set('a', note(7, { author: 'zoe' }));
    await notes.update('b', (old) => ({ ...(old as Note), tags: ['q'] }));
    assert.deepEqual(await notes.getOrInsert('b', note(0)), note(2, { author: 'bob', tags: ['q'] }));
    await notes.getOrInsert('e', note(3, { tags: ['e'] }));
    await notes.getOrInsertComputed('f', () => note(4, { author: 'f' }));
    await checkAll(db, notes);
    await db.batch([
      { type: 'set', key: 'g', value: note(5, { tags: ['g'] }), collection: notes },
      { type: 'delete', key: 'c', collection: notes },
    ]);
    await db.transaction(async (tx) => {
      const inner = tx.collection(notes);
      await inner.set('h', note(6, { email: 'h@i', tags: ['y', 'h'] }));
      await inner.delete('e');
      assert.deepEqual(await seen(inner.index('byEmail') as Index<string, Note>), [['h@i', 'h']]);
      assert.equal(await inner.index('byTag').count({ eq: 'y' }), 1);
      assert.deepEqual(await inner.index('byTag').at(-1), {
        indexKey: 'y',
        key: 'h',
        value: note(6, { email: 'h@i', tags: ['y', 'h'] }),
      });
    });
    await checkAll(db, notes);
    await notes.delete('g');
    await notes.clear({ lt: 'c' });
    await checkAll(db, notes);
    await notes.set('soon', note(1, { tags: ['soon'] }), { expireIn: 20 });
    await new Promise((resolve) => {
      setTimeout(resolve, 40);
    });
    assert.equal(await notes.index('byTag').count({ eq: 'soon' }), 0);
    await db.purgeExpired();
    await checkAll(db, notes);
    await notes.clear();
    assert.deepEqual(await seen(notes.index('byDue')), []);
    await checkAll(db, notes);
  }));

test('random writes leave every index as its function says', () =>
  withMemory(async (db) => {
    const notes = notesOf(db);
    let seed = 12345;
    const random = (below: number): number => {
      seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
      return Math.floor((seed / 2 ** 32) * below);
    };
    const any = (): Note =>
      note(random(12), {
        ...(random(2) === 0 ? { author: `author ${random(4)}` } : {}),
        tags: Array.from({ length: random(4) }, () => `tag\0${random(5)}`),
      });
    const id = (): string => `${'k'.repeat(random(3))}${random(30)}`;
    for (let round = 0; round < 60; round++) {
      const pairs = Array.from({ length: random(8) }, () => [id(), any()] as const);
      const kind = random(6);
      if (kind === 0) await notes.setMany(pairs);
      else if (kind === 1) await notes.deleteMany(pairs.map(([key]) => key));
      else if (kind === 2) await notes.clear({ gte: id(), limit: random(4) });
      else if (kind === 3)
        await db.transaction(async (tx) => {
          for (const [key, value] of pairs) await tx.collection(notes).set(key, value);
        });
      else if (kind === 4) await Promise.all(pairs.map(([key, value]) => notes.set(key, value)));
      else
        await Promise.all(pairs.map(([key]) => notes.update(key, (old) => ({ ...(old ?? any()), due: random(12) }))));
    }
    await checkAll(db, notes);
  }));

test('an index reads like a collection', () =>
  withMemory(async (db) => {
    const notes = notesOf(db);
    await notes.setMany(
      Array.from({ length: 40 }, (_, at) => [`k${at}`, note(at % 10, { tags: [`t${at % 3}`] })] as const),
    );
    const byTag = notes.index('byTag');
    const all = await seen(byTag);
    assert.equal(all.length, 40);
    assert.deepEqual(
      await byTag.keys({ eq: 't1', reverse: true, offset: 1, limit: 2 }).toArray(),
      all
        .filter(([tag]) => tag === 't1')
        .map(([, key]) => key)
        .reverse()
        .slice(1, 3),
    );
    assert.deepEqual(await byTag.values({ eq: 't2', limit: 1 }).toArray(), [
      await notes.get(all.find(([tag]) => tag === 't2')![1]),
    ]);
    assert.deepEqual(await byTag.count({ gt: 't0', lte: 't2' }), 26);
    assert.deepEqual(await byTag.count({ prefix: 't', offset: 3, limit: 10 }), 10);
    assert.deepEqual(
      [
        await byTag.rank('t1'),
        await byTag.rank('t9'),
        await byTag.rank('t1', { gte: 't1' }),
        await byTag.rank('t2', { lt: 't1' }),
      ],
      [14, 40, 0, 14],
    );
    for (const at of [0, 3, 39, 40, -1, -40, -41])
      assert.deepEqual((await byTag.at(at))?.key, all.at(at)?.[1], String(at));
    assert.equal((await byTag.at(-1, { eq: 't0', limit: 5 }))?.key, all[4]![1]);
    assert.equal((await byTag.at(1, { reverse: true }))?.key, all.at(-2)![1]);
    assert.equal((await byTag.last({ lt: 't1' }))?.key, all[13]![1]);
    assert.deepEqual(await byTag.get('t1'), await notes.get(all[14]![1]));
    assert.equal(await byTag.get('none'), undefined);
    const iterator = byTag.entries();
    iterator.seek('t2');
    assert.equal((await iterator.next()).value?.indexKey, 't2');
    iterator.seek('t0');
    assert.deepEqual(
      (await iterator.nextMany(2)).map(({ key }) => key),
      all.slice(0, 2).map(([, key]) => key),
    );
    await iterator.return();
    const [first] = await byTag.entries({ meta: true, limit: 1 }).toArray();
    assert.equal(first?.version, await db.snapshot().version);
    const compound = notes.index('byDue');
    assert.deepEqual(
      (await compound.entries({ prefix: [false, 3] }).toArray()).map(({ value }) => value.due),
      [3, 3, 3, 3],
    );
    assert.equal(await compound.count({ prefix: [true] }), 16);
  }));

test('snapshots keep the indexes of their version', () =>
  withMemory(async (db) => {
    const notes = notesOf(db);
    await notes.set('a', note(1, { author: 'ann' }));
    using snapshot = db.snapshot();
    await notes.set('b', note(2, { author: 'abe' }));
    const [before, after] = [snapshot.collection(notes).index('byAuthor'), notes.index('byAuthor')];
    assert.deepEqual([await before.count(), await after.count()], [1, 2]);
    assert.deepEqual([(await before.first())?.key, (await after.first())?.key], ['a', 'b']);
  }));

test('a unique index refuses the one write that breaks it', () =>
  withMemory(async (db) => {
    const notes = notesOf(db);
    await notes.setMany([
      ['a', note(1, { email: 'a@x' })],
      ['b', note(2, { email: 'b@x' })],
    ]);
    const [fine, wrong, alsoFine] = await Promise.allSettled([
      notes.set('c', note(3)),
      notes.set('d', note(4, { email: 'a@x' })),
      notes.set('e', note(5, { email: 'e@x' })),
    ]);
    assert.deepEqual([fine.status, alsoFine.status], ['fulfilled', 'fulfilled']);
    const { reason } = wrong as PromiseRejectedResult;
    assert.equal(codeOf(reason), 'KV_UNIQUE');
    assert.equal(
      (reason as Error).message,
      'the key "a@x" of the unique index "byEmail" of collection "notes" belongs to the record "a", so "d" cannot have it; nothing was stored',
    );
    // A batch that fails in its middle leaves nothing, and takes nothing else down.
    const results = await Promise.allSettled([
      notes.set('f', note(6)),
      notes.setMany([
        ['g', note(7, { email: 'g@x' })],
        ['h', note(8, { email: 'g@x' })],
      ]),
      notes.set('i', note(9)),
    ]);
    assert.deepEqual(
      results.map(({ status }) => status),
      ['fulfilled', 'rejected', 'fulfilled'],
    );
    assert.equal(codeOf((results[1] as PromiseRejectedResult).reason), 'KV_UNIQUE');
    assert.deepEqual(await notes.hasMany(['d', 'f', 'g', 'h', 'i']), [false, true, false, false, true]);
    // Two entries can exchange their keys.
    await notes.setMany([
      ['a', note(1, { email: 'b@x' })],
      ['b', note(2, { email: 'a@x' })],
    ]);
    assert.equal((await notes.index('byEmail').first({ eq: 'a@x' }))?.key, 'b');
    await rejects(
      db.transaction((tx) => tx.collection(notes).set('z', note(1, { email: 'e@x' }))),
      'KV_UNIQUE',
    );
    await checkAll(db, notes);
  }));

test('what appears in a range of an index that a transaction read is a conflict', () =>
  withMemory(async (db) => {
    const notes = notesOf(db);
    await notes.set('a', note(1, { author: 'ann' }));
    const tx = db.begin();
    assert.equal(await tx.collection(notes).index('byAuthor').count({ prefix: 'a' }), 1);
    await tx.collection(notes).set('count', note(1));
    await notes.set('other', note(1, { author: 'zoe' }));
    await notes.set('phantom', note(1, { author: 'abe' }));
    await rejects(tx.commit(), 'KV_CONFLICT');
    const quiet = db.begin();
    assert.equal(await quiet.collection(notes).index('byAuthor').count({ prefix: 'a' }), 2);
    await quiet.collection(notes).set('count', note(2));
    await notes.set('other', note(1, { author: 'zed' }));
    await quiet.commit();
  }));

test('writes without index keys are refused, and removals are not', () =>
  withMemory(async (db) => {
    const notes = notesOf(db);
    await notes.set('a', note(1, { author: 'ann' }));
    const bare = db.collection<string, Note>('notes');
    await rejects(bare.set('b', note(1)), 'KV_INDEX_MISMATCH');
    await rejects(bare.setMany([['b', note(1)]]), 'KV_INDEX_MISMATCH');
    await rejects(bare.getOrInsert('b', note(1)), 'KV_INDEX_MISMATCH');
    await rejects(
      db.transaction((tx) => tx.collection(bare).set('b', note(1))),
      'KV_INDEX_MISMATCH',
    );
    const some = db.collection<string, Note>('notes', { indexes: { byAuthor: INDEXES.byAuthor } });
    await rejects(some.set('b', note(1)), 'KV_INDEX_MISMATCH');
    assert.throws(() => bare.index('byAuthor'), { code: 'KV_INVALID_ARGUMENT' });
    assert.throws(() => notes.index('byNothing'), { code: 'KV_INVALID_ARGUMENT' });
    assert.equal(await bare.delete('a'), true);
    await checkAll(db, notes);
  }));

test('an index of a collection with entries is built between other writes', () =>
  withMemory(async (db) => {
    const bare = db.collection<string, Note>('notes');
    await bare.setMany(
      Array.from(
        { length: 3500 },
        (_, at) => [`k${String(at).padStart(5, '0')}`, note(at % 7, { tags: [`t${at % 3}`] })] as const,
      ),
    );
    const notes = notesOf(db);
    const reading = notes.index('byTag').count().catch(codeOf);
    const progress: number[] = [];
    const building = notes.buildIndexes({
      onProgress: ({ index, done, total }) => {
        assert.ok(index in INDEXES);
        assert.ok(done <= total && total >= 3000);
        progress.push(done);
      },
    });
    const writing = Promise.all(
      Array.from({ length: 30 }, (_, at) =>
        notes.set(`k${String(at * 100).padStart(5, '0')}`, note(1, { tags: ['changed'], author: `a${at}` })),
      ),
    );
    const deleting = notes.deleteMany(['k00001', 'k01999', 'k03499']);
    assert.equal(await reading, 'KV_INDEX_INCOMPLETE');
    await Promise.all([building, writing, deleting]);
    await notes.buildIndexes();
    assert.ok(progress.length > 4);
    assert.equal(await notes.index('byTag').count({ eq: 'changed' }), 30);
    await checkAll(db, notes);
  }));

test('a unique index that the entries do not allow cannot be built', () =>
  withMemory(async (db) => {
    await db.collection<string, Note>('notes').setMany([
      ['a', note(1)],
      ['b', note(1)],
    ]);
    const notes = db.collection<string, Note>('notes', {
      indexes: { byDue: { key: (value) => value.due, unique: true } },
    });
    await rejects(notes.buildIndexes(), 'KV_UNIQUE');
    await rejects(notes.index('byDue').count(), 'KV_INDEX_INCOMPLETE');
    await notes.set('b', note(2));
    await notes.buildIndexes();
    assert.equal(await notes.index('byDue').count(), 2);
  }));

test('a newer version of an index is rebuilt, and older ones can no longer write', () =>
  withMemory(async (db) => {
    const by = (version: number, key: (value: Note) => Key): Notes =>
      db.collection<string, Note>('notes', { indexes: { by: { key, version } } });
    const old = by(1, (value) => value.due);
    await old.setMany([
      ['a', note(1)],
      ['b', note(2)],
    ]);
    const next = by(2, (value) => -value.due);
    await next.buildIndexes();
    assert.deepEqual(await next.index('by').keys().toArray(), ['b', 'a']);
    await rejects(old.set('c', note(3)), 'KV_INDEX_MISMATCH');
    await rejects(old.index('by').count(), 'KV_INDEX_MISMATCH');
    await rejects(by(1, (value) => value.due + 0).set('c', note(3)), 'KV_INDEX_MISMATCH');
  }));

test('a dropped index is gone, and writes need not state its keys', () =>
  withMemory(async (db) => {
    const notes = db.collection<string, Note>('notes', { indexes: { byAuthor: INDEXES.byAuthor } });
    await notes.set('a', note(1, { author: 'ann' }));
    assert.deepEqual([await notes.dropIndex('byAuthor'), await notes.dropIndex('byAuthor')], [true, false]);
    await db.collection<string, Note>('notes').set('b', note(1));
    const again = db.collection<string, Note>('notes', { indexes: { byAuthor: INDEXES.byAuthor } });
    await again.buildIndexes();
    assert.deepEqual(await again.index('byAuthor').keys().toArray(), ['a']);
  }));

test('a collection that is dropped or renamed gets its indexes again with the next write', () =>
  withMemory(async (db) => {
    const notes = notesOf(db);
    await notes.set('a', note(1, { author: 'ann' }));
    const [dropped] = await Promise.all([db.dropCollection('notes'), notes.set('b', note(2, { author: 'bob' }))]);
    assert.equal(dropped, true);
    await checkAll(db, notes);
    assert.deepEqual(await notes.keys().toArray(), ['b']);
    await db.renameCollection('notes', 'moved');
    await notes.setMany([
      ['c', note(3)],
      ['d', note(4, { email: 'd@x' })],
    ]);
    await checkAll(db, notes);
    // The renamed collection keeps its indexes.
    const moved = db.collection<string, Note>('moved', { indexes: INDEXES });
    assert.deepEqual(await moved.index('byAuthor').keys().toArray(), ['b']);
    await moved.set('e', note(5, { author: 'eve' }));
    await checkAll(db, moved);
  }));

test('a transaction that drops a collection writes it again with its indexes', () =>
  withMemory(async (db) => {
    const notes = notesOf(db);
    await notes.setMany([
      ['a', note(1, { author: 'ann', email: 'a@x' })],
      ['b', note(2, { author: 'bob', tags: ['y'] })],
    ]);
    await rejects(
      db.transaction(async (tx) => {
        await tx.dropCollection('notes');
        await tx.collection(notes).setMany([
          ['c', note(1, { email: 'same' })],
          ['d', note(2, { email: 'same' })],
        ]);
      }),
      'KV_UNIQUE',
    );
    await assert.rejects(
      db.transaction(async (tx) => {
        await tx.dropCollection('notes');
        await tx.collection(notes).set('c', note(1));
        throw new Error('rolled back');
      }),
      /rolled back/,
    );
    assert.deepEqual(await seen(notes.index('byAuthor')), [
      ['ann', 'a'],
      ['bob', 'b'],
    ]);
    await db.transaction(async (tx) => {
      const inner = tx.collection(notes);
      assert.equal(await tx.dropCollection('notes'), true);
      assert.deepEqual(await inner.keys().toArray(), []);
      await inner.setMany([
        ['c', note(3, { author: 'cid', tags: ['x', 'y'], email: 'a@x' })],
        ['d', note(4, { tags: ['y'] })],
        ['e', note(5, { author: 'eve' })],
      ]);
      await inner.delete('d');
      assert.deepEqual(await seen(inner.index('byAuthor') as Index<string, Note>), [
        ['cid', 'c'],
        ['eve', 'e'],
      ]);
      assert.equal(await inner.index('byTag').count({ eq: 'y' }), 1);
    });
    assert.deepEqual(await notes.keys().toArray(), ['c', 'e']);
    await checkAll(db, notes);
    await notes.set('f', note(6, { author: 'fay' }));
    await rejects(notes.set('g', note(7, { email: 'a@x' })), 'KV_UNIQUE');
    await checkAll(db, notes);
  }));

test('indexes that others removed are declared again after one refusal', () =>
  withMemory(async (db) => {
    const notes = notesOf(db);
    await notes.set('a', note(1, { author: 'ann' }));
    const bare = db.collection<string, Note>('notes');
    await bare.dropIndex('byAuthor');
    await rejects(notes.set('b', note(2)), 'KV_INDEX_MISMATCH');
    await notes.set('c', note(3, { author: 'cid' }));
    await notes.buildIndexes();
    await checkAll(db, notes);
    await bare.dropIndex('byTag');
    assert.throws(() => db.sync.collection(notes).set('d', note(4)), { code: 'KV_INDEX_MISMATCH' });
    db.sync.collection(notes).set('e', note(5));
    await notes.buildIndexes();
    await checkAll(db, notes);
  }));

test('functions that fail are named, and their write does nothing', () =>
  withMemory(async (db) => {
    const thrown = new Error('no');
    const notes = db.collection<string, number>('numbers', {
      indexes: {
        by: {
          key: (value) => {
            if (value === 13) throw thrown;
            return value === 14 ? ({} as Key) : value;
          },
        },
        many: { key: (value) => (value === 15 ? 15 : [value]), multi: true },
      },
    });
    await notes.set('a', 1);
    for (const [value, expectedCode, name] of [
      [13, 'KV_INVALID_VALUE', /by/],
      [14, 'KV_INVALID_KEY', /by/],
      [15, 'KV_INVALID_VALUE', /many/],
    ] as const) {
      await assert.rejects(
        notes.set('a', value),
        (error: Error) => codeOf(error) === expectedCode && name.test(error.message),
      );
    }
    assert.equal(await notes.get('a'), 1);
    assert.throws(() => db.collection('x', { indexes: { a: { key: 1 as never } } }), { code: 'KV_INVALID_ARGUMENT' });
    assert.throws(() => db.collection('x', { indexes: { a: { key: () => 1, version: -1 } } }), {
      code: 'KV_INVALID_ARGUMENT',
    });
    assert.throws(() => db.collection('x', { indexes: { a: { key: () => 1, uniqe: true } as never } }), {
      code: 'KV_INVALID_ARGUMENT',
    });
  }));

test('the synchronous API keeps the indexes right', () =>
  withMemory(async (db) => {
    const notes = notesOf(db);
    const sync = db.sync.collection(notes);
    sync.set('a', note(1, { author: 'ann', tags: ['x'] }));
    sync.setMany([['b', note(2, { tags: ['x', 'y'] })]]);
    sync.update('a', (old) => ({ ...(old as Note), tags: ['z'] }));
    assert.deepEqual(sync.getOrInsert('c', note(3)), note(3));
    sync.delete('b');
    await checkAll(db, notes);
  }));

test('the default collection can have indexes, which are there after reopening', () =>
  withPath(async (path) => {
    const options = { indexes: { byLength: { key: (value: string) => value.length } } };
    const db = await open<string, string>(path, options);
    await db.setMany([
      ['a', 'xxx'],
      ['b', 'x'],
    ]);
    await db.close();
    const again = await open<string, string>(path, options);
    assert.deepEqual(await again.index('byLength').keys().toArray(), ['b', 'a']);
    assert.deepEqual((await again.verify()).problems, []);
    await again.close();
  }));

test('a build that was interrupted goes on where it was', () =>
  withPath(async (path) => {
    const db = await open<string, number>(path);
    await db.setMany(Array.from({ length: 5000 }, (_, at) => [`k${String(at).padStart(5, '0')}`, at % 10] as const));
    await db.close();
    const options = { indexes: { by: { key: (value: number) => value } } };
    const first = await open<string, number>(path, options);
    const stop = new AbortController();
    await assert.rejects(
      first.buildIndexes({
        signal: stop.signal,
        onProgress: ({ done }) => {
          if (done >= 2000) stop.abort(new Error('stopped'));
        },
      }),
    );
    await first.close();
    const second = await open<string, number>(path, options);
    const done: number[] = [];
    await second.buildIndexes({ onProgress: (progress) => done.push(progress.done) });
    assert.equal(await second.index('by').count({ eq: 3 }), 500);
    assert.deepEqual((await second.verify()).problems, []);
    await second.close();
  }));
