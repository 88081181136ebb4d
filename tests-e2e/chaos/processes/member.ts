// The processes that share the database, seen from the one that disturbs them.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Floors, Report } from '../messages.ts';
import type { FromProcess, ToProcess, Work } from './messages.ts';

export const RUNTIMES = ['node', 'deno', 'bun'] as const;
export type Runtime = (typeof RUNTIMES)[number];

const MAIN = fileURLToPath(new URL('./main.ts', import.meta.url));
const RECORDER = new URL('./recorder.ts', import.meta.url);
/** All calls are answered or refused within a minute; `stop` waits for several of them. */
const LIMIT_MS = 120_000;

/** Where the files are that processes change, and the journal in which they record that. */
export interface Recorded {
  readonly database: string;
  readonly journal: string;
  /** How long a flush takes at least. */
  readonly flushMs: number;
}

function commandOf(runtime: Runtime, isRecorded: boolean): readonly [string, ...string[]] {
  const program = fileURLToPath(new URL(`../../../node_modules/.bin/${runtime}`, import.meta.url));
  switch (runtime) {
    case 'node':
      return [
        process.execPath,
        `--import=${import.meta.resolve('tsx')}`,
        ...(isRecorded ? [`--import=${RECORDER}`] : []),
        MAIN,
      ];
    case 'deno':
      return [
        program,
        'run',
        '--allow-all',
        '--no-check',
        '--no-lock',
        '--node-modules-dir=manual',
        ...(isRecorded ? [`--preload=${RECORDER}`] : []),
        MAIN,
      ];
    case 'bun':
      return [program, ...(isRecorded ? [`--preload=${fileURLToPath(RECORDER)}`] : []), MAIN];
  }
}

/** Rejects after `ms`, so that the run itself never hangs either. */
export async function within<T>(ms: number, what: string, promise: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} took more than ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

let loads = 0;

export class Member {
  readonly load = `p${++loads}`;
  readonly runtime: Runtime;
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  readonly #ended: Promise<unknown>;
  #calls = 0;
  isStopped = false;
  isOver = false;

  constructor(runtime: Runtime, recorded: Recorded | undefined, report: (report: Report) => Floors) {
    this.runtime = runtime;
    const [program, ...args] = commandOf(runtime, recorded !== undefined);
    const names = recorded && {
      CHAOS_DATABASE: recorded.database,
      CHAOS_JOURNAL: recorded.journal,
      CHAOS_FLUSH_MS: String(recorded.flushMs),
    };
    this.#child = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'], env: { ...process.env, ...names } });
    this.#child.stdin?.on('error', () => {});
    // After the last line that it wrote.
    this.#ended = once(this.#child, 'close').then(() => {
      this.isOver = true;
      for (const { reject } of this.#waiting.values()) reject(new Error(`${this.load} has ended`));
      this.#waiting.clear();
    });
    createInterface({ input: this.#child.stdout! }).on('line', (line) => {
      const message = JSON.parse(line) as FromProcess;
      if ('report' in message) {
        this.#say({ answer: message.report, floors: report(message.what) });
        return;
      }
      const waiting = this.#waiting.get(message.returned);
      this.#waiting.delete(message.returned);
      if (message.error === undefined) waiting?.resolve(message.value);
      else waiting?.reject(new Error(`${this.load}: ${message.error}`));
    });
  }

  get pid(): number {
    return this.#child.pid!;
  }

  #say(message: ToProcess): void {
    this.#child.stdin?.write(`${JSON.stringify(message)}\n`);
  }

  call<M extends keyof Work>(method: M, ...args: Parameters<Work[M]>): Promise<Awaited<ReturnType<Work[M]>>> {
    const call = ++this.#calls;
    const returned = new Promise<unknown>((resolve, reject) => {
      this.#waiting.set(call, { resolve, reject });
    });
    this.#say({ call, method, args });
    return within(LIMIT_MS, `${method} in ${this.load}`, returned) as Promise<Awaited<ReturnType<Work[M]>>>;
  }

  stop(): void {
    this.isStopped = true;
    this.#child.kill('SIGSTOP');
  }

  goOn(): void {
    this.isStopped = false;
    this.#child.kill('SIGCONT');
  }

  /** Resolves when all that it wrote is read. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#ended;
  }

  /** Lets it end by itself. */
  async end(how: 'exit' | 'shut'): Promise<void> {
    if (how === 'shut') await this.call('shut');
    this.call('exit').catch(() => undefined);
    await within(LIMIT_MS, `the end of ${this.load}`, this.#ended);
  }
}
