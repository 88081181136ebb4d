// Compiles a crate to WebAssembly, with the JavaScript that wasm-bindgen writes for it.
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, run } from '../../.ci/tools.mjs';

const TARGET = 'wasm32-unknown-unknown';
const CRATES = join(ROOT, 'bindings-js', 'wasm');

function packageOf(crate) {
  return /^name = "([^"]+)"$/m.exec(readFileSync(join(CRATES, crate, 'Cargo.toml'), 'utf8'))[1];
}

/**
 * Writes `<name>_bg.wasm`, `<name>.js` and their types to `directory`. `optimize` has flags of wasm-opt; without them it does not run.
 */
export function compileModule({ crate, features, profile, directory, name, env, optimize }) {
  const target = env.CARGO_TARGET_DIR ?? join(ROOT, 'target');
  const library = packageOf(crate);
  // In the crate's directory, and by its path: the features of other packages stay out.
  run(
    'cargo',
    ['build', '--quiet', '--lib', '--target', TARGET, '--profile', profile, '--features', features.join(',')],
    { env, cwd: join(CRATES, crate) },
  );
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { recursive: true });
  const compiled = join(target, TARGET, profile, `${library.replaceAll('-', '_')}.wasm`);
  // The entries say where the module is; a default in the glue would make bundlers emit it a second time.
  run(
    'wasm-bindgen',
    [
      '--target',
      'web',
      '--typescript',
      '--omit-default-module-path',
      '--out-dir',
      directory,
      '--out-name',
      name,
      compiled,
    ],
    { env },
  );
  const file = join(directory, `${name}_bg.wasm`);
  if (optimize !== undefined) run('wasm-opt', [file, '-o', file, ...optimize], { env });
}
