// The contract of a database as a map: every method, odd keys and values, the order of effects, and
// what is refused.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MAX_KEY, destroy, keyCodecs, list, open, valueCodecs } from 'mangrove-kv';
import type { Database, Key } from 'mangrove-kv';
import { code, rejects, withMemory, withPath } from './support/kit.ts';

const LETTERS = ['a', 'b', 'c', 'd', 'e', 'f', 'g'];

async function withLetters(use: (db: Database<string, number>) => Promise<void>): Promise<void> {
  await withMemory<string, number>({}, async (db) => {
    await db.setMany(LETTERS.map((letter, index) => [letter, index]));
    await use(db);
  });
}

test('set, get, has and delete agree', () =>
  withMemory({}, async (db) => {
    assert.equal(await db.get('a'), undefined);
    assert.equal(await db.has('a'), false);
    assert.equal(await db.set('a', 1), undefined);
    assert.equal(await db.get('a'), 1);
    assert.equal(await db.has('a'), true);
    await db.set('a', 2);
    assert.equal(await db.get('a'), 2);
    assert.equal(await db.delete('a'), true);
    assert.equal(await db.delete('a'), false);
    assert.equal(await db.get('a'), undefined);
  }));

test('an empty database returns nothing from any call', () =>
  withMemory({}, async (db) => {
    assert.equal(await db.size, 0);
    assert.equal(await db.count(), 0);
    assert.deepEqual(await db.entries().toArray(), []);
    assert.equal(await db.first(), undefined);
    assert.equal(await db.last(), undefined);
    assert.equal(await db.at(0), undefined);
    assert.equal(await db.at(-1), undefined);
    assert.equal(await db.rank('x'), 0);
    assert.deepEqual(await db.getMany([]), []);
    assert.deepEqual(await db.hasMany([]), []);
    assert.equal(await db.deleteMany([]), 0);
    await db.setMany([]);
    await db.clear();
    assert.deepEqual(await db.collections(), []);
    assert.deepEqual(await db.batch([]), { version: 0 });
  }));

test('falsy values are values', () =>
  withMemory({}, async (db) => {
    const values = [0, -0, '', null, false, 0n, NaN, new Uint8Array(0), [], {}];
    await db.setMany(values.map((value, index) => [index, value]));
    assert.deepEqual(await db.values().toArray(), values);
    for (const [index, value] of values.entries()) {
      assert.deepStrictEqual(await db.get(index), value);
      assert.equal(await db.has(index), true);
    }
  }));

test('keys of every type are distinct and in order', () =>
  withMemory({}, async (db) => {
    const keys: Key[] = [
      null,
      false,
      true,
      -Infinity,
      -1.5,
      0,
      1,
      1.5,
      Infinity,
      -5n,
      0n,
      1n,
      2n ** 80n,
      new Date(0),
      new Date(1),
      '',
      '\0',
      'a',
      'a\0',
      'ä',
      '\ud800',
      '\uffff',
      new Uint8Array([]),
      new Uint8Array([0]),
      new Uint8Array([255]),
      [],
      [null],
      [1],
      [1, 'x'],
      ['a'],
      ['a', 1],
      [[]],
    ];
    await db.setMany([...keys].reverse().map((key) => [key, key]));
    assert.deepEqual(await db.keys().toArray(), keys);
    assert.deepEqual(await db.getMany(keys), keys);
    for (const [index, key] of keys.entries()) {
      assert.equal(await db.rank(key), index);
      assert.deepEqual(await db.at(index), [key, key]);
    }
  }));

