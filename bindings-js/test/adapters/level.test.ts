// The test suite that abstract-level publishes for its implementations, and what it leaves out.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { MangroveLevel } from 'mangrove-kv/level';
import { FaultyStorage } from '../support/faulty-storage.ts';
import { withPath } from '../support/kit.ts';
import { runLevelSuite } from '../support/level-suite.ts';
import type { Suite, Tape } from '../support/level-suite.ts';

const require = createRequire(import.meta.url);
const tape = require('tape') as Tape;
const suite = require('abstract-level/test') as Suite;

/** The suite opens many databases, some of them twice, and wants no options but its own. */
class TestLevel extends MangroveLevel {
  readonly #storage = new FaultyStorage();

  override _open(options: Parameters<MangroveLevel['_open']>[0]): Promise<void> {
    return super._open({ ...options, storage: this.#storage });
  }
}

test('the suite of abstract-level', async () => {
  const { passed, failed, supports } = await runLevelSuite(tape, suite, (options) => new TestLevel('test', options));
  assert.deepEqual(failed, []);
  // A feature that a database does not claim is not tested; the number would fall.
  const { implicitSnapshots, explicitSnapshots, getSync, has, seek, createIfMissing, errorIfExists } = supports;
  const claimed = { implicitSnapshots, explicitSnapshots, getSync, has, seek, createIfMissing, errorIfExists };
  assert.ok(Object.values(claimed).every((value) => value === true), JSON.stringify(claimed));
  assert.equal(passed, 5132);
});

test('the engine may have a thread of its own', () => withPath(async (path) => {
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
    assert.deepEqual((await iterator.nextv(5)).map(([, { n }]) => n), [0, 1, 2, 3]);
    iterator.seek('key 1');
    assert.deepEqual((await iterator.nextv(5)).map(([, { n }]) => n), [1, 2]);
    await iterator.close();
    assert.deepEqual(await level.keys({ reverse: true, limit: 2, snapshot: before }).all(), ['key 3', 'key 2']);
    await level.clear({ gte: 'key 1', limit: 1 });
    assert.deepEqual(await level.values({ snapshot: before }).all(), [0, 1, 2, 3].map((n) => ({ n })));
    assert.deepEqual(await level.keys().all(), ['key 0', 'key 3']);
    await before.close();
    await level.close();

    const again = new MangroveLevel(path, { createIfMissing: false });
    assert.equal(await again.get('key 0'), '{"n":0}');
    await again.close();
  });
});
