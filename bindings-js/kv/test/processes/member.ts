// Runs member-main.mjs in other processes, of any runtime, and in threads.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { KvError } from 'mangrove-kv';
import type { Commit, KvErrorCode, OpenOptions } from 'mangrove-kv';
import { withPath as withPathOf } from '../support/kit.ts';
import { isBun, isDeno, runtimeArgs } from '../support/runtime.ts';

export const needsFiles = { skip: process.platform === 'win32' && 'the address of a pipe is not a file' };

const MAIN = new URL('./member-main.mjs', import.meta.url);
/** Nothing takes longer, on the slowest machine either. */
export const LIMIT_MS = 60_000;

export type Runtime = 'node' | 'deno' | 'bun';
export const OWN_RUNTIME: Runtime = isDeno ? 'deno' : isBun ? 'bun' : 'node';

/** `key` is a text from which the key is made. With `upgradeTo`, an upgrade notes who made it. */
export type MemberOptions = Pick<
  OpenOptions,
  'share' | 'exclusive' | 'readOnly' | 'lockTimeout' | 'durability' | 'create' | 'thread' | 'cacheBytes'
> & { readonly key?: string; readonly upgradeTo?: number };

interface Answer {
  readonly id?: number;
  readonly value?: unknown;
  readonly error?: { readonly code?: KvErrorCode; readonly message: string; readonly retryable?: boolean };
  readonly acknowledged?: string;
  readonly n?: number;
}

