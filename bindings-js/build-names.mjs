// Gives what the engine's module and its glue import from each other short names. Those of wasm-bindgen end with a checksum, which does not compress, and
// stand in both files.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from '../.ci/tools.mjs';

/** What the rest of the package names, too. */
const KEPT = new Set(['memory', 'engine_sealed_key']);
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

/** Names that a module and its glue have before and after: of imports, and of exports. */
export function namesOf(text) {
  const imports = [...text.matchAll(IMPORT)];
  const [module] = new Set(imports.map(([, name]) => name));
  if (imports.some(([, name]) => name !== module)) throw new Error('the module imports from more than one other');
  const exports = [...text.matchAll(EXPORT)].filter(([, name]) => !KEPT.has(name));
  return { module, imports: imports.map(([, , name], at) => [name, short(at)]), exports: exports.map(([, name], at) => [name, short(at)]) };
}

/** Returns the text of a module with short names. */
export function shortenText(text, names) {
  const [imports, exports] = [new Map(names.imports), new Map(names.exports)];
  const known = (map, name) => {
    if (!map.has(name)) throw new Error(`the glue does not know ${name}`);
    return map.get(name);
  };
  return text.replaceAll(IMPORT, (_, from, name) => ` (import "a" "${known(imports, name)}" (`)
    .replaceAll(EXPORT, (kept, name) => (KEPT.has(name) ? kept : ` (export "${known(exports, name)}" (`));
}

/** Returns a glue with short names. */
export function shortenGlue(glue, names) {
  let code = rename(glue, new RegExp(`^ +"${names.module}": (?=\\w+,$)`, 'm'), '        a: ');
  for (const [from, to] of names.imports) code = rename(code, new RegExp(`^ +${from}: (?=function\\()`, 'm'), `        ${to}: `);
  const exported = new Map(names.exports);
  return code.replaceAll(/\bwasm\.(\w+)/g, (used, name) => (exported.has(name) ? `wasm.${exported.get(name)}` : used));
}

/**
 * Rewrites `<name>_bg.wasm` and `glue.js` in a directory, or only the former if it has the glue of another directory, which is then complete. Functions
 * keep the names that no program sees.
 */
export function writeShortNames(directory, name, { features, env, glueOf }) {
  const module = join(directory, `${name}_bg.wasm`);
  const listing = join(directory, `${name}.wat`);
  run('wasm-dis', [module, ...features, '-o', listing], { env });
  const text = readFileSync(listing, 'utf8');
  const namesPath = join(glueOf ?? directory, 'names.json');
  const names = glueOf === undefined ? namesOf(text) : JSON.parse(readFileSync(namesPath, 'utf8'));
  writeFileSync(listing, shortenText(text, names));
  run('wasm-as', [listing, ...features, '-g', '-o', module], { env });
  if (glueOf !== undefined) return;
  const gluePath = join(directory, 'glue.js');
  writeFileSync(namesPath, JSON.stringify(names));
  writeFileSync(gluePath, shortenGlue(readFileSync(gluePath, 'utf8'), names));
}
