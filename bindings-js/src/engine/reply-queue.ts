// Replies that wait until what they acknowledge is stored, in the order of their messages.

export interface ReplyTarget {
  reply(bytes: Uint8Array<ArrayBuffer>): void;
  /** Called once at most; no reply follows. */
  fail(error: unknown): void;
}

export class ReplyQueue {
  readonly #target: ReplyTarget;
  readonly #settled: () => Promise<void> | undefined;
  #last: Promise<void> | undefined;
  #hasFailed = false;

  /** `settled` gives when everything that was done so far is stored, or undefined if it is. */
  constructor(target: ReplyTarget, settled: () => Promise<void> | undefined) {
    this.#target = target;
    this.#settled = settled;
  }

  /** A message was executed. A reply that acknowledges nothing waits too: it may tell of what is not stored. */
  push(bytes: Uint8Array<ArrayBuffer>): void {
    const settled = this.#settled();
    if (settled === undefined && this.#last === undefined) this.#reply(bytes);
    else this.#append(settled, () => this.#reply(bytes));
  }

  /** The engine is gone; replies before that are still given. */
  end(error: unknown): void {
    this.#append(undefined, () => this.#fail(error));
  }

  #append(settled: Promise<void> | undefined, done: () => void): void {
    // Awaited only when the earlier ones are through.
    settled?.catch(() => undefined);
    const turn = Promise.resolve(this.#last).then(() => settled).then(done, (error: unknown) => this.#fail(error));
    this.#last = turn;
    void turn.then(() => {
      if (this.#last === turn) this.#last = undefined;
    });
  }

  #reply(bytes: Uint8Array<ArrayBuffer>): void {
    if (!this.#hasFailed) this.#target.reply(bytes);
  }

  #fail(error: unknown): void {
    if (this.#hasFailed) return;
    this.#hasFailed = true;
    this.#target.fail(error);
  }
}
