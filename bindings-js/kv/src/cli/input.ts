// Standard input, read synchronously.
import * as fs from 'node:fs';

const STDIN = 0;
const BUFFER_BYTES = 1 << 16;

const cell = new Int32Array(new SharedArrayBuffer(4));

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? '';
}

/** Retries a call while a pipe is not ready; `undefined` if that takes longer than `momentMs`. */
function whenReadyWithin<T>(momentMs: number, call: () => T): T | undefined {
  for (let waitedMs = 0; ; waitedMs++) {
    try {
      return call();
    } catch (error) {
      if (codeOf(error) !== 'EAGAIN') throw error;
      if (waitedMs >= momentMs) return undefined;
      Atomics.wait(cell, 0, 0, 1);
    }
  }
}

/** Retries a call until another program's pipe is ready. */
export function whenReady<T>(call: () => T): T {
  return whenReadyWithin(Infinity, call) as T;
}

/** What a read does while no input has arrived. */
type EmptyRead = 'ends' | 'fails' | 'waits';

export class Input {
  readonly #unblock: (() => void) | undefined;
  #emptyRead: EmptyRead | undefined;
  /** Read ahead by `isReady`, not consumed yet. */
  #ahead = new Uint8Array();
  #isAtEnd = false;

  /** `unblock` makes a pipe non-blocking, if the runtime can. */
  constructor(unblock: (() => void) | undefined) {
    this.#unblock = unblock;
  }

  /** Reads up to `into.length` bytes and returns how many; 0 at the end of the input. */
  read(into: Uint8Array): number {
    if (this.#ahead.length === 0) return this.#isAtEnd ? 0 : whenReady(() => this.#readNow(into));
    const piece = this.#ahead.subarray(0, into.length);
    into.set(piece);
    this.#ahead = this.#ahead.subarray(piece.length);
    return piece.length;
  }

  /** Whether a read would not wait, now or within `momentMs`; false if the runtime cannot tell. */
  isReady(momentMs: number): boolean {
    this.#emptyRead ??= this.#emptyReadOf();
    if (this.#emptyRead === 'ends' || this.#isAtEnd || this.#ahead.length > 0) return true;
    if (this.#emptyRead === 'waits') return false;
    const bytes = new Uint8Array(BUFFER_BYTES);
    try {
      const count = whenReadyWithin(momentMs, () => this.#readNow(bytes));
      if (count === undefined) return false;
      this.#isAtEnd = count === 0;
      this.#ahead = bytes.subarray(0, count);
    } catch {
      // The next read reports it.
    }
    return true;
  }

  #emptyReadOf(): EmptyRead {
    try {
      const stat = fs.fstatSync(STDIN);
      if (stat.isFile()) return 'ends';
      // Leaves a terminal as it is.
      if (this.#unblock === undefined || !(stat.isFIFO() || stat.isSocket())) return 'waits';
      this.#unblock();
      return 'fails';
    } catch {
      // There is no standard input, or its kind is unknown.
      return 'waits';
    }
  }

  #readNow(into: Uint8Array): number {
    try {
      return fs.readSync(STDIN, into, 0, into.length, null);
    } catch (error) {
      // Windows reports a closed pipe this way.
      if (codeOf(error) === 'EOF') return 0;
      throw error;
    }
  }
}
