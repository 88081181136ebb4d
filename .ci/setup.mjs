// Installs missing dependencies of the build and the tests; quick if nothing is missing.
// `--browser` adds Chromium, Firefox and WebKitGTK, `--bundlers` the bundlers that the package is
// tested with, `--runtimes` Jest, Vitest and three versions of Node, `--replication` the servers that the
// tests of replication start, `--nats` only the one of the demo, `--i686` Rust's target for processors with
// addresses of 32 bits.
import { copyFileSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import {
  BINDGEN_HOME,
  BROWSERS,
  I686_TARGET,
  ROOT,
  REPLICATION_SERVERS,
  bindgenVersion,
  goCommand,
  hasBindgen,
  hasI686,
  output,
  run,
  toolEnv,
} from './tools.mjs';

const MIN_NODE = [20, 19];

class SetupError extends Error {}

function say(line) {
  process.stdout.write(`setup: ${line}\n`);
}

function checkNode() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major < MIN_NODE[0] || (major === MIN_NODE[0] && minor < MIN_NODE[1])) {
    throw new SetupError(
      `Node ${MIN_NODE.join('.')} or later is needed, this is ${process.versions.node}: https://nodejs.org`,
    );
  }
}

function readJson(path) {
  return JSON.parse(readFileSync(path, 'utf8'));
}

/** Compares the lock file with the hidden one in which npm records what it has installed. */
function npmPackagesAreCurrent(directory) {
  const installedPath = join(directory, 'node_modules', '.package-lock.json');
  if (!existsSync(installedPath)) return false;
  const installed = readJson(installedPath).packages;
  const wanted = readJson(join(directory, 'package-lock.json')).packages;
  return Object.entries(wanted).every(([path, entry]) => {
    if (!path.includes('node_modules/')) return true;
    const found = installed[path];
    // A missing optional package is for another platform.
    if (found === undefined) return entry.optional === true;
    return found.version === entry.version && existsSync(join(directory, path));
  });
}

function installNpmPackages(directory, what, command = 'ci') {
  if (npmPackagesAreCurrent(directory)) return;
  say(`installing ${what}`);
  run('npm', [command, '--no-audit', '--no-fund'], { cwd: directory });
}

/** Reads rust-toolchain.toml. */
function wantedToolchain() {
  const toml = readFileSync(join(ROOT, 'rust-toolchain.toml'), 'utf8');
  const list = (name) =>
    [...(new RegExp(`${name} = \\[([^\\]]*)\\]`).exec(toml)?.[1] ?? '').matchAll(/"([^"]+)"/g)].map((m) => m[1]);
  const channel = /channel = "([^"]+)"/.exec(toml)?.[1];
  if (!channel) throw new SetupError('rust-toolchain.toml names no channel');
  return { channel, components: list('components'), targets: list('targets') };
}

function toolchainIsComplete({ channel, targets }, env) {
  // Without the variable, asking would install the toolchain, without its components and targets.
  const sysroot = output('rustc', ['--print', 'sysroot'], { ...env, RUSTUP_AUTO_INSTALL: '0' });
  if (sysroot === undefined) return false;
  return (
    output('rustc', ['--version'], env)?.split(' ')[1] === channel &&
    ['cargo', 'cargo-clippy', 'cargo-fmt'].every((name) => existsSync(join(sysroot, 'bin', name))) &&
    targets.every((target) => existsSync(join(sysroot, 'lib', 'rustlib', target)))
  );
}

function installRust() {
  const env = toolEnv();
  const wanted = wantedToolchain();
  if (toolchainIsComplete(wanted, env)) return;
  if (output('rustup', ['--version'], env) === undefined) {
    throw new SetupError('rustup is needed for the Rust toolchain: https://rustup.rs');
  }
  say(`installing Rust ${wanted.channel} with ${wanted.targets.join(', ')}`);
  const args = ['toolchain', 'install', wanted.channel, '--profile', 'minimal', '--no-self-update'];
  run('rustup', [
    ...args,
    ...wanted.components.flatMap((name) => ['--component', name]),
    ...wanted.targets.flatMap((name) => ['--target', name]),
  ]);
}

function installI686() {
  const sysroot = output('rustc', ['--print', 'sysroot'], toolEnv());
  if (!hasI686 || existsSync(join(sysroot, 'lib', 'rustlib', I686_TARGET))) return;
  say(`installing Rust's target ${I686_TARGET}`);
  try {
    run('rustup', ['target', 'add', I686_TARGET]);
  } catch {
    // Only one step needs it.
    say(`${I686_TARGET} could not be installed; the step i686 will fail`);
  }
}

function checkCompiler() {
  if (output('cc', ['--version']) === undefined) {
    throw new SetupError('a C compiler is needed to link Rust programs: apt-get install gcc libc6-dev');
  }
}

