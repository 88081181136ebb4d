// Splits the engine's module in two: the core, which every page loads, and the lazy part, which a page loads at the first call that needs it. The lazy part has
// the functions that nothing but the roots reaches; `// Lazy root.` marks these in the sources. It runs in the core's memory. The core calls the roots through
// its table, some of whose places the lazy part fills; the host gives the lazy part those of the core's functions that it calls from that table, by their places.
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { ROOT, run } from '../../.ci/tools.mjs';

/** Where functions are marked as roots. */
const SOURCES = ['engine/src', 'bindings-js/wasm/core/src'];
/** The mark, and the function below it. */
const ROOT_FUNCTION = /^ *\/\/ Lazy root\.\n *#\[inline\(never\)\]\n(?: *#\[.*\n)* *(?:pub(?:\([^)]*\))? )?fn (\w+)/gm;
const IMPL = /^impl(?:<[^>]*>)? (?:[\w:]+(?:<[^>]*>)? for )?(\w+)/gm;

/** Names of the roots as Rust demangles them: below their type, or below their module. */
function rootsOfSources() {
  const files = SOURCES.flatMap((directory) =>
    readdirSync(join(ROOT, directory), { recursive: true })
      .filter((file) => file.endsWith('.rs'))
      .map((file) => join(ROOT, directory, file)),
  );
  return files.flatMap((file) => {
    const text = readFileSync(file, 'utf8');
    return [...text.matchAll(ROOT_FUNCTION)].map(({ 0: marked, 1: name, index }) => {
      const type = marked.startsWith(' ') ? [...text.slice(0, index).matchAll(IMPL)].at(-1)?.[1] : undefined;
      return new RegExp(type === undefined ? `\\b${basename(file, '.rs')}::${name}\\b` : `\\b${type}>?::${name}\\b`);
    });
  });
}

/**
 * Name of the table among the core's exports, and of the module that the lazy part imports from. The host knows a core by it, and that a lazy part is not of
 * another build: the two would link and run wrong functions.
 */
function linkName(text) {
  return `lazy ${createHash('sha256').update(text).digest('hex').slice(0, 16)}`;
}

const NAME = String.raw`\$(?:"[^"]*"|[^\s()]+)`;
const REFERENCE = new RegExp(String.raw`\((?:return_call|call|ref\.func) (${NAME})`, 'g');
const GLOBAL = new RegExp(String.raw`\(global\.(?:get|set) (${NAME})`, 'g');

/** The top-level forms of a module's text, each with its kind and name. */
function formsOf(text) {
  const forms = [];
  for (const line of text.split('\n')) {
    const begun = new RegExp(String.raw`^ \((\w+)(?: (${NAME}))?`).exec(line);
    if (begun !== null) forms.push({ kind: begun[1], name: begun[2], lines: [line] });
    else if (forms.length > 0 && line.startsWith(' ')) forms.at(-1).lines.push(line);
  }
  return forms.map(({ kind, name, lines }) => {
    const code = lines.join('\n');
    if (kind !== 'import') return { kind, name, code };
    const imported = new RegExp(String.raw`^ \(import "[^"]*" "[^"]*" \((\w+) (${NAME})`).exec(code);
    return { kind, name: imported[2], of: imported[1], code };
  });
}

function matchesOf(code, pattern) {
  return [...code.matchAll(pattern)].map((match) => match[1]);
}

/** Names of the functions that can be called without a root. */
function reachedWithout(roots, forms) {
  const functions = new Map(forms.filter(({ kind }) => kind === 'func').map(({ name, code }) => [name, code]));
  const entries = forms.filter(({ kind }) => ['export', 'elem', 'start', 'global'].includes(kind));
  const waiting = entries.flatMap(({ code }) => matchesOf(code, new RegExp(`(${NAME})`, 'g')));
  const reached = new Set();
  while (waiting.length > 0) {
    const name = waiting.pop();
    if (reached.has(name) || roots.has(name) || !functions.has(name)) continue;
    reached.add(name);
    waiting.push(...matchesOf(functions.get(name), REFERENCE));
  }
  return reached;
}

/** The types of a function's parameters, and its results as they are written. */
function signatureOf(code) {
  const [header] = code.split('\n', 1);
  const parameters = matchesOf(header, /\(param (?:\$\S+ )?([^)]*)\)/g).flatMap((types) => types.split(' '));
  return { parameters, results: /\(result [^)]*\)/.exec(header)?.[0] ?? '' };
}

