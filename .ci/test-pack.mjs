// Tests the packages as they would be published: their content and metadata, then their use by each
// runtime in an empty project. They must be built.
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import process from 'node:process';
import { MANIFESTS, install, pack } from './pack.mjs';
import { ROOT, output, toolEnv } from './tools.mjs';

const PROGRAM = `
import { open, destroy, restore } from 'mangrove-kv';
import { open as openInline, restore as restoreInline } from 'mangrove-kv/inline';

for (const [start, copy] of [[open, restore], [openInline, restoreInline]]) {
  const path = process.argv[2] + (start === open ? '' : '-inline');
  const db = await start(path);
  await db.setMany([['b', new Date(2)], ['a', { list: [1n] }]]);
  await db.close();
  const again = await start(path, { create: false });
  const [keys, { list }] = [await again.keys().toArray(), await again.get('a')];
  await copy(path + '-copy', again.backup());
  const copied = await start(path + '-copy', { create: false });
  if (await copied.size !== 2) throw new Error('not what was saved');
  await copied.close();
  await again.close();
  if (again.persistence !== 'fs' || keys.join() !== 'a,b' || list[0] !== 1n || !await destroy(path)) throw new Error('not what was written');
}
`;

const REQUIRED = `
const { open } = require('mangrove-kv');
for (const entry of ['mangrove-kv/inline', 'mangrove-kv/live', 'mangrove-kv/durable-object', '@mangrove-kv/replication', '@mangrove-kv/inspector', '@mangrove-kv/storage-tests', '@mangrove-kv/keyv', '@mangrove-kv/unstorage', '@mangrove-kv/automerge', '@mangrove-kv/migrate', '@mangrove-kv/idb-keyval', '@mangrove-kv/localforage']) require(entry);
open('required', { storage: 'memory' }).then(async (db) => {
  await db.set('a', 1);
  console.log(await db.get('a'));
  await db.close();
});
`;

/** Source maps and the sources that they name included. */
const MAX_UNPACKED_BYTES = 6e6;

/**
 * Versions far from those that the adapters are tested with: a project that has them for other
 * reasons must still be able to install the package.
 */
const OTHER_VERSIONS = [
  'keyv@6.0.0-rc.1',
  'unstorage@2.0.0-beta.0',
  'abstract-level@1.0.4',
  '@automerge/automerge-repo@1.2.1',
];
const NO_NETWORK = /\b(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENOTCACHED|ERR_SOCKET_TIMEOUT)\b/;

/** The command line tool as it is installed: `npx @mangrove-kv/cli` runs this file. */
const TOOL = join('node_modules', '.bin', 'mangrove-kv');
const TOOL_FILE = join('node_modules', '@mangrove-kv', 'cli', 'dist', 'mangrove-kv.js');

/** What a strict project with nothing but its runtime's types makes of ours. */
const TYPED_PROGRAM = `
import { open } from 'mangrove-kv';
import type { OpenOptions } from 'mangrove-kv';
import { open as openInline } from 'mangrove-kv/inline';

const options: OpenOptions<string, number> = { storage: 'memory', wasm: new URL('file:///engine.wasm') };
export const both = [open('a', options), openInline('b', options)];
// @ts-expect-error A number is nowhere to load from.
export const wrong = open('a', { wasm: 1 });
`;

const TSC = [
  '--noEmit',
  '--strict',
  '--target',
  'es2022',
  '--types',
  'node',
  '--typeRoots',
  join(process.cwd(), 'node_modules', '@types'),
];
const LIBRARIES = { servers: 'ES2022,ESNext.Disposable', browsers: 'ES2022,ESNext.Disposable,DOM,DOM.Iterable' };
const RESOLUTIONS = { nodenext: 'nodenext', esnext: 'bundler' };

const STRICT = {
  noEmit: true,
  target: 'es2022',
  strict: true,
  exactOptionalPropertyTypes: true,
  noUncheckedIndexedAccess: true,
  noPropertyAccessFromIndexSignature: true,
  verbatimModuleSyntax: true,
  isolatedModules: true,
  skipLibCheck: false,
  typeRoots: [join(ROOT, 'node_modules', '@types')],
};
/** Libraries and packages of types that projects have. */
const PLACES = {
  'servers': { lib: ['ES2022', 'ESNext.Disposable'], types: ['node'] },
  'old servers': { lib: ['ES2022'], types: ['node'] },
  'pages': { lib: ['ES2022', 'ESNext.Disposable', 'DOM', 'DOM.Iterable'], types: [] },
  'pages beside Node': { lib: ['ES2022', 'ESNext.Disposable', 'DOM', 'DOM.Iterable'], types: ['node'] },
  'workers': { lib: ['ES2022', 'ESNext.Disposable', 'WebWorker'], types: [] },
};
/** Its types are those of idb-keyval, which name IndexedDB's. */
const NEEDS_INDEXEDDB = ['@mangrove-kv/idb-keyval'];
const MODULES = [
  ['node16', 'node16'],
  ['nodenext', 'nodenext'],
  ['esnext', 'bundler'],
];

