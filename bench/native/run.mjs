// Builds the benchmark with all peers and runs it. RocksDB's bindings are generated with libclang,
// which few machines have: without an installed one, PyPI's is fetched into Cargo's home.
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { output, run, toolEnv } from '../../.ci/tools.mjs';

const LIBCLANG_VERSION = '18.1.1';
const CARGO_HOME = process.env.CARGO_HOME ?? join(homedir(), '.cargo');
const OWN = join(CARGO_HOME, 'mangrove-tools', `libclang-${LIBCLANG_VERSION}`);
const NAMES = ['libclang.so', 'libclang.dylib', 'libclang.dll'];

const hasLibclang = (directory) => NAMES.some((name) => existsSync(join(directory, name)));

function installedLibclang() {
  const fromLlvm = output('llvm-config', ['--libdir']);
  const packages = existsSync('/usr/lib') ? readdirSync('/usr/lib').filter((name) => name.startsWith('llvm-')) : [];
  const known = ['/Library/Developer/CommandLineTools/usr/lib', '/opt/homebrew/opt/llvm/lib'];
  return [...(fromLlvm ? [fromLlvm] : []), ...packages.map((name) => join('/usr/lib', name, 'lib')), ...known].find(
    hasLibclang,
  );
}

function fetchedLibclang() {
  const directory = join(OWN, 'clang', 'native');
  if (!hasLibclang(directory)) {
    const python = ['python3', 'python'].find((name) => output(name, ['-m', 'pip', '--version']) !== undefined);
    if (python === undefined)
      throw new Error('RocksDB needs libclang: install it and set LIBCLANG_PATH, or install pip');
    process.stdout.write(`bench: fetching libclang ${LIBCLANG_VERSION}\n`);
    mkdirSync(OWN, { recursive: true });
    run(python, [
      '-m',
      'pip',
      'install',
      '--quiet',
      '--disable-pip-version-check',
      '--target',
      OWN,
      `libclang==${LIBCLANG_VERSION}`,
    ]);
  }
  return directory;
}

function clangEnv() {
  if (process.env.LIBCLANG_PATH) return {};
  const installed = installedLibclang();
  if (installed !== undefined) return { LIBCLANG_PATH: installed };
  // PyPI's library lacks the compiler's headers; those of the installed C compiler work too.
  const headers = output('cc', ['-print-file-name=include']);
  const extra = process.env.BINDGEN_EXTRA_CLANG_ARGS ?? (headers ? `-I${headers}` : '');
  return { LIBCLANG_PATH: fetchedLibclang(), BINDGEN_EXTRA_CLANG_ARGS: extra };
}

try {
  const args = [
    'run',
    '--release',
    '--package',
    'mangrove-bench',
    '--features',
    'peers',
    '--',
    ...process.argv.slice(2),
  ];
  run('cargo', args, { env: { ...toolEnv(), ...clangEnv() } });
} catch (error) {
  // Cargo or the benchmark has printed the error.
  if (error.status === undefined) process.stderr.write(`bench: ${error.message}\n`);
  process.exitCode = 1;
}
