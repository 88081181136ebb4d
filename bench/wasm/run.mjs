// Compares the engine in WebAssembly with the native one: both run the same operations on an
// in-memory database, in turns, and are measured in processor time.
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { ROOT, run, toolEnv } from '../../.ci/tools.mjs';
import { WASM_OPT, wasmEnv } from '../../bindings-js/build/flags.mjs';

const { values } = parseArgs({
  options: { records: { type: 'string', default: '200000' }, rounds: { type: 'string', default: '7' } },
});
const RECORDS = Number(values.records);
const ROUNDS = Number(values.rounds);
const TARGET = process.env.CARGO_TARGET_DIR ?? join(ROOT, 'target');

/** Builds the module like the package's, but without glue code. */
function buildModule() {
  const target = 'wasm32-unknown-unknown';
  const env = wasmEnv();
  run(
    'cargo',
    ['build', '--quiet', '--package', 'mangrove-bench-wasm', '--lib', '--profile', 'wasm-release', '--target', target],
    { env },
  );
  const built = join(TARGET, target, 'wasm-release', 'mangrove_bench_wasm.wasm');
  const optimised = join(TARGET, 'bench', 'wasm', 'module.wasm');
  mkdirSync(join(TARGET, 'bench', 'wasm'), { recursive: true });
  run('wasm-opt', [built, '-o', optimised, ...WASM_OPT.crate], { env });
  return readFileSync(optimised);
}

/** Returns the nanoseconds that this thread has run, excluding V8's compiler threads. */
function processorTime() {
  // Makes the kernel update the file.
  process.cpuUsage();
  return Number(readFileSync('/proc/thread-self/schedstat', 'utf8').split(' ')[0]);
}

async function startWasm() {
  const { instance } = await WebAssembly.instantiate(buildModule());
  const { prepare, run: operate, misses } = instance.exports;
  return {
    prepare,
    operate(operation) {
      const start = processorTime();
      const count = operate(operation);
      return { count, nanoseconds: processorTime() - start, misses: misses() };
    },
  };
}

async function startNative() {
  run('cargo', ['build', '--quiet', '--package', 'mangrove-bench-wasm', '--bin', 'mangrove-bench-wasm', '--release'], {
    env: toolEnv(),
  });
  const child = spawn(join(TARGET, 'release', 'mangrove-bench-wasm'), { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const nextLine = async () => {
    const { value, done } = await lines.next();
    if (done) throw new Error('the native program ended');
    return value;
  };
  const ask = async (command, number) => {
    child.stdin.write(`${command} ${number}\n`);
    const [count, nanoseconds, misses] = (await nextLine()).split(' ').map(Number);
    return { count, nanoseconds, misses };
  };
  return {
    operations: (await nextLine()).split(';'),
    prepare: (records) => ask('prepare', records),
    operate: (operation) => ask('run', operation),
    end: () => child.stdin.end(),
  };
}

function median(list) {
  const sorted = list.toSorted((a, b) => a - b);
  const middle = sorted.length / 2;
  return (sorted[Math.ceil(middle) - 1] + sorted[Math.floor(middle)]) / 2;
}

const micros = (nanoseconds) =>
  nanoseconds >= 1000 ? `${(nanoseconds / 1000).toFixed(2)} µs` : `${nanoseconds.toFixed(0)} ns`;

const wasm = await startWasm();
const native = await startNative();
const figures = native.operations.map(() => ({ native: [], wasm: [] }));
// The first round, in which V8 compiles, is not counted.
for (let round = 0; round <= ROUNDS; round++) {
  wasm.prepare(RECORDS);
  await native.prepare(RECORDS);
  for (const [operation, { native: natives, wasm: wasms }] of figures.entries()) {
    const there = await native.operate(operation);
    const here = wasm.operate(operation);
    if (there.count !== here.count || here.count === 0)
      throw new Error(`${native.operations[operation]}: ${here.count} in WebAssembly, ${there.count} natively`);
    // Misses on one side only would compare caches; gets once came out twice as fast in
    // WebAssembly.
    if (there.misses + here.misses > 0)
      throw new Error(`${native.operations[operation]}: the cache is too small for ${RECORDS} records`);
    if (round === 0) continue;
    natives.push(there.nanoseconds / there.count);
    wasms.push(here.nanoseconds / here.count);
  }
}
native.end();

console.log(
  `${RECORDS.toLocaleString('en')} records, medians of ${ROUNDS} rounds, processor time per operation or record; Node ${process.versions.node}.\n`,
);
console.log('| | native | WebAssembly | ratio |\n|---|--:|--:|--:|');
for (const [operation, { native: natives, wasm: wasms }] of figures.entries()) {
  const ratio = median(wasms.map((time, round) => time / natives[round]));
  console.log(
    `| ${native.operations[operation]} | ${micros(median(natives))} | ${micros(median(wasms))} | ${ratio.toFixed(2)} |`,
  );
}
