// Recovering damaged databases into new ones.
import assert from 'node:assert/strict';
import { chmodSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { open, recover } from 'mangrove-kv';
import { rejects, withPath } from './support/kit.ts';

const COUNT = 3000;

async function fill(path: string): Promise<void> {
  const db = await open(path, { compression: 'none' });
  await db.setMany(Array.from({ length: COUNT }, (_, key) => [key, { key, text: `${key}`.repeat(30) }] as const));
  await db.collection('other').set('a', new Date(1));
  await db.close();
}

function overwrite(file: string, from: number, length: number): void {
  const bytes = readFileSync(file);
  bytes.fill(0xee, from, from + length);
  writeFileSync(file, bytes);
}

function contents(path: string): Map<string, Buffer> {
  return new Map(
    readdirSync(path)
      .sort()
      .map((name) => [name, readFileSync(join(path, name))]),
  );
}

test('an undamaged database is recovered unchanged', () =>
  withPath(async (path) => {
    await fill(path);
    const told: [number, number][] = [];
    const report = await recover(path, `${path}-into`, { onProgress: (...progress) => told.push(progress) });
    assert.deepEqual(report, { entries: COUNT + 1, lost: 0, problems: [] });
    assert.deepEqual(told.at(-1), [COUNT + 1, COUNT + 1]);
    const db = await open(`${path}-into`, { create: false });
    assert.equal(await db.size, COUNT);
    assert.deepEqual(await db.collection('other').get('a'), new Date(1));
    assert.deepEqual(((await db.get(7)) as { text: string }).text, '7'.repeat(30));
    await db.close();
    rmSync(`${path}-into`, { recursive: true });
  }));

test('all readable entries of a damaged database are recovered, and it is not changed', () =>
  withPath(async (path) => {
    await fill(path);
    overwrite(join(path, 'data'), 100_000, 5000);
    const before = contents(path);
    const into = `${path}-into`;
    const report = await recover(path, into);
    assert.ok(
      report.entries > COUNT / 2 && report.lost > 0 && report.entries + report.lost >= COUNT + 1,
      JSON.stringify(report),
    );
    assert.ok(report.problems.length > 0 && report.problems.every((problem) => problem.length > 10));
    assert.deepEqual(contents(path), before);
    const db = await open(into, { create: false });
    assert.deepEqual((await db.verify()).problems, []);
    for await (const [key, value] of db) assert.deepEqual(value, { key, text: `${key as number}`.repeat(30) });
    await db.close();
    rmSync(into, { recursive: true });
  }));

test('without superblocks the whole file is scanned', () =>
  withPath(async (path) => {
    await fill(path);
    overwrite(join(path, 'data'), 0, 8192);
    await assert.rejects(open(path, { create: false }));
    const report = await recover(path, `${path}-into`);
    assert.equal(report.entries, COUNT + 1);
    assert.equal(report.problems.length, 1);
    rmSync(`${path}-into`, { recursive: true });
  }));

test('existing targets and open databases are left alone', () =>
  withPath(async (path) => {
    await fill(path);
    const into = `${path}-into`;
    await rejects(recover(path, path), 'KV_EXISTS');
    await fill(into);
    await rejects(recover(path, into), 'KV_EXISTS');
    rmSync(into, { recursive: true });
    const db = await open(path);
    await rejects(recover(path, into), 'KV_LOCKED');
    await db.close();
    await rejects(recover(`${path}-none`, into), 'KV_NOT_FOUND');
    mkdirSync(`${path}-junk`);
    writeFileSync(join(`${path}-junk`, 'data'), 'x'.repeat(100_000));
    await assert.rejects(recover(`${path}-junk`, into));
    rmSync(`${path}-junk`, { recursive: true });
    assert.equal(existsSync(into), false);
    const reason = new Error('enough');
    await assert.rejects(recover(path, into, { signal: AbortSignal.abort(reason) }), reason);
    const controller = new AbortController();
    await assert.rejects(
      recover(path, into, { signal: controller.signal, onProgress: () => controller.abort(reason) }),
      reason,
    );
    await assert.rejects(
      recover(path, into, {
        onProgress: () => {
          throw reason;
        },
      }),
      reason,
    );
    assert.equal(existsSync(into), false);
    assert.deepEqual(readdirSync(path).sort(), ['data', 'log']);
  }));

test('a single file, and a database in a read-only directory, are recovered', () =>
  withPath(async (path) => {
    await fill(path);
    const file = join(path, 'exported');
    writeFileSync(file, readFileSync(join(path, 'data')));
    assert.equal((await recover(file, `${path}-single`)).entries, COUNT + 1);
    chmodSync(path, 0o555);
    try {
      assert.equal((await recover(path, `${path}-into`)).entries, COUNT + 1);
    } finally {
      chmodSync(path, 0o755);
    }
  }));
