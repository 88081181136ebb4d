// The cases on localForage itself, over an implementation of IndexedDB.
import 'fake-indexeddb/auto';
import './support/storage.ts';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { cases } from './support/suite.ts';

/** localForage needs a user agent and FileReader for Blobs, which Node lacks; Chromium runs the cases. */
const isForBrowsers = (name: string): boolean => name.includes('saves binary (Blob) data');

const localforage = createRequire(import.meta.url)('localforage') as LocalForage;
// It warns of keys that are no strings, and of versions.
console.warn = () => undefined;
for (const { name, run } of cases) {
  // Other runtimes do not tell tests of rejections that nothing handles, of which localForage has some.
  if (isForBrowsers(name) || 'Deno' in globalThis || 'Bun' in globalThis) continue;
  test(`localForage: ${name}`, async () => {
    // It has promises of its own beside those that it returns, which nobody can handle if they reject.
    process.removeAllListeners('unhandledRejection').on('unhandledRejection', () => undefined);
    await run({ localforage, settings: {} });
  });
}
