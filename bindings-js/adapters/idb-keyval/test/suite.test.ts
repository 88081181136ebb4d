// The same cases on idb-keyval itself, over an implementation of IndexedDB, and on the twin.
import { IDBKeyRange, indexedDB } from 'fake-indexeddb';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as twin from '@mangrove-kv/idb-keyval';
import { UPSTREAM, cases } from './support/suite.ts';
import type { Api } from './support/suite.ts';

twin.configure({ storage: 'memory' });
/** Not all of IndexedDB is global: the twin has to do without. */
const withIndexedDB = async (run: () => Promise<void>): Promise<void> => {
  Object.assign(globalThis, { IDBKeyRange, indexedDB });
  try {
    await run();
  } finally {
    for (const name of ['IDBKeyRange', 'indexedDB']) delete (globalThis as Record<string, unknown>)[name];
  }
};
const original: Api = await import('idb-keyval');

/** Where fake-indexeddb differs from browsers: it takes no empty ArrayBuffer. Chromium runs the case. */
const NOT_FAKE = ['an empty binary is a key'];

for (const { name, run } of cases) {
  if (!NOT_FAKE.includes(name)) test(`idb-keyval: ${name}`, () => withIndexedDB(() => run(original)));
  test(`twin: ${name}`, () => run(twin));
}

test('the cases of idb-keyval are all there', () => {
  const names = cases.map(({ name }) => name);
  assert.deepEqual(
    UPSTREAM.filter((name) => !name.endsWith(': types') && !names.includes(name)),
    [],
  );
  assert.equal(new Set(names).size, names.length);
});
