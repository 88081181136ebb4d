// A database in a directory: locking, damage, files that are never touched, and what destroy and
// list see.
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, readdirSync, truncateSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import process from 'node:process';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { checkSupport, destroy, estimate, list, persist } from 'mangrove-kv';
import { rejects, withPath, openAlone as open } from './support/kit.ts';
import { runChild } from './support/child.ts';

async function fill(path: string, count = 500): Promise<void> {
  const db = await open(path, { durability: 'none' });
  await db.setMany(Array.from({ length: count }, (_, index) => [index, `value ${index}`]));
  await db.close();
}

const data = (path: string): string => join(path, 'data');

test('reopening finds what was written, and a file: URL is accepted as a path', () =>
  withPath(async (path) => {
    const first = await open(path);
    assert.equal(first.persistence, 'fs');
    assert.equal(first.path, path);
    await first.set('a', [1, 2]);
    await first.close();
    assert.deepEqual(readdirSync(path).sort(), ['data', 'log']);
    const second = await open(pathToFileURL(path));
    assert.deepEqual(await second.get('a'), [1, 2]);
    await second.close();
  }));

test('open obeys create and exclusive', () =>
  withPath(async (path) => {
    await rejects(open(path, { create: false }), 'KV_NOT_FOUND');
    assert.equal(existsSync(path), false, 'asking creates nothing');
    await (await open(join(path, 'deep', 'er'), { exclusive: true })).close();
    await rejects(open(join(path, 'deep', 'er'), { exclusive: true }), 'KV_EXISTS');
    await (await open(join(path, 'deep', 'er'), { create: false })).close();
  }));

test('invalid names are refused', async () => {
  for (const name of ['', 'a\0b', new URL('https://example.com/x'), 5 as never])
    await rejects(open(name), 'KV_INVALID_ARGUMENT');
  await rejects(open(new URL(import.meta.url)), 'KV_INVALID_ARGUMENT');
});

test('a second opener waits, then is refused', () =>
  withPath(async (path) => {
    const first = await open(path);
    await rejects(open(path, { lockTimeout: 0 }), 'KV_LOCKED');
    await rejects(open(path, { lockTimeout: 30 }), 'KV_LOCKED');
    await rejects(destroy(path), 'KV_LOCKED');
    // A long timeout, however slow the disk is.
    const waiting = open(path, { lockTimeout: 600_000 });
    await first.set('a', 1);
    await first.close();
    const second = await waiting;
    assert.equal(await second.get('a'), 1);
    await second.close();
  }));

test('a signal ends the wait for a lock', () =>
  withPath(async (path) => {
    const first = await open(path);
    const controller = new AbortController();
    const waiting = open(path, { signal: controller.signal });
    controller.abort('enough');
    await assert.rejects(waiting, (reason) => reason === 'enough');
    await first.close();
  }));

test('another process is kept out, and the death of the holder lets the next one in', () =>
  withPath(async (path) => {
    const first = await open(path);
    const refused = runChild(['try', path]);
    assert.equal(await refused.line(), 'KV_LOCKED');
    await refused.ended;
    await first.close();
    const holder = runChild(['hold', path]);
    assert.equal(await holder.line(), 'open');
    await rejects(open(path, { lockTimeout: 0 }), 'KV_LOCKED');
    holder.kill();
    await holder.ended;
    const next = await open(path, { lockTimeout: 0 });
    assert.equal(await next.get('held'), 1);
    await next.close();
  }));

test('of many simultaneous openers one succeeds', () =>
  withPath(async (path) => {
    await fill(path);
    writeFileSync(join(path, 'lock'), JSON.stringify({ pid: 2 ** 22 + 1, started: '' }));
    const opened = await Promise.allSettled(Array.from({ length: 10 }, () => open(path, { lockTimeout: 0 })));
    const winners = opened.filter((result) => result.status === 'fulfilled');
    assert.equal(winners.length, 1);
    await winners[0]?.value.close();
  }));

test('a foreign file is refused and left unchanged', () =>
  withPath(async (path) => {
    for (const content of ['SQLite format 3\0'.padEnd(5000, 'x'), 'short', '\0'.repeat(20_000)]) {
      mkdirSync(path, { recursive: true });
      writeFileSync(data(path), content);
      await rejects(open(path), 'KV_CORRUPT');
      assert.equal(readFileSync(data(path), 'latin1'), content);
      assert.deepEqual(readdirSync(path), ['data'], 'the lock is released');
    }
  }));

