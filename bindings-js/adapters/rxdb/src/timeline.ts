// The order of writes, reads and events. RxDB times a write before it calls the storage, and writes that
// are made at once commit in any order: no checkpoint must be later than one that is still to come. RxDB
// also takes what it reads for the state that the events so far lead to.
import type { RxDocumentData } from 'rxdb';

/** How often changes are read of which all are later than a write under way. */
const ATTEMPTS = 3;

/** The writes of a storage instance that have not been told of. */
export class Timeline {
  readonly #writes = new Set<Promise<unknown>>();
  /** Their times, the oldest first. */
  readonly #times: number[] = [];
  /** Reads of changes under way, each with the time of the first write that was made meanwhile. */
  readonly #reads = new Set<{ end: number }>();

  /** Adds a write that has been called just now, and calls `tell` as soon as it has ended. */
  add<T, R>(lwt: number, write: Promise<T>, tell: (done: T) => R): Promise<R> {
    for (const read of this.#reads) read.end = Math.min(read.end, lwt);
    // Calls mostly come in the order of RxDB's clock.
    let at = this.#times.length;
    while (at > 0 && this.#times[at - 1]! > lwt) at--;
    this.#times.splice(at, 0, lwt);
    const end = (): void => {
      this.#writes.delete(told);
      this.#times.splice(this.#times.indexOf(lwt), 1);
    };
    const told: Promise<R> = write.then(
      (done) => {
        end();
        return tell(done);
      },
      (error: unknown) => {
        end();
        throw error;
      },
    );
    this.#writes.add(told);
    return told;
  }

  /** Expects another write of this time in this turn of the event loop. */
  expect(lwt: number): void {
    void this.add(lwt, new Promise<void>((resolve) => setTimeout(resolve)), () => undefined);
  }

  /** The time of the oldest write. */
  oldest(): number {
    return this.#times[0] ?? Infinity;
  }

  /** Resolves when the writes that were called before have been told of. */
  async told(): Promise<void> {
    await Promise.allSettled(this.#writes);
  }

  /**
   * Reads documents in the order of their times: those that were written before this call, and no later ones. If later
   * ones are all there is it reads again, as no event may follow: the write that is waited for may fail.
   */
  async read<D>(run: () => Promise<RxDocumentData<D>[]>): Promise<RxDocumentData<D>[]> {
    const read = { end: Infinity };
    this.#reads.add(read);
    try {
      for (let attempt = 1; ; attempt++) {
        read.end = Infinity;
        await this.told();
        const documents = await run();
        const known = documents.filter(({ _meta }) => _meta.lwt < read.end);
        // Beside a steady writer, what a tab wrote whose clock is far ahead is later each time.
        if (known.length > 0 || documents.length === 0 || attempt === ATTEMPTS) return known;
      }
    } finally {
      this.#reads.delete(read);
    }
  }
}
