#!/usr/bin/env node
// `mangrove-kv`: the command line tool, compiled to WebAssembly.
import * as fs from 'node:fs';
import { join, resolve } from 'node:path';
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';
import { instantiate } from '../../build/wasm-cli/glue.js';
import { KvError } from '../base/errors.ts';
import { Host } from '../cli/host.ts';
import { DATA_FILE } from '../storage/node-fs.ts';
import { lockDirectorySync } from '../storage/node-lock.ts';

const PROGRAM = 'mangrove-kv';
const EXIT_FAILURE = 1;
/**
 * Nested values are read recursively, and the deepest need more stack than Node's main thread has.
 */
const STACK_MB = 64;
/** Deno and Bun can set neither the stack size of a thread nor the blocking mode of a pipe. */
const isNode = !('Deno' in globalThis) && !('Bun' in globalThis);

/** Windows also accepts `/`, the only separator that the tool knows. */
function withSlashes(argument: string): string {
  return process.platform === 'win32' && fs.existsSync(argument) ? argument.replaceAll('\\', '/') : argument;
}

function messageOf(error: unknown, panic: string | undefined): string {
  if (error instanceof RangeError) return 'KV_INVALID_ARGUMENT: nested deeper than this runtime\'s stack allows';
  return `KV_IO: the tool failed: ${panic ?? (error instanceof Error ? error.message : String(error))}`;
}

/** Runs the tool in this thread; returns the exit code. */
function run(unblockInput?: () => void): number {
  const bytes = fs.readFileSync(new URL('./mangrove_cli_bg.wasm', import.meta.url));
  const instance = instantiate(new WebAssembly.Module(bytes));
  const host = new Host(unblockInput);
  try {
    return instance.run(host, [PROGRAM, ...process.argv.slice(2).map(withSlashes)]);
  } catch (error) {
    const message = messageOf(error, instance.panic_message()).replaceAll(/[\n\r]+/g, ' ');
    fs.writeSync(2, `mangrove: ${message}\n`);
    return EXIT_FAILURE;
  } finally {
    host.end();
  }
}

/** Runs the tool in a thread with a large stack. */
function runInThread(): void {
  const unblocked = new Int32Array(new SharedArrayBuffer(4));
  const thread = new Worker(new URL(import.meta.url), {
    argv: process.argv.slice(2),
    workerData: unblocked,
    resourceLimits: { stackSizeMb: STACK_MB },
  });
  thread.on('message', (code: number | undefined) => {
    if (code !== undefined) {
      process.exitCode = code;
      return;
    }
    // Creating this thread's stream of a pipe makes the pipe non-blocking.
    void process.stdin;
    Atomics.store(unblocked, 0, 1);
    Atomics.notify(unblocked, 0);
  });
  thread.on('error', (error) => {
    fs.writeSync(2, `mangrove: ${messageOf(error, undefined)}\n`);
    process.exitCode = EXIT_FAILURE;
  });
}

/** The verb, if it is one that needs the network. */
function archiveVerb([verb, ...rest]: readonly string[]): 'archive' | 'restore' | undefined {
  if (verb === 'archive') return verb;
  const end = rest.indexOf('--');
  const isAt = rest.slice(0, end < 0 ? undefined : end).some((argument) => /^--at(?:-position)?(?:=|$)/.test(argument));
  return verb === 'restore' && isAt ? verb : undefined;
}

/** Takes the lock of a process that is gone, and gives it back. Only the file `lock` alone may need it. */
function unlock(paths: readonly string[]): number {
  try {
    if (paths.length !== 1) throw new KvError('KV_INVALID_ARGUMENT', `usage: ${PROGRAM} unlock <database>`);
    const path = resolve(paths[0] as string);
    if (!fs.existsSync(join(path, DATA_FILE))) throw new KvError('KV_NOT_FOUND', `there is no database in ${path}`);
    lockDirectorySync(path, 0, true)();
    return 0;
  } catch (error) {
    const { code, message } = error as KvError;
    fs.writeSync(2, `mangrove: ${code}: ${message}\n`);
    return EXIT_FAILURE;
  }
}

const verb = archiveVerb(process.argv.slice(2));
if (verb !== undefined) {
  void import('./cli-archive.ts').then(({ run: runVerb }) => runVerb(verb, process.argv.slice(3))).then((code) => {
    process.exitCode = code;
  });
} else if (process.argv[2] === 'unlock') {
  process.exitCode = unlock(process.argv.slice(3));
} else if (!isNode) {
  process.exitCode = run();
} else if (isMainThread) {
  runInThread();
} else {
  const port = parentPort as NonNullable<typeof parentPort>;
  port.postMessage(run(() => {
    port.postMessage(undefined);
    Atomics.wait(workerData as Int32Array, 0, 0);
  }));
}
