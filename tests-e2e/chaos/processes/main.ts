// One process of the chaos run. Runs in Node, Deno and Bun.
import process from 'node:process';
import { createInterface } from 'node:readline';
import { open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { Load } from '../load.ts';
import type { Failure } from '../load.ts';
import type { Floors, Found, Report } from '../messages.ts';
import type { FromProcess, ToProcess, Work } from './messages.ts';

const REOPEN_MS = 200;

const unanswered = new Map<number, (floors: Floors) => void>();
let reports = 0;

function say(message: FromProcess): void {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}

function report(what: Report): Promise<Floors> {
  return new Promise((resolve) => {
    unanswered.set(++reports, resolve);
    say({ report: reports, what });
  });
}

class Worker implements Work {
  #path = '';
  #load: Load | undefined;
  #db: Database | undefined;

  async open(path: string, load: string, seed: number, lanes: number): Promise<void> {
    this.#path = path;
    this.#load = new Load({ name: load, seed, lanes, database: () => this.#db!, report });
    this.#db = await this.#openAgain();
  }

  /** Retries until it succeeds, as the one who leads may be stopped. */
  async #openAgain(): Promise<Database> {
    for (;;) {
      try {
        return await this.#open();
      } catch (error) {
        this.#load!.note('open', error as Failure);
        await new Promise((resolve) => setTimeout(resolve, REOPEN_MS));
      }
    }
  }

  async #open(): Promise<Database> {
    const db = await this.#load!.timed('open', open(this.#path, { share: true }));
    db.addEventListener('error', ({ error }) => this.#load!.note('error event', error));
    db.addEventListener('blocked', () => this.#load!.note('blocked event', {}));
    db.addEventListener('close', ({ reason }) => {
      if (reason === undefined || this.#db !== db) return;
      this.#load!.note('close event', reason as Failure);
      void this.#openAgain().then((again) => {
        this.#db = again;
      });
    });
    return db;
  }

  start(round: number): void {
    this.#load?.start(round);
  }

  async stop(): Promise<void> {
    await this.#load?.stop();
  }

  async reopen(): Promise<void> {
    await this.#close(this.#db!);
    this.#db = await this.#openAgain();
  }

  async reload(): Promise<void> {
    const old = this.#db!;
    this.#db = await this.#openAgain();
    await this.#close(old);
  }

  async #close(db: Database): Promise<void> {
    try {
      await this.#load!.timed('close', db.close());
    } catch (error) {
      this.#load!.note('close', error as Failure);
    }
  }

  async read(round: number): Promise<Found> {
    const db = this.#db!;
    const { ok, problems } = await this.#load!.timed('verify', db.verify());
    const entries = await this.#load!.timed('read', db.entries({ prefix: [round] }).toArray());
    return { entries: entries as Found['entries'], ok, problems: problems.map(({ message }) => message) };
  }

  clear(round: number): Promise<void> {
    return this.#load!.timed('clear', this.#db!.clear({ prefix: [round] }));
  }

  shut(): Promise<void> {
    return this.#close(this.#db!);
  }

  starve(ms: number): void {
    for (const end = Date.now() + ms; Date.now() < end; );
  }

  exit(): void {
    process.exit();
  }
}

const worker = new Worker();
const lines = createInterface({ input: process.stdin });
lines.on('line', (line) => {
  const message = JSON.parse(line) as ToProcess;
  if ('answer' in message) {
    unanswered.get(message.answer)?.(message.floors);
    unanswered.delete(message.answer);
    return;
  }
  const { call, method, args } = message;
  Promise.resolve((worker[method] as (...given: readonly unknown[]) => unknown)(...args)).then(
    (value) => say({ returned: call, value }),
    (error: unknown) => say({ returned: call, error: String(error) }),
  );
});
// The run has ended.
lines.on('close', () => process.exit());