test('an empty file counts as a database not yet created', () =>
  withPath(async (path) => {
    mkdirSync(path);
    writeFileSync(data(path), '');
    await rejects(open(path, { create: false }), 'KV_NOT_FOUND');
    const db = await open(path, { exclusive: true });
    await db.set('a', 1);
    await db.close();
  }));

test('a newer format is refused and left unchanged', () =>
  withPath(async (path) => {
    await fill(path);
    const bytes = readFileSync(data(path));
    for (let at = 0; at < 8192; at += 2048) {
      if (bytes.toString('latin1', at, at + 8) !== 'MANGROVE') continue;
      bytes.writeUInt16LE(999, at + 8);
      bytes.writeUInt32LE(crc32(bytes.subarray(at, at + 508)), at + 508);
    }
    writeFileSync(data(path), bytes);
    await rejects(open(path), 'KV_VERSION_UNSUPPORTED');
    assert.deepEqual(readFileSync(data(path)), bytes);
  }));

function crc32(bytes: Uint8Array): number {
  let crc = ~0;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

test('a truncated file is detected', () =>
  withPath(async (path) => {
    await fill(path, 5000);
    const bytes = readFileSync(data(path));
    for (const size of [bytes.length - 1, bytes.length - 4096, 16384, 8192, 8191, 4096, 100]) {
      writeFileSync(data(path), bytes);
      truncateSync(data(path), size);
      const outcome = await open(path).then(
        (db) => readAll(db).finally(() => db.close()),
        (error: { code: string }) => error.code,
      );
      assert.ok(outcome === 'KV_CORRUPT' || outcome === 'right', `${size}: ${outcome}`);
      if (size > 8192) assert.equal(readFileSync(data(path)).length, size, 'the file is left unchanged');
    }
  }));

async function readAll(db: Awaited<ReturnType<typeof open>>): Promise<string> {
  try {
    let next = 0;
    for await (const [key, value] of db) {
      assert.equal(key, next);
      assert.equal(value, `value ${next++}`);
    }
    return next === 5000 ? 'right' : `only ${next}`;
  } catch (error) {
    return (error as { code?: string }).code ?? String(error);
  }
}

test('a flipped bit is an error or is healed, but never yields another value', () =>
  withPath(async (path) => {
    await fill(path, 5000);
    const bytes = readFileSync(data(path));
    const step = Math.ceil(bytes.length / 150);
    let found = 0;
    for (let at = 3; at < bytes.length; at += step) {
      const damaged = Buffer.from(bytes);
      damaged[at] = (damaged[at] as number) ^ (1 << (at % 8));
      writeFileSync(data(path), damaged);
      let outcome;
      let isOk = false;
      try {
        const db = await open(path);
        outcome = await readAll(db);
        const report = await db.verify();
        isOk = report.ok;
        for (const problem of report.problems) assert.equal(problem.code, 'KV_CORRUPT');
        await db.close();
      } catch (error) {
        outcome = (error as { code?: string }).code ?? String(error);
      }
      assert.ok(outcome === 'KV_CORRUPT' || outcome === 'right', `${at}: ${outcome}`);
      if (outcome === 'KV_CORRUPT') {
        found++;
        assert.equal(isOk, false, 'verify finds what reading finds');
      }
    }
    assert.ok(found > 75, `most of the file is data, ${found} of 150 were found`);
  }));

test('destroy removes a database and nothing else', () =>
  withPath(async (path) => {
    assert.equal(await destroy(path), false);
    await fill(path);
    writeFileSync(join(path, 'notes.txt'), 'mine');
    assert.equal(await destroy(path), true);
    assert.deepEqual(readdirSync(path), ['notes.txt']);
    assert.equal(await destroy(path), false);
    const db = await open(path, { exclusive: true });
    assert.equal(await db.size, 0);
    await db.close();
  }));

test('list finds the databases of the working directory', () =>
  withPath(async (path) => {
    const before = process.cwd();
    await fill(path);
    mkdirSync(join(dirname(path), 'other'));
    writeFileSync(join(dirname(path), 'other', 'data'), 'no database');
    mkdirSync(join(dirname(path), 'empty'));
    process.chdir(dirname(path));
    try {
      assert.deepEqual(await list(), [{ name: 'database', size: readFileSync(data(path)).length }]);
    } finally {
      process.chdir(before);
    }
  }));

test('files are supported, persistent and counted', async () => {
  assert.deepEqual(await checkSupport(), { ok: true, storage: 'fs' });
  assert.equal(await persist(), true);
  const { usage, quota } = await estimate();
  assert.ok(usage > 0 && quota >= usage);
});
