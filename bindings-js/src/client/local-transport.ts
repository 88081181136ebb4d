// The engine in the caller's thread.
import { EngineHost } from '../engine-host.ts';
import { KvError } from '../errors.ts';
import { queueMicrotask } from '../platform.ts';
import type { CustomStorage } from '../types.ts';
import { Lookups } from './lookup.ts';
import type { EngineOptions } from './options.ts';
import { syncFaces } from './sync.ts';
import type { Transport, TransportEvents } from './transport.ts';

export class LocalTransport implements Transport {
  readonly takesBuffers = false;
  readonly syncFaces = syncFaces;
  readonly lookups: Lookups;
  takesTurns = true;
  events: TransportEvents | undefined;
  protected readonly host: EngineHost;
  readonly #release: () => unknown;

  /** `release` is called once when the engine is gone, also if it cannot be opened. */
  constructor(
    module: WebAssembly.Module,
    storage: CustomStorage & { onLost?: (error: KvError) => void },
    options: EngineOptions,
    release: () => unknown,
  ) {
    this.#release = release;
    try {
      this.host = EngineHost.open(module, storage, options);
      this.lookups = new Lookups(this.host);
      this.host.background = {
        news: () => this.events?.news(),
        trouble: (error) => this.events?.trouble(error),
        fail: (error) => this.events?.fail(error),
      };
      storage.onLost = (error) => this.events?.fail(error);
    } catch (error) {
      void release();
      throw error;
    }
  }

  send(message: Uint8Array): void {
    let reply;
    try {
      reply = this.host.execute(message);
    } catch (error) {
      this.events?.fail(error as KvError);
      return;
    }
    this.deliver(reply);
  }

  sendSync(message: Uint8Array): Uint8Array {
    let reply;
    try {
      reply = this.host.execute(message);
    } catch (error) {
      this.events?.fail(error as KvError);
      throw error;
    }
    // The caller has its reply first.
    if (this.host.hasNews) queueMicrotask(() => this.events?.news());
    return reply;
  }

  dispose(): Promise<void> | void {
    let released: unknown;
    try {
      this.host.dispose();
    } finally {
      released = this.#release();
    }
    return released as Promise<void> | undefined;
  }

  protected deliver(reply: Uint8Array): void {
    // The reply's receivers may send the next message at once.
    const { hasNews } = this.host;
    this.events?.reply(reply, 1);
    if (hasNews) this.events?.news();
  }
}
