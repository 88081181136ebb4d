// The engine in the caller's thread. A reply leaves when its gate lets it: at once, when another
// thread has flushed the commits it acknowledges, or when the storage has caught up.
import { EngineHost } from './engine-host.ts';
import type { KvError } from '../base/errors.ts';
import { queueMicrotask } from '../base/platform.ts';
import { ReplyQueue } from './reply-queue.ts';
import type { FlushableFile } from '../storage/flushable.ts';
import type { CustomStorage } from '../types/index.ts';
import { Lookups } from '../wire/lookup.ts';
import type { EngineOptions } from '../api/options.ts';
import type { syncFaces } from '../api/sync.ts';
import type { Transport, TransportEvents } from '../wire/transport.ts';

/** A storage as this transport knows it. */
export interface InThreadStorage extends CustomStorage {
  /** Its files are `FlushableFile`s: the caller's thread goes on while commits wait for flushes. */
  readonly flushesLater?: boolean;
  /** There where writes are stored later: resolves when those made so far are. */
  settled?(): Promise<void> | undefined;
  /** Set by the transport: called when the files are gone. */
  onLost?: ((error: KvError) => void) | undefined;
}

export interface InThreadOptions {
  /** Called once when the engine is gone, also if it cannot be opened. */
  readonly release: () => unknown;
  /** There where the synchronous API is. */
  readonly syncFaces?: typeof syncFaces;
  /** Whether calls that never wait give the event loop its turn now and then. Default: true. */
  readonly takesTurns?: boolean;
}

export class InThreadTransport implements Transport {
  readonly takesBuffers = false;
  readonly syncFaces: typeof syncFaces | undefined;
  readonly lookups: Lookups | undefined;
  readonly takesTurns: boolean;
  events: TransportEvents | undefined;
  readonly #host: EngineHost;
  readonly #release: () => unknown;
  readonly #flushesLater: boolean;
  /** Replies that wait for the storage. */
  readonly #queue: ReplyQueue | undefined;
  #isMessageWaiting = false;
  /** A flush is under way; it is not waited for where the host is not busy, as somebody had to have its outcome at once. */
  #isFlushing = false;

  constructor(module: WebAssembly.Module, storage: InThreadStorage, engine: EngineOptions, { release, syncFaces, takesTurns = true }: InThreadOptions) {
    this.#release = release;
    try {
      this.#host = EngineHost.open(module, storage, engine);
    } catch (error) {
      void release();
      throw error;
    }
    this.#flushesLater = storage.flushesLater === true;
    if (storage.settled === undefined) {
      this.lookups = new Lookups(this.#host);
      this.takesTurns = takesTurns;
      this.syncFaces = syncFaces;
    } else {
      this.takesTurns = false;
      const target = { reply: (bytes: Uint8Array) => this.events?.reply(bytes, 1), fail: (error: unknown) => this.events?.fail(error as KvError) };
      this.#queue = new ReplyQueue(target, () => storage.settled?.());
    }
    this.#host.background = {
      news: () => this.events?.news(),
      trouble: (error) => this.events?.trouble(error),
      fail: (error) => this.#fail(error),
    };
    storage.onLost = (error) => this.#fail(error);
    if (this.#flushesLater) this.#flushInBackground();
  }

  /** A flush is under way that messages have to wait for. */
  get isBusy(): boolean {
    return this.#host.isBusy;
  }

  send(message: Uint8Array): void {
    this.#attempt(() => {
      // No flush can begin before the one is over that was not waited for.
      const reply = this.#flushesLater && !this.#isFlushing ? this.#host.start(message) : this.#host.execute(message);
      if (reply !== undefined) return this.#deliver(reply);
      this.#isMessageWaiting = true;
      this.#wait();
    });
  }

  sendSync(message: Uint8Array): Uint8Array {
    this.settle();
    let reply;
    try {
      reply = this.#host.execute(message);
    } catch (error) {
      this.#fail(error);
      throw error;
    }
    // The caller has its reply first.
    if (this.#host.hasNews) queueMicrotask(() => this.events?.news());
    return reply;
  }

  settle(): void {
    if (!this.isBusy) return;
    this.#attempt(() => {
      this.#host.releaseFlush();
      while (this.#isMessageWaiting) this.#resume();
    });
    this.events?.idle();
  }

  dispose(): Promise<void> | void {
    this.#isMessageWaiting = false;
    let released: unknown;
    try {
      this.#host.dispose();
    } finally {
      released = this.#release();
    }
    return released as Promise<void> | undefined;
  }

  #deliver(reply: Uint8Array<ArrayBuffer>): void {
    // The reply's receivers may send the next message at once.
    const { hasNews } = this.#host;
    if (this.#queue === undefined) this.events?.reply(reply, 1);
    else this.#queue.push(reply);
    if (hasNews) this.events?.news();
  }

  /** Replies that wait still leave before it is told. */
  #fail(error: unknown): void {
    if (this.#queue === undefined) this.events?.fail(error as KvError);
    else this.#queue.end(error);
  }

  #flushInBackground(): void {
    const flushHere = this.#host.flush;
    this.#host.flush = () => {
      if (!this.#isFlushing) this.#beginFlush();
      // One that is waited for covers all that there is.
      else if (!this.isBusy) flushHere();
    };
  }

  /** A message waits for a flush. Where there is none to make, it goes on. */
  #wait(): void {
    while (this.#isMessageWaiting && !this.#beginFlush()) this.#resume();
  }

  #resume(): void {
    const reply = this.#host.resume();
    if (reply === undefined) return;
    this.#isMessageWaiting = false;
    this.#deliver(reply);
  }

  /** Whether there was something to flush. */
  #beginFlush(): boolean {
    const files = this.#host.beginFlush() as FlushableFile[];
    const next = (error: unknown): void => {
      const file = error === undefined ? files.shift() : undefined;
      if (file === undefined) this.#attempt(() => this.#onFlushed(error));
      else file.flushLater(next);
    };
    this.#isFlushing = files.length > 0;
    if (this.#isFlushing) next(undefined);
    return this.#isFlushing;
  }

  #onFlushed(error: unknown): void {
    const isReleased = !this.isBusy;
    this.#isFlushing = false;
    this.#host.endFlush(error);
    // Who waits for a message hears of it by its reply.
    if (error !== undefined && !this.#isMessageWaiting) this.events?.trouble(error as KvError);
    if (isReleased) return;
    if (this.#isMessageWaiting) {
      this.#resume();
      this.#wait();
    }
    if (!this.isBusy) this.events?.idle();
  }

  /** What the engine throws means that it is gone. */
  #attempt(action: () => void): void {
    try {
      action();
    } catch (error) {
      this.#isMessageWaiting = false;
      this.#fail(error);
    }
  }
}
