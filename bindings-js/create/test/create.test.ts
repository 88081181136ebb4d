// The tool as npm starts it: a process, on the build.
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';

const TOOL = fileURLToPath(new URL('../dist/create-mangrove-kv.js', import.meta.url));
const NAMES = ['vanilla', 'react', 'vue', 'svelte', 'pwa', 'node'];

function place(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), 'mangrove-create-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

function create(cwd: string, args: readonly string[], env: NodeJS.ProcessEnv = {}) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [TOOL, ...args], {
    cwd,
    encoding: 'utf8',
    input: '',
    env: { ...process.env, npm_config_user_agent: 'npm/11.0.0 node/v20.19.0', ...env },
  });
  return { status, stdout, stderr };
}

/** All files of a directory with their contents. */
function contents(directory: string): Record<string, string> {
  const names = readdirSync(directory, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return Object.fromEntries(
    names
      .map((entry) => join(entry.parentPath, entry.name))
      .sort()
      .map((path) => [path.slice(directory.length + 1), readFileSync(path, 'latin1')]),
  );
}

for (const name of NAMES) {
  test(`writes the template ${name}, with its hidden files`, (t) => {
    const cwd = place(t);
    const { status, stdout, stderr } = create(cwd, ['My App', '--template', name]);
    assert.deepEqual([status, stderr], [0, '']);
    assert.match(stdout, /cd "My App"\n {2}npm install\n {2}npm (run dev|start)\n$/);
    const files = contents(join(cwd, 'My App'));
    const manifest = JSON.parse(files['package.json'] ?? '') as Record<string, unknown>;
    assert.equal(manifest['name'], 'my-app');
    assert.equal(manifest['private'], true);
    assert.match(files['.gitignore'] ?? '', /^node_modules\/$/m);
    assert.match(files['.agents/skills/mangrove-kv/SKILL.md'] ?? '', /^---\nname: mangrove-kv\n/);
    for (const needed of ['README.md', 'AGENTS.md', 'tsconfig.json', 'src/todos.ts']) assert.ok(files[needed], needed);
    assert.deepEqual(
      Object.keys(files).filter((path) => /(^|\/)_/.test(path)),
      [],
    );
  });
}

test('an empty directory, the current one and one with only .git are taken', (t) => {
  const cwd = place(t);
  mkdirSync(join(cwd, '.git'));
  writeFileSync(join(cwd, '.git', 'HEAD'), 'ref: refs/heads/main\n');
  const { status, stdout } = create(cwd, ['.', '-t', 'node']);
  assert.equal(status, 0);
  assert.doesNotMatch(stdout, /cd /);
  const { '.git/HEAD': head, 'src/main.ts': main } = contents(cwd);
  assert.equal(head, 'ref: refs/heads/main\n');
  assert.ok(main);
  mkdirSync(join(cwd, 'data', 'empty'), { recursive: true });
  assert.equal(create(cwd, ['data/empty', '-t', 'node']).status, 0);
});

test('what is there stays: a directory with a file, and a file in its place', (t) => {
  const cwd = place(t);
  mkdirSync(join(cwd, 'app'));
  writeFileSync(join(cwd, 'app', 'README.md'), 'mine');
  writeFileSync(join(cwd, 'file'), 'mine, too');
  const before = contents(cwd);
  const full = create(cwd, ['app', '-t', 'vanilla']);
  assert.equal(full.status, 1);
  assert.match(full.stderr, /app is not empty \(README\.md\); choose another directory, or empty this one\n$/);
  for (const path of ['file', 'file/below']) {
    const { status, stderr } = create(cwd, [path, '-t', 'vanilla']);
    assert.equal(status, 1, path);
    assert.match(stderr, /is a file, or is below one/);
  }
  assert.deepEqual(contents(cwd), before);
});

test('a directory that cannot be written is an error', {
  skip: process.getuid?.() === 0 && 'root writes anywhere',
}, (t) => {
  const cwd = place(t);
  chmodSync(cwd, 0o500);
  const { status, stderr } = create(cwd, ['app', '-t', 'vanilla']);
  chmodSync(cwd, 0o700);
  assert.equal(status, 1);
  assert.match(stderr, /EACCES/);
});

test('wrong arguments are 2, say what is wrong, and write nothing', (t) => {
  const cwd = place(t);
  for (const [args, message] of [
    [[], /the directory is missing/],
    [['app'], /--template is missing/],
    [['app', '-t', 'angular'], /no template is called "angular"; there are vanilla, react, vue, svelte, pwa, node/],
    [['app', '-t', 'toString'], /no template is called "toString"/],
    [['app', '--template'], /argument missing/],
    [['app', '--force'], /Unknown option '--force'/],
    [['app', 'other', '-t', 'node'], /one directory, not 2: app other/],
    [['', '-t', 'node'], /the directory is empty/],
  ] as const) {
    const { status, stdout, stderr } = create(cwd, args);
    assert.deepEqual([status, stdout], [2, ''], args.join(' '));
    assert.match(stderr, message);
  }
  assert.deepEqual(readdirSync(cwd), []);
});

test('help names all templates, and the version is that of the package', (t) => {
  const cwd = place(t);
  const help = create(cwd, ['--help']);
  assert.equal(help.status, 0);
  for (const name of NAMES) assert.match(help.stdout, new RegExp(`^  ${name} `, 'm'));
  const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
    version: string;
  };
  assert.equal(create(cwd, ['-v']).stdout, `${version}\n`);
});