interface Waiting {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** Rejects if the promise takes more than a minute. */
export async function within<T>(what: string, promise: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} took more than a minute`)), LIMIT_MS);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Calls `isTrue` until it is. */
export async function until(what: string, isTrue: () => boolean | Promise<boolean>): Promise<void> {
  for (const end = Date.now() + LIMIT_MS; !(await isTrue()); ) {
    assert.ok(Date.now() < end, `${what}: not within a minute`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const running = new Set<Member>();

/** Ends what the test has started, also if it fails. */
export async function endMembers(): Promise<void> {
  await Promise.all([...running].map((member) => member.kill()));
}

function programOf(runtime: Runtime): readonly string[] {
  if (runtime === OWN_RUNTIME) return [process.execPath, ...runtimeArgs()];
  if (runtime === 'node') return ['node'];
  const path = fileURLToPath(new URL(`../../../../node_modules/.bin/${runtime}`, import.meta.url));
  return runtime === 'deno' ? [path, 'run', '--allow-all', '--no-lock', '--node-modules-dir=manual'] : [path];
}

/** Starts the script with databases that it opens before it has nothing more to do; resolves to its exit code. */
export async function runToEnd(paths: readonly string[], runtime: Runtime = OWN_RUNTIME): Promise<number | null> {
  const [program, ...args] = programOf(runtime) as [string, ...string[]];
  const child = spawn(program, [...args, fileURLToPath(MAIN), ...paths], { stdio: ['ignore', 'ignore', 'inherit'] });
  try {
    const [code] = (await within('the end of a process', once(child, 'exit'))) as [number | null];
    return code;
  } finally {
    child.kill('SIGKILL');
  }
}

export class Member {
  /** Of the thread's process if it is a thread. */
  pid = 0;
  readonly #send: (message: object) => void;
  readonly #end: (signal: NodeJS.Signals) => Promise<void>;
  readonly #waiting = new Map<number, Waiting>();
  #calls = 0;
  readonly ended: Promise<unknown>;
  /** By load: the numbers that were acknowledged. */
  readonly acknowledged = new Map<string, number[]>();

  private constructor(
    send: (message: object) => void,
    end: (signal: NodeJS.Signals) => Promise<void>,
    ended: Promise<unknown>,
  ) {
    this.#send = send;
    this.#end = end;
    this.ended = ended.then(() => {
      running.delete(this);
      for (const { reject } of this.#waiting.values()) reject(new Error('the process ended'));
      this.#waiting.clear();
    });
    running.add(this);
  }

  static start(runtime: Runtime = OWN_RUNTIME, env: Readonly<Record<string, string>> = {}): Member {
    const [program, ...args] = programOf(runtime) as [string, ...string[]];
    const child: ChildProcess = spawn(program, [...args, fileURLToPath(MAIN)], {
      stdio: ['pipe', 'pipe', 'inherit'],
      env: { ...process.env, ...env },
    });
    // What is written to a process that was killed is lost.
    child.stdin?.on('error', () => {});
    const ended = once(child, 'close');
    const member = new Member(
      (message) => child.stdin?.write(`${JSON.stringify(message)}\n`),
      async (signal) => void child.kill(signal),
      ended,
    );
    member.pid = child.pid as number;
    createInterface({ input: child.stdout as NodeJS.ReadableStream }).on('line', (line) =>
      member.#hear(JSON.parse(line) as Answer),
    );
    return member;
  }

  static async startThread(): Promise<Member> {
    const { Worker } = await import('node:worker_threads');
    const worker = new Worker(MAIN);
    const ended = once(worker, 'exit');
    const member = new Member(
      (message) => worker.postMessage(message),
      async () => void (await worker.terminate()),
      ended,
    );
    worker.on('message', (message: Answer) => member.#hear(message));
    member.pid = process.pid;
    return member;
  }

  #hear({ id, value, error, acknowledged, n }: Answer): void {
    if (acknowledged !== undefined) {
      const numbers = this.acknowledged.get(acknowledged) ?? [];
      this.acknowledged.set(acknowledged, numbers);
      numbers.push(n as number);
    }
    const waiting = this.#waiting.get(id ?? -1);
    if (waiting === undefined) return;
    this.#waiting.delete(id as number);
    if (error === undefined) waiting.resolve(value);
    else if (error.code === undefined) waiting.reject(new Error(error.message));
    else waiting.reject(new KvError(error.code, error.message, { retryable: error.retryable === true }));
  }

  /** Asks for an operation of member-main.mjs. */
  ask<T = unknown>(operation: string, handle: string, ...args: readonly unknown[]): Promise<T> {
    const id = ++this.#calls;
    const answered = new Promise<unknown>((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
    });
    this.#send({ id, handle, operation, args });
    return within(`${operation} in process ${this.pid}`, answered) as Promise<T>;
  }

  /** On a busy machine the one who leads may take longer to answer than the default limit. */
  async open(path: string, options: MemberOptions = {}, handle = 'db'): Promise<void> {
    await this.ask('open', handle, path, { lockTimeout: 30_000, ...options });
  }

  close(handle = 'db'): Promise<void> {
    return this.ask('close', handle);
  }

  call<T = unknown>(method: string, ...args: readonly unknown[]): Promise<T> {
    return this.ask<T>('call', 'db', method, ...args);
  }

  get<T = unknown>(key: unknown): Promise<T> {
    return this.call<T>('get', key);
  }

  set(key: unknown, value: unknown, options: object = {}): Promise<unknown> {
    return this.call('set', key, value, options);
  }

  list(...prefix: readonly (readonly unknown[])[]): Promise<[readonly unknown[], unknown][]> {
    return this.ask('list', 'db', ...prefix);
  }

  watched(name: string, count: number): Promise<Commit<readonly unknown[], unknown>[]> {
    return this.ask('watched', '', name, count);
  }

  /** Numbers that a load has acknowledged. */
  doneBy(name: string): readonly number[] {
    return this.acknowledged.get(name) ?? [];
  }

  signal(signal: 'SIGSTOP' | 'SIGCONT'): void {
    process.kill(this.pid, signal);
  }

  /** Kills it at once. */
  async kill(): Promise<void> {
    await this.#end('SIGKILL');
    await this.ended;
  }
}

/** Also ends what was started, before the directory is removed. */
export function withPath(use: (path: string) => Promise<void>): Promise<void> {
  return withPathOf(async (path) => {
    try {
      await use(path);
    } finally {
      await endMembers();
    }
  });
}

/** Starts a process that has the database open. */
export async function member(path: string, options = {}, runtime?: Runtime): Promise<Member> {
  const started = Member.start(runtime);
  await started.open(path, options);
  return started;
}

export function valuesOf(commits: readonly Commit[]): unknown[] {
  return commits.flatMap(({ changes }) =>
    changes.map((change) => (change.type === 'set' ? change.value : change.type)),
  );
}

/** What a leader publishes about itself. */
export interface Leader {
  readonly pid: number;
  readonly token: string;
  readonly protocol: number;
  readonly socket: string;
}

/** What the leader has published; waits for it. */
export async function leaderOf(path: string): Promise<Leader> {
  await until('a leader publishes its address', () => existsSync(join(path, 'leader')));
  return JSON.parse(readFileSync(join(path, 'leader'), 'utf8')) as Leader;
}
