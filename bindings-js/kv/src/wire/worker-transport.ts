// The engine in a dedicated worker.
import { isBytes } from '../codec/bytes.ts';
import { ignore, onAbort } from '../base/async.ts';
import { KvError } from '../base/errors.ts';
import { fromPlain } from '../base/plain-error.ts';
import type { Trace } from '../base/trace.ts';
import type { Transport, TransportEvents } from './transport.ts';
import type { OpenRequest, WorkerMessage } from './worker-protocol.ts';

/** How long the worker's script may take to start; opening may take any time after that. */
const START_MS = 30_000;

/** A worker as transports use it: a browser's `Worker` or a thread of Node. */
export interface WorkerPort {
  onmessage: ((event: { readonly data: WorkerMessage }) => void) | null;
  onerror: ((event: { readonly message?: string; preventDefault(): void }) => void) | null;
  onmessageerror: (() => void) | null;
  postMessage(message: unknown, transfer?: ArrayBuffer[]): void;
  /** Returns a promise if the worker ends asynchronously. */
  terminate(): Promise<void> | void;
}

/** The worker could not be started, which says nothing about the storages that it supports. */
export class NoWorkerError extends KvError {
  constructor(reason: string, options?: ErrorOptions) {
    super(
      'KV_UNSUPPORTED',
      `the worker could not be started (no-worker)${reason === '' ? '' : `: ${reason}`}`,
      options,
    );
  }
}

export class WorkerTransport implements Transport {
  readonly takesBuffers = true;
  events: TransportEvents | undefined;
  protected worker: WorkerPort;
  readonly #trace: Trace | undefined;
  #started = ignore;
  #resolve = ignore;
  /** Called when the database could not be opened, or the engine is gone. */
  #failed: (error: KvError) => void = ignore;
  /** Called when the worker's script has failed or ended. */
  protected stopped: (reason: string) => void = ignore;

  protected constructor(worker: WorkerPort, trace?: Trace) {
    this.worker = worker;
    this.#trace = trace;
  }

  /** Opens a database in the worker; terminates the worker if that fails. */
  static open(
    worker: WorkerPort,
    request: Promise<OpenRequest>,
    signal: AbortSignal | undefined,
    trace?: Trace,
  ): Promise<WorkerTransport> {
    return new WorkerTransport(worker, trace).opening(request, signal);
  }

  send(message: Uint8Array<ArrayBuffer>): void {
    this.worker.postMessage(message, [message.buffer]);
  }

  dispose(): Promise<void> | void {
    return this.worker.terminate();
  }

  protected async opening<R>(request: Promise<R>, signal: AbortSignal | undefined): Promise<this> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let forget = ignore;
    try {
      await new Promise<void>((resolve, reject) => {
        const late = (): void =>
          reject(new KvError('KV_TIMEOUT', `the worker did not start within ${START_MS / 1000} s (no-worker)`));
        timer = setTimeout(late, START_MS);
        forget = onAbort(signal, () => reject(signal?.reason));
        if (signal?.aborted) reject(signal.reason);
        this.#started = () => clearTimeout(timer);
        this.#resolve = resolve;
        this.#failed = reject;
        // An error this early usually means that the worker's script is missing or forbidden.
        this.stopped = (reason) => reject(new NoWorkerError(reason));
        this.listen();
        // The worker starts while the module loads.
        request.then((message) => this.ask(message)).catch(reject);
      });
      return this;
    } catch (error) {
      await this.end();
      throw error;
    } finally {
      clearTimeout(timer);
      forget();
    }
  }

  /** Sends the request to open the database. */
  protected ask(request: unknown): void {
    this.worker.postMessage(request);
  }

  protected listen(): void {
    const { worker } = this;
    worker.onmessage = this.hear.bind(this);
    worker.onerror = (event) => {
      event.preventDefault();
      this.stopped(event.message ?? '');
    };
    worker.onmessageerror = () => this.stopped('a reply could not be read');
  }

  protected hear({ data }: { readonly data: WorkerMessage }): void {
    const { events } = this;
    if (isBytes(data)) return this.reply(data, 1);
    switch (data.type) {
      case 'reply':
        return this.reply(data.bytes, data.count, data.requests);
      case 'wake':
        return events?.wake();
      case 'backgroundError':
        return events?.backgroundError(fromPlain(data.error));
      case 'started':
        return this.#started();
      case 'opened':
        return this.opened();
      case 'trace':
        return this.#trace?.(data.detail);
      case 'failed':
        return this.#failed(fromPlain(data.error));
      default:
    }
  }

  protected reply(bytes: Uint8Array, count: number, requests?: number): void {
    this.events?.reply(bytes, count, requests);
  }

  protected opened(): void {
    this.#failed = (error) => this.fail(error);
    this.stopped = (reason) => this.fail(new KvError('KV_IO', `the worker failed: ${reason}; open the database again`));
    this.#resolve();
  }

  protected fail(error: KvError): void {
    this.events?.fail(error);
  }

  protected end(): Promise<void> | void {
    return this.worker.terminate();
  }
}
