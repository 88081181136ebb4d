// Merges memtables while there are no commits, one slice per timer, so that messages run in
// between. Once all is merged, reads search only the trees.
import { performance } from '../base/platform.ts';
import type { Trace } from '../base/trace.ts';

/** Time without a commit after which a database counts as idle. */
export const IDLE_MS = 100;

/** The database to merge. */
export interface Merged {
  /** Merging has to wait; ask again later. */
  readonly isBusy: boolean;
  readonly version: number;
  /** Merges a slice; returns whether there is more to merge. */
  mergeSlice(): boolean;
}

export class IdleMerge {
  readonly #merged: Merged;
  readonly #trace: Trace | undefined;
  #slices = 0;
  #startedAt = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** The newest version when the timer was set. */
  #seen = 0;
  /** The version at which nothing was left to merge. */
  #done = -1;

  constructor(merged: Merged, trace?: Trace) {
    this.#merged = merged;
    this.#trace = trace;
  }

  /** Call after each message. */
  touched(): void {
    if (this.#timer === undefined && this.#merged.version !== this.#done) this.#after(IDLE_MS);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #after(waitMs: number): void {
    this.#seen = this.#merged.version;
    this.#timer = setTimeout(() => {
      const { version, isBusy } = this.#merged;
      if (isBusy || version !== this.#seen) this.#after(IDLE_MS);
      else if (this.#mergeSlice(version)) this.#after(0);
      else {
        this.#timer = undefined;
        this.#done = version;
      }
    }, waitMs);
    // Merging is optional, so it keeps no process alive.
    (this.#timer as { unref?: () => void }).unref?.();
  }

  #mergeSlice(version: number): boolean {
    if (this.#trace === undefined) return this.#merged.mergeSlice();
    if (this.#slices === 0) this.#startedAt = performance.now();
    const hasMore = this.#merged.mergeSlice();
    this.#slices++;
    if (hasMore && this.#slices === 1) this.#trace({ source: 'merge', event: 'started', version });
    if (hasMore) return true;
    // One slice is what each commit may leave behind.
    if (this.#slices > 1)
      this.#trace({
        source: 'merge',
        event: 'ended',
        version,
        slices: this.#slices,
        milliseconds: performance.now() - this.#startedAt,
      });
    this.#slices = 0;
    return false;
  }
}
