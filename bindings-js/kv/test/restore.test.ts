// Restoring backups: into a new place, over a database, from streams and Blobs, and what remains
// after a failure.
import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import {
  copyFileSync,
  createReadStream,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { destroy, open, recover, restore } from 'mangrove-kv';
import type { BackupSource, Database } from 'mangrove-kv';
import * as inline from 'mangrove-kv/inline';
import { runChild } from './support/child.ts';
import { chance, rejects, withPath } from './support/kit.ts';

async function fill(db: Database, count: number, text = 'x'): Promise<void> {
  await db.setMany(
    Array.from({ length: count }, (_, key) => [key, { key, text: `${text}${key}`.repeat(20) }] as const),
  );
}

/** Creates a database with `count` entries; returns a backup of it. */
async function backupOf(path: string, count: number, text = 'x'): Promise<Blob> {
  const db = await open(path);
  await fill(db, count, text);
  const log = db.collection<string, Date>('log');
  await log.set('made', new Date(5));
  await log.set('soon', new Date(6), { expireAt: 4e12 });
  const blob = await new Response(db.backup()).blob();
  await db.close();
  return blob;
}

async function texts(path: string): Promise<{ count: number; first: unknown; log: number }> {
  const db = await open(path, { create: false, lockTimeout: 0 });
  try {
    assert.deepEqual((await db.verify()).problems, []);
    return {
      count: await db.size,
      first: ((await db.get(0)) as { text: string } | undefined)?.text.slice(0, 2),
      log: await db.collection('log').size,
    };
  } finally {
    await db.close();
  }
}

test('a backup is restored from a Blob and from a stream, also by the inlined entry', () =>
  withPath(async (path) => {
    const blob = await backupOf(path, 3000);
    const told: [number, number][] = [];
    await restore(`${path}/deep/blob`, blob, { onProgress: (...progress) => told.push(progress) });
    assert.deepEqual(told.at(-1), [3002, 3002]);
    await restore(new URL(`file://${path}-stream`), blob.stream());
    await inline.restore(`${path}-inline`, blob);
    for (const made of [`${path}/deep/blob`, `${path}-stream`, `${path}-inline`]) {
      assert.deepEqual(readdirSync(made), ['data']);
      assert.deepEqual(await texts(made), { count: 3000, first: 'x0', log: 2 });
      const db = await open(made);
      const log = db.collection<string, Date>('log');
      assert.deepEqual(await log.get('made'), new Date(5));
      assert.equal((await log.getEntry('soon'))?.expiresAt, 4e12);
      await db.close();
      rmSync(made, { recursive: true });
    }
  }));

test('a backup may be bytes, a path, or any stream', () =>
  withPath(async (path) => {
    const blob = await backupOf(path, 3000);
    const bytes = Buffer.from(await blob.arrayBuffer());
    const file = `${path}.backup`;
    writeFileSync(file, bytes);
    async function* pieces(): AsyncGenerator<Uint8Array> {
      for (let at = 0; at < bytes.length; at += 1000) yield bytes.subarray(at, at + 1000);
    }
    const padded = new Uint8Array([1, 2, 3, ...bytes, 4]);
    const sources: (() => BackupSource)[] = [
      () => bytes,
      () => new Uint8Array(bytes),
      () => new Uint8Array(bytes).buffer,
      () => padded.subarray(3, -1),
      () => new DataView(padded.buffer, 3, bytes.length),
      () => file,
      () => pathToFileURL(file),
      () => createReadStream(file),
      () => Readable.from(pieces()),
      pieces,
      () => createReadStream(file).pipe(new PassThrough()),
    ];
    for (const source of sources) {
      const made = `${path}-made`;
      await restore(made, source());
      assert.deepEqual(await texts(made), { count: 3000, first: 'x0', log: 2 });
      // A backup that is already a file is not copied.
      await restore(made, source(), { overwrite: true });
      assert.deepEqual(readdirSync(made), ['data']);
      rmSync(made, { recursive: true });
    }
    assert.deepEqual(readFileSync(file), bytes);
  }));

test('a Node stream ends when it fails, yields text or is not needed', () =>
  withPath(async (path) => {
    const blob = await backupOf(path, 10);
    const enough = new Error('enough');
    const into = `${path}-into`;
    const failing = new Readable({
      read(): void {
        this.destroy(enough);
      },
    });
    await assert.rejects(restore(into, failing), enough);
    await rejects(restore(into, Readable.from(['text'])), 'KV_INVALID_ARGUMENT');
    const refused = Readable.from([Buffer.from(await blob.arrayBuffer())]);
    await rejects(restore(path, refused), 'KV_EXISTS');
    assert.equal(refused.destroyed, true);
    const endless = new Readable({ read(): void {} });
    const controller = new AbortController();
    const restored = restore(into, endless, { signal: controller.signal });
    setTimeout(() => controller.abort(enough), 20);
    await assert.rejects(restored, enough);
    assert.equal(endless.destroyed, true);
    assert.equal(existsSync(into), false);
  }));

test('a stream in chunks of any size is restored directly from a database that keeps writing', () =>
  withPath(async (path) => {
    const db = await open(path);
    await fill(db, 500);
    let rest = new Uint8Array();
    const cut = new TransformStream<Uint8Array, Uint8Array>({
      transform(piece, controller) {
        rest = Uint8Array.of(...rest, ...piece);
        for (let at = 0; at < rest.length; at += 1 + (at % 777))
          controller.enqueue(rest.slice(at, at + 1 + (at % 777)));
        rest = new Uint8Array();
      },
    });
    const restored = restore(`${path}-copy`, db.backup().pipeThrough(cut));
    await fill(db, 501, 'later');
    await restored;
    assert.deepEqual(await texts(`${path}-copy`), { count: 500, first: 'x0', log: 0 });
    await db.close();
    rmSync(`${path}-copy`, { recursive: true });
  }));

test('an existing database is replaced only on request, and in one step', () =>
  withPath(async (path) => {
    const blob = await backupOf(path, 100, 'new');
    const db = await open(path);
    await fill(db, 200, 'old');
    await rejects(restore(path, blob, { overwrite: true }), 'KV_LOCKED');
    assert.equal(await db.size, 200);
    await db.close();
    await rejects(restore(path, blob), 'KV_EXISTS');
    assert.deepEqual(await texts(path), { count: 200, first: 'ol', log: 2 });
    await restore(path, blob, { overwrite: true });
    assert.deepEqual(await texts(path), { count: 100, first: 'ne', log: 2 });
  }));

test('a damaged database is replaced', () =>
  withPath(async (path) => {
    const blob = await backupOf(path, 100);
    writeFileSync(join(path, 'data'), 'no database at all');
    await rejects(restore(path, blob), 'KV_EXISTS');
    await restore(path, blob, { overwrite: true, force: true });
    assert.deepEqual(await texts(path), { count: 100, first: 'x0', log: 2 });
  }));

test('a damaged backup changes nothing', () =>
  withPath(async (path) => {
    const blob = await backupOf(path, 2000);
    const bytes = new Uint8Array(await blob.arrayBuffer());
    const before = readFileSync(join(path, 'data'));
    const random = chance(7);
    const damaged = Array.from({ length: 20 }, () => {
      const copy = bytes.slice();
      const at = 8 + Math.floor(random() * (copy.length - 8));
      copy[at] = (copy[at] as number) ^ 0x10;
      return copy;
    });
    for (const bad of [...damaged, bytes.slice(0, 40), bytes.slice(0, -1), new Uint8Array([...bytes, 0])]) {
      await assert.rejects(restore(path, new Blob([bad]), { overwrite: true }), (error: { code?: string }) => {
        assert.ok(
          ['KV_CORRUPT', 'KV_VERSION_UNSUPPORTED', 'KV_INVALID_ARGUMENT'].includes(error.code ?? ''),
          String(error),
        );
        return true;
      });
      await assert.rejects(restore(`${path}-new`, new Blob([bad])));
      assert.equal(existsSync(`${path}-new`), false);
    }
    await rejects(restore(path, new Blob([bytes.slice(0, -1)]), { overwrite: true }), 'KV_CORRUPT');
    await assert.rejects(restore(path, new Blob(['nothing of ours']), { overwrite: true }));
    assert.deepEqual(readdirSync(path).sort(), ['data', 'log']);
    assert.deepEqual(readFileSync(join(path, 'data')), before);
  }));

test('a restore can be ended by its signal, its progress callback and its stream', () =>
  withPath(async (path) => {
    const blob = await backupOf(path, 5000);
    const into = `${path}-into`;
    const enough = new Error('enough');
    await assert.rejects(restore(into, blob, { signal: AbortSignal.abort(enough) }), enough);
    const failing = (): never => {
      throw enough;
    };
    await assert.rejects(restore(into, blob, { onProgress: failing }), enough);
    const controller = new AbortController();
    await assert.rejects(
      restore(into, blob, { signal: controller.signal, onProgress: () => controller.abort(enough) }),
      enough,
    );
    // However far it has got.
    for (let turns = 0; turns < 40; turns++) {
      let isCancelled = false;
      const endless = new ReadableStream<Uint8Array>({
        cancel: () => {
          isCancelled = true;
        },
      });
      const waiting = new AbortController();
      const restored = assert.rejects(restore(into, endless, { signal: waiting.signal }), enough);
      for (let turn = 0; turn < turns; turn++) await new Promise(setImmediate);
      waiting.abort(enough);
      await restored;
      assert.equal(isCancelled, true, `${turns} turns`);
    }
    await assert.rejects(
      restore(into, new ReadableStream({ start: (controller) => controller.error(enough) })),
      enough,
    );
    await rejects(
      restore(into, new ReadableStream({ start: (controller) => controller.enqueue('text' as never) })),
      'KV_INVALID_ARGUMENT',
    );
    assert.equal(existsSync(into), false);
  }));

test('arguments are checked', () =>
  withPath(async (path) => {
    for (const backup of [undefined, null, 5, {}, [new Uint8Array(8)]])
      await rejects(restore(path, backup as never), 'KV_INVALID_ARGUMENT');
    await rejects(restore(path, `${path}-backup`), 'KV_NOT_FOUND');
    await rejects(restore(path, new URL('https://example.com/backup')), 'KV_INVALID_ARGUMENT');
    await rejects(restore('', new Blob()), 'KV_INVALID_ARGUMENT');
    await rejects(restore(path, new Blob(), { overwrite: 1 as never }), 'KV_INVALID_ARGUMENT');
    await rejects(restore(path, new Blob(), { onProgress: 1 as never }), 'KV_INVALID_ARGUMENT');
    await rejects(restore(path, new Blob(), { storage: 'memory' as never }), 'KV_INVALID_ARGUMENT');
    await rejects(restore(path, new Blob(), { storage: 'indexeddb' }), 'KV_UNSUPPORTED');
    await rejects(restore(path, new Blob(), null as never), 'KV_INVALID_ARGUMENT');
    await rejects(recover(path, `${path}-into`), 'KV_NOT_FOUND');
    assert.equal(existsSync(path) || existsSync(`${path}-into`), false);
  }));

test('the remains of an interrupted restore prevent nothing', () =>
  withPath(async (path) => {
    const blob = await backupOf(path, 50);
    // Before the replacement, everything exists under other names.
    for (const name of ['data.restoring', 'log.restoring', 'backup.restoring'])
      writeFileSync(join(path, name), 'half of it');
    assert.deepEqual(await texts(path), { count: 50, first: 'x0', log: 2 });
    await restore(path, blob, { overwrite: true });
    assert.deepEqual(readdirSync(path), ['data']);
    for (const name of ['data.restoring', 'log.restoring', 'backup.restoring'])
      writeFileSync(join(path, name), 'half of it');
    await destroy(path);
    assert.equal(existsSync(path), false);
    // A new directory holds nothing to open yet.
    const fresh = `${path}-new`;
    mkdirSync(fresh);
    writeFileSync(join(fresh, 'data.restoring'), 'half of it');
    await rejects(open(fresh, { create: false }), 'KV_NOT_FOUND');
    await restore(fresh, blob);
    assert.deepEqual(await texts(fresh), { count: 50, first: 'x0', log: 2 });
  }));

test('the new database ignores the log of the old one', () =>
  withPath(async (path) => {
    // The same database, so that ids and versions match, with commits that only the log has.
    const blob = await backupOf(path, 50);
    const child = runChild(['hold', path]);
    assert.equal(await child.line(), 'open');
    child.kill();
    await child.ended;
    copyFileSync(join(path, 'log'), `${path}-log`);
    assert.ok(readFileSync(`${path}-log`).includes('MANGRLOG'));
    await restore(path, blob, { overwrite: true });
    // As if the process had died right after the replacement.
    copyFileSync(`${path}-log`, join(path, 'log'));
    const db = await open(path);
    assert.equal(await db.has('held'), false);
    assert.equal(await db.size, 50);
    await db.set('later', 1);
    await db.close();
    const again = await open(path);
    assert.deepEqual([await again.size, await again.get('later'), (await again.verify()).problems], [51, 1, []]);
    await again.close();
  }));

test('a process killed during a restore leaves the old database or the new one', { timeout: 120_000 }, () =>
  withPath(async (path) => {
    const blob = await backupOf(`${path}-source`, 4000, 'new');
    writeFileSync(`${path}-backup`, new Uint8Array(await blob.arrayBuffer()));
    const db = await open(path);
    await fill(db, 300, 'old');
    await db.close();
    const random = chance(9);
    const seen = new Set<number>();
    for (let round = 0; round < 8; round++) {
      const child = runChild(['restore', path, `${path}-backup`]);
      for (let left = Math.floor(random() * 12); left >= 0; left--) if ((await child.line()) === undefined) break;
      child.kill();
      await child.ended;
      const { count, first } = await texts(path);
      assert.deepEqual(first, count === 300 ? 'ol' : 'ne');
      assert.ok(count === 300 || count === 4000, `${count} entries`);
      seen.add(count);
    }
    await restore(path, blob, { overwrite: true });
    assert.deepEqual(readdirSync(path), ['data']);
    assert.equal((await texts(path)).count, 4000);
  }),
);
