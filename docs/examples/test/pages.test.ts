// Type-checks the guide's examples that need a page and therefore do not run.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const DIRECTORY = fileURLToPath(new URL('../build/pages', import.meta.url));
const GUIDE = fileURLToPath(new URL('../../GUIDE.md', import.meta.url));

test('the examples of the guide for pages have right types', () => {
  rmSync(DIRECTORY, { recursive: true, force: true });
  mkdirSync(DIRECTORY, { recursive: true });
  const blocks = [...readFileSync(GUIDE, 'utf8').matchAll(/^```tsx\n([^]*?)^```$/gm)].map(([, code]) => code as string);
  assert.ok(blocks.length >= 4);
  for (const [index, code] of blocks.entries()) writeFileSync(join(DIRECTORY, `${index}.tsx`), code);
  writeFileSync(
    join(DIRECTORY, 'tsconfig.json'),
    JSON.stringify({ extends: '../../tsconfig.json', include: ['*.tsx'], exclude: [] }),
  );
  try {
    execFileSync('npx', ['tsc', '--noEmit', '--project', DIRECTORY], { encoding: 'utf8', stdio: 'pipe' });
  } catch (error) {
    assert.fail((error as { stdout?: string }).stdout ?? String(error));
  }
});