function installBindgen() {
  if (hasBindgen()) return;
  say(`building wasm-bindgen ${bindgenVersion()}`);
  // Elsewhere than the engine, whose build would wait.
  const target = join(ROOT, 'target', 'tools');
  run('cargo', [
    'build',
    '--quiet',
    '--package',
    'mangrove-wasm-bindgen',
    '--profile',
    'tools',
    '--target-dir',
    target,
  ]);
  const name = process.platform === 'win32' ? 'wasm-bindgen.exe' : 'wasm-bindgen';
  const shared = join(BINDGEN_HOME, 'bin', name);
  mkdirSync(join(BINDGEN_HOME, 'bin'), { recursive: true });
  // Another clone may do the same at this moment.
  copyFileSync(join(target, 'tools', name), `${shared}.${process.pid}`);
  renameSync(`${shared}.${process.pid}`, shared);
  rmSync(target, { recursive: true });
  if (!hasBindgen()) {
    throw new SetupError('bindings-js/build/wasm-bindgen and Cargo.lock disagree on the version of wasm-bindgen');
  }
}

function aptGet(...args) {
  const isRoot = process.getuid?.() === 0;
  const command = [...(isRoot ? [] : ['sudo']), 'apt-get', '-qq', '-y', ...args];
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  run(command[0], command.slice(1), { env, stdio: ['inherit', 'ignore', 'inherit'] });
}

function installBrowsers() {
  const missing = BROWSERS.filter(({ variable, find }) => {
    const wanted = process.env[variable];
    if (wanted && !existsSync(wanted)) throw new SetupError(`${variable} is ${wanted}, which does not exist`);
    return find() === undefined;
  });
  if (missing.length === 0) return;
  const advice = missing
    .map(({ name, variable }) => `install ${name} and set ${variable} to its executable`)
    .join(', ');
  if (!existsSync('/usr/bin/apt-get')) throw new SetupError(`not found: ${advice}`);
  const packages = missing.flatMap((browser) => browser.packages);
  say(`installing ${packages.join(', ')} with apt-get`);
  try {
    aptGet('update');
    aptGet('install', '--no-install-recommends', ...packages);
  } catch (error) {
    throw new SetupError(`apt-get could not install them (${error.message}): ${advice}`);
  }
  const absent = missing.filter(({ find }) => find() === undefined).map(({ name }) => name);
  if (absent.length > 0)
    throw new SetupError(`apt-get did not install ${absent.join(', ')} in a known place: ${advice}`);
}

/** Any Go since 1.21 will do: it fetches the version that a module asks for. */
function installGo() {
  if (goCommand() !== undefined) return;
  if (!existsSync('/usr/bin/apt-get'))
    throw new SetupError('Go is needed to build the servers of the tests of replication: https://go.dev/dl');
  const release = /^VERSION_CODENAME=(.+)$/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1];
  say('installing Go with apt-get');
  try {
    aptGet('update');
    try {
      aptGet('install', '--no-install-recommends', '-t', `${release}-backports`, 'golang-go');
    } catch {
      aptGet('install', '--no-install-recommends', 'golang-go');
    }
  } catch (error) {
    throw new SetupError(`apt-get could not install Go (${error.message}): https://go.dev/dl`);
  }
}

function installServers(servers) {
  for (const { variable, binary, module, path, version, home, find } of servers) {
    if (process.env[variable] && !existsSync(process.env[variable]))
      throw new SetupError(`${variable} is ${process.env[variable]}, which does not exist`);
    if (find() !== undefined) continue;
    installGo();
    say(`building ${binary} ${version} (MinIO takes minutes)`);
    run(goCommand(), ['install', `${path === undefined ? module : `${module}/${path}`}@${version}`], {
      env: { ...process.env, GOBIN: home },
    });
  }
}

try {
  checkNode();
  installNpmPackages(ROOT, 'npm packages');
  checkCompiler();
  installRust();
  if (process.argv.includes('--i686')) installI686();
  installBindgen();
  if (process.argv.includes('--browser')) installBrowsers();
  if (process.argv.includes('--nats'))
    installServers(REPLICATION_SERVERS.filter(({ variable }) => variable === 'NATS_SERVER'));
  if (process.argv.includes('--replication')) {
    installServers(REPLICATION_SERVERS);
    installNpmPackages(join(ROOT, 'bindings-js', 'replication', 'test-servers', 'servers'), 's3rver');
  }
  if (process.argv.includes('--runtimes')) {
    installNpmPackages(join(ROOT, 'bindings-js', 'kv', 'test-runners'), 'Jest and Vitest');
    installNpmPackages(join(ROOT, 'bindings-js', 'kv', 'test-nodes'), 'Node 20, 22 and 24');
  }
  // Half a gigabyte, so they are a separate package, which the demo does not need. Not `npm ci`: it
  // fails if the registry lacks other platforms' bindings that the lock file names.
  if (process.argv.includes('--bundlers')) installNpmPackages(join(ROOT, 'tests-e2e', 'matrix'), 'bundlers', 'install');
} catch (error) {
  if (!(error instanceof SetupError) && error.status === undefined) throw error;
  process.stderr.write(`setup: ${error.message}\n`);
  process.exitCode = 1;
}
