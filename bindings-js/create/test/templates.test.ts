// The templates as projects: their types and versions, and the script. What npm installs for them, and the pages in a
// browser, are in tests-e2e/create.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);
const at = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const NAMES = readdirSync(at('../dist/templates'));
/** Inside the package, so that its development dependencies are those of the projects. */
const PROJECTS = at('../build/projects');

rmSync(PROJECTS, { recursive: true, force: true });
mkdirSync(PROJECTS, { recursive: true });
after(() => rmSync(PROJECTS, { recursive: true, force: true }));
for (const name of NAMES)
  await run(process.execPath, [at('../dist/create-mangrove-kv.js'), join(PROJECTS, name), '-t', name]);

interface Manifest {
  readonly version: string;
  readonly bin?: Record<string, string>;
  readonly scripts: Record<string, string>;
  readonly dependencies: Record<string, string>;
  readonly devDependencies: Record<string, string>;
}
const readManifest = (file: string): Manifest => JSON.parse(readFileSync(file, 'utf8')) as Manifest;

/** The manifest of an installed package, as seen from a file. */
function installed(name: string, from: string): { file: string; manifest: Manifest } {
  const places = createRequire(from).resolve.paths(name) ?? [];
  for (const place of places) {
    const file = join(place, name, 'package.json');
    try {
      return { file, manifest: readManifest(file) };
    } catch {
      // Further up.
    }
  }
  throw new Error(`${name} is not installed`);
}

/** Runs TypeScript 7, or for single-file components what checks them, which needs 6. */
function check(name: string): Promise<unknown> {
  const cwd = join(PROJECTS, name);
  const [script = '', ...args] = (readManifest(join(cwd, 'package.json')).scripts['check'] ?? '').split(' ');
  const require = createRequire(import.meta.url);
  if (script === 'vue-tsc') {
    const program = `require(${JSON.stringify(require.resolve('vue-tsc'))}).run(${JSON.stringify(require.resolve('typescript/lib/tsc.js'))})`;
    return run(process.execPath, ['-e', program, '--', ...args], { cwd });
  }
  const isTsc = script === 'tsc';
  const { file, manifest } = installed(
    isTsc ? 'typescript' : script,
    isTsc ? at('../../../package.json') : import.meta.filename,
  );
  return run(process.execPath, [join(dirname(file), manifest.bin?.[script] ?? ''), ...args], { cwd });
}

test('there is a project for each template', () => {
  assert.deepEqual(NAMES.sort(), ['node', 'pwa', 'react', 'svelte', 'vanilla', 'vue']);
});

for (const name of NAMES) {
  test(`the types of ${name} are right`, async () => {
    await check(name);
  });

  test(`${name} asks for this version of mangrove-kv, and for others by ranges that have what is tested here`, () => {
    const { version } = readManifest(at('../package.json'));
    const { dependencies, devDependencies } = readManifest(join(PROJECTS, name, 'package.json'));
    assert.ok('mangrove-kv' in dependencies);
    for (const [package_, range] of Object.entries({ ...dependencies, ...devDependencies })) {
      if (/^(mangrove-kv$|@mangrove-kv\/)/.test(package_)) {
        assert.equal(range, version, package_);
        continue;
      }
      const [, major, minor, patch] = /^\^(\d+)\.(\d+)\.(\d+)$/.exec(range)?.map(Number) ?? [];
      assert.ok(major !== undefined && minor !== undefined && patch !== undefined && major > 0, `${package_} ${range}`);
      // TypeScript is there in two versions: 7 for the repository, and 6 for what checks single-file components.
      const isOurs = package_ === 'typescript' && major > 6;
      const found = installed(package_, isOurs ? at('../../../package.json') : import.meta.filename).manifest.version;
      const [ownMajor, ownMinor, ownPatch] = found.split('.').map(Number) as [number, number, number];
      assert.equal(ownMajor, major, package_);
      assert.ok(ownMinor > minor || (ownMinor === minor && ownPatch >= patch), `${package_} ${range} has no ${found}`);
    }
  });
}

test('a mistake is found in each kind of file', async () => {
  for (const [name, file, right, wrong] of [
    ['react', 'src/App.tsx', 'todo.isDone', 'todo.isdone'],
    ['vue', 'src/App.vue', 'todo.isDone', 'todo.isdone'],
    ['svelte', 'src/App.svelte', 'todo.isDone', 'todo.isdone'],
    ['vanilla', 'src/main.ts', '{ isDone }', '{ isdone }'],
    ['pwa', 'src/service-worker.ts', 'caches.open(CACHE)', 'caches.open(FILES)'],
    ['pwa', 'vite.config.ts', 'publicDir } = config', 'publicdir } = config'],
  ] as const) {
    const path = join(PROJECTS, name, file);
    const text = readFileSync(path, 'utf8');
    assert.ok(text.includes(right), file);
    writeFileSync(path, text.replace(right, wrong));
    // The compiler names the file.
    await assert.rejects(check(name), ({ stdout }: { stdout: string }) => stdout.includes(file), file);
    writeFileSync(path, text);
  }
});

const TSX = createRequire(import.meta.url).resolve('tsx/cli');
const script = (...args: string[]) =>
  run(process.execPath, [TSX, 'src/main.ts', ...args], { cwd: join(PROJECTS, 'node') });

test('the script keeps its data between runs, and follows another process', async () => {
  assert.equal((await script()).stdout, 'Nothing to do.\n');
  const watcher = spawn(process.execPath, ['--import', 'tsx', 'src/main.ts', 'watch'], { cwd: join(PROJECTS, 'node') });
  let seen = '';
  const sees = (text: string) =>
    new Promise<void>((resolve, reject) => {
      const look = (): void => {
        if (seen.includes(text)) resolve();
      };
      watcher.stdout.on('data', look).on('end', () => reject(new Error(`no ${text}, but ${seen}`)));
      look();
    });
  watcher.stdout.setEncoding('utf8').on('data', (text: string) => {
    seen += text;
  });
  await sees('Nothing to do.');
  await script('add', 'Buy', 'milk');
  await sees('1. [ ] Buy milk\n');
  await script('add', 'Drink it');
  await script('done', '1');
  await sees('1. [x] Buy milk\n2. [ ] Drink it\n');
  const ended = new Promise((resolve) => {
    watcher.on('close', resolve);
  });
  watcher.kill('SIGINT');
  assert.equal(await ended, 0);

  assert.equal((await script('list')).stdout, '1. [x] Buy milk\n2. [ ] Drink it\n');
  assert.equal((await script('remove-done')).stdout, '1 removed\n');
  assert.equal((await script('list')).stdout, '1. [ ] Drink it\n');
  for (const [args, message] of [
    [['add', ' '], /what is to be done\?/],
    [['done', '2'], /nothing has the number "2"/],
    [['done', 'x'], /nothing has the number "x"/],
    [['dance'], /"dance" is no command[^]*Usage/],
  ] as const) {
    await assert.rejects(script(...args), { code: 1, stderr: message });
  }
});