test('a value is stored as it was at the call, and every get decodes a fresh one', () =>
  withMemory({}, async (db) => {
    const value = { list: [1, 2], bytes: new Uint8Array([1]) };
    const key = new Uint8Array([1, 2]);
    const stored = db.set(key, value);
    value.list.push(3);
    value.bytes[0] = 9;
    key[0] = 9;
    await stored;
    const expected = { list: [1, 2], bytes: new Uint8Array([1]) };
    const first = (await db.get(new Uint8Array([1, 2]))) as typeof value;
    assert.deepEqual(first, expected);
    first.list.push(7);
    first.bytes[0] = 7;
    const [again, twin] = await db.getMany([new Uint8Array([1, 2]), new Uint8Array([1, 2])]);
    assert.deepEqual(again, expected);
    assert.notEqual(again, twin);
    assert.equal((again as typeof value).bytes.buffer.byteLength, 1, 'not a view of something larger');
  }));

test('values of many sizes come back, large ones included', () =>
  withMemory({ value: valueCodecs.bytes, durability: 'none' }, async (db) => {
    for (const size of [0, 1, 127, 128, 4095, 4096, 16383, 16384, 65536, 1 << 20, (8 << 20) + 1]) {
      const value = new Uint8Array(size).map((_, index) => (index * 31 + size) & 255);
      await db.set(size, value);
      assert.deepEqual(await db.get(size), value);
    }
    assert.equal(await db.size, 11);
    const sizes = await db
      .values()
      .map((value) => value.length)
      .toArray();
    assert.equal(sizes.at(-1), (8 << 20) + 1);
  }));

test('calls take effect in the order of calls', () =>
  withMemory<string, number>({}, async (db) => {
    const results = [
      db.set('k', 1),
      db.get('k'),
      db.set('k', 2),
      db.get('k'),
      db.delete('k'),
      db.has('k'),
      db.count(),
      db.set('k', 3),
      db.size.then((size) => size),
      db.first(),
      db.getMany(['k', 'l']),
    ];
    assert.deepEqual(await Promise.all(results), [
      undefined,
      1,
      undefined,
      2,
      true,
      false,
      0,
      undefined,
      1,
      ['k', 3],
      [3, undefined],
    ]);
  }));

test('thousands of calls in one turn are answered', () =>
  withMemory<number, number>({}, async (db) => {
    const sets = Array.from({ length: 5000 }, (_, index) => db.set(index, index * 2));
    const gets = Array.from({ length: 5000 }, (_, index) => db.get(index));
    await Promise.all(sets);
    assert.deepEqual(
      await Promise.all(gets),
      Array.from({ length: 5000 }, (_, index) => index * 2),
    );
  }));

test('ranges obey bounds, direction, offset and limit', () =>
  withLetters(async (db) => {
    const letters = async (options: Parameters<typeof db.keys>[0]): Promise<string> =>
      (await db.keys(options).toArray()).join('');
    assert.equal(await letters({}), 'abcdefg');
    assert.equal(await letters({ gt: 'b' }), 'cdefg');
    assert.equal(await letters({ gte: 'b' }), 'bcdefg');
    assert.equal(await letters({ lt: 'c' }), 'ab');
    assert.equal(await letters({ lte: 'c' }), 'abc');
    assert.equal(await letters({ gt: 'b', lt: 'f' }), 'cde');
    assert.equal(await letters({ gt: 'b', gte: 'b' }), 'cdefg', 'all bounds apply together');
    assert.equal(await letters({ gte: 'b', gt: 'a', lt: 'f', lte: 'd' }), 'bcd');
    assert.equal(await letters({ gte: 'b', lte: 'f', reverse: true }), 'fedcb');
    assert.equal(await letters({ limit: 2 }), 'ab');
    assert.equal(await letters({ limit: 0 }), '');
    assert.equal(await letters({ limit: Infinity }), 'abcdefg');
    assert.equal(await letters({ offset: 5 }), 'fg');
    assert.equal(await letters({ offset: 50 }), '');
    assert.equal(await letters({ reverse: true, offset: 1, limit: 3 }), 'fed');
    assert.equal(await letters({ gt: 'f', lt: 'b' }), '');
    assert.equal(await letters({ gt: 'b', lt: 'b' }), '');
    assert.equal(await letters({ gte: 'b', lte: 'b' }), 'b');
    assert.equal(await letters({ gte: 'bb', lt: 'cc' }), 'c');
    assert.equal(await letters({ prefix: 'd' }), 'd');
    assert.equal(await letters({ prefix: '' }), 'abcdefg');
    assert.equal(await letters({ lt: MAX_KEY }), 'abcdefg');
    assert.equal(await letters({ gt: MAX_KEY }), '');
    assert.deepEqual(await db.entries({ gte: 'f' }).toArray(), [
      ['f', 5],
      ['g', 6],
    ]);
    assert.deepEqual(await db.prefix('c').toArray(), [['c', 2]]);
    assert.deepEqual(await db.prefix('c', { gt: 'c' }).toArray(), []);
    assert.deepEqual(await db.values({ gte: 'f' }).toArray(), [5, 6]);
  }));

