// Transport to the engine of a shared database, which runs in this page's worker or, reached
// through that, in another tab's.
import { fromPlain } from '../base/plain-error.ts';
import { KvError } from '../base/errors.ts';
import { AbortController, crypto, performance } from '../base/platform.ts';
import { names } from './messages.ts';
import { onAbort } from '../base/async.ts';
import { Asker } from '../wire/awake.ts';
import { NoWorkerError } from '../wire/no-worker.ts';
import { START_MS } from '../wire/worker-transport.ts';
import type { Transport, TransportEvents } from '../wire/transport.ts';
import type { WorkerPort } from '../wire/worker-port.ts';
import type { LifecycleMessage, OpenRequest } from '../wire/worker-protocol.ts';

/** A worker that ends within this time after a restart is not replaced. */
const RESTART_PAUSE_MS = 10_000;
/** How long a worker may take to close the database before it is terminated. */
const LEAVE_MS = 10_000;

/**
 * How long a page that may enter the back/forward cache waits for its worker to release its locks
 * and files.
 */
const LET_GO_MS = 100;

/** The page's part of an `OpenRequest`; the transport adds `tabs`. */
export type SharedRequest = Omit<OpenRequest, 'tabs'>;

export class SharedTransport implements Transport {
  readonly takesBuffers = true;
  events: TransportEvents | undefined;
  readonly #start: () => WorkerPort;
  readonly #asked: Promise<SharedRequest>;
  #request: SharedRequest | undefined;
  #worker: WorkerPort;
  /** Name of the worker's lock. */
  #lock = '';
  #unanswered = 0;
  #restartedAt = -Infinity;
  /** Stops waiting for the worker's lock. */
  #unwatch = (): void => {};
  /** Called when the worker has failed or ended. */
  #stopped: (reason: string) => void = () => {};
  #left: ((error: KvError | undefined) => void) | undefined;
  #isOver = false;
  readonly #asker = new Asker();
  readonly #listeners = new AbortController();

  private constructor(start: () => WorkerPort, request: Promise<SharedRequest>) {
    this.#start = start;
    this.#asked = request;
    this.#worker = start();
  }

  /** Opens a database in a worker; terminates the worker if that fails. */
  static async open(start: () => WorkerPort, request: Promise<SharedRequest>, signal: AbortSignal | undefined): Promise<SharedTransport> {
    signal?.throwIfAborted();
    const transport = new SharedTransport(start, request);
    try {
      await transport.#open(signal);
      return transport;
    } catch (error) {
      transport.#end();
      throw error;
    }
  }

  send(message: Uint8Array<ArrayBuffer>): void {
    this.#unanswered++;
    this.#worker.postMessage(message, [message.buffer]);
    this.#asker.asked();
  }

