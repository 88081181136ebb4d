// The test suite that abstract-level publishes for its implementations, and what it leaves out.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { EventEmitter } from 'node:events';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { MangroveLevel } from 'mangrove-kv/level';
import type { MangroveLevelOptions } from 'mangrove-kv/level';
import { FaultyStorage } from '../support/faulty-storage.ts';
import { withPath } from '../support/kit.ts';

interface Result {
  readonly type: string;
  readonly ok?: boolean;
  readonly name: string;
  readonly error?: unknown;
}
interface Tape {
  (name: string, run: (t: unknown) => unknown): void;
  createHarness(): Tape;
  createStream(options: { objectMode: true }): EventEmitter;
}

const require = createRequire(import.meta.url);
const tape = (require('tape') as Tape).createHarness();
const suite = require('abstract-level/test') as (options: { test: Tape; factory: (options?: MangroveLevelOptions) => unknown }) => void;

/** The suite opens many databases, some of them twice, and wants no options but its own. */
class TestLevel extends MangroveLevel {
  readonly #storage = new FaultyStorage();

  override _open(options: Parameters<MangroveLevel['_open']>[0]): Promise<void> {
    return super._open({ ...options, storage: this.#storage });
  }
}

test('the suite of abstract-level', async (t) => {
  const results = tape.createStream({ objectMode: true });
  suite({ test: tape, factory: (options) => new TestLevel('test', options) });
  const failed: string[] = [];
  let current = '';
  let passed = 0;
  results.on('data', ({ type, ok, name, error }: Result) => {
    if (type === 'test') current = name;
    if (type !== 'assert') return;
    if (ok) passed++;
    else failed.push(`${current}: ${name}: ${String(error)}`);
  });
  await once(results, 'end');
  t.diagnostic(`${passed} assertions passed`);
  assert.deepEqual(failed, []);
  assert.ok(passed > 1000);
});

test('seeks after the end, sublevels, snapshots and durability in a directory', async () => {
  await withPath(async (path) => {
    const level = new MangroveLevel<string, { n: number }>(path, { valueEncoding: 'json', durability: 'relaxed' });
    await level.batch([0, 1, 2, 3].map((n) => ({ type: 'put', key: `key ${n}`, value: { n } })));
    const before = level.snapshot();
    const iterator = level.iterator({ limit: 6 });
    await level.del('key 1', { sync: true } as object);
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