test('first, last, at, count and rank agree with the entries of any range', () =>
  withLetters(async (db) => {
    const ranges = [
      {},
      { gt: 'b' },
      { lte: 'e' },
      { gt: 'b', lt: 'f' },
      { gt: 'x' },
      { gt: 'e', lt: 'c' },
      { prefix: 'd' },
    ];
    const windows = [
      {},
      { reverse: true },
      { offset: 2 },
      { limit: 3 },
      { limit: 0 },
      { offset: 1, limit: 2 },
      { reverse: true, offset: 1, limit: 2 },
      { reverse: true, offset: 40 },
      { offset: 6, limit: 9 },
    ];
    for (const range of ranges) {
      for (const window of windows) {
        const options = { ...range, ...window };
        const all = await db.entries(options).toArray();
        const what = JSON.stringify(options);
        assert.equal(await db.count(options), all.length, what);
        assert.deepEqual(await db.first(options), all[0], what);
        assert.deepEqual(await db.last(options), all.at(-1), what);
        for (let index = -9; index <= 9; index++)
          assert.deepEqual(await db.at(index, options), all.at(index), `${what} ${index}`);
      }
      const inRange = await db.keys(range).toArray();
      for (const key of ['', 'a', 'c', 'cc', 'g', 'z']) {
        assert.equal(await db.rank(key, range), inRange.filter((other) => other < key).length);
      }
    }
    assert.equal((await db.stats()).openSnapshots, 0, 'none of these leaves anything open');
  }));

test('tuples work as keys and as prefixes', () =>
  withMemory({ key: keyCodecs.tuple<[string, number]>() }, async (db) => {
    await db.setMany([
      [['ada', 2], 'x'],
      [['ada', 1], 'y'],
      [['bob', 1], 'z'],
      [['ad', 9], 'w'],
    ]);
    assert.deepEqual(await db.keys({ prefix: ['ada'] }).toArray(), [
      ['ada', 1],
      ['ada', 2],
    ]);
    assert.deepEqual(await db.keys({ gt: ['ada', MAX_KEY] }).toArray(), [['bob', 1]]);
    assert.deepEqual(await db.keys({ gte: ['ada'], lt: ['ada', 2] }).toArray(), [['ada', 1]]);
    await rejects(db.get('ada' as never), 'KV_INVALID_KEY');
  }));

test('clear removes a range or everything', () =>
  withLetters(async (db) => {
    await db.clear({ gte: 'c', lt: 'e' });
    assert.deepEqual(await db.keys().toArray(), ['a', 'b', 'e', 'f', 'g']);
    await db.clear({ gt: 'x' });
    await db.clear({ gt: 'c', lt: 'a' });
    assert.equal(await db.size, 5);
    await rejects(db.clear({ limit: -1 }), 'KV_INVALID_ARGUMENT');
    await db.clear();
    assert.equal(await db.size, 0);
  }));

test('setMany and deleteMany are all or nothing', () =>
  withMemory({}, async (db) => {
    await rejects(
      db.setMany([
        ['a', 1],
        [undefined as never, 2],
      ]),
      'KV_INVALID_KEY',
    );
    await rejects(
      db.setMany([
        ['a', 1],
        ['k'.repeat(100_000), 2],
      ]),
      'KV_KEY_TOO_LARGE',
    );
    assert.equal(await db.size, 0);
    await db.setMany(
      new Map([
        ['a', 1],
        ['b', 2],
        ['c', 3],
      ]),
    );
    assert.equal(await db.deleteMany(new Set(['a', 'x', 'c'])), 2);
    assert.deepEqual(await db.keys().toArray(), ['b']);
  }));

