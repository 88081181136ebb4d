// Runs the built tool in another process of the same runtime, on databases in a temporary directory.
import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { spawn, spawnSync } from 'node:child_process';
import type { ChildProcessByStdio } from 'node:child_process';
import { lstatSync, mkdtempSync, readFileSync, readdirSync, realpathSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';

export const MAIN = fileURLToPath(new URL('../../dist/mangrove-kv.js', import.meta.url));
const RUNTIME_ARGS = 'Deno' in globalThis ? ['run', '--allow-all', '--no-lock', '--node-modules-dir=manual'] : [];
const [COMMAND, ...FIRST] = [process.execPath, ...RUNTIME_ARGS, MAIN] as [string, ...string[]];

export class Run {
  readonly code: number | null;
  readonly bytes: Buffer;
  readonly err: string;

  constructor(code: number | null, bytes: Buffer, err: string) {
    this.code = code;
    this.bytes = bytes;
    this.err = err;
  }

  get out(): string {
    return this.bytes.toString('utf8');
  }

  /** Asserts that it succeeded and wrote nothing to standard error; returns its output. */
  ok(): string {
    assert.deepEqual([this.code, this.err], [0, ''], this.out.slice(0, 1000));
    return this.out;
  }

  /** As `ok`, of JSON. */
  json<T = Record<string, unknown>>(): T {
    return JSON.parse(this.ok()) as T;
  }

  /** Asserts that it failed with this exit code and reported this error code. */
  fails(code: number, kv: string): this {
    assert.equal(this.code, code, `${this.out.slice(0, 1000)}${this.err}`);
    assert.ok(this.err.startsWith(`mangrove: ${kv}: `) && this.err.trimEnd().split('\n').length === 1, this.err);
    return this;
  }
}

/** Runs the tool with arguments and input. */
export function run(args: readonly string[], input: string | Uint8Array = ''): Run {
  const { status, stdout, stderr, error } = spawnSync(COMMAND, [...FIRST, ...args], { input, maxBuffer: 256 << 20 });
  // It may fail before it has read everything.
  if (error !== undefined && (error as NodeJS.ErrnoException).code !== 'EPIPE') throw error;
  return new Run(status, Buffer.from(stdout), stderr.toString('utf8'));
}

export type Tool = ChildProcessByStdio<Writable, Readable, Readable>;

export function start(args: readonly string[]): Tool {
  return spawn(COMMAND, [...FIRST, ...args], { stdio: ['pipe', 'pipe', 'pipe'] });
}

/** The lines that a program prints, one by one. */
export function linesOf(child: Tool): () => Promise<string> {
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return async () => String((await lines.next()).value);
}

export function ended(child: Tool): Promise<number | null> {
  return new Promise((resolve) => {
    child.once('close', (code) => resolve(code));
  });
}

/** A directory for databases. */
export class Place {
  readonly directory = mkdtempSync(join(realpathSync(tmpdir()), 'mangrove-tool-'));

  path(name = ''): string {
    return join(this.directory, name);
  }

  /** Creates a database from these lines. */
  loaded(name: string, lines: string): string {
    run(['load', this.path(name)], lines).ok();
    return this.path(name);
  }

  /** Creates a database whose process died: its commits are in the log alone. */
  async killed(name: string, count: number): Promise<string> {
    const child = start(['load', this.path(name), '--ack', '--batch', '10']);
    const end = ended(child);
    child.stdin.write(numbered(count));
    const next = linesOf(child);
    for (let left = count; left > 0; left--) await next();
    child.kill('SIGKILL');
    await end;
    return this.path(name);
  }
}

/** Runs a test with a place of its own. */
export function withPlace(use: (place: Place) => void | Promise<void>): () => Promise<void> {
  return async () => {
    const place = new Place();
    try {
      await use(place);
    } finally {
      rmSync(place.directory, { recursive: true, force: true });
    }
  };
}

/** Records that count upwards. */
export function numbered(count: number): string {
  return Array.from({ length: count }, (_, key) => `{"key":${key},"value":"value ${key}"}\n`).join('');
}

/** All verbs that read, with an existing key; `backup` writes to standard output. */
export function reading(db: string): string[][] {
  return [
    ['get', db, '7'],
    ['scan', db],
    ['count', db],
    ['stat', db],
    ['verify', db],
    ['dump', db],
    ['backup', db, '-'],
  ];
}

/** Names, bytes and times of the files in a directory, without sockets. */
export function filesIn(directory: string): Record<string, readonly [string, number]> {
  return Object.fromEntries(
    readdirSync(directory)
      .filter((name) => !lstatSync(join(directory, name)).isSocket())
      .sort()
      .map((name) => {
        const path = join(directory, name);
        return [name, [readFileSync(path).toString('base64'), statSync(path).mtimeMs] as const];
      }),
  );
}

export const fixture = (name: string): string => fileURLToPath(new URL(`../fixtures/${name}`, import.meta.url));

export const linesIn = <T = Record<string, unknown>>(text: string): T[] =>
  text
    .trimEnd()
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as T);
