// Ends a request in which nothing happens any more, also if what was called ignores its signal.
import { onAbort } from 'mangrove-kv/internal';

export class Patience {
  readonly #milliseconds: number;
  readonly #limit = new AbortController();
  /** Never resolves; rejects when the request has to end. */
  readonly #ended: Promise<never>;
  readonly #forget: () => void;

  /** Waits at most so long at a time, and no longer than until the signal is aborted. */
  constructor(milliseconds: number, given: AbortSignal | undefined) {
    this.#milliseconds = milliseconds;
    this.#ended = new Promise((_, reject) =>
      this.signal.addEventListener('abort', () => reject(this.signal.reason), { once: true }),
    );
    // Nobody may be waiting.
    this.#ended.catch(() => undefined);
    const abort = (): void => this.#limit.abort(given?.reason);
    if (given?.aborted === true) abort();
    this.#forget = onAbort(given, abort);
  }

  /** Aborted when the request has to end. */
  get signal(): AbortSignal {
    return this.#limit.signal;
  }

  /** Waits for one step of the request; `what` says what is missing if it does not come. */
  async wait<T>(what: string, step: T | Promise<T>, extraMilliseconds = 0): Promise<T> {
    const milliseconds = Math.floor(this.#milliseconds + extraMilliseconds);
    const timer = setTimeout(() => this.#limit.abort(new Error(`${what} within ${milliseconds} ms`)), milliseconds);
    try {
      return await Promise.race([this.#ended, step]);
    } finally {
      clearTimeout(timer);
    }
  }

  end(): void {
    this.#forget();
  }
}
