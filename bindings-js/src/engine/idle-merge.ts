// Merges memtables while nobody commits, in slices between which messages get their turn. Reads then find all records in the trees.

/** Without a commit for so long a database counts as idle. */
export const IDLE_MS = 100;

/** What is merged. */
export interface Merged {
  /** Not now, but soon. */
  readonly isBusy: boolean;
  readonly version: number;
  /** Merges a slice; false when there is nothing more to merge. */
  mergeSlice(): boolean;
}

export class IdleMerge {
  readonly #merged: Merged;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** The version that was the newest when the timer was set. */
  #seen = 0;
  /** The version at which there was nothing more to merge. */
  #done = -1;

  constructor(merged: Merged) {
    this.#merged = merged;
  }

  /** To be called after each message. */
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
    // What it would merge survives the end of the process anyway.
    (this.#timer as { unref?: () => void }).unref?.();
  }
}
