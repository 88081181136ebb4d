// Prints the bytes of the package's WebAssembly module by section, by source module and by
// function. The module is built and optimised as for the package, except that function names are
// kept. `--functions` sets how many of the largest functions are printed, `--match` prints all
// whose names match a pattern.
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { ROOT, run } from '../.ci/tools.mjs';
import { WASM_OPT, wasmEnv } from '../bindings-js/build/flags.mjs';

const { values } = parseArgs({
  options: {
    functions: { type: 'string', default: '30' },
    match: { type: 'string' },
    depth: { type: 'string', default: '3' },
    package: { type: 'string', default: 'mangrove-bindings' },
  },
});
const TARGET = process.env.CARGO_TARGET_DIR ?? join(ROOT, 'target');

const SECTIONS = [
  'custom',
  'types',
  'imports',
  'functions',
  'tables',
  'memories',
  'globals',
  'exports',
  'start',
  'elements',
  'code',
  'data',
  'data count',
];

function buildModule() {
  const target = 'wasm32-unknown-unknown';
  const env = wasmEnv();
  run(
    'cargo',
    ['build', '--quiet', '--package', values.package, '--lib', '--profile', 'wasm-release', '--target', target],
    { env },
  );
  const built = join(TARGET, target, 'wasm-release', `${values.package.replaceAll('-', '_')}.wasm`);
  const directory = join(TARGET, 'bench', 'module');
  mkdirSync(directory, { recursive: true });
  run('wasm-bindgen', [built, '--target', 'web', '--no-typescript', '--out-dir', directory, '--out-name', 'bound'], {
    env,
  });
  const optimise = (name, flags) => {
    const file = join(directory, name);
    run('wasm-opt', [join(directory, 'bound_bg.wasm'), '-o', file, ...WASM_OPT.crate, ...flags], { env });
    return readFileSync(file);
  };
  return { stripped: optimise('stripped.wasm', []), named: optimise('named.wasm', ['-g']) };
}

/** Reads a module's sections in order. */
class Reader {
  constructor(bytes, at = 0) {
    this.bytes = bytes;
    this.at = at;
  }

  byte() {
    return this.bytes[this.at++];
  }

  /** An unsigned number in LEB128. */
  number() {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = this.byte();
      value += (byte & 127) * 2 ** shift;
      if (byte < 128) return value;
    }
  }

  text() {
    const length = this.number();
    this.at += length;
    return this.bytes.toString('utf8', this.at - length, this.at);
  }

  list(read) {
    return Array.from({ length: this.number() }, () => read());
  }

  skipLimits() {
    if ((this.byte() & 1) !== 0) this.number();
    this.number();
  }
}

function importedFunctions(reader) {
  const kinds = reader.list(() => {
    reader.text();
    reader.text();
    const kind = reader.byte();
    if (kind === 0) reader.number();
    else if (kind === 1) {
      reader.byte();
      reader.skipLimits();
    } else if (kind === 2) reader.skipLimits();
    else reader.at += 2;
    return kind;
  });
  return kinds.filter((kind) => kind === 0).length;
}

function functionNames(reader, end) {
  const names = new Map();
  while (reader.at < end) {
    const kind = reader.byte();
    const length = reader.number();
    const next = reader.at + length;
    if (kind === 1)
      for (const [index, name] of reader.list(() => [reader.number(), reader.text()])) names.set(index, name);
    reader.at = next;
  }
  return names;
}

/** Returns the bytes of each section, and the name and bytes of each function. */
function parse(bytes) {
  const reader = new Reader(bytes, 8);
  const sections = new Map();
  let imported = 0;
  let sizes = [];
  let names = new Map();
  while (reader.at < bytes.length) {
    const kind = reader.byte();
    const length = reader.number();
    const end = reader.at + length;
    if (kind === 2) imported = importedFunctions(reader);
    if (kind === 10)
      sizes = reader.list(() => {
        const size = reader.number();
        reader.at += size;
        return size;
      });
    if (kind === 0 && reader.text() === 'name') names = functionNames(reader, end);
    else sections.set(SECTIONS[kind], (sections.get(SECTIONS[kind]) ?? 0) + length);
    reader.at = end;
  }
  return {
    sections,
    functions: sizes.map((size, index) => ({ size, name: tidy(names.get(index + imported) ?? '?') })),
  };
}

/** Strips the hash that makes a symbol unique. */
const tidy = (name) => name.replace(/::h[0-9a-f]{16}$/, '').replaceAll(/\[[0-9a-f]{16}\]/g, '');

/**
 * Returns the source module of a function. A method in angle brackets belongs to the module of its
 * type, or to that of its trait if the type is built in.
 */
function moduleOf(name) {
  const inner = /^<(?:&?(?:mut )?)?([\w:]+::\w+)/.exec(name)?.[1] ?? /^<.* as ([\w:]+)/.exec(name)?.[1] ?? name;
  const parts = inner
    .replace(/<.*/, '')
    .split('::')
    .filter((part) => part !== '');
  return parts.length < 2 ? '(no module)' : parts.slice(0, Math.min(Number(values.depth), parts.length - 1)).join('::');
}

const { stripped, named } = buildModule();
const { sections, functions } = parse(named);
const total = functions.reduce((sum, { size }) => sum + size, 0);
const percent = (size) => `${((size / total) * 100).toFixed(1)} %`;

console.log(
  `${values.package}: ${stripped.length} bytes, ${gzipSync(stripped, { level: 9 }).length} after gzip, ${brotliCompressSync(stripped).length} after brotli\n`,
);
console.log('| section | bytes |\n|---|--:|');
for (const [name, size] of [...sections].toSorted((a, b) => b[1] - a[1])) console.log(`| ${name} | ${size} |`);

const modules = new Map();
for (const { name, size } of functions) {
  const row = modules.get(moduleOf(name)) ?? { count: 0, size: 0 };
  modules.set(moduleOf(name), { count: row.count + 1, size: row.size + size });
}
const rows = [...modules].map(([name, row]) => ({ name, ...row }));
console.log('\n| module | functions | bytes | of the code |\n|---|--:|--:|--:|');
for (const { name, count, size } of rows
  .toSorted((a, b) => b.size - a.size)
  .filter(({ size }) => size > total / 1000)) {
  console.log(`| ${name} | ${count} | ${size} | ${percent(size)} |`);
}

const pattern = values.match === undefined ? undefined : new RegExp(values.match);
const largest = functions.toSorted((a, b) => b.size - a.size);
const printed =
  pattern === undefined ? largest.slice(0, Number(values.functions)) : largest.filter(({ name }) => pattern.test(name));
console.log('\n| function | bytes |\n|---|--:|');
for (const { name, size } of printed) console.log(`| \`${name}\` | ${size} |`);
if (pattern !== undefined) console.log(`| all | ${printed.reduce((sum, { size }) => sum + size, 0)} |`);
