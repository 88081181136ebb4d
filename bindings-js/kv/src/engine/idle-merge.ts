// Merges memtables while there are no commits, one slice per timer, so that messages run in
// between. Once all is merged, reads search only the trees.

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
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** The newest version when the timer was set. */
  #seen = 0;
  /** The version at which nothing was left to merge. */
  #done = -1;

  constructor(merged: Merged) {
    this.#merged = merged;
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
      else if (this.#merged.mergeSlice()) this.#after(0);
      else {
        this.#timer = undefined;
        this.#done = version;
      }
    }, waitMs);
    // Merging is optional, so it keeps no process alive.
    (this.#timer as { unref?: () => void }).unref?.();
  }
}
