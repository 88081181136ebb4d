// Gives what the engine's module and its glue import from each other short names. Those of wasm-bindgen end with a checksum, which does not compress, and
// stand in both files.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from '../.ci/tools.mjs';

/** What the rest of the package names, too. */
const KEPT = new Set(['memory']);
const IMPORT = /^ \(import "([^"]+)" "([^"]+)" \(/gm;
const EXPORT = /^ \(export "([^"]+)" \(/gm;

/** Returns a, b, … z, aa, … for 0, 1, …. */
function short(at) {
  const letter = String.fromCharCode(97 + (at % 26));
  return at < 26 ? letter : `${short(Math.floor(at / 26) - 1)}${letter}`;
}

function rename(code, from, to) {
  if (!from.test(code)) throw new Error(`the glue of wasm-bindgen is not what is expected: no ${from}`);
  return code.replace(from, to);
}

/** Returns the texts of a module and of its glue with short names. */
export function shorten(text, glue) {
  const imports = [...text.matchAll(IMPORT)];
  const [module] = new Set(imports.map(([, name]) => name));
  if (imports.some(([, name]) => name !== module)) throw new Error('the module imports from more than one other');
  let code = rename(glue, new RegExp(`^ +"${module}": (?=\\w+,$)`, 'm'), '        a: ');
  const renamed = new Map(imports.map(([, , name], at) => [name, short(at)]));
  for (const [from, to] of renamed) code = rename(code, new RegExp(`^ +${from}: (?=function\\()`, 'm'), `        ${to}: `);
  const exported = new Map([...text.matchAll(EXPORT)].filter(([, name]) => !KEPT.has(name)).map(([, name], at) => [name, short(at)]));
  code = code.replaceAll(/\bwasm\.(\w+)/g, (used, name) => (exported.has(name) ? `wasm.${exported.get(name)}` : used));
  return {
    text: text.replaceAll(IMPORT, (_, from, name) => ` (import "a" "${renamed.get(name)}" (`)
      .replaceAll(EXPORT, (kept, name) => (exported.has(name) ? ` (export "${exported.get(name)}" (` : kept)),
    glue: code,
  };
}

/** Rewrites `<name>_bg.wasm` and `glue.js` in a directory. Functions keep the names that no program sees. */
export function writeShortNames(directory, name, { features, env }) {
  const module = join(directory, `${name}_bg.wasm`);
  const gluePath = join(directory, 'glue.js');
  const listing = join(directory, `${name}.wat`);
  run('wasm-dis', [module, ...features, '-o', listing], { env });
  const { text, glue } = shorten(readFileSync(listing, 'utf8'), readFileSync(gluePath, 'utf8'));
  writeFileSync(listing, text);
  run('wasm-as', [listing, ...features, '-g', '-o', module], { env });
  writeFileSync(gluePath, glue);
}
