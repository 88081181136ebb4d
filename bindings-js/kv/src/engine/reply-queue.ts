// Holds back replies until what they acknowledge is stored. Keeps them in message order.

export interface ReplyTarget {
  reply(bytes: Uint8Array<ArrayBuffer>, requests?: number): void;
  /** Called at most once; no reply follows. */
  fail(error: unknown): void;
}

export class ReplyQueue {
  readonly #target: ReplyTarget;
  readonly #settled: () => Promise<void> | undefined;
  #last: Promise<void> | undefined;
  #hasFailed = false;

  /**
   * `settled()` resolves when everything executed so far is stored; it returns `undefined` if it
   * already is.
   */
  constructor(target: ReplyTarget, settled: () => Promise<void> | undefined) {
    this.#target = target;
    this.#settled = settled;
  }

  /**
   * Queues the reply to the message just executed. Replies to reads wait too: they may reveal
   * writes that are not stored yet. A piece of a reply has `requests`, see `Cut`.
   */
  push(bytes: Uint8Array<ArrayBuffer>, requests?: number): void {
    const settled = this.#settled();
    if (settled === undefined && this.#last === undefined) this.#reply(bytes, requests);
    else this.#append(settled, () => this.#reply(bytes, requests));
  }

  /** Reports the end of the engine, after all earlier replies. */
  end(error: unknown): void {
    this.#append(undefined, () => this.#fail(error));
  }

  #append(settled: Promise<void> | undefined, done: () => void): void {
    // Prevents an unhandled rejection: it is awaited only after the earlier replies.
    settled?.catch(() => undefined);
    const turn = Promise.resolve(this.#last)
      .then(() => settled)
      .then(done, (error: unknown) => this.#fail(error));
    this.#last = turn;
    void turn.then(() => {
      if (this.#last === turn) this.#last = undefined;
    });
  }

  #reply(bytes: Uint8Array<ArrayBuffer>, requests: number | undefined): void {
    if (!this.#hasFailed) this.#target.reply(bytes, requests);
  }

  #fail(error: unknown): void {
    if (this.#hasFailed) return;
    this.#hasFailed = true;
    this.#target.fail(error);
  }
}