const RUNTIMES = {
  node: ['node', 'program.mjs', 'node.db'],
  deno: ['deno', 'run', '--allow-all', '--no-lock', 'program.mjs', 'deno.db'],
  bun: ['bun', 'program.mjs', 'bun.db'],
};

function check(what, cwd, [program, ...args], expected) {
  const start = performance.now();
  try {
    const out = execFileSync(program, args, { cwd, env: toolEnv(), encoding: 'utf8', stdio: 'pipe' });
    if (expected instanceof RegExp ? !expected.test(out) : expected !== undefined && out !== expected)
      throw new Error(`it printed ${out}`);
  } catch (error) {
    throw new Error(`${what}: ${error.message}\n${error.stdout ?? ''}`, { cause: error });
  }
  process.stdout.write(`${what}: ok in ${((performance.now() - start) / 1000).toFixed(1)} s\n`);
}

function checkTypes(directory, programs) {
  for (const [where, lib] of Object.entries(LIBRARIES)) {
    for (const [module, resolution] of Object.entries(RESOLUTIONS)) {
      const args = ['--lib', lib, '--module', module, '--moduleResolution', resolution, ...programs];
      check(`types for ${where}, ${resolution}`, directory, ['tsc', ...TSC, ...args]);
    }
  }
}

/** The entries of a package that have types. */
function typedEntries({ name, exports = {} }) {
  return Object.entries(exports)
    .filter(([, entry]) => entry.types !== undefined)
    .map(([path]) => path.replace('.', name));
}

/** Our declarations, which the compiler checks without `skipLibCheck`, as some programs have it. */
function checkDeclarations(directory) {
  const files = { 'entries.mts': [], 'adapters.mts': [], 'indexeddb.mts': [] };
  const fileOf = (manifest) => {
    if (NEEDS_INDEXEDDB.includes(manifest.name)) return 'indexeddb.mts';
    return foreignPeers(manifest).length === 0 ? 'entries.mts' : 'adapters.mts';
  };
  for (const manifest of MANIFESTS.values()) files[fileOf(manifest)].push(...typedEntries(manifest));
  for (const [file, imported] of Object.entries(files)) {
    writeFileSync(join(directory, file), imported.map((name, at) => `export * as e${at} from '${name}';\n`).join(''));
    for (const [where, place] of Object.entries(PLACES)) {
      if (file === 'indexeddb.mts' && where.endsWith('servers')) continue;
      for (const [module, moduleResolution] of MODULES) {
        writeFileSync(
          join(directory, 'tsconfig.json'),
          JSON.stringify({ compilerOptions: { ...STRICT, ...place, module, moduleResolution }, files: [file] }),
        );
        const errors = compile(directory);
        if (errors.length > 0) throw new Error(`${file} for ${where}, ${moduleResolution}:\n${errors.join('\n')}`);
      }
    }
    process.stdout.write(`declarations of ${file}: ok\n`);
  }
}

/** What the compiler has against our declarations. Other packages' have errors of their own. */
function compile(directory) {
  const { status, stdout } = spawnSync('tsc', ['--project', '.', '--pretty', 'false'], {
    cwd: directory,
    env: toolEnv(),
    encoding: 'utf8',
  });
  const errors = stdout.split('\n').filter((line) => line.includes('error TS'));
  if (status !== 0 && errors.length === 0) throw new Error(`tsc: ${stdout}`);
  return errors.filter((line) => line.includes('mangrove-kv') || !line.includes('node_modules'));
}

/** Packages of others that a package is used with. */
function foreignPeers({ peerDependencies = {} }) {
  return Object.keys(peerDependencies).filter((name) => !MANIFESTS.has(name));
}

/** Installs the packages that ours are used with. */
function linkPeers(directory) {
  for (const name of new Set([...MANIFESTS.values()].flatMap(foreignPeers))) {
    const place = join(directory, 'node_modules', name);
    mkdirSync(dirname(place), { recursive: true });
    symlinkSync(join(ROOT, 'node_modules', name), place);
  }
}

/** The first block of a page, as it is printed. */
function sampleOf(page) {
  return /^```js\n([^]*?)^```$/m.exec(readFileSync(join(ROOT, page), 'utf8'))[1];
}

/** Gives the samples as programs in TypeScript, which they are too. */
function checkSamples(directory) {
  return ['README.md', 'bindings-js/kv/README.md'].map((page) => {
    const name = page.replaceAll('/', '-');
    const sample = sampleOf(page);
    for (const [runtime, command] of Object.entries(RUNTIMES)) {
      const own = join(directory, 'samples', runtime, name);
      mkdirSync(own, { recursive: true });
      writeFileSync(join(own, 'sample.mjs'), sample);
      check(
        `${runtime}, ${page}`,
        own,
        [...command.slice(0, -2), 'sample.mjs'],
        page === 'README.md' ? /Analytical Engine\S*\n1\n$/ : undefined,
      );
    }
    writeFileSync(join(directory, `${name}.mts`), sample);
    return `${name}.mts`;
  });
}

