// The engine in the caller's thread, over files that can be flushed in another: while commits wait for that, the caller's thread goes on.
import { EngineHost } from '../engine-host.ts';
import type { KvError } from '../errors.ts';
import type { CustomStorage, StorageFile } from '../types.ts';
import { Lookups } from './lookup.ts';
import type { EngineOptions } from './options.ts';
import { syncFaces } from './sync.ts';
import type { Transport, TransportEvents } from './transport.ts';

/** A file that another thread can flush. */
export interface FlushableFile extends StorageFile {
  /** Flushes what was written before, in another thread, and calls `done` with what that failed with, if it did. */
  flushLater(done: (error: unknown) => void): void;
}

export class FlushingTransport implements Transport {
  readonly takesBuffers = false;
  readonly syncFaces = syncFaces;
  readonly lookups: Lookups;
  events: TransportEvents | undefined;
  readonly #host: EngineHost;
  readonly #release: () => void;
  #isMessageWaiting = false;
  #isFlushing = false;
  /** The flush under way is not waited for: somebody had to have its outcome at once. */
  #isReleased = false;

  /** `release` is called once when the engine is gone, also if it cannot be opened. The storage's files are `FlushableFile`s. */
  constructor(module: WebAssembly.Module, storage: CustomStorage, options: EngineOptions, release: () => void) {
    this.#release = release;
    try {
      this.#host = EngineHost.open(module, storage, options);
      this.lookups = new Lookups(this.#host);
    } catch (error) {
      release();
      throw error;
    }
    this.#host.background = {
      news: () => this.events?.news(),
      trouble: (error) => this.events?.trouble(error),
      fail: (error) => this.events?.fail(error),
    };
    this.#host.flush = () => {
      if (!this.#isFlushing) this.#beginFlush();
    };
  }

  get isBusy(): boolean {
    return this.#isFlushing && !this.#isReleased;
  }

  send(message: Uint8Array): void {
    this.#attempt(() => {
      // No flush can begin before the one is over that was not waited for.
      const reply = this.#isFlushing ? this.#host.execute(message) : this.#host.start(message);
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
      this.events?.fail(error as KvError);
      throw error;
    }
    // The caller has its reply first.
    if (this.#host.hasNews()) queueMicrotask(() => this.events?.news());
    return reply;
  }

  settle(): void {
    if (!this.isBusy) return;
    this.#isReleased = true;
    this.#attempt(() => {
      this.#host.releaseFlush();
      while (this.#isMessageWaiting) this.#resume();
    });
    this.events?.idle();
  }

  dispose(): void {
    this.#isMessageWaiting = false;
    try {
      this.#host.dispose();
    } finally {
      this.#release();
    }
  }

  #deliver(reply: Uint8Array): void {
    this.events?.reply(reply);
    if (this.#host.hasNews()) this.events?.news();
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
    const isReleased = this.#isReleased;
    this.#isFlushing = false;
    this.#isReleased = false;
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
      this.events?.fail(error as KvError);
    }
  }
}
