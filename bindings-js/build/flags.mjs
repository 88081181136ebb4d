// How the engine is compiled to WebAssembly, for the package and for the benchmark beside the native engine.
import { toolEnv } from '../../.ci/tools.mjs';

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

/** Extensions of WebAssembly that the modules use; all browsers that have OPFS with synchronous access have them. */
export const FEATURES = [
  'bulk-memory',
  'multivalue',
  'mutable-globals',
  'nontrapping-float-to-int',
  'reference-types',
  'sign-ext',
].map((name) => `--enable-${name}`);

const COMMON = [
  // The first KiB is the end of the stack: no object lies there, so small offsets may be folded into addresses.
  '--low-memory-unused',
  '--strip-producers',
  '--strip-target-features',
  ...FEATURES,
];

/** What wasm-opt does with each crate. */
export const WASM_OPT = {
  // What is called from one place stays a function: the larger functions compress worse by a twentieth.
  core: ['-O3', '--one-caller-inline-max-function-size=0', '--converge', ...COMMON],
  maintenance: ['-Oz', '--converge', ...COMMON],
};
