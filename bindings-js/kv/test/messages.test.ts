// Error messages: they name what failed, as the caller wrote it, and what to do.
import assert from 'node:assert/strict';
import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { KvError, keyCodecs, open, openSync } from 'mangrove-kv';
import type { Key, KeyCodec, KvErrorCode } from 'mangrove-kv';
import { withMemory, withPath } from './support/kit.ts';

async function messageOf(promise: Promise<unknown>, code: KvErrorCode): Promise<string> {
  const error = await promise.then(
    () => assert.fail('it succeeded'),
    (reason: KvError) => reason,
  );
  assert.equal(error.code, code, error.message);
  return error.message;
}

/** Objects as keys, in JSON. */
const points: KeyCodec<{ x: number }> = {
  id: 'points',
  encode: (key) => {
    if (typeof key.x !== 'number') throw new TypeError('x is missing');
    return new TextEncoder().encode(JSON.stringify(key));
  },
  decode: (bytes) => JSON.parse(new TextDecoder().decode(bytes)) as { x: number },
};

for (const thread of ['same', 'worker'] as const) {
  test(`a conflict names the key as it was written, engine in thread "${thread}"`, () =>
    withPath(async (path) => {
      const db = await open(path, { thread });
      const users = db.collection('users', { key: keyCodecs.tuple<[string, number]>() });
      // A collection created meanwhile would be a conflict without a key.
      await db.set('first', 0);
      await users.set(['first', 0], 0);
      const conflict = async (change: (on: Pick<typeof db, 'get' | 'set'>) => Promise<unknown>): Promise<string> => {
        const tx = db.begin();
        await change(tx);
        await change(db);
        return messageOf(tx.commit(), 'KV_CONFLICT');
      };
      const changed = 'was changed by another commit; run the transaction again';
      const update =
        (key: Key) =>
        async (on: Pick<typeof db, 'get' | 'set'>): Promise<void> =>
          on.set(key, (await on.get(key)) ?? 0);
      assert.equal(await conflict(update('n')), `key "n" ${changed}`);
      assert.equal(await conflict(update('\0"')), `key "\\u0000\\"" ${changed}`);
      assert.equal(await conflict(update(17n)), `key 17n ${changed}`);
      assert.equal(await conflict(update(new Date(0))), `key 1970-01-01T00:00:00.000Z ${changed}`);
      assert.equal(
        await conflict(update(['a', [1, null], Uint8Array.of(0, 255)])),
        `key ["a", [1, null], 00 ff] ${changed}`,
      );
      const tx = db.begin();
      await tx.collection(users).update(['ada', 1], () => 1);
      await users.set(['ada', 1], 2);
      assert.equal(await messageOf(tx.commit(), 'KV_CONFLICT'), `key ["ada", 1] of collection "users" ${changed}`);
      const long = await conflict(update('x'.repeat(1000)));
      assert.ok(long.startsWith('key "xxx') && long.includes('xxx… was changed') && long.length < 200, long);
      await db.close();
    }));
}

test('a failed check names collection, key and both versions', () =>
  withMemory({}, async (db) => {
    await db.set('n', 1);
    const { version } = (await db.getEntry('n')) ?? assert.fail();
    const check = (key: Key, expected: number | null): Promise<string> =>
      messageOf(db.batch().check(key, expected).commit(), 'KV_CONFLICT');
    assert.equal(
      await check('n', 99),
      `key "n" has version ${version}, the check expects version 99; read it and try again`,
    );
    assert.equal(
      await check('n', null),
      `key "n" has version ${version}, the check expects no entry; read it and try again`,
    );
    assert.equal(await check('m', 3), 'key "m" has no entry, the check expects version 3; read it and try again');
    const places = db.collection('places', { key: points });
    const inPlaces = db.batch().collection(places).check({ x: 1 }, 3).commit();
    assert.equal(
      await messageOf(inPlaces, 'KV_CONFLICT'),
      'key [object Object] of collection "places" has no entry, the check expects version 3; read it and try again',
    );
    await messageOf(db.batch([{ type: 'check', key: 'q', version: 1 }]), 'KV_CONFLICT');
  }));

test('the refusal of a key or a value names the collection and the codec', () =>
  withMemory({}, async (db) => {
    assert.match(
      await messageOf(db.get({} as Key), 'KV_INVALID_KEY'),
      /cannot be a key.* \(default collection, key codec any\)$/,
    );
    const users = db.collection('users', { key: keyCodecs.uint32 });
    assert.match(await messageOf(users.get(-1), 'KV_INVALID_KEY'), / \(collection "users", key codec uint32\)$/);
    assert.match(
      await messageOf(
        users.set(1, () => 1),
        'KV_INVALID_VALUE',
      ),
      / \(collection "users", value codec structured\)$/,
    );
    assert.match(
      await messageOf(users.set(1, undefined), 'KV_INVALID_VALUE'),
      /^undefined .* \(collection "users", value codec structured\)$/,
    );
    assert.match(
      await messageOf(
        users.setMany([
          [1, 1],
          [2, Symbol('s')],
        ]),
        'KV_INVALID_VALUE',
      ),
      / \(collection "users", value codec structured\)$/,
    );
    const places = db.collection('places', { key: points });
    assert.match(
      await messageOf(places.delete({} as never), 'KV_INVALID_KEY'),
      /TypeError: x is missing \(collection "places", key codec points\)$/,
    );
    assert.throws(() => db.sync.collection(users).getEntry(0.5), / \(collection "users", key codec uint32\)$/);
    assert.match(
      await messageOf(users.entries({ gte: 'a' as never }).toArray(), 'KV_INVALID_KEY'),
      / \(collection "users", key codec uint32\)$/,
    );
  }));

