// Gives the space of expired entries back in the background, in slices between which other work gets its turn.
import { Op } from '../wire/opcodes.ts';
import { ReplyReader } from '../wire/protocol.ts';
import type { KvError } from '../base/errors.ts';

/** From one round to the next. */
export const SWEEP_EVERY_MS = 60_000;
/** Between the slices of a round. */
export const SWEEP_PAUSE_MS = 50;
/** Entries that one slice removes, in one commit. */
export const SWEEP_ENTRIES = 256;

/** `purge` of one slice. */
const MESSAGE = Uint8Array.of(Op.purge, (SWEEP_ENTRIES % 0x80) | 0x80, SWEEP_ENTRIES >> 7);

/** What is swept; `sweep` sends it a message and gives the reply, or undefined when there is nothing left to sweep. */
export interface Swept {
  /** Not now, but soon. */
  readonly isBusy: boolean;
  sweep(message: Uint8Array): Uint8Array | undefined;
  /** A slice failed. */
  trouble(error: KvError): void;
}

/** Sweeps until it is stopped, or nobody can reach what is swept any more. */
export class Sweep {
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(swept: Swept) {
    this.#after(SWEEP_EVERY_MS, new WeakRef(swept));
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #after(waitMs: number, swept: WeakRef<Swept>): void {
    this.#timer = setTimeout(() => this.#slice(swept), waitMs);
    // Nobody waits for it.
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
    if (failed) swept.trouble(reader.error());
    // What failed is not tried again at once.
    this.#after(!failed && reader.uv() >= SWEEP_ENTRIES ? SWEEP_PAUSE_MS : SWEEP_EVERY_MS, ref);
  }
}
