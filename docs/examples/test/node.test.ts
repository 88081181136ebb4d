// Runs each example for Node as a separate program and checks its output.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { open } from 'mangrove-kv';
import { testStorage } from 'mangrove-kv/testing';

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
async function linesOf(example: string, path: string, ...imports: string[]): Promise<string[]> {
  const file = fileURLToPath(new URL(`../${example}`, import.meta.url));
  const flags = ['tsx', ...imports].flatMap((name) => ['--import', name]);
  const { stdout } = await run(process.execPath, [...flags, file, path], { cwd: fileURLToPath(new URL('..', import.meta.url)) });
  return stdout.trimEnd().split('\n');
}

test('outbox: nothing is lost while there is no server, nothing is done twice, nothing is sent that was changed meanwhile', () =>
  withDirectory(async (directory) => {
    assert.deepEqual(await linesOf('outbox.ts', join(directory, 'db')), [
      '2 waiting: fetch failed',
      'sent 3',
      'the server has done 3 jobs',
      'ada: Notes on the Analytical Engine',
      'grace: Compiler',
    ]);
  }));

test('session cache: sessions live on when they are used, and end', () => withDirectory(async (directory) => {
  assert.deepEqual(await linesOf('session-cache.ts', join(directory, 'db')), [
    "{ user: 'ada', visits: 2 }",
    'ends in 60 minutes',
    'an expired one: undefined',
    'after the logout: undefined 0',
  ]);
}));

test('backup: the file is there when it is complete', () => withDirectory(async (directory) => {
  assert.deepEqual(await linesOf('backup.ts', join(directory, 'db')), ['true']);
  const db = await open<number, string>(join(directory, 'db'));
  assert.equal(await db.size, 10_001);
  await db.close();
}));

test('idb-keyval: what was stored is there, as it should be, once', () => withDirectory(async (directory) => {
  assert.deepEqual(await linesOf('from-idb-keyval.ts', join(directory, 'db'), 'fake-indexeddb/auto'), [
    '3 of 3',
    'at the next start: 0',
    '1 Notes on the Analytical Engine 1843',
    '2 Loom 1804',
  ]);
}));

test('database as bytes: a copy of the bytes is the database', () => withDirectory(async (directory) => {
  const [hasBytes, ...rest] = await linesOf('database-as-bytes.ts', join(directory, 'unused'));
  assert.equal(hasBytes, 'true');
  assert.match(rest.join(' '), /'Ada Lovelace'.*'Sketch of the Analytical Engine'.* true$/);
}));

const { BytesStorage } = await import('../database-as-bytes.ts');
await testStorage(() => new BytesStorage(), { test });
