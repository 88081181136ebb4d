// Runs every block of the guide, each with a directory of its own.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import * as mangrove from 'mangrove-kv';
import { withPath } from './support/kit.ts';

const guide = readFileSync(new URL('../../docs/GUIDE.md', import.meta.url), 'utf8');
const blocks = [...guide.matchAll(/^```js\n([^]*?)^```$/gm)].map(([, code]) => code as string);
const [head, ...examples] = blocks;

type Block = (assertions: typeof assert, api: typeof mangrove, path: string) => Promise<void>;

test('the guide has its examples', () => {
  assert.match(head ?? '', /from 'mangrove-kv'/);
  assert.ok(examples.length >= 10);
});

for (const [index, example] of examples.entries()) {
  const names = Object.keys(mangrove).filter((name) => new RegExp(`\\b${name}\\b`).test(example));
  // Node 20 has no `using`.
  const code = example.replaceAll(/\busing (\w+) =/g, 'const $1 =').replaceAll("'guide'", 'path');
  test(`example ${index + 1} of the guide: ${example.split('\n')[1]?.trim()}`, () => withPath(async (directory) => {
    const body = `return (async () => { const { ${names.join(', ')} } = api; ${code} })();`;
    const run = new Function('assert', 'api', 'path', body) as Block;
    await run(assert, mangrove, join(directory, 'guide'));
  }));
}
