// A thread that waits falls asleep, and to wake it takes longer than to look an entry up. So one that has just answered stays awake for a
// moment, as the next message is likely to be near, and one that asks stays awake for as long as answers lately took no longer than that.
import { MessageChannel } from '../base/platform.ts';

/** Turns of the event loop, of a few microseconds each. What else there is to do gets its turn between them. */
const TURNS = 40;
/** Answers in a row that come too late for it until it sleeps. */
const PATIENCE = 3;
/** Then it tries again once in so many times. */
const TRY_EVERY = 16;

/** Keeps a thread from going to sleep for a moment. */
export class Awake {
  readonly #channel = new MessageChannel();
  #left = 0;

  constructor() {
    const { port1, port2 } = this.#channel;
    port1.onmessage = () => {
      if (--this.#left > 0) port2.postMessage(0);
    };
  }

  get isAwake(): boolean {
    return this.#left > 0;
  }

  /** For so many turns from now. */
  stay(): void {
    if (this.#left <= 0) this.#channel.port2.postMessage(0);
    this.#left = TURNS;
  }

  /** No longer. */
  rest(): void {
    // One turn is under way.
    this.#left = Math.min(this.#left, 1);
  }

  /** For good. */
  end(): void {
    this.#channel.port1.close();
  }
}

/** One that asks. */
export class Asker {
  readonly #awake = new Awake();
  #patience = PATIENCE;
  #asked = 0;

  asked(): void {
    if (this.#patience > 0 || ++this.#asked % TRY_EVERY === 0) this.#awake.stay();
  }

  answered(): void {
    if (this.#awake.isAwake) this.#patience = PATIENCE;
    else if (this.#patience > 0) this.#patience--;
    this.#awake.rest();
  }

  end(): void {
    this.#awake.end();
  }
}