test('invalid keys and values are refused and change nothing', () =>
  withMemory({}, async (db) => {
    const badKeys = [undefined, NaN, {}, () => 1, Symbol('x'), new Date(NaN), [undefined], new Array(3)];
    for (const key of badKeys as never[]) {
      const calls: Promise<unknown>[] = [db.get(key), db.set(key, 1), db.delete(key), db.has(key), db.rank(key)];
      await Promise.all(calls.map((call) => rejects(call, 'KV_INVALID_KEY')));
      await rejects(db.getMany([1, key]), 'KV_INVALID_KEY');
      await rejects(db.count({ gt: key as never }), key === undefined ? 'KV_INVALID_ARGUMENT' : 'KV_INVALID_KEY');
    }
    for (const value of [undefined, () => 1, Symbol('x'), new WeakMap()])
      await rejects(db.set('a', value), 'KV_INVALID_VALUE');
    await rejects(db.set('x'.repeat(100_000), 1), 'KV_KEY_TOO_LARGE');
    assert.equal(await db.size, 0);
    assert.equal((await db.stats()).version, 0);
  }));

test('strictValues refuses instances of classes in every collection that does not override it', () =>
  withMemory({ strictValues: true }, async (db) => {
    class Point {
      x = 1;
    }
    const value = { at: [new Point()] };
    const refused = { code: 'KV_INVALID_VALUE', message: /an instance of Point at \.at\[0\]/ };
    const strict = db.collection('strict');
    const loose = db.collection('loose', { strictValues: false });
    await assert.rejects(db.set('a', value), refused);
    await assert.rejects(strict.set('a', value), refused);
    await assert.rejects(db.batch([{ type: 'set', collection: 'strict', key: 'a', value }]), refused);
    await assert.rejects(
      db.transaction((tx) => tx.collection(strict).set('a', value)),
      refused,
    );
    await loose.set('a', value);
    assert.deepEqual(await loose.get('a'), { at: [{ x: 1 }] });
    // The bytes are the same, so each handle decides for itself.
    await db.collection('strict', { strictValues: false }).set('a', value);
    assert.deepEqual(await strict.get('a'), { at: [{ x: 1 }] });
    assert.throws(
      () => db.collection('json', { strictValues: true, value: valueCodecs.json() }),
      code('KV_INVALID_ARGUMENT'),
    );
    assert.throws(() => db.collection('x', { strictValues: 1 as unknown as boolean }), code('KV_INVALID_ARGUMENT'));
    await rejects(
      open('never', { storage: 'memory', strictValues: true, value: valueCodecs.json() }),
      'KV_INVALID_ARGUMENT',
    );
    db.collection('json', { strictValues: false, value: valueCodecs.json() });
  }));

test('a bad call does not affect good ones of the same turn', () =>
  withMemory({}, async (db) => {
    const calls = await Promise.allSettled([
      db.set('a', 1),
      db.set(NaN, 2),
      db.set('long'.repeat(50_000), 3),
      db.get({} as never),
      db.set('b', undefined),
      db.set('c', 3),
      db.get('a'),
      db.get('c'),
    ]);
    assert.deepEqual(
      calls.map((call) => call.status === 'fulfilled' || (call.reason as { code: string }).code),
      [true, 'KV_INVALID_KEY', 'KV_KEY_TOO_LARGE', 'KV_INVALID_KEY', 'KV_INVALID_VALUE', true, true, true],
    );
    assert.deepEqual(await db.keys().toArray(), ['a', 'c']);
  }));

