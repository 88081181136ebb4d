// Purges expired entries in the background, in slices, so that other work runs in between.
import { Op } from '../wire/opcodes.ts';
import { ReplyReader } from '../wire/protocol.ts';
import type { KvError } from '../base/errors.ts';

/** Interval between rounds. */
export const SWEEP_EVERY_MS = 60_000;
/** Pause between the first slices of a round; each further one halves it, down to the least. */
export const SWEEP_PAUSE_MS = 50;
const LEAST_PAUSE_MS = 5;
/** Entries purged per slice, in one commit. */
export const SWEEP_ENTRIES = 256;

/** The request for one slice; its count is a two-byte varint. */
const MESSAGE = Uint8Array.of(Op.purge, (SWEEP_ENTRIES % 0x80) | 0x80, SWEEP_ENTRIES >> 7);

/**
 * The database to sweep. `sweep` executes a message and returns the reply, or `undefined` if the
 * engine is gone.
 */
export interface Swept {
  /** Sweeping has to wait; ask again later. */
  readonly isBusy: boolean;
  sweep(message: Uint8Array): Uint8Array | undefined;
  /** Reports the failure of a slice. */
  backgroundError(error: KvError): void;
}

/** Sweeps until it is stopped or `swept` is garbage-collected. */
export class Sweep {
  #timer: ReturnType<typeof setTimeout> | undefined;
  #pauseMs = SWEEP_PAUSE_MS;

  constructor(swept: Swept) {
    this.#after(SWEEP_EVERY_MS, new WeakRef(swept));
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #after(waitMs: number, swept: WeakRef<Swept>): void {
    this.#timer = setTimeout(() => this.#slice(swept), waitMs);
    // Keeps no process alive.
    (this.#timer as { unref?: () => void }).unref?.();
  }

  #slice(ref: WeakRef<Swept>): void {
    const swept = ref.deref();
    if (swept?.isBusy) {
      this.#after(SWEEP_PAUSE_MS, ref);
      return;
    }
    const reply = swept?.sweep(MESSAGE);
    if (swept === undefined || reply === undefined) return;
    const reader = new ReplyReader(reply);
    const failed = reader.u8() !== 0;
    if (failed) swept.backgroundError(reader.error());
    // A failed slice is retried in the next round.
    const isOver = failed || reader.uv() < SWEEP_ENTRIES;
    this.#after(isOver ? SWEEP_EVERY_MS : this.#pauseMs, ref);
    this.#pauseMs = isOver ? SWEEP_PAUSE_MS : Math.max(this.#pauseMs / 2, LEAST_PAUSE_MS);
  }
}
