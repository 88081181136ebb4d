// The engine in its own thread: the same database, without the synchronous API.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { open, openSync } from 'mangrove-kv';
import type { OpenOptions } from 'mangrove-kv';
import { MapStorage } from './support/map-storage.ts';
import { code, rejects, withPath } from './support/kit.ts';

const inWorker: OpenOptions = { thread: 'worker' };

test('a database in its own thread is the same database', () =>
  withPath(async (path) => {
    const db = await open(path, inWorker);
    assert.deepEqual([db.persistence, db.path, db.status], ['fs', path, 'open']);
    await Promise.all(Array.from({ length: 500 }, (_, index) => db.set(index, { index })));
    assert.deepEqual(await db.get(17), { index: 17 });
    await db.transaction(async (tx) => {
      const value = (await tx.get(17)) as { index: number };
      await tx.set(17, { index: value.index + 1 });
    });
    assert.deepEqual(await db.keys({ gte: 495 }).toArray(), [495, 496, 497, 498, 499]);
    assert.throws(() => db.sync, code('KV_SYNC_UNAVAILABLE'));
    await db.close();
    assert.equal(existsSync(join(path, 'lock')), false);

    const here = await open(path, { thread: 'same', create: false });
    assert.deepEqual(here.sync.get(17), { index: 18 });
    await here.close();
  }));

test('the files of a database in its own thread are locked like those of any other', () =>
  withPath(async (path) => {
    const db = await open(path, inWorker);
    await rejects(open(path, { share: false, lockTimeout: 0 }), 'KV_LOCKED');
    await rejects(open(path, { share: false, ...inWorker, lockTimeout: 0 }), 'KV_LOCKED');
    const waiting = open(path, { share: false, lockTimeout: 10_000 });
    await db.set('a', 1);
    await db.close();
    const next = await waiting;
    assert.equal(await next.get('a'), 1);
    await next.close();
  }));

test('a failed open rejects with a KvError, ends the thread and unlocks the directory', () =>
  withPath(async (path) => {
    await rejects(open(path, { ...inWorker, create: false }), 'KV_NOT_FOUND');
    await (await open(path)).close();
    await rejects(open(path, { ...inWorker, exclusive: true }), 'KV_EXISTS');
    writeFileSync(join(path, 'data'), 'not a database, but long enough to be read as one '.repeat(1000));
    await rejects(open(path, inWorker), 'KV_CORRUPT');
    await rejects(open(path, { ...inWorker, worker: pathToFileURL(join(path, 'missing.js')) }), 'KV_UNSUPPORTED');
    await rejects(open(path), 'KV_CORRUPT');
  }));

test('readers beside a writer can have threads too', () =>
  withPath(async (path) => {
    const writer = await open(path, inWorker);
    await writer.set('a', 1);
    const reader = await open(path, { ...inWorker, readOnly: true });
    assert.equal(await reader.get('a'), 1);
    await writer.set('a', 2);
    assert.equal(await reader.refresh(), true);
    assert.equal(await reader.get('a'), 2);
    await Promise.all([writer.close(), reader.close()]);
  }));

test('databases that cannot run in a thread are refused', async () => {
  await rejects(open('x', { ...inWorker, storage: new MapStorage() }), 'KV_UNSUPPORTED');
  assert.throws(() => openSync('x', inWorker), code('KV_INVALID_ARGUMENT'));
  await rejects(open('x', { thread: 'here' as 'same' }), 'KV_INVALID_ARGUMENT');
  const memory = await open('x', { ...inWorker, storage: 'memory' });
  await memory.set('a', 1);
  assert.equal(await memory.get('a'), 1);
  await memory.close();
});

test('a program ends although a database is open in a thread, but not before its calls are answered', () =>
  withPath(async (path) => {
    const program = `
    import { open } from '${new URL('../dist/node.js', import.meta.url).href}';
    const db = await open(${JSON.stringify(path)}, { thread: 'worker' });
    db.set('a', 1).then(() => process.stdout.write('written'));
  `;
    const flags = 'Deno' in globalThis ? ['eval', '--no-lock', program] : ['--input-type=module', '--eval', program];
    const script = join(path, '..', 'program.mjs');
    writeFileSync(script, program);
    const args =
      'Deno' in globalThis ? ['run', '--allow-all', '--no-lock', script] : 'Bun' in globalThis ? [script] : flags;
    const { stdout, status, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', timeout: 60_000 });
    assert.deepEqual([stdout, status], ['written', 0], stderr);
    const db = await open(path, { create: false });
    assert.equal(await db.get('a'), 1);
    await db.close();
  }));
