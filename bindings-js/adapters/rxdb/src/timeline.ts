// Orders writes, reads and events. RxDB stamps a write before it calls the storage, and concurrent writes commit in any
// order: a checkpoint must not skip a write that is still in flight. RxDB also applies every later event to the result of a
// read: a read must not show a write whose event is still to come.
import type { RxDocumentData } from 'rxdb';

/** Limit of the retries of a read of changes. */
const ATTEMPTS = 3;

/** The writes of a storage instance whose events have not been emitted. */
export class Timeline {
  readonly #writes = new Set<Promise<unknown>>();
  /** Their timestamps, ascending. */
  readonly #times: number[] = [];
  /** Reads of changes in flight, each with the lowest timestamp of the writes that started meanwhile. */
  readonly #reads = new Set<{ end: number }>();

  /** Registers a write that has just started; calls `emit` as soon as it has succeeded. */
  add<T, R>(lwt: number, write: Promise<T>, emit: (done: T) => R): Promise<R> {
    for (const read of this.#reads) read.end = Math.min(read.end, lwt);
    // Writes mostly start in the order of their timestamps.
    let at = this.#times.length;
    while (at > 0 && this.#times[at - 1]! > lwt) at--;
    this.#times.splice(at, 0, lwt);
    const end = (): void => {
      this.#writes.delete(emitted);
      this.#times.splice(this.#times.indexOf(lwt), 1);
    };
    const emitted: Promise<R> = write.then(
      (done) => {
        end();
        return emit(done);
      },
      (error: unknown) => {
        end();
        throw error;
      },
    );
    this.#writes.add(emitted);
    return emitted;
  }

  /** Holds checkpoints back for a write with this timestamp that starts before the next turn of the event loop. */
  expect(lwt: number): void {
    void this.add(lwt, new Promise<void>((resolve) => setTimeout(resolve)), () => undefined);
  }

  /** The lowest timestamp. */
  oldest(): number {
    return this.#times[0] ?? Infinity;
  }

  /** Resolves when the writes that were called before have been emitted of. */
  async emitted(): Promise<void> {
    await Promise.allSettled(this.#writes);
  }

  /**
   * Reads documents in the order of their timestamps, up to the first write that starts meanwhile. Retries if it could
   * return none of those it has read: the write may fail, and no event would then make RxDB ask again.
   */
  async read<D>(run: () => Promise<RxDocumentData<D>[]>): Promise<RxDocumentData<D>[]> {
    const read = { end: Infinity };
    this.#reads.add(read);
    try {
      for (let attempt = 1; ; attempt++) {
        read.end = Infinity;
        await this.emitted();
        const documents = await run();
        const known = documents.filter(({ _meta }) => _meta.lwt < read.end);
        // Under a steady writer, documents of a tab whose clock is far ahead are above the bound in every attempt.
        if (known.length > 0 || documents.length === 0 || attempt === ATTEMPTS) return known;
      }
    } finally {
      this.#reads.delete(read);
    }
  }
}
