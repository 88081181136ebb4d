// The cases on idb-keyval itself, over an implementation of IndexedDB.
import 'fake-indexeddb/auto';
import { test } from 'node:test';
import * as original from 'idb-keyval';
import { cases } from './support/suite.ts';

/** Where fake-indexeddb differs from browsers: it takes no empty ArrayBuffer. Chromium runs the case. */
const NOT_FAKE = ['an empty binary is a key'];

for (const { name, run } of cases) if (!NOT_FAKE.includes(name)) test(`idb-keyval: ${name}`, () => run(original));
