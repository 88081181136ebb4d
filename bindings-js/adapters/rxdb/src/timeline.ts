// What a checkpoint may pass over. RxDB times a write before it calls the storage, and writes that are
// made at once commit in any order: no checkpoint must be later than one that is still to come.
import type { RxDocumentData } from 'rxdb';

/** The writes of a storage instance that have not ended. */
export class Timeline {
  /** Their times, in the order of the calls, which is that of RxDB's clock. */
  readonly #writes = new Map<Promise<unknown>, number>();
  /** Reads under way, each with the time of the first write that was made meanwhile. */
  readonly #reads = new Set<{ end: number }>();

  /** Waits for a write that has been called just now. */
  async during<T>(lwt: number, write: Promise<T>): Promise<T> {
    this.#writes.set(write, lwt);
    for (const read of this.#reads) read.end = Math.min(read.end, lwt);
    try {
      return await write;
    } finally {
      this.#writes.delete(write);
    }
  }

  /** The time of the oldest write. */
  oldest(): number {
    for (const lwt of this.#writes.values()) return lwt;
    return Infinity;
  }

  /** Reads documents in the order of their times: those that were written before this call, and no later ones. */
  async read<D>(run: () => Promise<RxDocumentData<D>[]>): Promise<RxDocumentData<D>[]> {
    const read = { end: Infinity };
    this.#reads.add(read);
    try {
      await Promise.allSettled(this.#writes.keys());
      return (await run()).filter(({ _meta }) => _meta.lwt < read.end);
    } finally {
      this.#reads.delete(read);
    }
  }
}
