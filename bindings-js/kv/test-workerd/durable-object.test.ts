// Databases in Durable Objects, run by workerd, with files on the disk.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { DurableObjectStorage } from 'mangrove-kv/durable-object';
import { Miniflare } from 'miniflare';
import { code } from '../test/support/kit.ts';

const WORKER = fileURLToPath(new URL('./support/objects.ts', import.meta.url));

let directory = '';
let script = '';
let server: Miniflare;

/** As Wrangler does it: a module of WebAssembly stays an import, which the platform compiles. */
async function bundle(): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [WORKER],
    bundle: true,
    write: false,
    format: 'esm',
    target: 'es2022',
    conditions: ['workerd', 'worker', 'browser'],
    logLevel: 'warning',
    plugins: [
      {
        name: 'wasm',
        setup({ onResolve }) {
          onResolve({ filter: /\.wasm$/ }, ({ path }) => ({ path: `.//${basename(path)}`, external: true }));
        },
      },
    ],
  });
  return outputFiles[0]?.text ?? '';
}

function start(): Miniflare {
  const { resolve } = createRequire(import.meta.url);
  const modules = ['mangrove_bg.wasm', 'mangrove_core_bg.wasm'].map((name) => ({
    type: 'CompiledWasm' as const,
    path: name,
    contents: readFileSync(resolve(`mangrove-kv/assets/${name}`)),
  }));
  return new Miniflare({
    modules: [{ type: 'ESModule', path: 'worker.js', contents: script }, ...modules],
    compatibilityDate: '2025-06-01',
    durableObjects: {
      COUNTERS: { className: 'Counters', useSQLite: true },
      WITHOUT_SQL: { className: 'WithoutSql' },
      CONFORMANCE: { className: 'Conformance', useSQLite: true },
    },
    durableObjectsPersist: directory,
  });
}

before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'mangrove-objects-'));
  script = await bundle();
  server = start();
});

after(async () => {
  await server.dispose();
  await rm(directory, { recursive: true, force: true });
});

async function ask<T>(path: string): Promise<T> {
  const response = await server.dispatchFetch(`http://localhost${path}`);
  const text = await response.text();
  assert.equal(response.status, 200, text);
  return JSON.parse(text) as T;
}

async function restart(): Promise<void> {
  await server.dispose();
  server = start();
}

test('the storage passes its tests', async () => {
  const { passed, failed } = await ask<{ passed: string[]; failed: string[] }>('/conformance');
  assert.deepEqual(failed, []);
  assert.ok(passed.length > 15);
});

test('a database in an object survives its restart', async () => {
  const sums = [];
  for (let call = 0; call < 3; call++) sums.push(await ask<number>('/add?key=a'));
  assert.deepEqual(sums, [1, 2, 3]);
  assert.equal(await ask('/fill?count=2000'), 2000);
  await restart();
  assert.equal(await ask('/add?key=a'), 4);
  const { ok, problems, keys } = await ask<{ ok: boolean; problems: unknown[]; keys: number }>('/check');
  assert.deepEqual([ok, problems, keys], [true, [], 2001]);
});

test('requests at the same time each count', async () => {
  const sums = await Promise.all(Array.from({ length: 40 }, () => ask<number>('/add?key=b&object=two')));
  assert.deepEqual(
    sums.sort((a, b) => a - b),
    Array.from({ length: 40 }, (_, index) => index + 1),
  );
  assert.equal(await ask('/add?key=b&object=three'), 1);
});

test('an object that is killed keeps what it had told', async () => {
  for (let round = 1; round <= 5; round++) {
    for (let call = 0; call < 4; call++) await ask('/add?key=c&object=four');
    await server.dispatchFetch('http://localhost/die?key=d&object=four');
    assert.equal(await ask('/add?key=c&object=four'), round * 5);
    assert.equal((await ask<{ ok: boolean }>('/check?object=four')).ok, true);
  }
});

test('one database is open once, several are beside each other, and arguments are checked', async () => {
  assert.equal(await ask('/locked'), 'KV_LOCKED');
  assert.deepEqual(await ask('/other'), [1, false]);
  assert.deepEqual(await ask('/other'), [1, false]);
  assert.deepEqual(await ask('/invalid'), ['KV_INVALID_ARGUMENT', 'KV_INVALID_ARGUMENT', 'KV_NOT_FOUND']);
  assert.equal(await ask('/without-sql'), 'KV_UNSUPPORTED');
});

test('an encrypted database opens with its passphrase only', async () => {
  assert.deepEqual(await ask('/encrypted'), [1, 'KV_WRONG_KEY', 'KV_WRONG_KEY', 'KV_INVALID_ARGUMENT']);
  await restart();
  assert.deepEqual(await ask('/encrypted'), [2, 'KV_WRONG_KEY', 'KV_WRONG_KEY', 'KV_INVALID_ARGUMENT']);
});

test('a full database and other failures are typed', () => {
  for (const [message, expected] of [
    ['database or disk is full: SQLITE_FULL', 'KV_QUOTA_EXCEEDED'],
    ['disk I/O error', 'KV_IO'],
  ] as const) {
    const sql = {
      exec: (): never => {
        throw new Error(message);
      },
    };
    assert.throws(() => new DurableObjectStorage({ sql }), code(expected));
  }
});
