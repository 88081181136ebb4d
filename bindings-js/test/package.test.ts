// What package.json declares to users of the package.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test } from 'node:test';

interface Manifest {
  readonly exports: Record<string, { readonly default?: string } | string>;
  readonly peerDependencies: Record<string, string>;
  readonly peerDependenciesMeta: Record<string, { readonly optional: boolean }>;
}
const manifest = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as Manifest;

test('no version of an adapted library prevents an installation', () => {
  for (const [name, range] of Object.entries(manifest.peerDependencies)) {
    // In npm, no other range includes prereleases.
    assert.equal(range, '*', name);
    assert.equal(manifest.peerDependenciesMeta[name]?.optional, true, name);
  }
});

test('CommonJS programs can require each entry', () => {
  const require = createRequire(import.meta.url);
  for (const name of Object.keys(manifest.exports).filter((name) => !/worker|\.wasm$|\.json$/.test(name))) {
    assert.ok(Object.keys(require(name.replace('.', 'mangrove-kv')) as object).length > 0, name);
  }
});

test('what Node, Deno and Bun load has lines, which they show with an uncaught error', () => {
  for (const name of Object.keys(manifest.exports).filter((each) => !/worker|durable|inspector|\.wasm$|\.json$/.test(each))) {
    const text = readFileSync(new URL(import.meta.resolve(name.replace('.', 'mangrove-kv'))), 'utf8');
    const lengths = text.split('\n').map(({ length }) => length).sort((a, b) => a - b);
    assert.ok((lengths[lengths.length >> 1] as number) < 200, name);
  }
});
