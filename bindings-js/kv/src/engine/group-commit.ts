// Commits of several clients share flushes: each waits for the next one that begins (group commit,
// DeWitt et al., "Implementation Techniques for Main Memory Database Systems", 1984).
//
// A client that a flush has answered may commit again at once. If the next flush did not wait for it, half of
// the clients would wait for every other flush, and each flush would cover half of them.
import { performance, setImmediate } from '../base/platform.ts';

/**
 * The next flush waits for those that the last one answered as long as that took, but within these
 * bounds: it takes a process some time to send its next commit, however fast the disk is.
 */
const MIN_PAUSE_MS = 0.25;
const MAX_PAUSE_MS = 4;
/** Timers are as precise as this. */
const TIMER_MS = 1;

export interface Clock {
  now(): number;
  /** Returns a function that cancels. */
  after(ms: number, run: () => void): () => void;
  /** Runs it after what is due now. */
  nextTurn(run: () => void): void;
}

/** Its timers keep the process alive. */
const CLOCK: Clock = {
  now: () => performance.now(),
  after: (ms, run) => {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  },
  nextTurn: (run) => void (setImmediate ?? setTimeout)(run),
};

interface Waiting {
  /** It is the handle's whose engine serves the others. */
  readonly isOwn: boolean;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

export class GroupCommit {
  readonly #clock: Clock;
  /** Begins a flush, unless that is impossible now. Set by the transport. */
  flush: () => void = () => {};
  /** They wait for the next flush. */
  #waiting: Waiting[] = [];
  /** They wait for the flush that runs. */
  #covered: Waiting[] = [];
  #isFlushing = false;
  #begunAt = 0;
  /** How many the last flush answered, with those that waited then, and whether others were answered. */
  #expected = 0;
  #hadOthers = false;
  /** Until when the next flush waits for them. */
  #until = 0;
  #isLooking = false;
  #cancelPause: (() => void) | undefined;

  constructor(clock: Clock = CLOCK) {
    this.#clock = clock;
  }

  /** Others than the handle wait, or were answered by the last flush. */
  get hasOthers(): boolean {
    return this.#hadOthers || [...this.#waiting, ...this.#covered].some(({ isOwn }) => !isOwn);
  }

  /** Resolves at the end of a flush that begins from now on; rejects with its failure. */
  join(isOwn: boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ isOwn, resolve, reject });
      // Messages that arrived together share a flush.
      if (!this.#isFlushing) this.#lookLater();
    });
  }

  /** A flush begins, which covers all that wait. */
  begin(): void {
    this.#isFlushing = true;
    this.#begunAt = this.#clock.now();
    this.#cancelPause?.();
    this.#cancelPause = undefined;
    this.#covered = this.#waiting;
    this.#waiting = [];
  }

  /** The flush has ended. */
  end(failure: unknown): void {
    this.#isFlushing = false;
    const covered = this.#covered;
    this.#covered = [];
    this.#expected = covered.length + this.#waiting.length;
    this.#hadOthers = covered.some(({ isOwn }) => !isOwn);
    const now = this.#clock.now();
    this.#until = now + Math.min(Math.max(now - this.#begunAt, MIN_PAUSE_MS), MAX_PAUSE_MS);
    for (const { resolve, reject } of covered) {
      if (failure === undefined) resolve();
      else reject(failure);
    }
  }

  /** Begins the next flush if all wait who are expected to, or when they have had the time to. */
  look(): void {
    if (this.#isFlushing || this.#waiting.length === 0) return;
    const left = this.#waiting.length < this.#expected ? this.#until - this.#clock.now() : 0;
    if (left <= 0) return this.flush();
    // Each join looks again, too.
    if (left < TIMER_MS) this.#lookLater();
    else
      this.#cancelPause ??= this.#clock.after(left, () => {
        this.#cancelPause = undefined;
        this.look();
      });
  }

  #lookLater(): void {
    if (this.#isLooking) return;
    this.#isLooking = true;
    this.#clock.nextTurn(() => {
      this.#isLooking = false;
      this.look();
    });
  }
}
