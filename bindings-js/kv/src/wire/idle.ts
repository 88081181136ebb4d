// Closes idle handles: each may pin a version of the database, and so space in the file.

/** Timer rounds per timeout: an idle handle closes at most one round late. */
const ROUNDS = 4;
const MAX_TIMER_MS = 0x7fff_ffff;

export interface Idle {
  /** Round of the last use. */
  readonly usedIn: number;
  expire(): void;
}

/**
 * Measures time in rounds of a timer: recording a use does not read the clock, and a sleeping
 * machine or a frozen page does not count as idleness. The timer runs only while handles are open.
 */
export class IdleHandles {
  readonly timeoutMs: number;
  readonly #roundMs: number;
  readonly #open = new Set<Idle>();
  #round = 0;
  #timer: ReturnType<typeof setInterval> | undefined;

  /** With a `timeoutMs` of `Infinity`, handles never expire. */
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
    // The timer must not keep a Node process alive.
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