test('bad arguments reject and never throw', () =>
  withMemory({}, async (db) => {
    const bad: Promise<unknown>[] = [
      db.entries({ limit: -1 }).toArray(),
      db.entries({ limit: 1.5 }).next(),
      db.entries({ offset: -1 }).next(),
      db.entries({ offset: Infinity }).next(),
      db.entries({ reverse: 'yes' as never }).next(),
      db.entries('x' as never).next(),
      db.count({ limit: NaN }),
      db.at(1.5),
      db.at('1' as never),
      db.first({ limit: -1 }),
      db.entries().nextMany(-1),
      db.rank('a', { limit: 1 } as object),
      db.set('a', 1, { durability: 'now' as never }),
      db.forEach('fn' as never),
      db.batch([{ type: 'put', key: 1, value: 1 } as never]),
      db.batch([{ type: 'delete', key: 1, collection: {} as never }]),
      db.dropCollection(''),
      db.keys({ prefix: 5 }).next(),
    ];
    for (const call of bad) await rejects(call, 'KV_INVALID_ARGUMENT');
    assert.throws(() => db.collection(7 as never), code('KV_INVALID_ARGUMENT'));
    await assert.rejects(
      db.transaction((tx) => tx.collection('').get(1)),
      code('KV_INVALID_ARGUMENT'),
    );
    assert.throws(() => db.collection('\ud800'), code('KV_INVALID_ARGUMENT'));
    assert.throws(() => db.collection('x', { key: {} as never }), code('KV_INVALID_ARGUMENT'));
  }));

test('the collection without a name is the default one', () =>
  withMemory({}, async (db) => {
    const byValue = db.collection<string, number>('', { indexes: { byValue: { key: (value: number) => value } } });
    assert.equal(byValue.name, '');
    await byValue.set('a', 1).then(() => byValue.set('b', 2));
    assert.equal(await db.get('a'), 1);
    assert.deepEqual(await db.keys().toArray(), ['a', 'b']);
    assert.deepEqual(await byValue.index('byValue').keys({ gte: 1 }).toArray(), ['a', 'b']);
    await rejects(db.collection<number>('', { key: keyCodecs.int53 }).set(1, 1), 'KV_CODEC_MISMATCH');
  }));

test('size is requested when it is awaited', () =>
  withLetters(async (db) => {
    const { size } = db;
    await db.delete('a');
    assert.equal(await size, 6);
    assert.equal(await db.size.finally(() => undefined), 6);
    await db.close();
    void db.size;
    await rejects(db.size, 'KV_CLOSED');
    assert.equal(await db.size.catch(() => -1), -1);
  }));

test('collections are separate maps', () =>
  withMemory({}, async (db) => {
    const numbers = db.collection<number, string>('numbers', { key: keyCodecs.uint32, value: valueCodecs.string });
    const others = db.collection('others');
    assert.equal(numbers.name, 'numbers');
    assert.equal(db.name, '');
    assert.deepEqual(await db.collections(), [], 'nothing is created before the first write');
    await Promise.all([numbers.set(7, 'seven'), others.set(7, 'other'), db.set(7, 'own')]);
    assert.deepEqual(await Promise.all([numbers.get(7), others.get(7), db.get(7)]), ['seven', 'other', 'own']);
    assert.deepEqual(await db.collections(), ['numbers', 'others']);
    assert.equal(await db.size, 1);
    assert.equal(await db.dropCollection('numbers'), true);
    assert.equal(await db.dropCollection('numbers'), false);
    assert.equal(await numbers.size, 0);
    assert.deepEqual(await db.collections(), ['others']);
    await numbers.set(8, 'eight');
    assert.deepEqual(await numbers.entries().toArray(), [[8, 'eight']]);
  }));

