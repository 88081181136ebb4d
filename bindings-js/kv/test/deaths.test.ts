// Processes that die while changes are being merged, one after another: what the second one leaves
// still opens, with everything that was acknowledged.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open } from 'mangrove-kv';
import type { AdvancedOptions, Database } from 'mangrove-kv';
import { chance } from './support/kit.ts';
import { SizedStorage } from './support/sized-storage.ts';

type Bytes = Database<number, Uint8Array>;

/** Small nodes and a small cache, or those of a database with some megabytes. */
interface Shape {
  readonly name: string;
  readonly options: { readonly cacheBytes: number; readonly advanced?: AdvancedOptions };
  readonly count: number;
  readonly small: number;
  readonly large: number;
  readonly perCommit: number;
}

const SMALL: Shape = {
  name: 'small nodes',
  options: { advanced: { nodeBytes: 512, unitBytes: 512 }, cacheBytes: 65_536 },
  count: 2500,
  small: 40,
  large: 700,
  perCommit: 1,
};
const DEFAULT: Shape = {
  name: 'nodes of 16 KiB',
  options: { cacheBytes: 1 << 20 },
  count: 6000,
  small: 300,
  large: 6000,
  perCommit: 10,
};
/** Entries at the front of the tree, which a merge passes first. */
const HEAD = 40;
const IMAGES = 16;

class Run {
  readonly shape: Shape;
  readonly model = new Map<number, Uint8Array>();
  readonly #random: () => number;

  constructor(shape: Shape, seed: number) {
    this.shape = shape;
    this.#random = chance(seed);
  }

  bytes(size: number): Uint8Array {
    const words = new Uint32Array(Math.ceil(size / 4));
    for (let i = 0; i < words.length; i++) words[i] = this.#random() * 2 ** 32;
    return new Uint8Array(words.buffer, 0, size);
  }

  open(storage: SizedStorage): Promise<Bytes> {
    return open<number, Uint8Array>('x', { ...this.shape.options, storage });
  }

  async set(db: Bytes, entries: (readonly [number, Uint8Array])[]): Promise<void> {
    await db.setMany(entries);
    for (const [key, value] of entries) this.model.set(key, value);
  }

  async setHead(db: Bytes, size: number): Promise<void> {
    await this.set(
      db,
      Array.from({ length: HEAD }, (_, key) => [key, this.bytes(size)] as const),
    );
  }