/** Returns the texts of the core and of the lazy part. */
export function split(text) {
  const link = linkName(text);
  const forms = formsOf(text);
  const functions = forms.filter(({ kind }) => kind === 'func');
  const roots = rootsOfSources().map((pattern) => {
    const found = functions.filter(({ name }) => pattern.test(name));
    if (found.length !== 1) throw new Error(`the module has ${found.length} functions ${pattern}`);
    return found[0];
  });
  const reached = reachedWithout(new Set(roots.map(({ name }) => name)), forms);
  const moved = functions.filter(({ name }) => !reached.has(name));
  const movedNames = new Set(moved.map(({ name }) => name));

  const table = forms.find(({ kind, code }) => kind === 'table' && code.endsWith('funcref)'));
  const size = /\((?:table) \S+ (\d+) (\d+) funcref\)/.exec(table.code);
  if (size === null || size[1] !== size[2])
    throw new Error(`the module's table is not what is expected: ${table.code}`);
  const first = Number(size[1]);
  const memory = forms.find(({ kind }) => kind === 'memory');
  const memoryExport = /\(export "([^"]*)" \(memory/.exec(
    forms.find(({ kind, code }) => kind === 'export' && /\(memory/.test(code)).code,
  )[1];

  if (moved.some(({ code }) => /\(table\./.test(code)))
    throw new Error('a function of the lazy part uses a table by itself');
  const needed = (pattern, from) =>
    [...new Set(moved.flatMap(({ code }) => matchesOf(code, pattern)))].filter((name) => from(name)).sort();
  const calls = needed(REFERENCE, (name) => !movedNames.has(name));
  const globals = needed(GLOBAL, () => true);
  const short = (at) => `_${at.toString(36)}`;
  const declarations = new Map(
    forms.filter(({ kind, of }) => kind === 'func' || of === 'func').map(({ name, code }) => [name, code]),
  );

  const stubs = roots.map(({ name, code }, at) => {
    const { parameters, results } = signatureOf(code);
    const types = parameters.map((type) => `(param ${type})`).join(' ');
    const given = parameters.map((_, index) => `(local.get ${index})`).join(' ');
    return ` (func ${name} ${types} ${results}\n  (call_indirect ${table.name} ${types} ${results} ${given} (i32.const ${first + at})))`;
  });
  const exports = [
    ` (export "${link}" (table ${table.name}))`,
    ...globals.map((name, at) => ` (export "${short(at)}" (global ${name}))`),
  ];
  // What the lazy part calls has a place in the table instead of a name: an export takes three times as many bytes.
  const firstCall = first + roots.length;
  const places = firstCall + calls.length;
  const called =
    calls.length === 0 ? [] : [` (elem (table ${table.name}) (i32.const ${firstCall}) func ${calls.join(' ')})`];
  const core = forms
    .filter(({ name, kind }) => kind !== 'func' || !movedNames.has(name))
    .map(({ kind, name, code }) =>
      kind === 'table' && name === table.name ? ` (table ${table.name} ${places} ${places} funcref)` : code,
    );

  const imports = [
    ` (import "${link}" "${memoryExport}" (memory ${memory.code.replace(/^ \(memory /, '').replace(/\)$/, '')}))`,
    ` (import "${link}" "${link}" (table ${table.name} ${places} ${places} funcref))`,
    ...globals.map((name, at) => {
      const type = new RegExp(String.raw`\(global ${escaped(name)} (\(mut \w+\)|\w+)`).exec(
        forms.find((form) => form.kind === 'global' && form.name === name).code,
      )[1];
      return ` (import "${link}" "${short(at)}" (global ${name} ${type}))`;
    }),
    ...calls.map((name, at) => {
      const { parameters, results } = signatureOf(declarations.get(name));
      return ` (import "${link}" "${firstCall + at}" (func ${name} (param ${parameters.join(' ')}) ${results}))`;
    }),
  ];
  const filled = ` (elem (i32.const ${first}) ${roots.map(({ name }) => name).join(' ')})`;
  const types = forms.filter(({ kind }) => kind === 'type').map(({ code }) => code);
  const module = (parts) => `(module\n${parts.join('\n')}\n)\n`;
  return {
    core: module([...core, ...stubs, ...called, ...exports]),
    lazy: module([...types, ...imports, filled, ...moved.map(({ code }) => code)]),
  };
}

function escaped(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`);
}

/** Writes `<parts>_core_bg.wasm` and `<parts>_lazy_bg.wasm` beside `<name>_bg.wasm`, whose functions have names until then. */
export function writeSplit(directory, name, parts, { flags, env }) {
  const features = flags.filter((flag) => flag.startsWith('--enable-'));
  const work = join(directory, 'split');
  mkdirSync(work, { recursive: true });
  const module = join(directory, `${name}_bg.wasm`);
  const whole = join(work, 'whole.wat');
  run('wasm-dis', [module, ...features, '-o', whole], { env });
  const texts = split(readFileSync(whole, 'utf8'));
  for (const part of ['core', 'lazy']) {
    const text = join(work, `${part}.wat`);
    const assembled = join(work, `${part}.wasm`);
    const file = join(directory, `${parts}_${part}_bg.wasm`);
    writeFileSync(text, texts[part]);
    run('wasm-as', [text, ...features, '-g', '-o', assembled], { env });
    run('wasm-opt', [assembled, '-o', file, ...flags], { env });
  }
  run('wasm-opt', [module, '-o', module, '--strip-debug', ...features], { env });
}
