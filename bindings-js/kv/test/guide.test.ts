// Runs, verbatim, every block of JavaScript in the guide, among the first mistakes and in the
// README, and the first one of the package's page, each with its own directory.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { KvErrorCode } from 'mangrove-kv';
import { withPath } from './support/kit.ts';

/** Inside the package, so that the examples can import it by name. */
const DIRECTORY = fileURLToPath(new URL('../build/guide', import.meta.url));

mkdirSync(DIRECTORY, { recursive: true });
after(() => rmSync(DIRECTORY, { recursive: true, force: true }));

function readPage(name: string): string {
  return readFileSync(new URL(`../../../${name}`, import.meta.url), 'utf8');
}

function blocksOf(page: string): string[] {
  return [...page.matchAll(/^```js\n([^]*?)^```$/gm)].map(([, code]) => code as string);
}

async function run(file: string, code: string): Promise<void> {
  const path = join(DIRECTORY, file);
  // Node 20 has no `using`.
  writeFileSync(path, code.replaceAll(/\busing (\w+) =/g, 'const $1 ='));
  assert.ok(await import(pathToFileURL(path).href));
}

const guide = readPage('docs/GUIDE.md');
const [head, ...examples] = blocksOf(guide);

test('the guide has its imports and examples', () => {
  assert.match(head ?? '', /from 'mangrove-kv'/);
  assert.ok(examples.length >= 20);
});

for (const [index, example] of examples.entries()) {
  test(`example ${index + 1} of the guide: ${example.split('\n')[1]?.trim()}`, (t) =>
    withPath(async (directory) => {
      t.mock.method(console, 'log', () => undefined);
      await run(`guide-${index}.mjs`, `${head}${example.replaceAll("'guide'", JSON.stringify(directory))}`);
    }));
}

for (const [index, example] of blocksOf(readPage('docs/MISTAKES.md')).entries()) {
  test(`first mistakes: ${example.split('\n')[1]?.trim()}`, (t) =>
    withPath(async (directory) => {
      t.mock.method(console, 'log', () => undefined);
      await run(`mistakes-${index}.mjs`, `${head}${example.replaceAll("'mistakes'", JSON.stringify(directory))}`);
    }));
}

test('the example of the README runs', (t) =>
  withPath(async (directory) => {
    const [example, ...others] = blocksOf(readPage('README.md'));
    assert.deepEqual(others, []);
    const log = t.mock.method(console, 'log', () => undefined);
    await run('readme.mjs', (example ?? '').replace("open('notes')", `open(${JSON.stringify(directory)})`));
    assert.deepEqual(
      log.mock.calls.map((call) => call.arguments),
      [[['ada', 1], 'Analytical Engine'], [1]],
    );
  }));

test("the first example of the package's page runs", (t) =>
  withPath(async (directory) => {
    t.mock.method(console, 'log', () => undefined);
    const [example] = blocksOf(readPage('bindings-js/kv/README.md'));
    await run('package.mjs', (example ?? '').replace("'notes'", JSON.stringify(directory)));
  }));

test('blocks with `using` name the runtimes that have it', () => {
  for (const page of [
    'README.md',
    'bindings-js/kv/README.md',
    'docs/GUIDE.md',
    'docs/MISTAKES.md',
    'docs/ADAPTERS.md',
    'docs/STORAGE.md',
  ]) {
    for (const block of blocksOf(readPage(page)).filter((code) => /^ *(?:await )?using /m.test(code))) {
      assert.match(block, /\/\/ `using`: Node 24, Deno, Bun, Chromium 134, Firefox 141/, page);
    }
  }
});

// A record, so that the compiler demands each new code here.
const CODES: Record<KvErrorCode, true> = {
  KV_CLOSED: true,
  KV_CONFLICT: true,
  KV_ROLLBACK: true,
  KV_TIMEOUT: true,
  KV_LOCKED: true,
  KV_READ_ONLY: true,
  KV_NOT_FOUND: true,
  KV_EXISTS: true,
  KV_INVALID_KEY: true,
  KV_INVALID_VALUE: true,
  KV_INVALID_ARGUMENT: true,
  KV_KEY_TOO_LARGE: true,
  KV_VALUE_TOO_LARGE: true,
  KV_CODEC_MISMATCH: true,
  KV_INDEX_MISMATCH: true,
  KV_INDEX_INCOMPLETE: true,
  KV_UNIQUE: true,
  KV_CORRUPT: true,
  KV_WRONG_KEY: true,
  KV_NOT_ENCRYPTED: true,
  KV_NOT_ALLOWED: true,
  KV_VERSION_UNSUPPORTED: true,
  KV_VERSION_CHANGED: true,
  KV_VERSION_TOO_NEW: true,
  KV_QUOTA_EXCEEDED: true,
  KV_IO: true,
  KV_SYNC_UNAVAILABLE: true,
  KV_UNSUPPORTED: true,
  KV_TRUNCATED_FEED: true,
  KV_RANGE_TOO_LARGE: true,
  KV_OUT_OF_RANGE: true,
  KV_LOADING: true,
  KV_STALE: true,
  KV_SNAPSHOT_LOST: true,
  KV_TOO_MANY_OPEN: true,
  KV_EVICTED: true,
  KV_LOG_CONFLICT: true,
  KV_LOG_TRUNCATED: true,
  KV_LOG_UNAVAILABLE: true,
  KV_LOG_REFUSED: true,
  KV_REPLICATION_GAP: true,
  KV_REPLICATION_MODE: true,
  KV_REPLICATION_FENCED: true,
  KV_REPLICATION_DIVERGED: true,
};

test('the guide has a row for each error code', () => {
  const rows = guide
    .slice(guide.indexOf('## Errors'))
    .split('\n')
    .filter((line) => line.startsWith('| `KV_'))
    .map((line) => line.split('|')[1]);
  const described = rows.join().match(/KV_\w+/g) ?? [];
  assert.deepEqual(described.sort(), Object.keys(CODES).sort());
});
