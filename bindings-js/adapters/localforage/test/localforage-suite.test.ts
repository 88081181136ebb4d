// The cases on the twin, without IndexedDB.
import './support/storage.ts';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import localforage from '@mangrove-kv/localforage';
import { cases } from './support/suite.ts';
import { OTHERS, PER_DRIVER } from './support/upstream.ts';

/** Other runtimes do not tell tests of rejections that nothing handles. */
const isForNode = (name: string): boolean => name.includes('when the callback throws');

for (const { name, run } of cases) {
  if (isForNode(name) && ('Deno' in globalThis || 'Bun' in globalThis)) continue;
  test(`twin: ${name}`, () => run({ localforage, settings: { storage: 'memory' } }));
}

test('the cases of localForage are all there', () => {
  const names = cases.map(({ name }) => name);
  const expected = [
    ...OTHERS,
    ...['INDEXEDDB', 'LOCALSTORAGE'].flatMap((driver) => PER_DRIVER.map((name) => `${driver}: ${name}`)),
  ];
  assert.deepEqual(
    expected.filter((name) => !names.includes(name)),
    [],
  );
  assert.equal(new Set(names).size, names.length);
});