test('the next steps are those of the package manager that started it', (t) => {
  const cwd = place(t);
  for (const [agent, steps] of [
    ['pnpm/10.0.0 npm/? node/v22.0.0', 'pnpm install\n  pnpm dev'],
    ['yarn/4.0.0 npm/? node/v22.0.0', 'yarn install\n  yarn dev'],
    ['bun/1.2.0 npm/? node/v22.0.0', 'bun install\n  bun run dev'],
    ['something/1', 'npm install\n  npm run dev'],
  ] as const) {
    const { stdout } = create(cwd, [agent.split('/')[0] as string, '-t', 'vue'], { npm_config_user_agent: agent });
    assert.ok(stdout.endsWith(`  ${steps}\n`), stdout);
  }
});

test('names of packages are made of names of directories', (t) => {
  const cwd = place(t);
  for (const [directory, name] of [
    ['.hidden', 'hidden'],
    ['Größe 2', 'gr-e-2'],
    ['日本', 'mangrove-app'],
  ] as const) {
    assert.equal(create(cwd, [directory, '-t', 'node']).status, 0);
    const manifest = JSON.parse(readFileSync(join(cwd, directory, 'package.json'), 'utf8')) as { name: string };
    assert.equal(manifest.name, name);
  }
});

test('a shell takes the first of the next steps as it is', {
  skip: process.platform === 'win32' && 'needs sh',
}, (t) => {
  const cwd = place(t);
  for (const directory of [
    'My App',
    './-app',
    'price$list',
    'a"b',
    '`id`',
    "it's",
    "it's $5",
    'back\\slash',
    'new!',
    'two\nlines',
  ]) {
    const { status, stdout } = create(cwd, [directory, '-t', 'node']);
    assert.equal(status, 0, directory);
    const [steps] = /cd [^]*(?=\n {2}npm install)/.exec(stdout) ?? [];
    const there = execFileSync('sh', ['-c', `${steps}\npwd -P`], { cwd, encoding: 'utf8' });
    assert.equal(there, `${join(realpathSync(cwd), directory)}\n`);
  }
});

/** Runs the tool on a terminal, made by `script`, and answers each prompt when it appears. */
function answer(
  cwd: string,
  answers: readonly (readonly [prompt: string, keys: string])[],
  args = '',
): Promise<[number | null, string]> {
  const child = spawn('script', ['-qec', `'${process.execPath}' '${TOOL}' ${args}`, '/dev/null'], { cwd });
  const left = [...answers];
  let [out, from] = ['', 0];
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text;
    const [prompt, keys] = left[0] ?? [];
    const at = prompt === undefined ? -1 : out.indexOf(prompt, from);
    if (at < 0 || keys === undefined) return;
    left.shift();
    from = at + 1;
    child.stdin.write(keys);
  });
  return new Promise((resolve, reject) => {
    child.on('error', reject).on('close', (status) => resolve([status, out]));
  });
}

const hasScript = spawnSync('script', ['--version'], { encoding: 'utf8' }).stdout?.includes('util-linux') ?? false;

test('on a terminal it asks for what is missing', { skip: !hasScript && 'needs script of util-linux' }, async (t) => {
  const cwd = place(t);
  const [status, out] = await answer(cwd, [
    ['Directory (', 'app\r'],
    ['Template (1): ', 'none\r'],
    ['Type a number', '2\r'],
  ]);
  assert.equal(status, 0, out);
  assert.ok(existsSync(join(cwd, 'app', 'src', 'App.tsx')));

  // Both answers at once, and the defaults.
  assert.equal((await answer(cwd, [['Directory (', '\rsvelte\r']]))[0], 0);
  assert.ok(existsSync(join(cwd, 'mangrove-app', 'src', 'App.svelte')));
  assert.equal((await answer(cwd, [['Template (1): ', '\r']], 'third'))[0], 0);
  assert.ok(existsSync(join(cwd, 'third', 'src', 'main.ts')));

  // A directory that is taken is refused before the second question.
  const [refused, text] = await answer(cwd, [['Directory (', 'app\r']]);
  assert.equal(refused, 1);
  assert.doesNotMatch(text, /Template \(/);
});

test('Ctrl-C and the end of the input write nothing', {
  skip: !hasScript && 'needs script of util-linux',
}, async (t) => {
  const cwd = place(t);
  for (const keys of ['\u0003', '\u0004']) {
    const [status, out] = await answer(cwd, [
      ['Directory (', 'app\r'],
      ['Template (1): ', keys],
    ]);
    assert.equal(status, 130, out);
    assert.match(out, /Nothing was written/);
  }
  assert.deepEqual(readdirSync(cwd), []);
});

test('the tool needs no other package', () => {
  const manifest = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as Record<
    string,
    unknown
  >;
  assert.deepEqual([manifest['dependencies'], manifest['peerDependencies']], [undefined, undefined]);
  assert.match(execFileSync(process.execPath, [TOOL, '-v'], { cwd: tmpdir(), encoding: 'utf8' }), /^\d/);
});
