// Runs each example for Node as a separate program and checks its output; most of them in Deno and Bun, too.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { open } from 'mangrove-kv';
import { testStorage } from '@mangrove-kv/storage-tests';
import { DIRECTORY, RUNTIME, commandOf } from './runtime.ts';

const run = promisify(execFile);

async function withDirectory<T>(use: (directory: string) => Promise<T>): Promise<T> {
  const directory = await mkdtemp(join(tmpdir(), 'mangrove-example-'));
  try {
    return await use(directory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** Returns the lines that an example prints with a database at `path`. */
async function linesOf(example: string, path: string, flags: readonly string[] = []): Promise<string[]> {
  const [program, args] = commandOf(example, path);
  const { stdout } = await run(program, [...flags, ...args], { cwd: DIRECTORY });
  return stdout.trimEnd().split('\n');
}

test('outbox: nothing is lost while there is no server, nothing is done twice, nothing is sent that was changed meanwhile', () =>
  withDirectory(async (directory) => {
    const [failure, ...rest] = await linesOf('outbox.ts', join(directory, 'db'));
    assert.match(failure ?? '', /^2 waiting: ./);
    assert.deepEqual(rest, [
      'sent 3',
      'the server has done 3 jobs',
      'ada: Notes on the Analytical Engine',
      'grace: Compiler',
    ]);
  }));

test('session cache: sessions live on when they are used, and end', () =>
  withDirectory(async (directory) => {
    assert.deepEqual(await linesOf('session-cache.ts', join(directory, 'db')), [
      'visits: 2',
      'ends in 60 minutes',
      'an expired one: undefined',
      'after the logout: undefined 0',
    ]);
  }));

test('backup: the file is there when it is complete', () =>
  withDirectory(async (directory) => {
    assert.deepEqual(await linesOf('backup.ts', join(directory, 'db')), ['true']);
    const db = await open<number, string>(join(directory, 'db'));
    assert.equal(await db.size, 10_001);
    await db.close();
  }));

test('idb-keyval: what was stored is there, as it should be, once', { skip: RUNTIME !== 'node' }, () =>
  withDirectory(async (directory) => {
    assert.deepEqual(await linesOf('from-idb-keyval.ts', join(directory, 'db'), ['--import', 'fake-indexeddb/auto']), [
      '3 of 3',
      'at the next start: 0',
      '1 Notes on the Analytical Engine 1843',
      '2 Loom 1804',
    ]);
  }),
);

test('database as bytes: a copy of the bytes is the database', () =>
  withDirectory(async (directory) => {
    const [hasBytes, ...rest] = await linesOf('database-as-bytes.ts', join(directory, 'unused'));
    assert.equal(hasBytes, 'true');
    assert.match(rest.join(' '), /Ada Lovelace.*Sketch of the Analytical Engine.* true$/);
  }));

if (RUNTIME === 'node') {
  const { BytesStorage } = await import('../database-as-bytes.ts');
  await testStorage(() => new BytesStorage(), { test });
}
