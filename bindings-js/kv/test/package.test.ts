// What the manifests of all packages declare to their users.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { manifests } from './support/packages.ts';

test('all packages have the same version, and ask for each other in exactly that', () => {
  const names = new Set(manifests.map(({ name }) => name));
  const version = manifests.find(({ name }) => name === 'mangrove-kv')?.version;
  for (const { name, version: own, peerDependencies = {}, dependencies = {} } of manifests) {
    assert.equal(own, version, name);
    for (const [peer, range] of Object.entries({ ...peerDependencies, ...dependencies }))
      if (names.has(peer)) assert.equal(range, version, `${name} -> ${peer}`);
  }
});

test('no version of an adapted library prevents an installation', () => {
  const names = new Set(manifests.map(({ name }) => name));
  for (const { name, peerDependencies = {} } of manifests) {
    // In npm, no other range includes prereleases.
    for (const [peer, range] of Object.entries(peerDependencies))
      if (!names.has(peer)) assert.equal(range, '*', `${name} -> ${peer}`);
  }
});

test('the database needs no other package, and has few entries', () => {
  const kv = manifests.find(({ name }) => name === 'mangrove-kv');
  assert.deepEqual([kv?.dependencies, kv?.peerDependencies], [undefined, undefined]);
  assert.ok(Object.keys(kv?.exports ?? {}).length <= 15);
});

const entries = manifests.flatMap(({ entries: own }) => own);

test('CommonJS programs can require each entry', () => {
  const require = createRequire(import.meta.url);
  for (const name of entries) assert.ok(Object.keys(require(name) as object).length > 0, name);
});

test('what Node, Deno and Bun load has lines, which they show with an uncaught error', () => {
  for (const name of entries.filter((each) => !each.endsWith('/durable-object'))) {
    const text = readFileSync(new URL(import.meta.resolve(name)), 'utf8');
    const lengths = text
      .split('\n')
      .map(({ length }) => length)
      .sort((a, b) => a - b);
    assert.ok((lengths[lengths.length >> 1] as number) < 200, name);
  }
});
