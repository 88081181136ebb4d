// The engine in the caller's thread, over a storage that follows behind: replies are held back until it has caught up.
import { EngineHost } from '../engine-host.ts';
import { KvError } from '../errors.ts';
import { ReplyQueue } from '../reply-queue.ts';
import type { IndexedDbStorage } from '../storage/indexeddb.ts';
import type { EngineOptions } from './options.ts';
import type { Transport, TransportEvents } from './transport.ts';

export class HeldTransport implements Transport {
  readonly takesBuffers = false;
  events: TransportEvents | undefined;
  readonly #host: EngineHost;
  readonly #storage: IndexedDbStorage;
  readonly #queue: ReplyQueue;

  /** Closes the storage if the engine cannot be opened. */
  constructor(module: WebAssembly.Module, storage: IndexedDbStorage, options: EngineOptions) {
    try {
      this.#host = EngineHost.open(module, storage, options);
      this.#host.background = {
        news: () => this.events?.news(),
        trouble: (error) => this.events?.trouble(error),
        fail: (error) => this.#queue.end(error),
      };
    } catch (error) {
      storage.close();
      throw error;
    }
    this.#storage = storage;
    this.#queue = new ReplyQueue({
      reply: (bytes) => this.events?.reply(bytes, 1),
      fail: (error) => this.events?.fail(error as KvError),
    }, () => storage.settled());
  }

  send(message: Uint8Array): void {
    try {
      const reply = this.#host.execute(message);
      const { hasNews } = this.#host;
      this.#queue.push(reply);
      if (hasNews) this.events?.news();
    } catch (error) {
      this.#queue.end(error);
    }
  }

  dispose(): void {
    try {
      this.#host.dispose();
    } finally {
      this.#storage.close();
    }
  }
}
