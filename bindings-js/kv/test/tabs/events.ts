// Planned events of a simulated clock that stands still while an event runs.

export interface Event {
  readonly at: number;
  /** Breaks ties: events due at the same time run in the order in which they were planned. */
  readonly order: number;
  readonly run: () => void;
  isCancelled: boolean;
}

/** A binary heap. */
export class Events {
  readonly #heap: Event[] = [];
  #order = 0;

  plan(at: number, run: () => void): Event {
    const event: Event = { at, order: this.#order++, run, isCancelled: false };
    const heap = this.#heap;
    let hole = heap.length;
    heap.push(event);
    while (hole > 0) {
      const parent = (hole - 1) >> 1;
      if (!isBefore(event, heap[parent]!)) break;
      heap[hole] = heap[parent]!;
      hole = parent;
    }
    heap[hole] = event;
    return event;
  }

  /** Removes and returns the next event up to a time, skipping cancelled ones. */
  take(until: number): Event | undefined {
    for (;;) {
      const first = this.#heap[0];
      if (first === undefined || first.at > until) return undefined;
      this.#removeFirst();
      if (!first.isCancelled) return first;
    }
  }

  #removeFirst(): void {
    const heap = this.#heap;
    const last = heap.pop()!;
    const { length } = heap;
    if (length === 0) return;
    let hole = 0;
    for (;;) {
      let child = 2 * hole + 1;
      if (child >= length) break;
      if (child + 1 < length && isBefore(heap[child + 1]!, heap[child]!)) child++;
      if (!isBefore(heap[child]!, last)) break;
      heap[hole] = heap[child]!;
      hole = child;
    }
    heap[hole] = last;
  }
}

function isBefore(a: Event, b: Event): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order);
}
