// The browser's entry points outside of browsers, where pages are rendered: an import has no
// effect, and `open` says why it cannot work. Also, the module from wherever a caller has it.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import process from 'node:process';
import { test } from 'node:test';
import { open, openSync } from 'mangrove-kv';
import type { OpenOptions, WasmSource, WorkerSource } from 'mangrove-kv';
import { code, rejects } from './support/kit.ts';

const MODULE = new URL('../dist/mangrove_bg.wasm', import.meta.url);
const bytes = new Uint8Array(readFileSync(MODULE));

type Entry = typeof import('mangrove-kv');

async function roundTrip(entry: Pick<Entry, 'open'>, options: OpenOptions = {}): Promise<unknown> {
  const db = await entry.open('test', { storage: 'memory', ...options });
  try {
    await db.set('k', [1n]);
    return await db.get('k');
  } finally {
    await db.close();
  }
}

function roundTripSync(openIt: Entry['openSync'], options: OpenOptions = {}): unknown {
  const db = openIt('test', { storage: 'memory', ...options });
  try {
    db.set('k', [1n]);
    return db.get('k');
  } finally {
    db.close();
  }
}

for (const name of ['index', 'inline']) {
  test(`the browser's ${name} is imported on a server without effect, and open says what is missing`, async () => {
    const before = new Set(Reflect.ownKeys(globalThis));
    const entry = (await import(`../dist/${name}.js`)) as Entry;
    assert.deepEqual(
      Reflect.ownKeys(globalThis).filter((key) => !before.has(key)),
      [],
    );
    await rejects(entry.open('x'), 'KV_UNSUPPORTED');
    assert.throws(() => entry.openSync('x'), code('KV_UNSUPPORTED'));
    assert.equal((await entry.checkSupport()).ok, false);
    await rejects(entry.list(), 'KV_UNSUPPORTED');
    await rejects(entry.destroy('x'), 'KV_UNSUPPORTED');
    assert.equal(await entry.persist(), false);
    await assert.rejects(entry.open('x', { storage: 'fs' }), code('KV_UNSUPPORTED'));
  });
}

test('the inlined entry needs no file beside it', async () => {
  const inline = await import('mangrove-kv/inline');
  assert.deepEqual(await roundTrip(inline), [1n]);
  assert.deepEqual(roundTripSync(inline.openSync), [1n]);
});

const sources: [string, () => WasmSource][] = [
  ['a URL', () => MODULE],
  ['text', () => MODULE.href],
  ['bytes', () => bytes],
  ['a buffer', () => bytes.slice().buffer],
  ['a module', () => new WebAssembly.Module(bytes)],
  ['a response', () => new Response(bytes, { headers: { 'content-type': 'application/wasm' } })],
];
for (const [what, source] of sources) {
  test(`the module comes from ${what}`, async () => {
    const wasm = source();
    assert.deepEqual(await roundTrip({ open }, { wasm }), [1n]);
    // A response can be read only once.
    assert.deepEqual(await roundTrip({ open }, { wasm }), [1n]);
    if (wasm instanceof Response) assert.throws(() => openSync('x', { wasm }), code('KV_UNSUPPORTED'));
    else for (let i = 0; i < 2; i++) assert.deepEqual(roundTripSync(openSync, { wasm }), [1n]);
  });
}

test('an invalid module or worker causes a KvError', async () => {
  for (const wasm of [1, {}, null] as unknown as WasmSource[])
    await rejects(open('x', { wasm }), 'KV_INVALID_ARGUMENT');
  for (const worker of [1, {}, null] as unknown as WorkerSource[]) {
    await rejects(open('x', { storage: 'memory', worker }), 'KV_INVALID_ARGUMENT');
  }
  await rejects(open('x', { storage: 'memory', wasm: 'http://[' }), 'KV_INVALID_ARGUMENT');
  await rejects(open('x', { storage: 'memory', wasm: 'file:///nowhere.wasm' }), 'KV_IO');
  assert.throws(() => openSync('x', { wasm: 'file:///nowhere.wasm' }), code('KV_IO'));
  assert.throws(() => openSync('x', { wasm: 'https://localhost/engine.wasm' }), code('KV_UNSUPPORTED'));
  assert.throws(() => openSync('x', { wasm: new Uint8Array(8) }), code('KV_UNSUPPORTED'));
  await rejects(open('x', { storage: 'memory', wasm: new Uint8Array(8) }), 'KV_UNSUPPORTED');
  await rejects(open('x', { storage: 'memory', wasm: new Response('', { status: 404 }) }), 'KV_IO');
});

test('a relative address is resolved against the working directory', async () => {
  const directory = process.cwd();
  process.chdir(new URL('../dist', import.meta.url).pathname);
  try {
    assert.deepEqual(await roundTrip({ open }, { wasm: './mangrove_bg.wasm' }), [1n]);
  } finally {
    process.chdir(directory);
  }
});
