// Imports point one way, types included: a folder of the package uses only itself and those before it, and no files use each other in a circle. The other
// packages use this one by its name.
import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join, normalize } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const PACKAGES = fileURLToPath(new URL('../../', import.meta.url));

const LAYERS = [
  'base',
  'codec',
  'types',
  'storage',
  'wire',
  'engine',
  'tabs',
  'processes',
  'api',
  'maintenance',
  'mirror',
  'live',
  'migrations',
  'passkey',
  'platform',
  'entries',
];

const IMPORT = /^(?:import|export)\s[^;]*?from\s+'([^']+)'/gm;

interface Import {
  readonly from: string;
  readonly to: string;
}

/** Imports of files below a directory by relative paths; `to` may lead out of it. */
function importsBelow(directory: string): Import[] {
  const found: Import[] = [];
  for (const name of readdirSync(directory, { recursive: true, encoding: 'utf8' })) {
    if (!name.endsWith('.ts')) continue;
    const from = name.replaceAll('\\', '/');
    for (const [, specifier = ''] of readFileSync(join(directory, name), 'utf8').matchAll(IMPORT)) {
      if (specifier.startsWith('.'))
        found.push({ from, to: normalize(join(from, '..', specifier)).replaceAll('\\', '/') });
    }
  }
  return found;
}

const SOURCE = join(PACKAGES, 'kv', 'src');
// Glue that the build makes is beside the sources.
const imports = importsBelow(SOURCE).filter(({ to }) => !to.startsWith('..'));

const folderOf = (path: string): string => path.split('/')[0] as string;

test('every file has its place', () => {
  for (const name of readdirSync(SOURCE))
    assert.ok(LAYERS.includes(name), `src/${name} is none of ${LAYERS.join(', ')}`);
});

test('imports go to folders before their own', () => {
  assert.ok(imports.length > 500, `only ${imports.length} imports were found`);
  assert.deepEqual(
    imports.filter(({ from, to }) => LAYERS.indexOf(folderOf(to)) > LAYERS.indexOf(folderOf(from))),
    [],
  );
});

test('no files import each other in a circle', () => {
  const targets = new Map<string, string[]>();
  for (const { from, to } of imports) targets.set(from, [...(targets.get(from) ?? []), to]);
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]): void => {
    assert.ok(!path.includes(file), [...path, file].join(' -> '));
    if (done.has(file)) return;
    for (const to of targets.get(file) ?? []) visit(to, [...path, file]);
    done.add(file);
  };
  for (const file of targets.keys()) visit(file, []);
});

test('packages use each other by their names', () => {
  const packages = ['', 'adapters', 'frameworks'].flatMap((below) =>
    readdirSync(join(PACKAGES, below)).map((name) => join(PACKAGES, below, name)),
  );
  const sources = packages.map((each) => join(each, 'src')).filter((each) => existsSync(each) && each !== SOURCE);
  assert.ok(sources.length >= 15, `only ${sources.length} packages were found`);
  for (const source of sources) {
    assert.deepEqual(
      importsBelow(source).filter(({ to }) => to.startsWith('..') && to !== '../package.json'),
      [],
      source,
    );
  }
});
