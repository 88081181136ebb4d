// What the clients of a simulated store were promised, checked against the store.
import { VERSIONS } from './operations.ts';
import { Store } from './store.ts';
import type { Observer } from './store.ts';

/** How messages and commits ended. */
export interface Settlements {
  commits: number;
  lost: number;
  acknowledged: number;
  refused: number;
  failed: number;
}

export abstract class Ledger implements Observer {
  now = 0;
  readonly store: Store = new Store(this);
  abstract readonly counts: Settlements;
  /** Log of what happened, if wanted. */
  trace: string[] | undefined;
  violation: string | undefined;
  #nextId = 1;
  /** The newest acknowledged commit. */
  acknowledged = 0;
  /** Operations acknowledged as done, and operations promised not to be done. */
  readonly #promised = new Map<number, 'done' | 'not done'>();

  nextId(): number {
    return this.#nextId++;
  }

  violate(what: string): void {
    if (this.violation !== undefined) return;
    this.violation = `${what} (at ${this.now} ms)`;
    this.say(() => `VIOLATION: ${what}`);
  }

  say(what: () => string): void {
    this.trace?.push(`${this.now.toString().padStart(7)} ${what()}`);
  }

  committed(id: number): void {
    this.counts.commits++;
    this.say(() => `commit ${this.store.version}: operation ${id}`);
    if (this.#promised.get(id) === 'not done') this.violate(`operation ${id} is done after it was refused as not done`);
  }

  undone(id: number): void {
    this.counts.lost++;
    this.say(() => `operation ${id} is lost in the crash`);
    if (this.#promised.get(id) === 'done') this.violate(`operation ${id} was acknowledged but is lost`);
  }

  abstract forgot(client: string): void;

  /** A page received the outcome of a write. */
  promiseDone(id: number, outcome: number): void {
    const done = this.store.outcomeOf(id);
    if (done !== outcome)
      this.violate(`operation ${id} was acknowledged with ${outcome}, but the store has ${done ?? 'no outcome'}`);
    this.#promised.set(id, 'done');
    this.acknowledged = Math.max(this.acknowledged, outcome % VERSIONS);
  }

  /** A page was told that it can retry. */
  promiseNotDone(id: number): void {
    this.#promised.set(id, 'not done');
    if (this.store.outcomeOf(id) !== undefined) this.violate(`operation ${id} was refused as not done, but it is done`);
  }
}
