// The test suite that abstract-level publishes for its implementations, and cases that it leaves
// out.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { MangroveLevel } from '@mangrove-kv/level';
import type { MangroveLevelOptions } from '@mangrove-kv/level';
import { FaultyStorage } from '../../../kv/test/support/faulty-storage.ts';
import { withPath } from '../../../kv/test/support/kit.ts';
import { runLevelSuite } from './support/level-suite.ts';
import type { Suite, Tape } from './support/level-suite.ts';

const require = createRequire(import.meta.url);
const tape = require('tape') as Tape;
const suite = require('abstract-level/test') as Suite;

type Storage = NonNullable<MangroveLevelOptions['storage']>;

/**
 * `storage` is an inherited option: the suite compares an object's own options with those that
 * hooks receive.
 */
class TestLevel extends MangroveLevel {
  readonly #storage: Storage;

  constructor(storage: Storage, options: MangroveLevelOptions = {}) {
    super('test', Object.assign(Object.create({ storage }) as object, options));
    this.#storage = storage;
  }

  override _open(options: Parameters<MangroveLevel['_open']>[0]): Promise<void> {
    return super._open({ ...options, storage: this.#storage });
  }
}

const STORAGES: readonly [where: string, makeStorage: () => Storage, cases: number][] = [
  ['in memory', () => 'memory', 5160],
  ['on a storage object', () => new FaultyStorage(), 5168],
];
// In Bun each run takes minutes: it compiles the module again for each of the suite's databases.
for (const [where, makeStorage, cases] of STORAGES.slice('Bun' in globalThis ? 1 : 0)) {
  test(`the suite of abstract-level, ${where}`, async () => {
    const { passed, failed, supports } = await runLevelSuite(
      tape,
      suite,
      (options) => new TestLevel(makeStorage(), options),
    );
    assert.deepEqual(failed, []);
    // The suite skips features that a database does not claim, so the number of cases would drop.
    const { implicitSnapshots, explicitSnapshots, getSync, has, seek, createIfMissing, errorIfExists, signals } =
      supports;
    const { iterators } = signals as { iterators?: boolean };
    assert.equal(errorIfExists, where !== 'in memory');
    const claimed = { implicitSnapshots, explicitSnapshots, getSync, has, seek, createIfMissing, iterators };
    assert.ok(
      Object.values(claimed).every((value) => value === true),
      JSON.stringify(claimed),
    );
    assert.equal(passed, cases);
  });
}

test('an in-memory instance keeps its entries when it is closed and opened again', async () => {
  const level = new MangroveLevel('test', { storage: 'memory' });
  await level.put('a', '1');
  await level.close();
  await assert.rejects(
    level.open({ errorIfExists: true }),
    ({ code, cause }) => code === 'LEVEL_DATABASE_NOT_OPEN' && cause.code === 'KV_EXISTS',
  );
  await level.open({ createIfMissing: false });
  assert.equal(await level.get('a'), '1');
  const other = new MangroveLevel('test', { storage: 'memory' });
  assert.equal(await other.get('a'), undefined);
  await Promise.all([level.close(), other.close()]);
});

test('a database that is open elsewhere fails with LEVEL_LOCKED at once', () =>
  withPath(async (path) => {
    const level = new MangroveLevel(path);
    await level.open();
    // If it waited, the first would be closed and this one would open.
    const second = new MangroveLevel(path);
    const opening = second.open();
    setTimeout(() => void level.close(), 500);
    await assert.rejects(
      opening,
      ({ code, cause }) => code === 'LEVEL_DATABASE_NOT_OPEN' && cause.code === 'LEVEL_LOCKED',
    );
    await second.open({ lockTimeout: 60_000 } as object);
    await second.close();
  }));

test('a signal ends an iterator in the middle', async () => {
  const level = new MangroveLevel('test', { storage: 'memory' });
  await level.batch(Array.from({ length: 1000 }, (_, n) => ({ type: 'put', key: `key ${n}`, value: '' })));
  const controller = new AbortController();
  const seen: string[] = [];
  await assert.rejects(
    async () => {
      for await (const key of level.keys({ signal: controller.signal })) {
        if (seen.push(key) === 10) controller.abort();
      }
    },
    { code: 'LEVEL_ABORTED', name: 'AbortError' },
  );
  assert.equal(seen.length, 10);
  await level.close();
});

test('the engine can run in its own thread', () =>
  withPath(async (path) => {
    const level = new MangroveLevel(path, { thread: 'worker' });
    assert.equal((level.supports as { getSync?: boolean }).getSync, false);
    await level.put('a', '1');
    assert.equal(await level.get('a'), '1');
    await level.close();
  }));

test('seeks after the end, sublevels, snapshots and durability in a directory', async () => {
  await withPath(async (path) => {
    const level = new MangroveLevel<string, { n: number }>(path, { valueEncoding: 'json', durability: 'relaxed' });
    await level.batch([0, 1, 2, 3].map((n) => ({ type: 'put', key: `key ${n}`, value: { n } })));
    const before = level.snapshot();
    assert.deepEqual(level.getSync('key 1'), { n: 1 });
    const iterator = level.iterator({ limit: 6 });
    const deleted = level.del('key 1', { sync: true } as object);
    assert.equal(level.getSync('key 1'), undefined, 'in the order of the calls');
    assert.deepEqual(level.getSync('key 1', { snapshot: before }), { n: 1 });
    await deleted;
    assert.deepEqual(
      (await iterator.nextv(5)).map(([, { n }]) => n),
      [0, 1, 2, 3],
    );
    iterator.seek('key 1');
    assert.deepEqual(
      (await iterator.nextv(5)).map(([, { n }]) => n),
      [1, 2],
    );
    await iterator.close();
    assert.deepEqual(await level.keys({ reverse: true, limit: 2, snapshot: before }).all(), ['key 3', 'key 2']);
    await level.clear({ gte: 'key 1', limit: 1 });
    assert.deepEqual(
      await level.values({ snapshot: before }).all(),
      [0, 1, 2, 3].map((n) => ({ n })),
    );
    assert.deepEqual(await level.keys().all(), ['key 0', 'key 3']);
    await before.close();
    await level.close();

    const again = new MangroveLevel(path, { createIfMissing: false });
    assert.equal(await again.get('key 0'), '{"n":0}');
    await again.close();
  });
});
