// How the engine is compiled to WebAssembly, for the package and for the benchmark beside the native engine.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, toolEnv } from '../.ci/tools.mjs';

/**
 * Only what asks for it is inlined, or what is shorter than its call: a seventh smaller, and no slower where it was measured. No loop is
 * unrolled. Blocks, conditions of loops and loads are duplicated only where that costs next to nothing.
 */
const LLVM_ARGS = [
  '-inline-threshold=0',
  '-unroll-threshold=0',
  '-unroll-runtime=false',
  '-unroll-allow-partial=false',
  '-rotation-max-header-size=2',
  '-jump-threading-threshold=1',
  '-bonus-inst-threshold=0',
  '-enable-pre=false',
  '-enable-load-pre=false',
];

export function wasmEnv() {
  const env = toolEnv();
  return { ...env, RUSTFLAGS: [env.RUSTFLAGS ?? '', ...LLVM_ARGS.map((arg) => `-Cllvm-args=${arg}`)].join(' ').trim() };
}

/** What wasm-pack gives wasm-opt, but for the names of functions. */
export function wasmOptFlags() {
  const manifest = readFileSync(join(ROOT, 'bindings-js/crate/Cargo.toml'), 'utf8');
  const list = /^wasm-opt = \[\n([^\]]*)\]/m.exec(manifest)?.[1] ?? '';
  const flags = list.split('\n').map((line) => /^\s*"(.*)",?$/.exec(line)?.[1]).filter((flag) => flag !== undefined && flag !== '-g');
  if (flags.length === 0) throw new Error('bindings-js/crate/Cargo.toml has no flags for wasm-opt');
  return flags;
}
