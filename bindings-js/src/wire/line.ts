// Calls under one name take turns.
import { abortable, checkSignal, ignore } from '../base/async.ts';

/** A callback that takes longer lets the next one go on: what it waits for may stand in line behind it. */
const PATIENCE_MS = 1000;

/** Runs a callback of the caller's. */
export type CallBack = <R>(fn: () => R | Promise<R>) => Promise<R>;

export class Line {
  readonly #last = new Map<string, Promise<void>>();
  /** Whose callback is on the stack. */
  #calling: string | undefined;

  /** Runs `work` when those that joined under this name before have left; at once if there are none. */
  async join<T>(name: string, signal: AbortSignal | undefined, work: (call: CallBack) => Promise<T>): Promise<T> {
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
    // The callback may wait for it.
    if (this.#calling === name) return work(call);
    const before = this.#last.get(name);
    const left = new Promise<void>((resolve) => { leave = resolve; });
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
