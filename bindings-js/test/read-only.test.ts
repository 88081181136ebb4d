// Databases that are only read, also while somebody writes.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { open, openSync } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { rejects, withPath } from './support/kit.ts';

function filesOf(path: string): Record<string, string> {
  return Object.fromEntries(readdirSync(path).map((name) => [name, readFileSync(join(path, name)).toString('base64')]));
}

test('a reader goes on beside a writer, shows what was, and then what is', () => withPath(async (path) => {
  const writer: Database<string, number> = await open(path);
  await writer.setMany([['a', 1], ['b', 2]]);
  const reader: Database<string, number> = await open(path, { readOnly: true, lockTimeout: 0 });
  assert.deepEqual(await reader.entries().toArray(), [['a', 1], ['b', 2]]);
  await writer.set('a', 3);
  assert.equal(await reader.get('a'), 1);
  const before = reader.snapshot();
  assert.equal(await reader.refresh(), true);
  assert.equal(await reader.refresh(), false);
  assert.equal(await reader.get('a'), 3);
  assert.equal(await before.get('a'), 1);
  for (const write of [reader.set('c', 1), reader.delete('a'), reader.clear(), reader.batch().set('c', 1).commit()]) {
    await rejects(write, 'KV_READ_ONLY');
  }
  await rejects(reader.transaction((tx) => tx.set('c', 1)), 'KV_READ_ONLY');
  assert.deepEqual(await reader.transaction((tx) => tx.get('b'), { mode: 'readonly' }), 2);
  assert.deepEqual((await reader.verify()).problems, []);
  await reader.close();
  await writer.set('c', 4);
  await writer.close();
}));

test('a reader changes no byte and makes nothing', () => withPath(async (path) => {
  await rejects(open(path, { readOnly: true }), 'KV_NOT_FOUND');
  const writer: Database<number, string> = await open(path);
  await writer.setMany(Array.from({ length: 3000 }, (_, index) => [index, `value ${index}`]));
  await writer.close();
  const files = filesOf(path);
  const [one, two] = [await open<number, string>(path, { readOnly: true }), openSync<number, string>(path, { readOnly: true })];
  assert.equal(await one.size, 3000);
  assert.equal(two.get(2999), 'value 2999');
  await one.close();
  two.close();
  assert.deepEqual(filesOf(path), files);
}));

test('a reader of a database that is written to all the time is right or says that it is stale', () => withPath(async (path) => {
  const options = { cacheBytes: 1 << 17 };
  const writer: Database<number, number> = await open(path, { ...options, durability: 'relaxed' });
  const size = 4000;
  const store = (round: number): Promise<void> => writer.setMany(Array.from({ length: size }, (_, key) => [key, round]));
  await store(0);
  const reader: Database<number, number> = await open(path, { ...options, readOnly: true });
  let stale = 0;
  for (let round = 1; round <= 40; round++) {
    await store(round);
    try {
      if (round % 3 === 0) await reader.refresh();
      const values = new Set(await reader.values().toArray());
      assert.equal(values.size, 1, 'all of one commit');
    } catch (error) {
      assert.equal((error as { code?: string }).code, 'KV_STALE');
      stale++;
    }
  }
  await reader.refresh();
  assert.equal(await reader.get(7), 40);
  assert.ok(stale < 40);
  await reader.close();
  await writer.close();
}));
