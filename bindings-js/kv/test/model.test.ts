// Random calls compared with a sorted Map, with reopening in between: whatever the order, both give
// the same results.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compareKeys, open } from 'mangrove-kv';
import type { Database, Key, OpenOptions } from 'mangrove-kv';
import { chance, withPath } from './support/kit.ts';

const STEPS = 3000;

class Model {
  readonly #map = new Map<string, [Key, unknown]>();

  set(key: Key, value: unknown): void {
    this.#map.set(String(key), [key, value]);
  }

  delete(key: Key): boolean {
    return this.#map.delete(String(key));
  }

  get(key: Key): unknown {
    return this.#map.get(String(key))?.[1];
  }

  entries(from?: Key, to?: Key): [Key, unknown][] {
    const all = [...this.#map.values()].sort(([a], [b]) => compareKeys(a, b));
    return all.filter(
      ([key]) => (from === undefined || compareKeys(key, from) >= 0) && (to === undefined || compareKeys(key, to) < 0),
    );
  }
}

async function step(db: Database, model: Model, random: () => number): Promise<void> {
  const key = (): Key => (random() < 0.5 ? Math.floor(random() * 500) : `k${Math.floor(random() * 500)}`);
  const value = (): unknown => 'v'.repeat(Math.floor(random() ** 6 * 60_000)) + random();
  const kind = random();
  if (kind < 0.4) {
    const [k, v] = [key(), value()];
    model.set(k, v);
    await db.set(k, v);
  } else if (kind < 0.55) {
    const k = key();
    assert.equal(await db.delete(k), model.delete(k));
  } else if (kind < 0.6) {
    const entries = Array.from({ length: 20 }, (): [Key, unknown] => [key(), value()]);
    for (const [k, v] of entries) model.set(k, v);
    await db.setMany(entries);
  } else if (kind < 0.61) {
    const [from, to] = [key(), key()];
    for (const [k] of model.entries(from, to)) model.delete(k);
    await db.clear({ gte: from, lt: to });
  } else if (kind < 0.9) {
    const k = key();
    assert.equal(await db.get(k), model.get(k));
  } else {
    const [from, to] = [key(), key()];
    const expected = model.entries(from, to);
    assert.deepEqual(await db.entries({ gte: from, lt: to }).toArray(), expected);
    assert.equal(await db.count({ gte: from, lt: to }), expected.length);
    assert.deepEqual(await db.last({ gte: from, lt: to }), expected.at(-1));
    assert.equal(await db.rank(from), model.entries(undefined, from).length);
  }
}

async function run(seed: number, options: OpenOptions): Promise<void> {
  const random = chance(seed);
  const model = new Model();
  await withPath(async (path) => {
    let db = await open(path, options);
    for (let count = 0; count < STEPS; count++) {
      await step(db, model, random);
      if (random() < 0.003) {
        await db.close();
        db = await open(path, options);
      }
    }
    assert.deepEqual(await db.entries().toArray(), model.entries());
    assert.deepEqual((await db.verify()).problems, []);
    await db.close();
  });
}

test('calls match the model with small nodes and a small cache', () =>
  run(1, { advanced: { unitBytes: 512, nodeBytes: 512 }, cacheBytes: 65536, durability: 'none' }));
test('calls match the model with the defaults', () => run(2, { durability: 'relaxed' }));
test('calls match the model with large nodes without compression', () =>
  run(3, { advanced: { unitBytes: 65536, nodeBytes: 65536 }, compression: 'none', durability: 'none' }));
