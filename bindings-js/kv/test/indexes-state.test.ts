// What is known of indexes from outside: statistics, builds under way, indexes read as they are
// stored; and that maintenance leaves them right.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open, recover, restore } from 'mangrove-kv';
import type { Collection, CollectionOptions, Database, IndexStats } from 'mangrove-kv';
import { rejects, withMemory as withOptions, withPath } from './support/kit.ts';

const withMemory = (use: (db: Database) => Promise<void>): Promise<void> => withOptions({}, use);

type Words = Collection<string, string>;

const INDEXES = {
  byLength: { key: (word: string) => word.length },
  byLetter: { key: (word: string) => [...word], multi: true, version: 3 },
} satisfies CollectionOptions<string, string>['indexes'];

const wordsOf = (db: Database): Words => db.collection<string, string>('words', { indexes: INDEXES });
const entriesOf = (count: number): [string, string][] =>
  Array.from({ length: count }, (_, at) => [`k${String(at).padStart(5, '0')}`, 'abcdefg'.slice(0, at % 8)]);

/** Compares the indexes with the entries, and verifies the database. */
async function checkAll(db: Database, words: Words): Promise<void> {
  const entries = await words.entries().toArray();
  const byLength = entries
    .map(([key, word]) => [word.length, key] as const)
    .sort(([a, first], [b, second]) => a - b || (first < second ? -1 : 1));
  assert.deepEqual(
    await words
      .index('byLength')
      .entries()
      .map(({ indexKey, key }) => [indexKey, key])
      .toArray(),
    byLength,
  );
  const byLetter = entries.flatMap(([key, word]) => [...new Set(word)].map((letter) => `${letter} ${key}`)).sort();
  assert.deepEqual(
    await words
      .index('byLetter')
      .entries()
      .map(({ indexKey, key }) => `${String(indexKey)} ${key}`)
      .toArray(),
    byLetter,
  );
  assert.deepEqual((await db.verify()).problems, []);
}

test('statistics list the indexes, those that are being built with their progress', () =>
  withMemory(async (db) => {
    assert.deepEqual((await db.stats()).indexes, []);
    const words = wordsOf(db);
    await words.setMany(entriesOf(16));
    db.collection<string, string>('"quoted"', { indexes: { one: { key: (value) => value, unique: true } } });
    const listed = async (): Promise<readonly IndexStats[]> => (await db.stats()).indexes;
    const shared = { collection: 'words', unique: false, complete: true, done: 16, total: 16 };
    assert.deepEqual(await listed(), [
      { collection: '"quoted"', name: 'one', version: 1, unique: true, complete: true, count: 0, done: 0, total: 0 },
      { ...shared, name: 'byLength', version: 1, count: 16 },
      { ...shared, name: 'byLetter', version: 3, count: 56 },
    ]);
    await words.delete('k00007');
    assert.deepEqual(
      (await listed()).map(({ count, done, total }) => [count, done, total]),
      [
        [0, 0, 0],
        [15, 15, 15],
        [49, 15, 15],
      ],
    );
    await words.dropIndex('byLength');
    await db.dropCollection('"quoted"');
    assert.deepEqual(
      (await listed()).map(({ name }) => name),
      ['byLetter'],
    );
  }));

test('a build can be watched from outside', () =>
  withMemory(async (db) => {
    await db.collection<string, string>('words').setMany(entriesOf(3500));
    const words = wordsOf(db);
    const seen: string[] = [];
    const outside: Promise<void>[] = [];
    await words.buildIndexes({
      onProgress: ({ index, done, total }) => {
        seen.push(`${index} ${done} ${total}`);
        outside.push(
          db.stats().then(({ indexes }) => {
            const one = indexes.find(({ name }) => name === index)!;
            // Requests take their turn: the slice may be there already.
            assert.ok(one.done >= done && one.done <= one.total && one.total === 3500, `${one.done} after ${done}`);
            assert.ok(one.complete ? one.done === 3500 : one.done < 3500);
          }),
        );
      },
    });
    await Promise.all(outside);
    assert.ok(seen.length >= 3, seen.join());
    assert.ok((await db.stats()).indexes.every(({ complete, done, total }) => complete && done === total));
    await checkAll(db, words);
  }));