  async dispose(): Promise<void> {
    if (this.#isOver) return;
    // The worker releases its lock before it reports that everything is closed.
    this.#unwatch();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const failure = await new Promise<KvError | undefined>((resolve) => {
      this.#left = resolve;
      this.#say({ type: 'leave' });
      timer = setTimeout(() => resolve(new KvError('KV_TIMEOUT', `the worker did not close the database within ${LEAVE_MS} ms and was ended`)), LEAVE_MS);
    });
    clearTimeout(timer);
    this.#end();
    if (failure !== undefined) throw failure;
  }

  #open(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const forget = onAbort(signal, () => reject(signal?.reason));
      const late = (): void => reject(new KvError('KV_TIMEOUT', `the worker did not start within ${START_MS / 1000} s (no-worker)`));
      const timer = setTimeout(late, START_MS);
      this.#listen({
        started: () => clearTimeout(timer),
        opened: () => {
          forget();
          this.#hear();
          resolve();
        },
        failed: reject,
        // An error this early usually means that the worker's script is missing or forbidden.
        stopped: (reason) => reject(new NoWorkerError(reason)),
      });
      // The worker starts while the module loads.
      this.#asked.then((request) => this.#ask(request, false)).catch(reject);
    });
  }

  #ask(request: SharedRequest, isAgain: boolean): void {
    // `randomUUID` is missing outside secure contexts.
    const client = crypto.getRandomValues(new Uint32Array(4)).join('-');
    const tabs = { client, isAgain, isVisible: globalThis.document?.visibilityState !== 'hidden' };
    this.#request = request;
    this.#lock = names.client(`${request.storage}:${request.name}`, client);
    this.#worker.postMessage({ ...request, tabs } satisfies OpenRequest);
  }

  #listen(first: { started(): void; opened(): void; failed(error: KvError): void; stopped(reason: string): void }): void {
    const worker = this.#worker;
    let { opened, failed } = first;
    this.#stopped = first.stopped;
    worker.onmessage = ({ data }) => {
      if (data instanceof Uint8Array) return this.#reply(data, 1);
      switch (data.type) {
        case 'reply': return this.#reply(data.bytes, data.count);
        case 'refused':
          this.#unanswered -= data.count;
          return this.events?.refuse(fromPlain(data.error), data.count);
        case 'news': return this.events?.news();
        case 'blocked': return this.events?.blocked();
        case 'backgroundError': return this.events?.backgroundError(fromPlain(data.error));
        case 'joined': return void this.#watch();
        case 'left': return this.#left?.(data.error && fromPlain(data.error));
        case 'started': return first.started();
        case 'failed': return failed(fromPlain(data.error));
        case 'opened':
          opened();
          opened = () => {};
          failed = (error) => this.#fail(error);
          this.#stopped = (reason) => this.#restart(reason);
      }
    };
    worker.onerror = (event) => {
      event.preventDefault();
      this.#stopped(event.message ?? '');
    };
    worker.onmessageerror = () => this.#stopped('a reply could not be read');
  }

  #reply(bytes: Uint8Array, count: number): void {
    this.#unanswered -= count;
    this.#asker.answered();
    this.events?.reply(bytes, count);
  }

  #say(message: LifecycleMessage): void {
    this.#worker.postMessage(message);
  }

  /** Forwards the page's lifecycle events to the worker. */
  #hear(): void {
    const { document } = globalThis;
    if (document === undefined) return;
    const { signal } = this.#listeners;
    const visibility = (): void => this.#say({ type: 'visible', isVisible: document.visibilityState !== 'hidden' });
    const hide = (event: Event): void => {
      // A page that waits for a lock is not kept in the back/forward cache.
      this.#unwatch();
      this.#say({ type: 'hide' });
      // Browsers stop the worker together with the page, often before it receives this message.
      // Still holding its locks, the page would be dropped as soon as another tab wants them.
      if ((event as Partial<PageTransitionEvent>).persisted) for (const end = performance.now() + LET_GO_MS; performance.now() < end;);
    };
    const show = (): void => this.#say({ type: 'show' });
    document.addEventListener('visibilitychange', visibility, { signal });
    globalThis.addEventListener('pagehide', hide, { signal });
    globalThis.addEventListener('pageshow', show, { signal });
    document.addEventListener('freeze', hide, { signal });
    document.addEventListener('resume', show, { signal });
  }

  /**
   * Acquiring the worker's lock proves that the worker has ended; browsers do not report that
   * otherwise.
   */
  async #watch(): Promise<void> {
    this.#unwatch();
    const controller = new AbortController();
    const { signal } = controller;
    this.#unwatch = () => controller.abort();
    try {
      // After a site's data was removed, a page and a new worker do not see each other's locks. The
      // lock then appears free and proves nothing.
      const isBlind = await navigator.locks.request(this.#lock, { ifAvailable: true }, (lock) => lock !== null);
      if (isBlind || signal.aborted) return;
      await navigator.locks.request(this.#lock, { signal }, () => undefined);
      if (!signal.aborted) this.#stopped('it ended');
    } catch {
      // Aborted by `#unwatch`, or the browser refuses locks.
    }
  }

  /**
   * Starts a replacement worker. Open snapshots, iterators and transactions are lost, and
   * unanswered requests may or may not have taken effect.
   */
  #restart(reason: string): void {
    if (this.#isOver) return;
    if (this.#left !== undefined) return this.#left(undefined);
    this.#unwatch();
    void this.#worker.terminate();
    const request = this.#request;
    const error = new KvError('KV_IO', `the worker stopped (${reason}); pending calls may or may not have taken effect`);
    const now = performance.now();
    if (request === undefined || now - this.#restartedAt < RESTART_PAUSE_MS) return this.#fail(error);
    this.#restartedAt = now;
    const unanswered = this.#unanswered;
    this.#unanswered = 0;
    try {
      this.#worker = this.#start();
    } catch {
      return this.#fail(error);
    }
    this.#listen({ started: () => {}, opened: () => {}, failed: (failure) => this.#fail(failure), stopped: () => this.#fail(error) });
    this.#ask(request, true);
    this.events?.backgroundError(error);
    this.events?.refuse(error, unanswered);
  }

  #fail(error: KvError): void {
    if (this.#isOver) return;
    this.#end();
    this.events?.fail(error);
  }

  #end(): void {
    this.#isOver = true;
    this.#unwatch();
    this.#listeners.abort();
    this.#asker.end();
    void this.#worker.terminate();
  }
}
