// Upkeep of an open database: figures, verification, compaction, backups.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { code, withMemory, withPath } from './support/kit.ts';

const text = (index: number): string => `${index} `.repeat(2000 + Math.floor(Math.random() * 50));

async function fill(db: Database, count: number): Promise<void> {
  for (let start = 0; start < count; start += 100) {
    await db.setMany(Array.from({ length: 100 }, (_, index) => [start + index, text(start + index)] as const), { durability: 'none' });
  }
  await db.flush();
}

test('figures are complete', async () => {
  await withMemory({}, async (db) => {
    await db.set('a', 1);
    const stats = await db.stats();
    assert.ok(stats.memorySize >= 1 << 20 && stats.logSize > 0 && stats.logBytesWritten > 0);
    assert.ok(stats.logRecords >= 1 && stats.logFlushes >= 1);
    assert.equal(stats.recoveredFromOlder, false);
  });
});

test('a file is compacted while other calls are answered', async () => {
  await withPath(async (path) => {
    const db = await open(path, { compression: 'none' });
    await fill(db, 2000);
    for (let key = 0; key < 2000; key++) if (key % 3 !== 0) await db.delete(key, { durability: 'none' });
    await db.flush();
    const told: [number, number][] = [];
    let isDone = false;
    const compaction = db.compact({ onProgress: (done, total) => told.push([done, total]) }).finally(() => { isDone = true; });
    let answered = 0;
    while (!isDone) {
      await db.get(0);
      answered++;
    }
    const { before, after } = await compaction;
    assert.ok(after < before * 0.6, `${before} to ${after}`);
    assert.ok(told.length > 1 && answered > 1);
    assert.deepEqual(told.at(-1), [before - after, before - after]);
    assert.equal((await db.verify()).ok, true);
    assert.equal(await db.size, 667);
    assert.equal(typeof await db.get(1998), 'string');
    await db.close();
  });
});

test('a database is verified while other calls are answered, and is written to', async () => {
  await withMemory({ compression: 'none', nodeBytes: 4096 }, async (db) => {
    await fill(db, 3000);
    const told: [number, number][] = [];
    let isDone = false;
    const verification = db.verify({ onProgress: (done, total) => told.push([done, total]) }).finally(() => { isDone = true; });
    let written = 0;
    while (!isDone) await db.set(3000 + written++, text(0));
    const report = await verification;
    assert.deepEqual([report.ok, report.problems, report.entries], [true, [], 3000]);
    assert.ok(told.length > 2 && written > 2, `${told.length} slices, ${written} writes`);
    assert.deepEqual(told.at(-1), [3000, 3000]);
    assert.ok(told.every(([done], index) => done >= (told[index - 1]?.[0] ?? 0)));
    assert.equal((await db.stats()).openSnapshots, 0);
    const controller = new AbortController();
    const reason = new Error('enough');
    await assert.rejects(db.verify({ signal: controller.signal, onProgress: () => controller.abort(reason) }), reason);
    assert.equal((await db.stats()).openSnapshots, 0);
  });
});

test('upkeep can be aborted and checks its options', async () => {
  await withMemory({}, async (db) => {
    const reason = new Error('enough');
    const signal = AbortSignal.abort(reason);
    await assert.rejects(db.compact({ signal }), reason);
    await assert.rejects(db.verify({ signal }), reason);
    await assert.rejects(db.compact({ onProgress: 1 as never }), code('KV_INVALID_ARGUMENT'));
    await assert.rejects(db.backup({ signal }).getReader().read(), reason);
    const told: number[][] = [];
    await db.set(1, 1);
    assert.equal((await db.verify({ onProgress: (...progress) => told.push(progress) })).ok, true);
    assert.deepEqual(told, [[1, 1]]);
  });
});

test('a backup is made as it is read', async () => {
  await withMemory({ compression: 'none' }, async (db) => {
    await fill(db, 1000);
    const told: number[][] = [];
    const reader = db.backup({ onProgress: (...progress) => told.push(progress) }).getReader();
    const first = (await reader.read()).value;
    assert.equal(new TextDecoder().decode(first?.subarray(0, 8)), 'MANGRBAK');
    await db.clear();
    assert.equal((await db.stats()).openSnapshots, 1);
    assert.equal(told.length, 1);
    while (!(await reader.read()).done);
    assert.deepEqual(told.at(-1), [1000, 1000]);
    assert.equal((await db.stats()).openSnapshots, 0);
  });
});

test('a backup that is not read to its end is given up', async () => {
  await withMemory({}, async (db) => {
    await fill(db, 500);
    const cancelled = db.backup();
    const reader = cancelled.getReader();
    await reader.read();
    await reader.cancel();
    const controller = new AbortController();
    const aborted = db.backup({ signal: controller.signal }).getReader();
    await aborted.read();
    controller.abort(new Error('enough'));
    await assert.rejects(aborted.read(), /enough/);
    const failing = db.backup({ onProgress: () => { throw new Error('mine'); } }).getReader();
    await assert.rejects(failing.read(), /mine/);
    assert.equal((await db.stats()).openSnapshots, 0);
  });
  const db = await open('test', { storage: 'memory' });
  await db.close();
  await assert.rejects(db.backup().getReader().read(), code('KV_CLOSED'));
});
