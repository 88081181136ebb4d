// Times what a stage does and watches the main thread meanwhile.

/** Rates (`/s`) are better when higher, everything else when lower. */
export type Unit = '/s' | 'ms' | 'MiB';

/** The name of a figure whose error is that of all rows of the stage which have no value. */
export const ALL_ROWS = '';

export interface Figure {
  readonly name: string;
  readonly unit: Unit;
  readonly value?: number;
  /** Why there is no value. */
  readonly error?: string;
}

/** Without a turn of the event loop the tasks of the benchmark and of the store would be one. */
export function nextTask(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

export function messageOf(error: unknown): string {
  const { name, message, code } = error as { name?: string; message?: string; code?: string };
  const text = message ?? String(error);
  return (
    code !== undefined && typeof code === 'string'
      ? `${code}: ${text}`
      : name === undefined || name === 'Error' || name === 'Unsupported'
        ? text
        : `${name}: ${text}`
  ).split('\n')[0] as string;
}

export class Meter {
  readonly figures: Figure[] = [];
  readonly #windows: { start: number; end: number }[] = [];
  readonly #tasks: { start: number; end: number }[] = [];
  readonly #observer: PerformanceObserver | undefined;

  constructor() {
    // Workers have no such entries.
    if (!PerformanceObserver.supportedEntryTypes.includes('longtask')) return;
    this.#observer = new PerformanceObserver((list) => {
      this.#take(list.getEntries());
    });
    this.#observer.observe({ type: 'longtask' });
  }

  #take(list: PerformanceEntryList): void {
    for (const { startTime, duration } of list) this.#tasks.push({ start: startTime, end: startTime + duration });
  }

  /** Adds what `measure` finds, or why it does not. */
  async figure(name: string, unit: Unit, measure: () => Promise<number>): Promise<void> {
    try {
      this.figures.push({ name, unit, value: await measure() });
    } catch (error) {
      this.figures.push({ name, unit, error: messageOf(error) });
    }
  }

  /** Milliseconds. Only what happens within counts for `longestTask`. */
  async time(operate: () => Promise<void>): Promise<number> {
    await nextTask();
    const start = performance.now();
    await operate();
    const end = performance.now();
    this.#windows.push({ start, end });
    await nextTask();
    return end - start;
  }

  async rate(count: number, operate: () => Promise<void>): Promise<number> {
    return count / ((await this.time(operate)) / 1000);
  }

  /** In milliseconds, 0 for less than 50, which browsers do not report. */
  async longestTask(): Promise<number | undefined> {
    if (this.#observer === undefined) return undefined;
    // They are reported late.
    await new Promise((resolve) => setTimeout(resolve, 100));
    this.#take(this.#observer.takeRecords());
    this.#observer.disconnect();
    const within = this.#tasks.filter((task) =>
      this.#windows.some((window) => task.start < window.end && task.end > window.start),
    );
    return Math.max(0, ...within.map(({ start, end }) => end - start));
  }
}
