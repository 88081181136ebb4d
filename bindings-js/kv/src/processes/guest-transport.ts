// The transport of `openSync` where a handle of this thread leads already: another client of its engine,
// without messages between them. It ends with that handle.
import { KvError } from '../base/errors.ts';
import type { SyncFaces } from '../wire/contracts.ts';
import type { Transport, TransportEvents } from '../wire/transport.ts';
import type { ServedEngine } from './served-engine.ts';

export class GuestTransport implements Transport {
  readonly takesBuffers = false;
  readonly syncFaces: SyncFaces;
  events: TransportEvents | undefined;
  readonly #engine: ServedEngine;
  readonly #session: number;
  readonly #forget: () => void;

  constructor(engine: ServedEngine, directory: string, syncFaces: SyncFaces) {
    this.#engine = engine;
    this.syncFaces = syncFaces;
    // Without a name, nothing is stored of it: its calls end before anything else happens.
    this.#session = engine.attachHere();
    this.#forget = engine.onClose(() =>
      this.events?.fail(new KvError('KV_CLOSED', `the handle of ${directory} by which this thread led was closed`)),
    );
  }

  send(message: Uint8Array): void {
    try {
      for (const { bytes, requests } of this.#engine.executeHere(message, this.#session))
        this.events?.reply(bytes, requests === undefined ? 1 : 0, requests);
    } catch (error) {
      this.events?.fail(error as KvError);
    }
  }

  sendSync(message: Uint8Array): Uint8Array {
    // A message with one request is not cut.
    const [piece] = this.#engine.executeHere(message, this.#session);
    return piece?.bytes ?? new Uint8Array(0);
  }

  dispose(): void {
    this.#forget();
    this.#engine.detachHere(this.#session);
  }
}