test('reads of an index that is being built wait if they are asked to', () =>
  withMemory(async (db) => {
    await db.collection<string, string>('words').setMany(entriesOf(2500));
    const words = wordsOf(db);
    const [failing, waiting] = [
      words.index('byLetter', { whenIncomplete: 'fail' }),
      words.index('byLetter', { whenIncomplete: 'wait' }),
    ];
    const controller = new AbortController();
    const reads = [
      waiting.count({ eq: 'a' }),
      waiting.rank('b'),
      waiting.keys({ eq: 'g', limit: 1 }).toArray(),
      waiting.last().then((entry) => entry?.indexKey),
      waiting.get('g'),
      words.index('byLength', { whenIncomplete: 'wait' }).count(),
    ];
    const aborted = waiting.count({ signal: controller.signal });
    const [early, late] = [db.snapshot(), waiting.entries()];
    await rejects(failing.count(), 'KV_INDEX_INCOMPLETE');
    await rejects(words.index('byLetter').entries().toArray(), 'KV_INDEX_INCOMPLETE');
    controller.abort(new Error('enough'));
    await assert.rejects(aborted, /enough/);
    assert.deepEqual(await Promise.all(reads), [2187, 2187, ['k00007'], 'g', 'abcdefg', 2500]);
    assert.equal((await late.toArray()).length, await failing.count());
    // A snapshot that was taken before stays without it.
    await rejects(early.collection(words).index('byLetter', { whenIncomplete: 'wait' }).count(), 'KV_INDEX_INCOMPLETE');
    early.close();
    assert.equal(await waiting.count({ eq: 'a' }), 2187);
    assert.throws(() => words.index('byLetter', { whenIncomplete: 'later' as never }), { code: 'KV_INVALID_ARGUMENT' });
    assert.throws(() => words.index('byLetter', { whenIncomplet: 'wait' } as never), { code: 'KV_INVALID_ARGUMENT' });
    // What cannot be built does not keep anybody waiting.
    const unique = db.collection<string, string>('words', {
      indexes: { ...INDEXES, unique: { key: (word) => word, unique: true } },
    });
    await rejects(unique.index('unique', { whenIncomplete: 'wait' }).count(), 'KV_UNIQUE');
    await rejects(unique.index('unique', { whenIncomplete: 'wait' }).entries().toArray(), 'KV_UNIQUE');
  }));

test('an index is read as it is stored by who does not have its function', () =>
  withPath(async (path) => {
    const writer = await open(path);
    await wordsOf(writer).setMany(entriesOf(80));
    await writer.close();
    const db = await open(path);
    const { indexes } = await db.stats();
    const stored = Object.fromEntries(
      indexes.map(({ name, unique, version }) => [name, { key: 'stored', unique, version }] as const),
    );
    const words = db.collection<string, string>('words', { indexes: stored });
    assert.equal(await words.index('byLetter').count({ eq: 'a' }), 70);
    assert.deepEqual((await words.index('byLength').first({ gte: 3 }))?.key, 'k00003');
    assert.equal(db.sync.collection(words).index('byLetter').count({ eq: 'a' }), 70);
    await words.buildIndexes();
    const writes = [
      () => words.set('new', 'x'),
      () => words.setMany([['new', 'x']]),
      () => words.getOrInsert('new', 'x'),
      () => db.transaction((tx) => tx.collection(words).set('new', 'x')),
    ];
    for (const write of writes) {
      await assert.rejects(
        write,
        ({ code, message }: { code: string; message: string }) =>
          code === 'KV_INDEX_MISMATCH' && message.includes('open the collection with its function'),
      );
    }
    assert.equal(await words.delete('k00001'), true);
    assert.equal(await words.index('byLetter').count({ eq: 'a' }), 69);
    // It declares nothing: neither another version nor an index that does not exist.
    const other = db.collection<string, string>('words', {
      indexes: { byLength: { key: 'stored', version: 2 }, none: { key: 'stored' } },
    });
    await rejects(other.index('byLength').count(), 'KV_INDEX_MISMATCH');
    await rejects(other.index('none').count(), 'KV_NOT_FOUND');
    const absent = db.collection<string, string>('absent', { indexes: { none: { key: 'stored' } } });
    await rejects(absent.index('none').keys().toArray(), 'KV_NOT_FOUND');
    const after = await db.stats();
    assert.deepEqual([after.indexes.length, after.collections], [2, 1]);
    await checkAll(db, wordsOf(db));
    await db.close();
  }));

test('a write without index keys says which index, and what to do', () =>
  withMemory(async (db) => {
    await wordsOf(db).set('a', 'ab');
    await assert.rejects(
      db.collection<string, string>('words').set('b', 'b'),
      ({ code, message }: { code: string; message: string }) => {
        assert.equal(code, 'KV_INDEX_MISMATCH');
        return message.includes('"byLength"') && message.includes('"words"') && message.includes('declare the index');
      },
    );
  }));

test('compaction, renaming, backups and salvage leave indexes right, or leave them out', () =>
  withPath(async (path) => {
    const db = await open(path);
    const words = wordsOf(db);
    await words.setMany(entriesOf(2000));
    await words.setMany(
      entriesOf(50).map(([key, word]) => [`soon ${key}`, word]),
      { expireIn: 30 },
    );
    await words.deleteMany(Array.from({ length: 1500 }, (_, at) => `k${String(at).padStart(5, '0')}`));
    await db.compact();
    await new Promise((resolve) => {
      setTimeout(resolve, 60);
    });
    await db.purgeExpired();
    await db.compact();
    await checkAll(db, words);
    await db.renameCollection('words', 'moved');
    await db.renameCollection('moved', 'words');
    await checkAll(db, wordsOf(db));
    const backup = await new Response(db.backup()).blob();
    await wordsOf(db).clear({ lt: 'k01600' });
    await checkAll(db, wordsOf(db));
    await db.close();
    const [copy, salvaged] = [`${path}-copy`, `${path}-salvaged`];
    await restore(copy, backup);
    await recover(path, salvaged);
    for (const [place, count] of [
      [copy, 500],
      [salvaged, 400],
    ] as const) {
      const made = await open(place);
      assert.deepEqual((await made.stats()).indexes, []);
      const again = wordsOf(made);
      await again.buildIndexes();
      assert.equal(await again.index('byLength').count(), count);
      await again.set('new', 'abc');
      await checkAll(made, again);
      await made.close();
    }
  }));
