// Serializes asynchronous calls that share a name.
import { abortable, checkSignal, ignore } from '../base/async.ts';

/**
 * A callback that awaits for longer yields its turn: what it awaits may be queued behind it, which
 * would be a deadlock.
 */
const PATIENCE_MS = 1000;

/** Runs a callback of the caller within its turn. */
export type CallBack = <R>(fn: () => R | Promise<R>) => Promise<R>;

export class PerKeyQueue {
  readonly #last = new Map<string, Promise<void>>();
  /** Name of the call whose callback is on the stack. */
  #calling: string | undefined;

  /**
   * Resolves once the calls of this name that are here now have finished or yielded, and after a
   * second at most; undefined if there are none.
   */
  settled(name: string): Promise<void> | undefined {
    const last = this.#calling === name ? undefined : this.#last.get(name);
    if (last === undefined) return undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const patience = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, PATIENCE_MS);
    });
    return Promise.race([last, patience]).finally(() => clearTimeout(timer));
  }

  /**
   * Runs `work` once earlier calls with this name have finished or yielded; at once if there are
   * none. `work` runs the caller's callbacks through `call`.
   */
  async run<T>(name: string, signal: AbortSignal | undefined, work: (call: CallBack) => Promise<T>): Promise<T> {
    let leave = ignore;
    const call: CallBack = async (fn) => {
      const outer = this.#calling;
      this.#calling = name;
      let result;
      try {
        result = fn();
      } finally {
        this.#calling = outer;
      }
      if (typeof (result as { then?: unknown } | null | undefined)?.then !== 'function') return result;
      const timer = setTimeout(leave, PATIENCE_MS);
      try {
        return await abortable(Promise.resolve(result), signal);
      } finally {
        clearTimeout(timer);
      }
    };
    // Called by a callback of the same name, which may await it: queueing would deadlock.
    if (this.#calling === name) return work(call);
    const before = this.#last.get(name);
    const left = new Promise<void>((resolve) => {
      leave = resolve;
    });
    this.#last.set(name, left);
    try {
      if (before !== undefined) {
        await before;
        checkSignal(signal);
      }
      return await work(call);
    } finally {
      leave();
      if (this.#last.get(name) === left) this.#last.delete(name);
    }
  }
}