test('the error names a closed database, or hints at the await missing before a transaction ended', () =>
  withPath(async (path) => {
    const db = await open(path);
    const tx = db.begin();
    await tx.commit();
    assert.equal(
      await messageOf(tx.set('a', 1), 'KV_CLOSED'),
      'the transaction is committed; await its calls before it ends',
    );
    await db.close();
    assert.equal(await messageOf(db.get('a'), 'KV_CLOSED'), `the database ${JSON.stringify(path)} is closed`);
  }));

test('errors name options as in JavaScript', async () => {
  for (const [name, options] of Object.entries({
    cacheBytes: { cacheBytes: 1 },
    unitBytes: { advanced: { unitBytes: 513 } },
    nodeBytes: { advanced: { nodeBytes: 7 } },
  })) {
    const message = await messageOf(open('x', { storage: 'memory', ...options }), 'KV_INVALID_ARGUMENT');
    assert.match(message, new RegExp(`^${name} `));
  }
});

test('the error for a path that is a file, or below one, says so', () =>
  withPath(async (path) => {
    const file = join(path, '..', 'file');
    writeFileSync(file, 'text');
    for (const below of [file, join(file, 'a'), join(file, 'a', 'b')]) {
      for (const options of [{}, { create: false }, { readOnly: true }]) {
        const message = await messageOf(open(below, options), 'KV_INVALID_ARGUMENT');
        assert.ok(message.startsWith(`${file} is a file`), message);
      }
      assert.throws(() => openSync(below), /is a file/);
    }
  }));

test('the error for files copied while the database was written says how to make copies', () =>
  withPath(async (path) => {
    const copy = `${path}-copy`;
    const db = await open(path);
    await db.set('a', 1);
    mkdirSync(copy);
    copyFileSync(join(path, 'data'), join(copy, 'data'));
    // The log lacks this commit, so the next one is a checkpoint.
    await db.set('b', 2, { durability: 'none' });
    await db.set('c', 3);
    await db.set('d', 4);
    copyFileSync(join(path, 'log'), join(copy, 'log'));
    assert.match(
      await messageOf(open(copy), 'KV_CORRUPT'),
      /files that were copied while the database was written to look like this: make copies with backup/,
    );
    await db.close();
  }));

test('the class shows as KvError', () => {
  const error = new KvError('KV_NOT_FOUND', 'nothing is there');
  assert.equal(error.constructor.name, 'KvError');
  assert.equal(error.name, 'KvError');
  assert.equal(String(error), 'KvError: nothing is there');
  assert.match(inspect(error), /^KvError: nothing is there\n/);
  assert.deepEqual(Object.keys(error), ['code', 'retryable']);
});

test('a string is not a valid prefix of array keys', () =>
  withPath(async (path) => {
    const db = await open(path);
    const tuples = db.collection('tuples', { key: keyCodecs.tuple<[string, number]>() });
    const wrong = 'a' as never;
    assert.match(
      await messageOf(tuples.prefix(wrong).toArray(), 'KV_INVALID_ARGUMENT'),
      /has to be an array \(collection "tuples", key codec tuple\)$/,
    );
    await messageOf(tuples.count({ prefix: wrong }), 'KV_INVALID_ARGUMENT');
    await messageOf(tuples.clear({ prefix: wrong }), 'KV_INVALID_ARGUMENT');
    // With the default codec keys of both kinds may exist, so only the keys found reveal the mistake.
    assert.deepEqual(await db.prefix('ada').toArray(), []);
    await db.setMany([
      [['ada', 1], 'x'],
      [['adam', 2], 'y'],
      ['b', 'z'],
    ]);
    const expected = 'the keys that begin with "ada" are arrays, so their prefix has to be an array: ["ada"]';
    // One after the other: a call that fails while another is awaited would be an unhandled
    // rejection.
    for (const call of [
      () => db.prefix('ada').toArray(),
      () => db.keys({ prefix: 'ada' }).next(),
      () => db.values({ prefix: 'ada', reverse: true }).nextMany(1),
      () => db.forEach(() => undefined, { prefix: 'ada' }),
      () => db.count({ prefix: 'ada' }),
      () => db.first({ prefix: 'ada' }),
      () => db.last({ prefix: 'ada' }),
      () => db.snapshot().count({ prefix: 'ada' }),
    ])
      assert.equal(await messageOf(call(), 'KV_INVALID_ARGUMENT'), expected);
    const { sync } = db;
    for (const call of [
      () => sync.prefix('ada'),
      () => sync.keys({ prefix: 'ada' }),
      () => sync.count({ prefix: 'ada' }),
      () => sync.first({ prefix: 'ada' }),
      () => sync.last({ prefix: 'ada' }),
    ])
      assert.throws(call, { code: 'KV_INVALID_ARGUMENT', message: expected });
    // None of these is a mistake.
    assert.deepEqual(await db.prefix(['ada']).toArray(), [[['ada', 1], 'x']]);
    assert.deepEqual(await db.prefix('eve').toArray(), []);
    assert.equal(await db.count({ prefix: 'bb' }), 0);
    assert.deepEqual(await db.keys({ prefix: 'b' }).toArray(), ['b']);
    assert.deepEqual(await db.keys({ prefix: 'b', offset: 1 }).toArray(), []);
    assert.deepEqual(await db.keys({ prefix: 'ada', limit: 0 }).toArray(), []);
    await db.set('ada', 1);
    assert.deepEqual(await db.keys({ prefix: 'ada' }).toArray(), ['ada']);
    assert.deepEqual([...sync.keys({ prefix: 'ada' })], ['ada']);
    assert.equal(await db.at(5, { prefix: 'ada' }), undefined);
    await db.close();
  }));
