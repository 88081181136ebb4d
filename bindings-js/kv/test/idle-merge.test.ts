// Merging memtables while nobody commits.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { withPath } from './support/kit.ts';

const COUNT = 20_000;

/** Keys in scattered order, so that every leaf gets some. */
const key = (number: number): number => (number * 7919) % COUNT;

async function store(db: Database<number, string>, text: string): Promise<void> {
  await db.setMany(
    Array.from({ length: COUNT }, (_, number) => [key(number), `${text} ${number}`] as const),
    { durability: 'relaxed' },
  );
}

for (const thread of ['same', 'worker'] as const) {
  test(`committed changes are merged while nothing else is committed, ${thread} thread`, () =>
    withPath(async (path) => {
      const db = await open<number, string>(path, { thread });
      for (const text of ['first', 'second']) {
        await store(db, text);
        const before = await db.stats();
        assert.ok(before.dirtySize > 0);
        // Messages that commit nothing do not stop the merge.
        for (let number = 0; (await db.stats()).dirtySize > 0; number++) {
          assert.equal(await db.get(key(number)), `${text} ${number}`);
          await sleep(5);
        }
        const after = await db.stats();
        assert.ok(after.checkpoints > before.checkpoints);
        assert.equal(after.version, before.version);
        assert.equal(await db.count(), COUNT);
        assert.ok((await db.verify()).ok);
      }
      await db.close();
    }));
}

test('a read-only database is not written', () =>
  withPath(async (path) => {
    const db = await open<number, string>(path);
    await store(db, 'first');
    await db.close();
    const reader = await open<number, string>(path, { readOnly: true });
    const { checkpoints, bytesWritten } = await reader.stats();
    await sleep(300);
    const later = await reader.stats();
    assert.deepEqual([later.checkpoints, later.bytesWritten], [checkpoints, bytesWritten]);
    await reader.close();
  }));
