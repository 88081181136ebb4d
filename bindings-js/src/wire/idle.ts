// Closes idle handles: each one pins a version of the database, and with it space in the file.

/** Timer rounds per timeout: an idle handle closes at most one round late. */
const ROUNDS = 4;
const MAX_TIMER_MS = 0x7fff_ffff;

export interface Idle {
  /** The round in which it was used last. */
  readonly usedIn: number;
  expire(): void;
}

/**
 * Time passes in rounds of a timer, so that noting a use costs no look at the clock and the sleep of a machine or a frozen page does not count as
 * idleness. The timer runs only while something is open.
 */
export class IdleHandles {
  readonly timeoutMs: number;
  readonly #roundMs: number;
  readonly #open = new Set<Idle>();
  #round = 0;
  #timer: ReturnType<typeof setInterval> | undefined;

  /** `timeoutMs` may be `Infinity`. */
  constructor(timeoutMs: number) {
    this.timeoutMs = timeoutMs;
    this.#roundMs = Math.max(timeoutMs / ROUNDS, 1);
  }

  get round(): number {
    return this.#round;
  }

  add(handle: Idle): void {
    if (this.#roundMs > MAX_TIMER_MS) return;
    this.#open.add(handle);
    if (this.#timer !== undefined) return;
    this.#timer = setInterval(() => this.#next(), this.#roundMs);
    // Node ends a process whose timers are all unreferenced.
    (this.#timer as { unref?: () => void }).unref?.();
  }

  delete(handle: Idle): void {
    this.#open.delete(handle);
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#open.clear();
  }

  #next(): void {
    this.#round++;
    for (const handle of [...this.#open]) {
      if (this.#round - handle.usedIn > ROUNDS) handle.expire();
    }
    if (this.#open.size === 0) this.stop();
  }
}