  /** A strict commit that scatters values behind the head. */
  async scatter(db: Bytes, size: number): Promise<void> {
    const { count, perCommit } = this.shape;
    await this.set(
      db,
      Array.from(
        { length: perCommit },
        () => [HEAD + Math.floor(this.#random() * (count - HEAD)), this.bytes(size)] as const,
      ),
    );
  }

  /** A closed database with all entries. */
  async fill(storage: SizedStorage): Promise<void> {
    const db = await this.open(storage);
    for (let key = 0; key < this.shape.count; key += 500)
      await this.set(
        db,
        Array.from({ length: 500 }, (_, i) => [key + i, this.bytes(this.shape.small)] as const),
      );
    await db.collection('zoo').set('a', 1);
    await db.close();
  }

  /** Has values out of line at the front merged, and goes on up to the second partial checkpoint. */
  async mergeHead(db: Bytes): Promise<void> {
    await this.setHead(db, this.shape.large);
    while ((await db.stats()).checkpoints < 2) await this.scatter(db, this.shape.small);
  }

  /** What the death of the process would leave has everything. */
  async check(left: SizedStorage, moment: string): Promise<void> {
    const db = await this.open(left);
    const found = new Map(await db.entries().toArray());
    assert.equal(found.size, this.model.size, moment);
    for (const [key, value] of this.model)
      assert.ok(Buffer.compare(found.get(key) ?? new Uint8Array(0), value) === 0, `${moment}: entry ${key}`);
    assert.deepEqual((await db.verify()).problems, [], moment);
    await db.close();
  }

  /** Makes commits whose values may take the place of what was freed, and checks what each leaves. */
  async checkOn(db: Bytes, storage: SizedStorage): Promise<void> {
    for (let image = 0; image < IMAGES; image++) {
      for (let commits = 0; commits < 10; commits++) await this.scatter(db, this.shape.large);
      await this.check(storage.copy(), `after ${image * 10} commits`);
    }
    assert.ok((await db.stats()).checkpoints > 1);
  }
}

for (const shape of [SMALL, DEFAULT]) {
  test(`two deaths within merges lose nothing, ${shape.name}`, async () => {
    const run = new Run(shape, 1);
    const first = new SizedStorage();
    await run.fill(first);
    const dead = await run.open(first);
    await run.mergeHead(dead);
    const second = first.copy();
    const db = await run.open(second);
    // What the first life's merge had moved is replaced.
    await run.setHead(db, 10);
    await run.checkOn(db, second);
    await db.close();
    await dead.close();
  });

  for (const [how, giveUp] of [
    ['clear of', (db: Bytes) => db.collection('zoo').clear()],
    ['drop of', (db: Bytes) => db.dropCollection('zoo')],
  ] as const) {
    test(`a death after a merge that a ${how} another collection gave up loses nothing, ${shape.name}`, async () => {
      const run = new Run(shape, 2);
      const storage = new SizedStorage();
      await run.fill(storage);
      const db = await run.open(storage);
      await run.setHead(db, shape.large);
      await db.collection('zoo').set('b', 2);
      await run.mergeHead(db);
      await giveUp(db);
      await run.setHead(db, 10);
      await run.checkOn(db, storage);
      await db.close();
    });
  }
}

test('a death within a merge keeps the expiry of values out of line', async () => {
  const run = new Run(SMALL, 3);
  const first = new SizedStorage();
  const realNow = Date.now;
  await run.fill(first);
  const dead = await run.open(first);
  await dead.setMany(
    Array.from({ length: HEAD }, (_, key) => [key, run.bytes(700)] as const),
    { expireIn: 3_600_000 },
  );
  while ((await dead.stats()).checkpoints < 2) await run.scatter(dead, 40);
  const db = await run.open(first.copy());
  try {
    assert.equal(await db.size, SMALL.count);
    Date.now = () => realNow() + 7_200_000;
    const left = SMALL.count - HEAD;
    assert.deepEqual([await db.size, await db.count(), (await db.keys().toArray()).length], [left, left, left]);
    assert.equal((await db.at(0))?.[0], HEAD);
    assert.equal(await db.purgeExpired(), HEAD);
    // With the one of the other collection.
    const { ok, entries } = await db.verify();
    assert.deepEqual([ok, entries, (await db.stats()).entries], [true, left + 1, left + 1]);
  } finally {
    Date.now = realNow;
  }
  await db.close();
  await dead.close();
});

test('an opening after a death takes hardly more memory than the writer did, however much the log has', async () => {
  const first = new SizedStorage();
  const options = { cacheBytes: 128 << 20, storage: first };
  const dead = await open<number, string>('x', options);
  const text = (round: number): string => `${round} ${'compressible '.repeat(400)}`.slice(0, 4000);
  let { memorySize: most } = await dead.stats();
  for (let commit = 0; commit < 1500; commit++) {
    await dead.setMany(Array.from({ length: 48 }, (_, i) => [(commit % 10) * 48 + i, text(commit)] as const));
    most = Math.max(most, (await dead.stats()).memorySize);
  }
  const db = await open<number, string>('x', { ...options, storage: first.copy() });
  const { memorySize } = await db.stats();
  assert.ok(memorySize <= most + (16 << 20), `${memorySize} bytes instead of ${most}`);
  assert.equal(await db.count(), 480);
  for (let key = 0; key < 480; key++) assert.equal(await db.get(key), text(1490 + Math.floor(key / 48)));
  await db.close();
  await dead.close();
});
