// Commits of several clients share flushes: which flush answers whom, how long the next one waits, and
// what a flush that fails leaves.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { test } from 'node:test';
import { open } from 'mangrove-kv';
import { GroupCommit } from '../../src/engine/group-commit.ts';
import { withPath } from '../support/kit.ts';

const FLUSH_MS = 2;

/** A group on a disk that takes `FLUSH_MS`, and a clock that the test moves. */
class Disk {
  now = 0;
  flushes = 0;
  isFlushing = false;
  readonly answered: string[] = [];
  #due: { at: number; run: () => void }[] = [];
  readonly group = new GroupCommit({
    now: () => this.now,
    after: (ms, run) => this.#later(ms, run),
    nextTurn: (run) => void this.#later(0.05, run),
  });

  constructor() {
    this.group.flush = () => {
      this.flushes++;
      this.isFlushing = true;
      this.group.begin();
    };
  }

  #later(ms: number, run: () => void): () => void {
    const one = { at: this.now + ms, run };
    this.#due.push(one);
    return () => {
      this.#due = this.#due.filter((other) => other !== one);
    };
  }

  commit(who: string, isOwn = false): void {
    this.group.join(isOwn).then(
      () => this.answered.push(who),
      (error: unknown) => this.answered.push(`${who}: ${String(error)}`),
    );
  }

  async pass(ms: number): Promise<void> {
    for (const until = this.now + ms; ; ) {
      const next = [...this.#due].sort((a, b) => a.at - b.at).find(({ at }) => at <= until);
      if (next === undefined) {
        this.now = until;
        break;
      }
      this.#due = this.#due.filter((one) => one !== next);
      this.now = next.at;
      next.run();
    }
    await Promise.resolve();
  }

  async endFlush(failure?: unknown): Promise<void> {
    await this.pass(FLUSH_MS);
    this.isFlushing = false;
    this.group.end(failure);
    this.group.look();
    await Promise.resolve();
  }
}

test('a flush answers who joined before it began, the next one who joined meanwhile', async () => {
  const disk = new Disk();
  disk.commit('a');
  disk.commit('b');
  assert.equal(disk.flushes, 0, 'those that arrive together share it');
  await disk.pass(0.1);
  assert.equal(disk.flushes, 1);
  disk.commit('c');
  await disk.endFlush();
  assert.deepEqual(disk.answered, ['a', 'b']);
});

test('the next flush waits for those that the last one answered, and no longer than that took', async () => {
  const disk = new Disk();
  disk.commit('a');
  disk.commit('b');
  await disk.pass(0.1);
  disk.commit('c');
  await disk.endFlush();
  await disk.pass(1);
  assert.ok(!disk.isFlushing, 'c waits for a and b');
  disk.commit('a');
  disk.commit('b');
  await disk.pass(0.1);
  assert.equal(disk.flushes, 2, 'all are there');
  await disk.endFlush();
  assert.deepEqual(disk.answered, ['a', 'b', 'c', 'a', 'b']);
  disk.commit('a');
  await disk.pass(FLUSH_MS - 0.1);
  assert.equal(disk.flushes, 2);
  await disk.pass(0.2);
  assert.equal(disk.flushes, 3, 'b and c had the time');
  await disk.endFlush();
  disk.commit('a');
  await disk.pass(0.1);
  assert.equal(disk.flushes, 4, 'nobody else is expected any more');
});

test('a flush that fails is told to those that it covers', async () => {
  const disk = new Disk();
  disk.commit('a');
  await disk.pass(0.1);
  disk.commit('b');
  await disk.endFlush('no disk');
  assert.deepEqual(disk.answered, ['a: no disk']);
  await disk.pass(FLUSH_MS);
  await disk.endFlush();
  assert.deepEqual(disk.answered, ['a: no disk', 'b']);
});

