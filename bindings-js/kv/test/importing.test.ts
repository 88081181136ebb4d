// Importing the package has no effect: on the process, on globals or on standard input.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { manifests } from './support/packages.ts';
import { isDeno, runtimeArgs } from './support/runtime.ts';

const PROGRAM = fileURLToPath(new URL('./support/import-main.mjs', import.meta.url));
/** What Deno itself defines when a program asks for a module of Node, or loads a CommonJS module. */
const OF_DENO = isDeno ? ['MessageChannel', 'MessagePort', 'nodeBootstrap'] : [];
/** What the libraries that an entry adapts do when they are imported. */
const OF_LIBRARIES: Readonly<Record<string, readonly string[]>> = {
  '@mangrove-kv/angular': ['devtoolsFormatters', 'ngDevMode'],
  '@mangrove-kv/rxdb': ['regeneratorRuntime'],
  '@mangrove-kv/yjs': ['__ $YJS$ __'],
  '@mangrove-kv/vue': ['__VUE_HMR_RUNTIME__', '__VUE_INSTANCE_SETTERS__', '__VUE_SSR_SETTERS__'],
};

const entries = manifests.flatMap(({ entries: own }) => own);

/**
 * Runs the program with input that arrives in two parts with a pause between them; returns what it
 * printed, and its exit code.
 */
async function run(entry: string): Promise<{ out: string; code: number }> {
  const child = spawn(process.execPath, [...runtimeArgs(), PROGRAM, entry], { stdio: ['pipe', 'pipe', 'inherit'] });
  let out = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text;
  });
  const closed = once(child, 'close');
  // By now it reads.
  while (!out.includes('imported\n')) {
    assert.equal(child.exitCode, null, `the program ended: ${out}`);
    await Promise.race([once(child.stdout, 'data'), closed]);
  }
  await pause(50);
  child.stdin.write('first ');
  await pause(50);
  child.stdin.end('second');
  const [code] = (await closed) as [number];
  return { out, code };
}

for (const entry of entries) {
  test(`importing ${entry} changes nothing, and standard input can be read as before`, async () => {
    const { out, code } = await run(entry);
    const report = JSON.parse(out.slice(out.indexOf('\n') + 1)) as Record<string, unknown> & {
      globals: string[];
      resources: string[];
    };
    const known = [...OF_DENO, ...(OF_LIBRARIES[entry] ?? [])];
    report.globals = report.globals.filter((name) => !known.includes(name));
    // lib0, on which Yjs builds, looks whether the terminal has colours.
    if (entry === '@mangrove-kv/yjs') report.resources = report.resources.filter((name) => name !== 'PipeWrap');
    assert.deepEqual(report, { timers: [], globals: [], listeners: [], resources: [], input: 'first second' });
    assert.equal(code, 0);
  });
}

test('all entries of the package are imported', () => {
  assert.ok(entries.length > 10);
});
