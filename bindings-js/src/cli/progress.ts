// Progress on standard error.
import { note } from './streams.ts';

/** Between two reports. */
const PAUSE_MS = 100;

/** Shows how far something is, if that is asked for or standard error is a terminal. */
export class Progress {
  readonly #isWanted: boolean;
  #last = -Infinity;

  constructor(isAskedFor: boolean) {
    this.#isWanted = isAskedFor || Boolean(process.stderr?.isTTY);
  }

  /** Shows a line, unless the one before was shown a moment ago and this is not the last. */
  show(isLast: boolean, line: () => string): void {
    const now = performance.now();
    if (!this.#isWanted || (!isLast && now - this.#last < PAUSE_MS)) return;
    this.#last = now;
    note(line());
  }

  copied(done: number, total: number, what: string, bytes: number): void {
    const percent = total === 0 ? 100 : Math.floor(done * 100 / total);
    this.show(done === total, () => `${percent} %, ${done} of ${total} ${what}, ${bytes} bytes`);
  }
}
