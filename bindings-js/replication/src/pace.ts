// Where the engine runs in this thread its replies are microtasks, and a chain of calls holds up
// timers, files and the application's commits for up to 8 ms. The work of replication rests more often.
import { performance, turn } from 'mangrove-kv/internal';

/** A strict commit takes about as long. */
const SLICE_MS = 0.5;

/** In browsers, replies are messages of a worker: others have their turn between any two. */
const isNeeded = 'setImmediate' in globalThis;

/** Interrupts long work. */
export class Pace {
  #since = performance.now();

  /** Whether others have waited for long enough. Asked in loops: a `rest` that is not due costs a microtask. */
  get isDue(): boolean {
    return isNeeded && performance.now() - this.#since >= SLICE_MS;
  }

  /** Between two steps of the work: lets others have their turn if it is due. */
  async rest(): Promise<void> {
    if (!this.isDue) return;
    await turn();
    this.#since = performance.now();
  }
}
