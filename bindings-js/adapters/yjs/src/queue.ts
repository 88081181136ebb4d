// Updates on their way into the database.

const RETRY_MS = 1000;

/** How a queue writes, and whom it tells about failures. */
export interface QueueCalls {
  /** Stores updates as one commit. */
  readonly write: (updates: readonly Uint8Array[]) => Promise<void>;
  /** Called for each write that failed. Its updates stay in the queue. */
  readonly failed: (error: unknown) => void;
}

/**
 * Hands updates over at the end of the current tick, together, without waiting for earlier writes:
 * what was handed over survives the page. Updates whose write failed are written again with the
 * next ones; after a retryable error also a second later.
 */
export class UpdateQueue {
  readonly #calls: QueueCalls;
  readonly #writing = new Map<Promise<void>, readonly Uint8Array[]>();
  #waiting: Uint8Array[] = [];
  #failed: Uint8Array[] = [];
  #error: unknown;
  #isScheduled = false;
  #isStopped = false;
  #retry: ReturnType<typeof setTimeout> | undefined;

  constructor(calls: QueueCalls) {
    this.#calls = calls;
  }

  add(update: Uint8Array): void {
    this.#waiting.push(update);
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    queueMicrotask(() => {
      this.#isScheduled = false;
      this.#send();
    });
  }

  /** Resolves when all updates added so far are stored; rejects if some could not be, even now. */
  async drain(): Promise<void> {
    await Promise.all(this.#writing.keys());
    this.#send();
    await Promise.all(this.#writing.keys());
    if (this.#failed.length > 0) throw this.#error;
  }

  /** Updates that are not known to be stored. */
  get pending(): readonly Uint8Array[] {
    return [...this.#failed, ...[...this.#writing.values()].flat(), ...this.#waiting];
  }

  /** Ends the attempts that a timer would make. */
  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#retry);
  }

  #send(): void {
    const updates = [...this.#failed, ...this.#waiting];
    if (updates.length === 0) return;
    this.#failed = [];
    this.#waiting = [];
    const written = this.#write(updates).finally(() => this.#writing.delete(written));
    this.#writing.set(written, updates);
  }

  async #write(updates: readonly Uint8Array[]): Promise<void> {
    try {
      await this.#calls.write(updates);
    } catch (error) {
      // Also those of an unknown outcome: an update that is stored twice does no harm.
      this.#failed.push(...updates);
      this.#error = error;
      if ((error as { retryable?: unknown } | undefined)?.retryable === true) this.#sendLater();
      this.#calls.failed(error);
    }
  }

  #sendLater(): void {
    if (this.#isStopped) return;
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => this.#send(), RETRY_MS);
    (this.#retry as { unref?: () => void }).unref?.();
  }
}
