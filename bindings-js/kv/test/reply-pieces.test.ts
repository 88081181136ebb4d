// Replies come in pieces: however much one tick asks for, it is answered, in order, and the engine's
// memory stays near its cache.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open } from 'mangrove-kv';
import type { Database, OpenOptions, ValueCodec } from 'mangrove-kv';
import { chance, withMemory, withPath } from './support/kit.ts';

const VALUES = 20;
const VALUE_BYTES = 1_000_000;
/** What replies may take beyond the cache, and the cache. */
const MAX_MEMORY = (256 + 32) << 20;

const bytesOf = (key: number): Uint8Array => new Uint8Array(VALUE_BYTES).fill(key);
const isOf = (value: Uint8Array | undefined, key: number): boolean =>
  value?.length === VALUE_BYTES && value[0] === key && value.at(-1) === key;
const keys = (count: number): number[] => Array.from({ length: count }, (_, index) => index % VALUES);

/** Read at once, these need more memory than there is; elsewhere a part of it shows as much. */
const MOST = 1500;
const MANY = 400;

const places: Record<string, (use: (db: Database<number, Uint8Array>) => Promise<void>) => Promise<void>> = {};
for (const thread of ['same', 'worker'] as const) {
  for (const storage of ['memory', 'fs'] as const) {
    const options: OpenOptions<number, Uint8Array> = { thread, storage, durability: 'relaxed' };
    places[`${storage}, engine in thread "${thread}"`] = (use) =>
      storage === 'memory'
        ? withMemory(options, use)
        : withPath(async (path) => {
            const db = await open<number, Uint8Array>(path, { thread });
            await use(db);
            await db.close();
          });
  }
}

for (const [place, withPlace] of Object.entries(places)) {
  test(`more is read in one tick than memory holds: ${place}`, () =>
    withPlace(async (db) => {
      await db.setMany(keys(VALUES).map((key) => [key, bytesOf(key)]));
      const { memorySize: before } = await db.stats();
      const count = place.startsWith('memory') ? MOST : MANY;
      const right = await Promise.all(keys(count).map((key) => db.get(key).then((value) => isOf(value, key))));
      assert.equal(right.filter(Boolean).length, count);
      const { memorySize: after } = await db.stats();
      assert.ok(after < MAX_MEMORY, `${before} bytes before, ${after} after`);
    }));

  test(`many values are read in one call, from one state: ${place}`, () =>
    withPlace(async (db) => {
      await db.setMany(keys(VALUES).map((key) => [key, bytesOf(key)]));
      const snapshot = db.snapshot();
      const tx = db.begin();
      await tx.set(VALUES, bytesOf(VALUES));
      const asked = [...keys(60), VALUES];
      const calls = [db, snapshot, tx].map((reader) => reader.getMany(asked));
      // Whatever is written after the call is not in its result.
      for (const key of keys(VALUES)) void db.set(key, Uint8Array.of(key));
      for (const [index, values] of (await Promise.all(calls)).entries()) {
        assert.equal(values.length, asked.length);
        for (const [at, key] of asked.entries()) {
          if (key === VALUES && index < 2) assert.equal(values[at], undefined);
          else assert.ok(isOf(values[at], key), `value ${at}`);
        }
      }
      tx.rollback();
      await snapshot.close();
      assert.deepEqual([...((await db.get(3)) ?? [])], [3]);
      const { memorySize, openSnapshots } = await db.stats();
      assert.ok(memorySize < MAX_MEMORY, `${memorySize}`);
      assert.equal(openSnapshots, 0);
    }));

  test(`calls take effect in order across the pieces: ${place}`, () =>
    withPlace(async (db) => {
      const random = chance(11);
      await db.setMany(keys(VALUES).map((key) => [key, bytesOf(key)]));
      const sizes = new Map(keys(VALUES).map((key) => [key, VALUE_BYTES]));
      const checks: Promise<void>[] = [];
      for (let step = 0; step < 400; step++) {
        const key = Math.floor(random() * VALUES);
        const kind = random();
        if (kind < 0.05) {
          const size = random() < 0.7 ? VALUE_BYTES : step + 1;
          sizes.set(key, size);
          checks.push(db.set(key, new Uint8Array(size)));
        } else if (kind < 0.08) {
          const existed = sizes.delete(key);
          checks.push(db.delete(key).then((found) => assert.equal(found, existed)));
        } else if (kind < 0.12) {
          const { size } = sizes;
          checks.push(db.count().then((found) => assert.equal(found, size)));
        } else {
          const size = sizes.get(key);
          checks.push(db.get(key).then((value) => assert.equal(value?.length, size, `step ${step}`)));
        }
      }
      await Promise.all(checks);
      assert.equal(await db.size, sizes.size);
    }));
}

test('a codec that reads between two pieces sees all earlier writes, and nothing is lost', async () => {
  let inner: Database<string, Uint8Array> | undefined;
  const seen: number[] = [];
  const value: ValueCodec<Uint8Array> = {
    id: 'curious',
    encode: (bytes) => bytes,
    decode: (bytes) => {
      const found = inner?.sync.collection<string, number>('other').get('last');
      if (found !== undefined) seen.push(found);
      return bytes.slice();
    },
  };
  await withMemory<string, Uint8Array>({ value, durability: 'relaxed' }, async (db) => {
    const other = db.collection<string, number>('other');
    await db.set('a', new Uint8Array(VALUE_BYTES));
    await other.set('last', 0);
    inner = db;
    const lengths: Promise<number | undefined>[] = [];
    for (let index = 0; index < 40; index++) lengths.push(db.get('a').then((bytes) => bytes?.length));
    const last = other.set('last', 1);
    assert.deepEqual(
      await Promise.all(lengths),
      Array.from({ length: 40 }, () => VALUE_BYTES),
    );
    await last;
    inner = undefined;
    assert.equal(seen.length, 40);
    // The first few were looked up without a message, before the write was called.
    assert.ok(
      seen.slice(10).every((found) => found === 1),
      seen.join(),
    );
  });
});
