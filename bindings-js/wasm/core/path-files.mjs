// Counts the Rust files whose code one `set` and one `get` run, natively, by the compiler's coverage.
//
//     rustup component add llvm-tools
//     node bindings-js/wasm/core/path-files.mjs
//
// A counter of a run with the call that is higher than in a run without it belongs to the call.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const scratch = mkdtempSync(join(tmpdir(), 'path-files-'));
const print = (program, args, env = {}) =>
  execFileSync(program, args, {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 1 << 28,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });

/** Returns how often each function ran, by file. */
function counts(program, tools, call) {
  const [raw, merged] = ['profraw', 'profdata'].map((end) => join(scratch, `${call}.${end}`));
  print(program, [call], { LLVM_PROFILE_FILE: raw });
  print(join(tools, 'llvm-profdata'), ['merge', '-o', merged, raw]);
  const report = print(join(tools, 'llvm-cov'), ['export', '-format=lcov', '-instr-profile', merged, program]);
  const files = new Map();
  let functions;
  for (const line of report.split('\n')) {
    if (line.startsWith('SF:')) {
      functions = new Map();
      files.set(relative(root, line.slice(3)), functions);
    } else if (line.startsWith('FNDA:')) {
      const [count, name] = line.slice(5).split(/,(.*)/);
      functions.set(name, (functions.get(name) ?? 0) + Number(count));
    }
  }
  return files;
}

try {
  const library = print('rustc', ['--print', 'target-libdir']).trim();
  const tools = join(library, '..', 'bin');
  if (!readdirSync(tools).includes('llvm-cov')) throw new Error('llvm-cov is missing: rustup component add llvm-tools');
  const target = join(root, 'target', 'path-files');
  const env = { RUSTFLAGS: '-C instrument-coverage', CARGO_TARGET_DIR: target };
  env.LLVM_PROFILE_FILE = join(scratch, 'build-%p.profraw');
  print('cargo', ['build', '--quiet', '--package', 'mangrove-bindings', '--example', 'one_call'], env);
  const program = join(target, 'debug', 'examples', 'one_call');
  const before = counts(program, tools, 'none');
  for (const call of ['set', 'get']) {
    const ran = [...counts(program, tools, call)]
      .filter(([file]) => /^(engine|bindings-js\/wasm\/core)\/src\//.test(file))
      .filter(([file, functions]) => [...functions].some(([name, count]) => count > (before.get(file)?.get(name) ?? 0)))
      .map(([file]) => file);
    console.log(`${call}: ${ran.length} files\n  ${ran.join('\n  ')}`);
  }
} finally {
  rmSync(scratch, { recursive: true });
}
