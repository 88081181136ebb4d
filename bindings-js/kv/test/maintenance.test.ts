// Maintenance of an open database: statistics, verification, compaction, backups.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keyCodecs, open, valueCodecs } from 'mangrove-kv';
import type { Database, ExtentKind } from 'mangrove-kv';
import { code, withMemory, withPath } from './support/kit.ts';

const text = (index: number): string => `${index} `.repeat(2000 + Math.floor(Math.random() * 50));

async function fill(db: Database, count: number): Promise<void> {
  for (let start = 0; start < count; start += 100) {
    await db.setMany(
      Array.from({ length: 100 }, (_, index) => [start + index, text(start + index)] as const),
      { durability: 'none' },
    );
  }
  await db.flush();
}

test('statistics are complete', async () => {
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
    const compaction = db.compact({ onProgress: (done, total) => told.push([done, total]) }).finally(() => {
      isDone = true;
    });
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
    assert.equal(typeof (await db.get(1998)), 'string');
    await db.close();
  });
});

test('a database is verified while other calls are answered and write to it', async () => {
  await withMemory({ compression: 'none', advanced: { nodeBytes: 4096 } }, async (db) => {
    await fill(db, 3000);
    const told: [number, number][] = [];
    let isDone = false;
    const verification = db.verify({ onProgress: (done, total) => told.push([done, total]) }).finally(() => {
      isDone = true;
    });
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

test('maintenance can be aborted and checks its options', async () => {
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

test('a backup is produced as it is read', async () => {
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

test('a backup that is not read to its end is released', async () => {
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
    const failing = db
      .backup({
        onProgress: () => {
          throw new Error('mine');
        },
      })
      .getReader();
    await assert.rejects(failing.read(), /mine/);
    assert.equal((await db.stats()).openSnapshots, 0);
  });
  const db = await open('test', { storage: 'memory' });
  await db.close();
  await assert.rejects(db.backup().getReader().read(), code('KV_CLOSED'));
});

test('a layout covers the whole file, all levels and the codecs', async () => {
  await withPath(async (path) => {
    const db = await open(path, { compression: 'none', cacheBytes: 1 << 20 });
    await fill(db, 300);
    const names = db.collection('names', { key: keyCodecs.string, value: valueCodecs.json() });
    await names.setMany(
      Array.from({ length: 5000 }, (_, index) => [`name ${index}`, index] as const),
      { durability: 'none' },
    );
    await db.flush();
    const told: [number, number][] = [];
    const layout = await db.layout({ onProgress: (done, total) => told.push([done, total]) });
    const stats = await db.stats();
    assert.deepEqual(told.at(-1), [5300, 5300]);
    assert.deepEqual(
      [layout.version, layout.fileSize, layout.unitSize],
      [stats.version, stats.fileSize, stats.unitSize],
    );
    assert.ok(layout.isExact);
    let end = 0;
    for (const extent of layout.extents) {
      assert.equal(extent.offset, end);
      end += extent.length;
    }
    assert.equal(end, stats.fileSize);
    const of = (kind: ExtentKind): number =>
      layout.extents.reduce((sum, one) => sum + (one.kind === kind ? one.length : 0), 0);
    assert.deepEqual([of('free'), of('kept'), of('pending')], [stats.freeSize, stats.keptSize, 0]);
    const [own, other] = layout.collections;
    assert.deepEqual(
      [own?.name, own?.entries, own?.keyCodec, own?.valueCodec],
      ['', 300, keyCodecs.any.id, valueCodecs.structured().id],
    );
    // The shortest values are stored in the leaves.
    assert.ok(own !== undefined && own.valueBlocks > 250 && own.valueBlocks <= 300);
    assert.equal(own.valueSize, of('value'));
    assert.deepEqual(
      [other?.name, other?.entries, other?.keyCodec, other?.valueCodec],
      ['names', 5000, keyCodecs.string.id, valueCodecs.json().id],
    );
    assert.equal(other?.levels.length, 2);
    assert.equal(other?.levels[1]?.nodes, 1);
    const leaves = other?.levels[0];
    assert.ok(
      leaves !== undefined &&
        leaves.nodes > 5 &&
        leaves.usedSize > 0 &&
        leaves.usedSize <= leaves.nodes * layout.nodeSize,
    );
    assert.equal(
      other?.levels.reduce((sum, level) => sum + level.fileSize, 0),
      layout.extents.filter((one) => one.collection === 'names').reduce((sum, one) => sum + one.length, 0),
    );
    const coarse = await db.layout({ maxExtents: 3 });
    assert.ok(!coarse.isExact && coarse.extents.length <= 3);
    await db.close();
  });
});

test('a layout tells the space of the indexes of each collection', async () => {
  await withPath(async (path) => {
    const db = await open(path, { feed: { retainCommits: 100 } });
    const rows = Array.from({ length: 3000 }, (_, index) => [index, `value ${index}`] as const);
    const bare = db.collection<number, string>('bare');
    await bare.setMany(rows, { durability: 'none' });
    const indexed = db.collection<number, string>('indexed', {
      indexes: {
        byValue: { key: (value) => value },
        byLength: { key: (value, key) => [value.length, key] },
      },
    });
    await indexed.setMany(rows, { durability: 'none' });
    await db.compact();
    const layout = await db.layout();
    const [first, second] = layout.collections;
    assert.deepEqual([first?.name, first?.indexSize, second?.name], ['bare', 0, 'indexed']);
    const ofIndexes = layout.extents.filter(({ kind }) => kind === 'index');
    assert.deepEqual(new Set(ofIndexes.map(({ collection }) => collection)), new Set(['indexed']));
    assert.equal(
      second?.indexSize,
      ofIndexes.reduce((sum, { length }) => sum + length, 0),
    );
    assert.ok(second !== undefined && second.indexSize > 3000 * 8);
    // The feed is no index.
    assert.ok(layout.extents.some(({ kind }) => kind === 'internal'));
    await db.close();
  });
});

test('a layout that is aborted keeps no snapshot', async () => {
  await withMemory({}, async (db) => {
    await fill(db, 3000);
    const abort = new AbortController();
    const layout = db.layout({ signal: abort.signal, onProgress: () => abort.abort(new Error('enough')) });
    await assert.rejects(layout, /enough/);
    assert.equal((await db.stats()).openSnapshots, 0);
    await assert.rejects(db.layout({ maxExtents: -1 }), code('KV_INVALID_ARGUMENT'));
  });
});