test('a collection is refused with codecs other than those it was written with', () =>
  withPath(async (path) => {
    const first = await open(path);
    await first.collection<string, unknown>('c', { key: keyCodecs.string }).set('a', 1);
    const wrong = first.collection('c');
    await rejects(wrong.get('a'), 'KV_CODEC_MISMATCH');
    await rejects(wrong.set('a', 1), 'KV_CODEC_MISMATCH');
    await rejects(wrong.entries().toArray(), 'KV_CODEC_MISMATCH');
    await rejects(wrong.size, 'KV_CODEC_MISMATCH');
    await first.set('own', 1);
    await first.close();

    const second = await open(path, { value: valueCodecs.json() });
    await rejects(second.get('own'), 'KV_CODEC_MISMATCH');
    assert.equal(await second.collection<string, unknown>('c', { key: keyCodecs.string }).get('a'), 1);
    await second.dropCollection('c');
    await second.collection('c').set(1, 2);
    await second.close();
  }));

test('custom codecs are used, and what they throw becomes a KvError', () =>
  withMemory({}, async (db) => {
    const upper = db.collection<string, string>('upper', {
      key: {
        id: 'upper',
        encode: (key) => new TextEncoder().encode(key.toUpperCase()),
        decode: (bytes) => new TextDecoder().decode(bytes),
      },
      value: {
        id: 'picky',
        encode(value) {
          if (value === 'bad') throw new RangeError('no');
          return value === 'odd' ? ('text' as never) : new TextEncoder().encode(value);
        },
        decode(bytes) {
          const value = new TextDecoder().decode(bytes);
          if (value === 'unreadable') throw new RangeError('no');
          return value;
        },
      },
    });
    await upper.set('Ada', 'one');
    assert.equal(await upper.get('aDA'), 'one');
    await rejects(upper.set('x', 'bad'), 'KV_INVALID_VALUE');
    await rejects(upper.set('x', 'odd'), 'KV_INVALID_VALUE');
    await rejects(upper.get(5 as never), 'KV_INVALID_KEY');
    await upper.setMany([
      ['b', 'unreadable'],
      ['c', 'two'],
    ]);
    const [bad, good] = await Promise.allSettled([upper.get('b'), upper.get('c')]);
    assert.equal((bad as PromiseRejectedResult).reason.code, 'KV_CORRUPT');
    assert.equal((good as PromiseFulfilledResult<string>).value, 'two', 'the next reply is read where it begins');
    await rejects(upper.values().toArray(), 'KV_CORRUPT');
  }));

test('everything rejects once the database is closed', () =>
  withMemory({}, async (db) => {
    const collection = db.collection('c');
    const snapshot = db.snapshot();
    const iterator = db.entries();
    const batch = db.batch().set('a', 1);
    const last = db.set('last', 1);
    assert.equal(db.status, 'open');
    const closed = db.close();
    assert.equal(db.status, 'closing');
    const late = db.get('last');
    late.catch(() => undefined);
    await last;
    await closed;
    assert.equal(db.status, 'closed');
    assert.equal(db.close(), db.close());
    await db.close();
    const calls: Promise<unknown>[] = [
      late,
      db.get('a'),
      db.set('a', 1),
      db.delete('a'),
      db.clear(),
      db.size,
      db.entries().toArray(),
      db.first(),
      db.flush(),
      db.stats(),
      db.verify(),
      db.collections(),
      db.dropCollection('c'),
      db.batch([]),
      db.setMany([]),
      db.getMany([]),
      collection.get('a'),
      collection.set('a', 1),
      snapshot.get('a'),
      iterator.next(),
      batch.commit(),
      db.snapshot().get('a'),
      db.collection('d').get('a'),
      db.forEach(() => undefined),
      db.rank(1),
      db.at(-1, { limit: 1 }),
    ];
    await Promise.all(calls.map((call) => rejects(call, 'KV_CLOSED')));
    await snapshot.close();
    assert.deepEqual(await iterator.return(), { done: true, value: undefined });
  }));

test('closing finishes earlier calls', () =>
  withPath(async (path) => {
    const db = await open(path);
    const calls = [db.set('a', 1, { durability: 'none' }), db.get('a'), db.close()];
    assert.deepEqual(await Promise.all(calls), [undefined, 1, undefined]);
    const again = await open(path);
    assert.equal(await again.get('a'), 1);
    await again.close();
  }));

