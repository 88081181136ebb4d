// Collections as a whole: their names.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keyCodecs, open } from 'mangrove-kv';
import { rejects, withMemory, withPath } from './support/kit.ts';

test('a renamed collection keeps its entries, versions and codecs', () =>
  withPath(async (path) => {
    const db = await open(path);
    const old = db.collection<string, string>('old', { key: keyCodecs.utf8 });
    await old.set('a', 'one');
    await old.set('b', 'two', { expireAt: 4e12 });
    const entry = await old.getEntry('b');
    const snapshot = db.snapshot();
    await snapshot.version;
    assert.equal(await db.renameCollection('old', 'new'), true);
    assert.deepEqual(await db.collections(), ['new']);
    const renamed = db.collection<string, string>('new', { key: keyCodecs.utf8 });
    assert.deepEqual(await renamed.entries().toArray(), [
      ['a', 'one'],
      ['b', 'two'],
    ]);
    assert.deepEqual(await renamed.getEntry('b'), entry);
    await rejects(db.collection('new').get('a'), 'KV_CODEC_MISMATCH');
    // A handle is bound to its name.
    assert.equal(await old.size, 0);
    assert.equal(await snapshot.collection(old).get('a'), 'one');
    await old.set('c', 'three');
    assert.deepEqual(await db.collections(), ['new', 'old']);
    await rejects(db.renameCollection('old', 'new'), 'KV_EXISTS');
    assert.equal(await db.renameCollection('none', 'other'), false);
    assert.equal(await db.renameCollection('new', 'new'), true);
    await db.close();
    const again = await open(path);
    assert.deepEqual(await again.collections(), ['new', 'old']);
    assert.deepEqual((await again.verify()).problems, []);
    await again.close();
  }));

test('calls in the same tick see the new name', () =>
  withMemory({}, async (db) => {
    const [a, b] = [db.collection<string, number>('a'), db.collection<string, number>('b')];
    const other = db.collection<string, number>('b', { key: keyCodecs.utf8 as never });
    const found = await Promise.all([
      a.set('x', 1),
      a.get('x'),
      db.renameCollection('a', 'b'),
      a.get('x'),
      b.get('x'),
      b.set('y', 2),
      a.set('z', 3),
      a.size,
      b.size,
      other.set('w', 4).catch((error: { code?: string }) => error.code),
    ]);
    assert.deepEqual(found, [undefined, 1, true, undefined, 1, undefined, undefined, 1, 2, 'KV_CODEC_MISMATCH']);
    assert.deepEqual(await db.collections(), ['a', 'b']);
  }));

test('a rename takes part in transactions, savepoints and conflicts', () =>
  withMemory({}, async (db) => {
    const [a, b] = [db.collection<string, number>('a'), db.collection<string, number>('b')];
    await a.set('x', 1);
    await db.transaction(async (tx) => {
      const savepoint = tx.savepoint();
      assert.equal(await tx.renameCollection('a', 'b'), true);
      assert.equal(await tx.collection(b).get('x'), 1);
      assert.equal(await tx.collection(a).get('x'), undefined);
      await savepoint.rollback();
      assert.equal(await tx.collection(a).get('x'), 1);
      assert.equal(await tx.renameCollection('a', 'b'), true);
      await tx.collection(b).set('y', 2);
      await tx.collection(a).set('new', 3);
      await rejects(tx.renameCollection('a', 'b'), 'KV_EXISTS');
    });
    assert.deepEqual(
      [await a.entries().toArray(), await b.entries().toArray()],
      [
        [['new', 3]],
        [
          ['x', 1],
          ['y', 2],
        ],
      ],
    );
    const tx = db.begin();
    assert.equal(await tx.collection(b).get('x'), 1);
    await tx.set('read', 1);
    await db.renameCollection('b', 'c');
    await rejects(tx.commit(), 'KV_CONFLICT');
    const reader = db.begin({ mode: 'readonly' } as never);
    await assert.rejects(reader.renameCollection('c', 'd'));
    reader.rollback();
  }));

