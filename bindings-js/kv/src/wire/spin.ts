// Waking a sleeping thread takes longer than a lookup. So a worker that has just replied keeps its
// event loop spinning briefly for the next message, and a thread that sent a message spins too
// while recent replies arrived in time.
import { MessageChannel, setImmediate } from '../base/platform.ts';

/** Turns of the event loop, of a few microseconds each. Other tasks run between them. */
const TURNS = 40;
/** Consecutive late replies after which an asker stops spinning. */
const PATIENCE = 3;
/** From then on it spins for every so many-th message, to notice faster replies. */
const TRY_EVERY = 16;

/** Keeps the current thread's event loop spinning for a moment. */
export class Awake {
  /** Where there is `setImmediate`, which keeps no process alive between the turns, it is used. */
  readonly #channel = setImmediate === undefined ? new MessageChannel() : undefined;
  #left = 0;

  constructor() {
    if (this.#channel !== undefined) this.#channel.port1.onmessage = () => this.#turn();
  }

  #turn(): void {
    if (--this.#left > 0) this.#next();
  }

  #next(): void {
    if (this.#channel !== undefined) this.#channel.port2.postMessage(0);
    else setImmediate?.(() => this.#turn());
  }

  get isAwake(): boolean {
    return this.#left > 0;
  }

  /** Spins for `TURNS` from now. */
  stay(): void {
    if (this.#left <= 0) this.#next();
    this.#left = TURNS;
  }

  rest(): void {
    // Not 0: a turn is in flight, and `stay` must not start a second chain.
    this.#left = Math.min(this.#left, 1);
  }

  end(): void {
    this.#channel?.port1.close();
  }
}

/** Spins while a reply is awaited, as long as that pays off. */
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
