// Value imports point one way: a folder uses only itself and those before it. Types may be imported
// from anywhere.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join, normalize } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const SOURCE = fileURLToPath(new URL('../src/', import.meta.url));

const LAYERS = ['base', 'types', 'codec', 'storage', 'wire', 'engine', 'tabs', 'api', 'upkeep', 'inspector', 'testing', 'adapters', 'sync', 'cli', 'entries'];
/** They meet the rest of the package through its public interface. */
const APART = ['inspector', 'testing', 'adapters', 'sync', 'cli'];

const IMPORT = /^(?:import|export)\s+(?!type\b)[^;]*?from\s+'([^']+)'/gm;

interface Import {
  readonly from: string;
  readonly to: string;
}

function imports(): Import[] {
  const found: Import[] = [];
  for (const name of readdirSync(SOURCE, { recursive: true, encoding: 'utf8' })) {
    if (!name.endsWith('.ts')) continue;
    const from = name.replaceAll('\\', '/');
    for (const [, specifier = ''] of readFileSync(join(SOURCE, name), 'utf8').matchAll(IMPORT)) {
      const to = normalize(join(from, '..', specifier)).replaceAll('\\', '/');
      if (specifier.startsWith('.') && !to.startsWith('..')) found.push({ from, to });
    }
  }
  return found;
}

const folderOf = (path: string): string => path.split('/')[0] as string;

test('every file has its place', () => {
  for (const name of readdirSync(SOURCE)) assert.ok(LAYERS.includes(name), `src/${name} is none of ${LAYERS.join(', ')}`);
});

test('imports go to folders before their own', () => {
  const all = imports();
  assert.ok(all.length > 300, `only ${all.length} imports were found`);
  const wrong = all.filter(({ from, to }) => LAYERS.indexOf(folderOf(to)) > LAYERS.indexOf(folderOf(from)));
  assert.deepEqual(wrong, []);
});

test('only entries import from the folders that stand apart', () => {
  const wrong = imports().filter(({ from, to }) =>
    APART.includes(folderOf(to)) && ![folderOf(to), 'entries'].includes(folderOf(from)));
  assert.deepEqual(wrong, []);
});