test('names are checked, and the default collection cannot be renamed', () =>
  withMemory({}, async (db) => {
    for (const [from, to] of [
      ['', 'a'],
      ['a', ''],
      ['a', '\ud800'],
      [5, 'a'],
      ['a', undefined],
    ]) {
      await rejects(db.renameCollection(from as string, to as string), 'KV_INVALID_ARGUMENT');
      await db.transaction(async (tx) =>
        rejects(tx.renameCollection(from as string, to as string), 'KV_INVALID_ARGUMENT'),
      );
    }
    await db.collection('a').set('k', 1);
    await rejects(db.renameCollection('a', '\0hidden'), 'KV_INVALID_ARGUMENT');
    await db.close();
    await rejects(db.renameCollection('a', 'b'), 'KV_CLOSED');
  }));

test('watches of a collection see that it is renamed', () =>
  withPath(async (path) => {
    const db = await open(path, { feed: true });
    const [a, b] = [db.collection<string, number>('a'), db.collection<string, number>('b')];
    await a.set('x', 1);
    const [old, renamed] = [a.watch(), b.watch()];
    const [first, second] = [old.next(), renamed.next()];
    await db.renameCollection('a', 'b');
    const expected = [{ type: 'rename', collection: 'a', to: 'b' }];
    assert.deepEqual((await first).value?.changes, expected);
    assert.deepEqual((await second).value?.changes, expected);
    await b.set('y', 2);
    assert.deepEqual((await renamed.next()).value?.changes, [{ type: 'set', collection: 'b', key: 'y', value: 2 }]);
    await Promise.all([old.return?.(), renamed.return?.()]);
    await db.close();
  }));

test('the longest keys have the lengths that stats reports', async () => {
  const bytes = { id: 'bytes', encode: (key: Uint8Array) => key, decode: (key: Uint8Array) => key.slice() };
  for (const nodeBytes of [256, 1000, 16_384, 65_536]) {
    await withMemory({ advanced: { nodeBytes }, key: bytes }, async (db) => {
      const { maxKeySize, maxExpiringKeySize } = await db.stats();
      const key = (length: number): Uint8Array => new Uint8Array(length).fill(7);
      const expiring = { expireIn: 60_000 };
      for (const write of [
        (length: number) => db.set(key(length), 1),
        (length: number) => db.setMany([[key(length), 1]]),
        (length: number) => db.batch([{ type: 'set', key: key(length), value: 1 }]),
        (length: number) => db.transaction((tx) => tx.set(key(length), 1)),
        (length: number) => db.update(key(length), () => 2),
      ]) {
        await write(maxKeySize);
        await rejects(write(maxKeySize + 1), 'KV_KEY_TOO_LARGE');
      }
      for (const write of [
        (length: number) => db.set(key(length), 1, expiring),
        (length: number) => db.setMany([[key(length), 1]], expiring),
        (length: number) => db.transaction((tx) => tx.set(key(length), 1, expiring)),
        (length: number) => db.update(key(length), () => 2, expiring),
      ]) {
        await write(maxExpiringKeySize);
        await rejects(write(maxExpiringKeySize + 1), 'KV_KEY_TOO_LARGE');
      }
      await db.getOrInsert(key(maxExpiringKeySize).fill(8), 1, expiring);
      await rejects(db.getOrInsert(key(maxExpiringKeySize + 1).fill(8), 1, expiring), 'KV_KEY_TOO_LARGE');
      assert.deepEqual((await db.verify()).problems, []);
    });
  }
  await withMemory({}, async (db) => {
    const { maxKeySize } = await db.stats();
    // The default codec takes one byte to mark a string.
    await db.set('x'.repeat(maxKeySize - 1), 1);
    await rejects(db.set('x'.repeat(maxKeySize), 1), 'KV_KEY_TOO_LARGE');
  });
});
