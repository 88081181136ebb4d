// One tab of the chaos run, and how its reports reach the process that disturbs it.
import { open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { Load } from './load.ts';
import type { Failure } from './load.ts';
import type { Chaos, FaultOrder, FaultReport, Floors, Found, Report } from './messages.ts';
import { clientOf, leadingClients, startFaultyWorker } from './start-worker.ts';

declare global {
  interface Window {
    chaos: Chaos;
    report(report: Report): Promise<Floors>;
  }
}

const TICK_MS = 250;
const REPORT_AGAIN_TICKS = 4;

/** Unanswered reports, with their age and the callback that takes the answer. */
const unanswered = new Map<Report, { ticks: number; readonly resolve: (floors: Floors) => void }>();

/**
 * Sends a report until it is answered: if the page is being left or comes back, a report or its
 * answer may be lost. The ledger ignores duplicates.
 */
function report(what: Report): Promise<Floors> {
  return new Promise((resolve) => {
    unanswered.set(what, { ticks: 0, resolve });
    tell(what);
  });
}

function tell(what: Report): void {
  void window.report(what).then((floors) => {
    unanswered.get(what)?.resolve(floors);
    unanswered.delete(what);
  });
}

setInterval(() => {
  for (const [what, waiting] of unanswered) if (++waiting.ticks % REPORT_AGAIN_TICKS === 0) tell(what);
}, TICK_MS);

class Tab implements Chaos {
  #name = '';
  #load: Load | undefined;
  #db: Database | undefined;
  #worker: Worker | undefined;
  #isHidden = false;
  #endsWhenHalted = false;
  /** The database closed by itself and is being reopened. */
  #isReopening = false;

  constructor() {
    Object.defineProperty(document, 'visibilityState', { get: () => (this.#isHidden ? 'hidden' : 'visible') });
  }

  async open({ name, load, seed, lanes }: { name: string; load: string; seed: number; lanes: number }): Promise<void> {
    this.#name = name;
    this.#load = new Load({ name: load, seed, lanes, database: () => this.#db!, report });
    await this.#open();
  }

  async #open(): Promise<void> {
    const db = await this.#load!.timed('open', open(this.#name, { worker: () => this.#startWorker() }));
    this.#db = db;
    db.addEventListener('error', ({ error }) => this.#load!.note('error event', error));
    db.addEventListener('blocked', () => this.#load!.note('blocked event', {}));
    db.addEventListener('close', ({ reason }) => {
      if (reason === undefined || this.#db !== db) return;
      this.#load!.note('close event', reason as Failure);
      this.#isReopening = true;
      this.#reopenLater();
    });
  }

  /** Retries until it succeeds, as an application would whose database was closed under it. */
  #reopenLater(): void {
    this.#open().then(
      () => {
        this.#isReopening = false;
      },
      (error: Failure) => {
        this.#load!.note('open', error);
        setTimeout(() => this.#reopenLater(), 500);
      },
    );
  }

  #startWorker(): Worker {
    const worker = startFaultyWorker();
    worker.addEventListener('message', ({ data }: MessageEvent<FaultReport | object>) => {
      if (!('fault' in data)) return;
      if (this.#endsWhenHalted) worker.terminate();
      this.#endsWhenHalted = false;
      void report({ type: 'halted' });
    });
    this.#worker = worker;
    return worker;
  }

  start(round: number): void {
    this.#load?.start(round);
  }

  async stop(): Promise<void> {
    await this.#load?.stop();
  }

  async reopen(): Promise<void> {
    const db = this.#db;
    try {
      await db?.close();
    } catch (error) {
      // The worker ended in the meantime. The database is closed anyway, unless it had closed by
      // itself before and is being reopened.
      this.#load!.note('close', error as Failure);
      if (this.#isReopening) return;
    }
    if (this.#db === db) await this.#open();
  }

  async read(round: number): Promise<Found> {
    const db = this.#db!;
    const report = await this.#load!.timed('verify', db.verify());
    const entries = await this.#load!.timed('read', db.entries({ prefix: [round] }).toArray());
    return {
      entries: entries as Found['entries'],
      ok: report.ok,
      problems: report.problems.map(({ message }) => message),
    };
  }

  clear(round: number): Promise<void> {
    return this.#load!.timed('clear', this.#db!.clear({ prefix: [round] }));
  }

  async shut(): Promise<void> {
    const db = this.#db;
    this.#db = undefined;
    await db?.close();
  }

  fill(count: number): Promise<void> {
    return this.#db!.setMany(
      Array.from({ length: count }, (_, index) => [['filled', index], 'x'.repeat(100)] as const),
    );
  }

  async writeFor(ms: number): Promise<number[]> {
    const times: number[] = [];
    for (const end = Date.now() + ms; Date.now() < end; ) {
      await this.#db!.set('written', times.length);
      times.push(Date.now());
    }
    return times;
  }

  client(): string {
    return clientOf(this.#worker) ?? '';
  }

  leaders(): Promise<string[]> {
    return leadingClients(this.#name);
  }

  setHidden(isHidden: boolean): void {
    this.#isHidden = isHidden;
    document.dispatchEvent(new Event('visibilitychange'));
  }

  isOpen(): boolean {
    return this.#load !== undefined;
  }

  order(order: FaultOrder): void {
    this.#worker?.postMessage(order);
  }

  terminate(whenHalted: boolean): void {
    if (whenHalted) this.#endsWhenHalted = true;
    else this.#worker?.terminate();
  }
}

window.chaos = new Tab();
