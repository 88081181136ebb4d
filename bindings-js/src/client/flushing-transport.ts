// The engine in the caller's thread, over files that can be flushed in another: while commits wait for that, the caller's thread goes on.
import type { KvError } from '../errors.ts';
import type { CustomStorage, StorageFile } from '../types.ts';
import { LocalTransport } from './local-transport.ts';
import type { EngineOptions } from './options.ts';

/** A file that another thread can flush. */
export interface FlushableFile extends StorageFile {
  /** Flushes what was written before, in another thread, and calls `done` with what that failed with, if it did. */
  flushLater(done: (error: unknown) => void): void;
}

export class FlushingTransport extends LocalTransport {
  #isMessageWaiting = false;
  /** A flush is under way; it is not waited for where the host is not busy, as somebody had to have its outcome at once. */
  #isFlushing = false;

  /** As of its base; the storage's files are `FlushableFile`s. */
  constructor(module: WebAssembly.Module, storage: CustomStorage, options: EngineOptions, release: () => void) {
    super(module, storage, options, release);
    const flushHere = this.host.flush;
    this.host.flush = () => {
      if (!this.#isFlushing) this.#beginFlush();
      // One that is waited for covers all that there is.
      else if (!this.isBusy) flushHere();
    };
  }

  get isBusy(): boolean {
    return this.host.isBusy;
  }

  override send(message: Uint8Array): void {
    this.#attempt(() => {
      // No flush can begin before the one is over that was not waited for.
      const reply = this.#isFlushing ? this.host.execute(message) : this.host.start(message);
      if (reply !== undefined) return this.deliver(reply);
      this.#isMessageWaiting = true;
      this.#wait();
    });
  }

  override sendSync(message: Uint8Array): Uint8Array {
    this.settle();
    return super.sendSync(message);
  }

  settle(): void {
    if (!this.isBusy) return;
    this.#attempt(() => {
      this.host.releaseFlush();
      while (this.#isMessageWaiting) this.#resume();
    });
    this.events?.idle();
  }

  override dispose(): Promise<void> | void {
    this.#isMessageWaiting = false;
    return super.dispose();
  }

  /** A message waits for a flush. Where there is none to make, it goes on. */
  #wait(): void {
    while (this.#isMessageWaiting && !this.#beginFlush()) this.#resume();
  }

  #resume(): void {
    const reply = this.host.resume();
    if (reply === undefined) return;
    this.#isMessageWaiting = false;
    this.deliver(reply);
  }

  /** Whether there was something to flush. */
  #beginFlush(): boolean {
    const files = this.host.beginFlush() as FlushableFile[];
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
    this.host.endFlush(error);
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
