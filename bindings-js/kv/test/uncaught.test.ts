// What a runtime prints for an uncaught error: little, with the code and the line of the program
// that made the call.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { test } from 'node:test';
import { withPath } from './support/kit.ts';
import { isBun, isDeno, runScript } from './support/runtime.ts';

const SCRIPT = './uncaught-main.mjs';
const LINES = readFileSync(new URL(`./support/${SCRIPT}`, import.meta.url), 'utf8').split('\n');

/** The code, and whether the failure occurs after the call has returned. */
const WAYS: Readonly<Record<string, readonly [code: string, later?: 'later']>> = {
  'an invalid key': ['KV_INVALID_KEY'],
  'a nested invalid key': ['KV_INVALID_KEY'],
  'an invalid value': ['KV_INVALID_VALUE'],
  'not awaited': ['KV_INVALID_KEY'],
  'a name': ['KV_INVALID_ARGUMENT'],
  'an option': ['KV_INVALID_ARGUMENT'],
  'an option of openSync': ['KV_INVALID_ARGUMENT'],
  'sync': ['KV_INVALID_KEY'],
  'restore': ['KV_INVALID_ARGUMENT'],
  'limit': ['KV_INVALID_ARGUMENT'],
  'closed': ['KV_CLOSED'],
  'after the commit': ['KV_CLOSED'],
  'inside a transaction': ['KV_INVALID_KEY'],
  'check': ['KV_CONFLICT', 'later'],
  'check in a thread': ['KV_CONFLICT', 'later'],
  'conflict': ['KV_CONFLICT', 'later'],
  'too long': ['KV_KEY_TOO_LARGE', 'later'],
  'missing': ['KV_NOT_FOUND', 'later'],
  'a file': ['KV_INVALID_ARGUMENT', 'later'],
  'no database': ['KV_CORRUPT', 'later'],
};

/** The number of the line whose trailing comment has the name. */
function lineOf(name: string): number {
  const at = LINES.findIndex((line) => line.split(' // ')[1]?.split('; ').includes(name));
  assert.ok(at >= 0, name);
  return at + 1;
}

for (const [name, [code, later]] of Object.entries(WAYS)) {
  test(`uncaught: ${name}`, () =>
    withPath(async (path) => {
      const { err, code: exit } = await runScript(SCRIPT, [name, dirname(path)]);
      const text = err.replaceAll(/\x1b\[[\d;]*m/g, '');
      assert.notEqual(exit, 0);
      assert.ok(text.length < 4096, `${text.length} characters`);
      assert.ok(Math.max(...text.split('\n').map((line) => line.length)) < 400, text);
      assert.match(text, /\bKvError\b/);
      // Deno prints no properties of errors.
      if (!isDeno) assert.match(text, new RegExp(code));
      // Only V8 adds the frames of awaiting functions.
      if (!(isBun && later)) assert.match(text, new RegExp(`uncaught-main\\.mjs:${lineOf(name)}\\b`), text);
    }));
}

test('every way to fail is tested', async () => {
  const { out } = await runScript(SCRIPT, []);
  assert.deepEqual((JSON.parse(out) as string[]).sort(), Object.keys(WAYS).sort());
});
