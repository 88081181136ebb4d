// All kinds of values: each comes back unchanged from the file, and also from the log alone, and
// none is taken for "no entry".
import assert from 'node:assert/strict';
import { copyFileSync, mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { keyCodecs, open, valueCodecs } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { rejects, withMemory, withPath } from './support/kit.ts';

const cyclic: Record<string, unknown> = { name: 'cycle', list: [] };
cyclic['self'] = cyclic;
(cyclic['list'] as unknown[]).push(cyclic, new Map([['back', cyclic]]));

const VALUES: Record<string, unknown> = {
  zero: 0,
  'minus zero': -0,
  'not a number': NaN,
  infinity: -Infinity,
  'largest integer': 2 ** 53 - 1,
  fraction: 0.1,
  'no text': '',
  'a zero character': '\0',
  'lone surrogate': '\ud800',
  emoji: '😀',
  null: null,
  false: false,
  true: true,
  'bigint zero': 0n,
  'large bigint': -(2n ** 200n),
  'no bytes': new Uint8Array(0),
  'a zero byte': new Uint8Array(1),
  'no buffer': new ArrayBuffer(0),
  buffer: Uint8Array.of(1, 2).buffer,
  view: new DataView(Uint8Array.of(7, 8).buffer),
  'typed arrays': [
    new Uint8ClampedArray([300]),
    new Int8Array([-1]),
    new Uint16Array([1, 65_535]),
    new Int16Array([-2]),
    new Uint32Array([2 ** 32 - 1]),
    new Int32Array([-(2 ** 31)]),
    new Float32Array([1.5, NaN, -0]),
    new Float64Array([Math.PI]),
    new BigInt64Array([-5n]),
    new BigUint64Array([2n ** 64n - 1n]),
  ],
  'no elements': [],
  'no members': {},
  'members without a value': { a: undefined, b: [undefined] },
  date: new Date(-1),
  map: new Map<unknown, unknown>([[{}, new Set([1])]]),
  set: new Set([new Date(0)]),
  expression: /a\/b/giu,
  cyclic,
  'a page and more': 'x'.repeat(100_000),
  nested: [[[[[{ deep: [0n] }]]]]],
};

async function fill(db: Database<string>): Promise<void> {
  await db.setMany(Object.entries(VALUES));
}

async function check(db: Database<string>): Promise<void> {
  assert.equal(await db.size, Object.keys(VALUES).length);
  const found = new Map(await db.entries().toArray());
  for (const [name, value] of Object.entries(VALUES)) {
    // Every way to read it; `deepStrictEqual` tells 0 from -0 and follows cycles.
    assert.deepStrictEqual(await db.get(name), value, name);
    assert.deepStrictEqual((await db.getMany([name]))[0], value, name);
    assert.deepStrictEqual((await db.getEntry(name))?.value, value, name);
    assert.deepStrictEqual(found.get(name), value, name);
    assert.equal(await db.has(name), true, name);
    assert.deepStrictEqual(await db.getOrInsert(name, 'other'), value, name);
  }
  const cycle = found.get('cyclic') as { self: unknown; list: [unknown, Map<string, unknown>] };
  assert.equal(cycle.self, cycle);
  assert.equal(cycle.list[0], cycle);
  assert.equal(cycle.list[1].get('back'), cycle);
  assert.ok(Object.is(await db.get('minus zero'), -0));
}

test('every value is unchanged after reopening', () =>
  withPath(async (path) => {
    const first = await open<string>(path);
    await fill(first);
    await check(first);
    await first.close();
    const again = await open<string>(path);
    await check(again);
    assert.equal((await again.verify()).ok, true);
    await again.close();
  }));

test('every value is unchanged after recovery from the log', () =>
  withPath(async (path) => {
    const db = await open<string>(path);
    await fill(db);
    // As a power cut would leave it.
    const copy = join(dirname(path), 'copy');
    mkdirSync(copy);
    for (const file of ['data', 'log']) copyFileSync(join(path, file), join(copy, file));
    await db.close();
    const recovered = await open<string>(copy);
    await check(recovered);
    await recovered.close();
  }));

test('values that other stores take for missing are kept, one key at a time and with every codec', () =>
  withPath(async (path) => {
    const bytes = { key: keyCodecs.bytes, value: valueCodecs.bytes };
    const text = { key: keyCodecs.string, value: valueCodecs.string };
    const json = { key: keyCodecs.uint32, value: valueCodecs.json() };
    const first = await open(path);
    await first.collection('bytes', bytes).set(new Uint8Array(0), new Uint8Array(0));
    await first.collection('text', text).set('', '');
    await first.collection('json', json).set(0, null);
    await first.close();
    const again = await open(path);
    assert.deepEqual(await again.collection('bytes', bytes).entries().toArray(), [
      [new Uint8Array(0), new Uint8Array(0)],
    ]);
    assert.deepEqual(await again.collection('text', text).entries().toArray(), [['', '']]);
    assert.deepEqual(await again.collection('json', json).entries().toArray(), [[0, null]]);
    await again.close();
  }));

test('undefined is refused wherever a value is stored', () =>
  withMemory<string>({}, async (db) => {
    await db.set('a', 1);
    await rejects(db.set('a', undefined), 'KV_INVALID_VALUE');
    await rejects(
      db.setMany([
        ['b', 1],
        ['a', undefined],
      ]),
      'KV_INVALID_VALUE',
    );
    await rejects(db.getOrInsert('b', undefined), 'KV_INVALID_VALUE');
    await rejects(
      db.getOrInsertComputed('b', () => undefined),
      'KV_INVALID_VALUE',
    );
    await rejects(
      db.update('a', () => undefined),
      'KV_INVALID_VALUE',
    );
    await rejects(db.batch([{ type: 'set', key: 'a', value: undefined }]), 'KV_INVALID_VALUE');
    await rejects(
      db.transaction((tx) => tx.set('a', undefined)),
      'KV_INVALID_VALUE',
    );
    assert.throws(() => db.batch().set('a', undefined), { code: 'KV_INVALID_VALUE' });
    assert.throws(() => db.sync.set('a', undefined), { code: 'KV_INVALID_VALUE' });
    assert.throws(() => db.sync.update('a', () => undefined), { code: 'KV_INVALID_VALUE' });
    for (const value of [() => 1, Symbol('s'), Promise.resolve(1), new WeakMap(), new Blob([])]) {
      await rejects(db.set('a', value), 'KV_INVALID_VALUE');
    }
    assert.deepEqual(await db.entries().toArray(), [['a', 1]]);
  }));