test('the handle takes part only while others do', async () => {
  const disk = new Disk();
  assert.ok(!disk.group.hasOthers);
  disk.commit('own', true);
  assert.ok(!disk.group.hasOthers);
  disk.commit('other');
  assert.ok(disk.group.hasOthers);
  await disk.pass(0.1);
  assert.ok(disk.group.hasOthers);
  await disk.endFlush();
  assert.ok(disk.group.hasOthers, 'the other one may return');
  disk.commit('own', true);
  await disk.pass(FLUSH_MS + 0.1);
  await disk.endFlush();
  assert.ok(!disk.group.hasOthers);
});

const needsNode = {
  skip: 'Bun' in globalThis || 'Deno' in globalThis ? 'modules of the runtime stay as they are' : false,
};

/** Runs `use` while flushes in other threads fail. */
async function withFailingFlushes(use: () => Promise<void>): Promise<void> {
  const { fdatasync } = fs;
  fs.fdatasync = ((_: number, done: (error: Error) => void) =>
    setTimeout(() => done(new Error('the disk is gone')), 5)) as unknown as typeof fs.fdatasync;
  syncBuiltinESMExports();
  try {
    await use();
  } finally {
    fs.fdatasync = fdatasync;
    syncBuiltinESMExports();
  }
}

test('a flush that fails is told to the first opener; the next one to lead answers the others', needsNode, () =>
  withPath(async (path) => {
    const first = await open<string, number>(path);
    const others = await Promise.all([0, 1, 2].map(() => open<string, number>(path)));
    const all = [first, ...others];
    // From now on they share flushes.
    for (let round = 1; round <= 3; round++) await Promise.all(all.map((db, index) => db.set(`${index}`, round)));
    let isDone: boolean[] = [];
    await withFailingFlushes(async () => {
      const ends = await Promise.allSettled(all.map((db, index) => db.set(`${index}`, 4)));
      isDone = ends.map(({ status }) => status === 'fulfilled');
    });
    assert.equal(isDone[0], false, 'its engine is gone');
    await Promise.allSettled(all.map((db) => db.close()));
    const again = await open<string, number>(path);
    for (const [key, value] of await again.entries().toArray())
      assert.ok(value === 4 || (value === 3 && !isDone[Number(key)]), `${key} is ${value}`);
    assert.equal(await again.size, 4);
    await again.set('0', 5);
    await again.close();
  }),
);

test('synchronous calls of the first opener need not wait for the flush that others share', () =>
  withPath(async (path) => {
    const first = await open<string, number>(path);
    const other = await open<string, number>(path);
    await Promise.all([first.set('a', 1), other.set('b', 1)]);
    for (let round = 2; round < 20; round++) {
      const [own, others] = [first.set('a', round), other.set('b', round)];
      await (round % 3 === 0 ? Promise.resolve() : new Promise((resolve) => setImmediate(resolve)));
      assert.equal(first.sync.get('a'), round);
      first.sync.set('c', round);
      await Promise.all([own, others]);
    }
    assert.deepEqual([await other.get('a'), await other.get('b'), await other.get('c')], [19, 19, 19]);
    await other.close();
    await first.close();
  }));

test('a long message of the first opener goes on after each flush', () =>
  withPath(async (path) => {
    const first = await open<number, Uint8Array>(path);
    const other = await open<number, Uint8Array>(path);
    await Promise.all([first.set(0, new Uint8Array(1)), other.set(1, new Uint8Array(1))]);
    const values = Array.from({ length: 12 }, (_, index) => new Uint8Array(1 << 20).fill(index));
    for (let round = 0; round < 3; round++) {
      const writes = values.map((value, index) => first.set(index + 10, value));
      const reads = values.map((_, index) => first.get(index + 10));
      const last = first.set(9, Uint8Array.of(round));
      await other.set(1, Uint8Array.of(round));
      await Promise.all([...writes, last]);
      assert.deepEqual(
        (await Promise.all(reads)).map((value) => value?.[0]),
        values.map((_, index) => index),
      );
      assert.deepEqual(await first.get(9), Uint8Array.of(round));
    }
    await other.close();
    await first.close();
  }));