test('await using closes the database', async () => {
  let kept: Database;
  {
    await using db = await open('x', { storage: 'memory' });
    kept = db;
    await db.set('a', 1);
  }
  assert.equal(kept.status, 'closed');
});

test('forEach goes in order and awaits its callback', () =>
  withLetters(async (db) => {
    const seen: string[] = [];
    await db.forEach(
      async (value, key) => {
        await Promise.resolve();
        seen.push(`${key}${value}`);
      },
      { lt: 'd' },
    );
    assert.deepEqual(seen, ['a0', 'b1', 'c2']);
  }));

test('versions count commits, and flush makes them durable', () =>
  withMemory({ durability: 'none' }, async (db) => {
    const first = await db.batch([{ type: 'set', key: 1, value: 1 }]);
    const second = await db.batch([{ type: 'set', key: 1, value: 2 }]);
    assert.ok(second.version > first.version);
    assert.equal((await db.stats()).durableVersion, 0);
    await db.flush();
    const stats = await db.stats();
    assert.equal(stats.durableVersion, second.version);
    assert.equal(stats.version, second.version);
    assert.equal(stats.entries, 1);
    assert.ok(stats.fileSize > 0);
  }));

test('a signal ends reads, iterators and open', () =>
  withLetters(async (db) => {
    const aborted = AbortSignal.abort('enough');
    await assert.rejects(db.entries({ signal: aborted }).next(), (reason) => reason === 'enough');
    await assert.rejects(db.count({ signal: aborted }), (reason) => reason === 'enough');
    await assert.rejects(db.first({ signal: aborted }), (reason) => reason === 'enough');
    await assert.rejects(open('x', { storage: 'memory', signal: aborted }), (reason) => reason === 'enough');
    const controller = new AbortController();
    const iterator = db.entries({ signal: controller.signal });
    await iterator.next();
    const waiting = db.count({ signal: controller.signal });
    controller.abort('now');
    await assert.rejects(iterator.next(), (reason) => reason === 'now');
    assert.deepEqual(await iterator.next(), { done: true, value: undefined });
    await assert.rejects(waiting, (reason) => reason === 'now');
    assert.equal(await db.count(), 7);
  }));

test('open refuses bad options', async () => {
  const bad = [
    { durability: 'now' },
    { storage: 'disk' },
    { storage: {} },
    { lockTimeout: -1 },
    { create: 1 },
    { exclusive: 'x' },
    { cacheBytes: 1.5 },
    { advanced: { unitBytes: 1000 } },
    { advanced: { nodeBytes: 5 } },
    { compression: 'zip' },
    { key: {} },
    { value: { id: 'x' } },
  ];
  for (const options of bad)
    await rejects(open('x', { storage: 'memory', ...options } as object), 'KV_INVALID_ARGUMENT');
  await rejects(open('x', null as never), 'KV_INVALID_ARGUMENT');
  await rejects(open('x', { storage: 'opfs' }), 'KV_UNSUPPORTED');
  await rejects(open('x', { storage: 'indexeddb' }), 'KV_UNSUPPORTED');
  await rejects(destroy('x', { storage: 'indexeddb' }), 'KV_UNSUPPORTED');
  await rejects(list({ storage: 'indexeddb' }), 'KV_UNSUPPORTED');
  await rejects(open('x', { storage: 'memory', create: false }), 'KV_NOT_FOUND');
});

test('options that are fixed at creation work', async () => {
  for (const options of [
    { advanced: { unitBytes: 512, nodeBytes: 512 } },
    { advanced: { unitBytes: 65536, nodeBytes: 65536 }, compression: 'none' },
    { cacheBytes: 1 << 20 },
  ] as const) {
    await withMemory({ ...options, durability: 'none' }, async (db) => {
      await db.setMany(Array.from({ length: 2000 }, (_, index) => [index, `value ${index}`]));
      await db.flush();
      assert.equal(await db.get(1234), 'value 1234');
      assert.equal((await db.verify()).ok, true);
    });
  }
});