/** Links of the package's pages that are no addresses lead to its files. */
function checkLinks(tarball) {
  const names = new Set(output('tar', ['-tzf', tarball]).split('\n'));
  const pages = [...names].filter((name) => name.endsWith('.md'));
  if (!pages.includes('package/docs/GUIDE.md')) throw new Error('the package has no docs/GUIDE.md');
  for (const name of pages) {
    // What is in code is no link.
    const text = output('tar', ['-xzOf', tarball, name]).replaceAll(/^```[^]*?^```$|`[^`\n]*`/gm, '');
    const missing = [...text.matchAll(/\]\(([^)\s]+)\)/g)]
      .map(([, target]) => target)
      .filter((target) => !/^(?:https?:|#)/.test(target) && !names.has(join(dirname(name), target.split('#')[0])));
    if (missing.length > 0)
      throw new Error(`the package's ${name} links to what it does not have: ${missing.join(', ')}`);
  }
}

/** What was built is packed as it is. */
function checkPrepack(directory) {
  const built = join(ROOT, 'bindings-js', 'kv', 'dist', 'index.js');
  const before = statSync(built).mtimeMs;
  mkdirSync(directory);
  check('npm pack', ROOT, ['npm', 'pack', '--pack-destination', directory, '--workspace', 'mangrove-kv']);
  if (statSync(built).mtimeMs !== before) throw new Error('npm pack has built the package again');
}

function checkPeers(directory, tarballs) {
  const own = join(directory, 'peers');
  mkdirSync(own);
  writeFileSync(join(own, 'package.json'), '{ "private": true }');
  try {
    check('beside other versions', own, [
      'npm',
      'install',
      '--dry-run',
      '--no-audit',
      '--no-fund',
      ...tarballs,
      ...OTHER_VERSIONS,
    ]);
  } catch (error) {
    if (!NO_NETWORK.test(error.message)) throw error;
    process.stdout.write('beside other versions: not checked, as no registry answers\n');
  }
}

const directory = mkdtempSync(join(tmpdir(), 'mangrove-pack-'));
try {
  const packed = pack(directory, [...MANIFESTS.keys()]);
  const tarballs = [...packed.values()].map(({ tarball }) => tarball);
  for (const [name, { tarball }] of packed) {
    check(`publint ${name}`, directory, ['publint', 'run', '--strict', tarball]);
    // The other runtimes' CommonJS programs require ES modules.
    if (MANIFESTS.get(name).exports !== undefined)
      check(`attw ${name}`, directory, ['attw', tarball, '--profile', 'esm-only']);
  }
  const { unpackedSize } = packed.get('mangrove-kv');
  process.stdout.write(`mangrove-kv: ${(unpackedSize / 1e6).toFixed(2)} MB unpacked\n`);
  if (unpackedSize > MAX_UNPACKED_BYTES)
    throw new Error(`mangrove-kv has ${unpackedSize} bytes unpacked, more than ${MAX_UNPACKED_BYTES}`);
  checkLinks(packed.get('mangrove-kv').tarball);
  checkPrepack(join(directory, 'again'));
  checkPeers(directory, tarballs);
  install(directory, tarballs);
  linkPeers(directory);
  writeFileSync(join(directory, 'program.mjs'), PROGRAM);
  writeFileSync(join(directory, 'program.mts'), TYPED_PROGRAM);
  writeFileSync(join(directory, 'required.cjs'), REQUIRED);
  for (const [runtime, command] of Object.entries(RUNTIMES)) {
    check(runtime, directory, command);
    check(`${runtime}, require`, directory, [...command.slice(0, -2), 'required.cjs'], '1\n');
    const tool = runtime === 'node' ? [join(directory, TOOL)] : [...command.slice(0, -2), TOOL_FILE];
    check(`${runtime}, set`, directory, [...tool, 'set', `tool-${runtime}`, '"ada"', '{"born":1815}'], '');
    check(`${runtime}, scan`, directory, [...tool, 'scan', `tool-${runtime}`], '{"key":"ada","value":{"born":1815}}\n');
    check(`${runtime}, recover`, directory, [...tool, 'recover', `tool-${runtime}`, `recovered-${runtime}`]);
  }
  checkTypes(directory, ['program.mts', ...checkSamples(directory)]);
  checkDeclarations(directory);
} catch (error) {
  process.stderr.write(`pack: ${error.message}\n`);
  process.exitCode = 1;
} finally {
  rmSync(directory, { recursive: true, force: true });
}
