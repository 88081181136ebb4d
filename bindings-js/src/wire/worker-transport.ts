// The engine in a dedicated worker.
import { KvError } from '../base/errors.ts';
import { fromPlain } from '../base/plain-error.ts';
import { NoWorkerError } from './no-worker.ts';
import type { Transport, TransportEvents } from './transport.ts';
import type { WorkerPort } from './worker-port.ts';
import type { OpenRequest } from './worker-protocol.ts';

/** How long the worker's script may take to start; opening may take any time after that. */
export const START_MS = 30_000;

export class WorkerTransport implements Transport {
  readonly takesBuffers = true;
  events: TransportEvents | undefined;
  readonly #worker: WorkerPort;

  private constructor(worker: WorkerPort) {
    this.#worker = worker;
  }

  /** Opens a database in the worker; terminates the worker if that fails. */
  static async open(
    worker: WorkerPort,
    request: Promise<OpenRequest>,
    signal: AbortSignal | undefined,
  ): Promise<WorkerTransport> {
    const transport = new WorkerTransport(worker);
    try {
      await transport.#open(request, signal);
      return transport;
    } catch (error) {
      await worker.terminate();
      throw error;
    }
  }

  send(message: Uint8Array<ArrayBuffer>): void {
    this.#worker.postMessage(message, [message.buffer]);
  }

  dispose(): Promise<void> | void {
    return this.#worker.terminate();
  }

  #open(request: Promise<OpenRequest>, signal: AbortSignal | undefined): Promise<void> {
    const worker = this.#worker;
    let timer: ReturnType<typeof setTimeout> | undefined;
    return new Promise<void>((resolve, reject) => {
      const abort = (): void => reject(signal?.reason);
      if (signal?.aborted) return abort();
      signal?.addEventListener('abort', abort, { once: true });
      const late = (): void => reject(new KvError('KV_TIMEOUT', `the worker did not start within ${START_MS / 1000} s (no-worker)`));
      timer = setTimeout(late, START_MS);
      worker.onmessage = ({ data }) => {
        clearTimeout(timer);
        if (data instanceof Uint8Array || data.type === 'started') return;
        signal?.removeEventListener('abort', abort);
        if (data.type === 'backgroundError') return;
        if (data.type === 'failed') return reject(fromPlain(data.error));
        this.#listen();
        resolve();
      };
      // A worker that fails before its first message has a script that is missing or blocked.
      worker.onerror = (event) => {
        event.preventDefault();
        reject(new NoWorkerError(event.message ?? ''));
      };
      request.then((message) => worker.postMessage(message)).catch(reject);
    }).finally(() => clearTimeout(timer));
  }

  #listen(): void {
    const worker = this.#worker;
    const fail = (error: KvError): void => this.events?.fail(error);
    worker.onmessage = ({ data }) => {
      if (data instanceof Uint8Array) this.events?.reply(data, 1);
      else if (data.type === 'news') this.events?.news();
      else if (data.type === 'backgroundError') this.events?.backgroundError(fromPlain(data.error));
      else if (data.type === 'failed') fail(fromPlain(data.error));
    };
    worker.onerror = (event) => {
      event.preventDefault();
      fail(new KvError('KV_IO', `the worker failed: ${event.message ?? ''}; open the database again`));
    };
    worker.onmessageerror = () => fail(new KvError('KV_IO', 'a reply could not be read; open the database again'));
  }
}
