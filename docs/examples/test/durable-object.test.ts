// Runs the worker in workerd, bundled as Wrangler does it.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { Miniflare } from 'miniflare';

const script = await build({
  entryPoints: [fileURLToPath(new URL('../durable-object/worker.ts', import.meta.url))],
  bundle: true,
  write: false,
  format: 'esm',
  target: 'es2022',
  conditions: ['workerd', 'worker', 'browser'],
  plugins: [
    {
      name: 'wasm',
      setup({ onResolve }) {
        onResolve({ filter: /\.wasm$/ }, () => ({ path: './mangrove_bg.wasm', external: true }));
      },
    },
  ],
});

test('counters are apart and keep a history', async () => {
  const server = new Miniflare({
    modules: [
      { type: 'ESModule', path: 'worker.js', contents: script.outputFiles[0]?.text ?? '' },
      {
        type: 'CompiledWasm',
        path: 'mangrove_bg.wasm',
        contents: readFileSync(createRequire(import.meta.url).resolve('mangrove-kv/assets/mangrove_bg.wasm')),
      },
    ],
    compatibilityDate: '2025-06-01',
    durableObjects: { COUNTERS: { className: 'Counter', useSQLite: true } },
  });
  const ask = async (path: string, body?: string): Promise<unknown> => {
    const response = await server.dispatchFetch(
      `http://localhost${path}`,
      body === undefined ? {} : { method: 'POST', body },
    );
    return response.json();
  };
  try {
    const counts = await Promise.all(['one', 'two', 'three'].map((by) => ask('/visits', by)));
    assert.deepEqual(counts.sort(), [1, 2, 3]);
    assert.equal(await ask('/others', 'first'), 1);
    const history = (await ask('/visits')) as [number, string][];
    assert.deepEqual(
      history.map(([number]) => number),
      [3, 2, 1],
    );
  } finally {
    await server.dispose();
  }
});
