// Runtimes that refuse files: every failure is a KvError that says what to allow, and none is left unhandled.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { withPath } from './support/kit.ts';
import { isBun, isDeno } from './support/runtime.ts';

const PACKAGE = fileURLToPath(new URL('..', import.meta.url));
const DENO = fileURLToPath(new URL('../../../node_modules/.bin/deno', import.meta.url));
const CALLS = ['open', 'open in a worker', 'openSync', 'destroy', 'list', 'recover', 'restore'];

const SCRIPT = `
import { destroy, list, open, openSync, recover, restore } from ${JSON.stringify(join(PACKAGE, 'dist', 'node.js'))};
import process from 'node:process';
const path = PATH;
process.on('unhandledRejection', (error) => console.log('unhandled: ' + error));
const calls = [() => open(path), () => open(path, { thread: 'worker' }), () => openSync(path), () => destroy(path), () => list(), () => recover(path, path + '-else'), () => restore(path, new Uint8Array(10))];
for (const call of calls) {
  try {
    await call();
    console.log('none');
  } catch (error) {
    console.log(error.name + ' ' + error.code + ' ' + error.message.replaceAll('\\n', ' '));
  }
}
await new Promise((resolve) => setTimeout(resolve, 100));
`;

/** What the calls print, one line each. */
function printed(directory: string, path: string, program: string, args: readonly string[]): readonly string[] {
  const script = join(directory, 'script.mjs');
  writeFileSync(script, SCRIPT.replace('PATH', JSON.stringify(path)));
  return execFileSync(program, [...args, script], {
    encoding: 'utf8',
    cwd: directory,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
    .trim()
    .split('\n');
}

function check(lines: readonly string[], advice: RegExp): void {
  assert.equal(lines.length, CALLS.length, lines.join('\n'));
  for (const [at, line] of lines.entries()) {
    assert.match(line, /^KvError KV_/, `${CALLS[at]}: ${line}`);
    assert.match(line, advice, `${CALLS[at]}: ${line}`);
  }
}

const permission = process.versions.node.startsWith('20.') ? '--experimental-permission' : '--permission';
const node = (directory: string): readonly string[] => [
  permission,
  '--no-warnings',
  `--allow-fs-read=${PACKAGE}*`,
  `--allow-fs-read=${join(directory, 'script.mjs')}`,
];

test('Node without access to the files', { skip: isDeno || isBun }, () =>
  withPath(async (directory) => {
    mkdirSync(directory, { recursive: true });
    check(
      printed(directory, join(directory, 'db'), process.execPath, node(directory)),
      /allow it with --allow-fs-read=/,
    );
    mkdirSync(join(directory, 'there'));
    writeFileSync(join(directory, 'there', 'data'), 'x');
    check(
      printed(directory, join(directory, 'there'), process.execPath, node(directory)),
      /allow it with --allow-fs-read=/,
    );
  }),
);

test('Deno without access to the files, or to the module', { skip: isDeno || isBun || !existsSync(DENO) }, () =>
  withPath(async (directory) => {
    mkdirSync(directory, { recursive: true });
    const deno = (...flags: readonly string[]): readonly string[] =>
      printed(directory, join(directory, 'db'), DENO, ['run', '--no-prompt', '--no-lock', ...flags]);
    check(deno(`--allow-read=${PACKAGE}`), /--allow-read/);
    check(deno(), /--allow-read/);
  }),
);
