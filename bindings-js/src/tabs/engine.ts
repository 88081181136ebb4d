// The engine as the protocol of many tabs sees it.
import { EngineHost } from '../engine-host.ts';
import type { WorkerStorage } from '../worker-server.ts';
import type { LeaderEngine } from './environment.ts';

export class TabsEngine implements LeaderEngine {
  readonly #host: EngineHost;
  readonly #storage: WorkerStorage & { settled?(): Promise<void> | undefined };

  constructor(host: EngineHost, storage: WorkerStorage) {
    this.#host = host;
    this.#storage = storage;
    host.beginInheritance();
  }

  get version(): number {
    return this.#host.version;
  }

  attach(client: string, state: Uint8Array | undefined, readOnly: boolean): number {
    return this.#host.attach(client, readOnly, state);
  }

  detach(session: number): void {
    this.#host.detach(session);
  }

  execute(session: number, seq: number, message: Uint8Array): Uint8Array<ArrayBuffer> {
    this.#host.select(session, seq);
    return this.#host.execute(message);
  }

  takeState(session: number, last: boolean): Uint8Array<ArrayBuffer> | undefined {
    return this.#host.takeState(session, last);
  }

  settled(): Promise<void> | undefined {
    return this.#storage.settled?.();
  }

  takeNews(): number | undefined {
    return this.#host.takeNews();
  }

  clients(): string[] {
    return this.#host.remembered();
  }

  forget(client: string): void {
    this.#host.forget(client);
  }

  endInheritance(): void {
    this.#host.endInheritance();
  }

  close(): void {
    try {
      this.#host.close();
    } finally {
      this.#storage.close?.();
    }
  }

  abandon(): void {
    try {
      this.#host.dispose();
    } finally {
      this.#storage.close?.();
    }
  }
}
