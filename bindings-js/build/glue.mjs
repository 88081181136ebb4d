// Turns the glue of wasm-bindgen, which keeps one instance in module variables, into a factory:
// each open database has an instance of its own, with its own memory.
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const EXPORT = /^export (?=(?:class|function) (\w+))/gm;
const EXPORT_LIST = /^export \{ initSync, __wbg_init as default \};$/m;
/** Loading by URL is the entries' business; they hand over a compiled module. */
const LOADERS = [/^async function __wbg_load\([\s\S]*?^\}$/m, /^let __wbg_init_promise;[\s\S]*?(?=^export \{)/m];

/** Functions of an open database that take and return numbers, which wasm-bindgen does not wrap. */
const PLAIN = /^export const engine_(\w+): (.*);$/gm;

const typesOf = (name, plain) => `import type * as glue from './${name}.js';

/** What one instance of the module exports. */
export type Instance = Omit<typeof glue, 'default' | 'initSync'> & {
  readonly exports: WebAssembly.Exports;
  readonly memory: WebAssembly.Memory;
${plain.map(({ call, type }) => `  readonly ${call}: ${type};\n`).join('')}};

/** Makes a new instance with a memory of its own. */
export function instantiate(module: WebAssembly.Module): Instance;
`;

/** Gives a module the glue of another one, which imports and exports all that it does. */
export function shareGlue(directory, name, glueOf) {
  for (const file of ['glue.js', 'glue.d.ts', `${name}.d.ts`]) copyFileSync(join(glueOf, file), join(directory, file));
}

function cut(code, pattern) {
  if (!pattern.test(code)) throw new Error(`the glue of wasm-bindgen is not what is expected: no ${pattern}`);
  return code.replace(pattern, '');
}

/** Reads what wasm-bindgen wrote and writes glue.js and its types beside it. */
export function writeGlue(directory, name) {
  const original = readFileSync(join(directory, `${name}.js`), 'utf8');
  const names = [...original.matchAll(EXPORT)].map((match) => match[1]);
  if (!names.includes('panic_message')) throw new Error('the glue of wasm-bindgen does not export what is expected');
  let body = LOADERS.reduce(cut, original);
  body = cut(body, EXPORT_LIST).replace(EXPORT, '');
  if (/^(?:export|import) /m.test(body))
    throw new Error('the glue of wasm-bindgen has an export or import that is not expected');
  // A test environment may put others in their place between the import and an open.
  const plain = [...readFileSync(join(directory, `${name}_bg.wasm.d.ts`), 'utf8').matchAll(PLAIN)].map(
    ([, call, type]) => ({ call, type }),
  );
  const calls = plain.map(({ call }) => `${call}: wasm.engine_${call}`);
  const code = `const { TextDecoder, TextEncoder } = globalThis;\nexport function instantiate(wasmModuleToUse) {\n${body}\nconst exports = initSync({ module: wasmModuleToUse });\nreturn { ${[...names, ...calls].join(', ')}, exports, memory: exports.memory };\n}\n`;
  writeFileSync(join(directory, 'glue.js'), code);
  writeFileSync(join(directory, 'glue.d.ts'), typesOf(name, plain));
}
