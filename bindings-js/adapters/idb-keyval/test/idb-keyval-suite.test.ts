// The cases on the twin, without IndexedDB.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as twin from '@mangrove-kv/idb-keyval';
import { UPSTREAM, cases } from './support/suite.ts';

twin.configure({ storage: 'memory' });
for (const { name, run } of cases) test(`twin: ${name}`, () => run(twin));

test('the cases of idb-keyval are all there', () => {
  const names = cases.map(({ name }) => name);
  assert.deepEqual(
    UPSTREAM.filter((name) => !name.endsWith(': types') && !names.includes(name)),
    [],
  );
  assert.equal(new Set(names).size, names.length);
});
