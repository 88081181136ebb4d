// Locates the tools of the build. Node built-ins only: this runs before anything is installed.
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('..', import.meta.url));

/** A target with addresses of 32 bits, as WebAssembly has. Its programs run on any Linux for x86-64. */
export const I686_TARGET = 'i686-unknown-linux-musl';
export const hasI686 = process.platform === 'linux' && process.arch === 'x64';

const BINDGEN_SOURCE = join(ROOT, 'bindings-js', 'build', 'wasm-bindgen');

/** SHA-256 of files, with their places below the root. */
export function hashOfFiles(files) {
  const hash = createHash('sha256');
  for (const file of files)
    hash
      .update(`${relative(ROOT, file)}\0`)
      .update(readFileSync(file))
      .update('\0');
  return hash.digest('hex');
}

const CARGO_HOME = process.env.CARGO_HOME ?? join(homedir(), '.cargo');

/** Where our stand-in for wasm-bindgen is built to, shared by all clones that have the same. */
export const BINDGEN_HOME = join(
  CARGO_HOME,
  'mangrove-tools',
  `wasm-bindgen-${hashOfFiles(['Cargo.toml', 'src/main.rs'].map((file) => join(BINDGEN_SOURCE, file))).slice(0, 16)}`,
);

const CHROMIUM_PATHS = [
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome-stable',
  '/usr/bin/google-chrome',
  '/snap/bin/chromium',
  '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
];

// Mozilla's own build starts with Playwright too; a snap cannot read profiles in /tmp.
const FIREFOX_PATHS = [
  '/usr/bin/firefox-esr',
  '/usr/lib/firefox/firefox',
  '/opt/firefox/firefox',
  '/Applications/Firefox.app/Contents/MacOS/firefox',
];
const MINIBROWSER_PATHS = ['x86_64', 'aarch64'].map(
  (machine) => `/usr/lib/${machine}-linux-gnu/webkit2gtk-4.1/MiniBrowser`,
);
const XVFB_PATHS = ['/usr/bin/Xvfb'];

/** Returns the version of wasm-bindgen that the bindings have. */
export function bindgenVersion() {
  const lock = readFileSync(join(ROOT, 'Cargo.lock'), 'utf8');
  const manifest = readFileSync(join(ROOT, 'bindings-js/wasm/core/Cargo.toml'), 'utf8');
  const found = /name = "wasm-bindgen"\nversion = "([^"]+)"/.exec(lock) ?? /wasm-bindgen = "=([^"]+)"/.exec(manifest);
  if (!found) throw new Error('no version of wasm-bindgen in Cargo.lock');
  return found[1];
}

/** Returns the standard output of a command, or undefined if it is missing or fails. */
export function output(command, args, env = process.env) {
  const result = spawnSync(command, args, { cwd: ROOT, env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  return result.status === 0 ? result.stdout.trim() : undefined;
}

/** Runs a command and shows its output; throws if it fails. */
export function run(command, args, options = {}) {
  execFileSync(command, args, { cwd: ROOT, stdio: 'inherit', env: toolEnv(), ...options });
}

function installedVersion(command) {
  return output(command, ['--version'], toolEnv())?.split(' ')[1];
}

export function hasBindgen() {
  return installedVersion('wasm-bindgen') === bindgenVersion();
}

/** Returns the environment with our tools first in PATH, because they have the right versions. */
export function toolEnv() {
  const own = [join(BINDGEN_HOME, 'bin'), join(ROOT, 'node_modules', '.bin'), join(CARGO_HOME, 'bin')];
  return { ...process.env, PATH: [...own, process.env.PATH].join(delimiter) };
}

/** Returns the first path that exists: the environment variable's, else one of the known places. */
function findFirst(variable, paths) {
  return [process.env[variable], ...paths].find((path) => path !== undefined && path !== '' && existsSync(path));
}

/**
 * Programs that browser tests start, with their Debian packages. WebKitGTK includes MiniBrowser.
 */
export const BROWSERS = [
  {
    name: 'Chromium',
    variable: 'CHROMIUM_PATH',
    packages: ['chromium'],
    find: () => findFirst('CHROMIUM_PATH', CHROMIUM_PATHS),
  },
  {
    name: 'Firefox',
    variable: 'FIREFOX_PATH',
    packages: ['firefox-esr'],
    find: () => findFirst('FIREFOX_PATH', FIREFOX_PATHS),
  },
  {
    name: 'MiniBrowser',
    variable: 'MINIBROWSER_PATH',
    packages: ['libwebkit2gtk-4.1-0'],
    find: () => findFirst('MINIBROWSER_PATH', MINIBROWSER_PATHS),
  },
  { name: 'Xvfb', variable: 'XVFB_PATH', packages: ['xvfb'], find: () => findFirst('XVFB_PATH', XVFB_PATHS) },
];

/** Returns environment variables that tell the tests where the browsers are. */
export function browserEnv() {
  return Object.fromEntries(
    BROWSERS.map(({ variable, find }) => [variable, find()]).filter(([, path]) => path !== undefined),
  );
}

/**
 * Servers that the tests of `@mangrove-kv/replication` start, built with Go. Shared by all clones, because
 * MinIO takes minutes. nats-server 2.9.10 and versitygw 1.0.14 have faults that the tests have to find.
 */
export const REPLICATION_SERVERS = [
  { variable: 'NATS_SERVER', binary: 'nats-server', module: 'github.com/nats-io/nats-server/v2', version: 'v2.15.2' },
  {
    variable: 'NATS_SERVER_OLD',
    binary: 'nats-server',
    module: 'github.com/nats-io/nats-server/v2',
    version: 'v2.9.10',
  },
  {
    variable: 'MINIO',
    binary: 'minio',
    module: 'github.com/minio/minio',
    version: 'v0.0.0-20260212201848-7aac2a2c5b7c',
  },
  {
    variable: 'VERSITYGW',
    binary: 'versitygw',
    module: 'github.com/versity/versitygw',
    path: 'cmd/versitygw',
    version: 'v1.0.14',
  },
].map((server) => {
  const home = join(CARGO_HOME, 'mangrove-tools', `${server.binary}-${server.version}`);
  return {
    ...server,
    home,
    file: join(home, server.binary),
    find: () => findFirst(server.variable, [join(home, server.binary)]),
  };
});

/** Go's own installer puts it outside of PATH. */
export function goCommand() {
  return ['go', '/usr/local/go/bin/go', '/usr/lib/go/bin/go'].find(
    (command) => output(command, ['version']) !== undefined,
  );
}

/** Returns environment variables that tell the tests where the servers are. */
export function serverEnv() {
  return Object.fromEntries(
    REPLICATION_SERVERS.map(({ variable, find }) => [variable, find()]).filter(([, path]) => path !== undefined),
  );
}
