// Transport to the engine of a shared database, which runs in this page's worker or, reached
// through that, in another tab's.
import { isBytes } from '../codec/bytes.ts';
import { ignore } from '../base/async.ts';
import { fromPlain } from '../base/plain-error.ts';
import type { Trace } from '../base/trace.ts';
import { KvError } from '../base/errors.ts';
import { placeOf } from '../base/names.ts';
import { AbortController, crypto, performance } from '../base/platform.ts';
import { names } from './messages.ts';
import { Asker } from '../wire/spin.ts';
import type { WorkerPort } from '../wire/worker-transport.ts';
import type { LifecycleMessage, OpenRequest, WorkerMessage } from '../wire/worker-protocol.ts';
import { WorkerTransport } from '../wire/worker-transport.ts';

/** A worker that ends within this time after a restart is not replaced. */
const RESTART_PAUSE_MS = 10_000;
/** How long a worker may take to close the database before it is terminated. */
const LEAVE_MS = 10_000;

/**
 * How long a page that may enter the back/forward cache waits for its worker to release its locks
 * and files.
 */
const LET_GO_MS = 100;
/** How long a page that is left waits for what its listeners have saved, as its worker ends with it. */
const SAVE_MS = 250;

/**
 * Calls `run` after all other listeners of an event, which may still write: those of an event's last
 * phase are looked up when that phase begins.
 */
function listenLast(type: string, run: (event: Event) => void, signal: AbortSignal): void {
  globalThis.addEventListener(
    type,
    ({ bubbles, target }) => {
      (bubbles ? globalThis : target)?.addEventListener(type, run, { once: true, signal });
    },
    { capture: true, signal },
  );
}

/** The page's part of an `OpenRequest`; the transport adds `tabs`. */
export type SharedRequest = Omit<OpenRequest, 'tabs'>;

export class SharedTransport extends WorkerTransport {
  readonly #start: () => WorkerPort;
  #request: SharedRequest | undefined;
  /** Name of the worker's lock. */
  #lock = '';
  #unanswered = 0;
  #restartedAt = -Infinity;
  /** Stops waiting for the worker's lock. */
  #unwatch = ignore;
  #left: ((error: KvError | undefined) => void) | undefined;
  #isOver = false;
  #hears = false;
  readonly #asker = new Asker();
  readonly #listeners = new AbortController();

  protected constructor(start: () => WorkerPort, trace: Trace | undefined) {
    super(start(), trace);
    this.#start = start;
  }

  /** Opens a database in a worker; terminates the worker if that fails. */
  static async openShared(
    start: () => WorkerPort,
    request: Promise<SharedRequest>,
    signal: AbortSignal | undefined,
    trace?: Trace,
  ): Promise<SharedTransport> {
    signal?.throwIfAborted();
    return new this(start, trace).opening(request, signal);
  }

  override send(message: Uint8Array<ArrayBuffer>): void {
    this.#unanswered++;
    this.worker.postMessage(message, [message.buffer]);
    this.#asker.asked();
  }

  /** Takes the secret with which this tab opens the database the next time. */
  rekey(change: (opening: Uint8Array) => Uint8Array): void {
    const request = this.#request as SharedRequest;
    const opening = change(request.engine.opening);
    this.#request = { ...request, engine: { ...request.engine, opening } };
    this.say({ type: 'rekey', opening });
  }

  override async dispose(): Promise<void> {
    if (this.#isOver) return;
    // The worker releases its lock before it reports that everything is closed.
    this.#unwatch();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const failure = await new Promise<KvError | undefined>((resolve) => {
      this.#left = resolve;
      this.say({ type: 'leave' });
      timer = setTimeout(
        () =>
          resolve(
            new KvError('KV_TIMEOUT', `the worker did not close the database within ${LEAVE_MS} ms and was ended`),
          ),
        LEAVE_MS,
      );
    });
    clearTimeout(timer);
    this.end();
    if (failure !== undefined) throw failure;
  }

  protected override ask(request: SharedRequest, isAgain = false): void {
    // `randomUUID` is missing outside secure contexts.
    const client = crypto.getRandomValues(new Uint32Array(4)).join('-');
    const tabs = { client, isAgain, isVisible: globalThis.document?.visibilityState !== 'hidden' };
    this.#request = request;
    this.#lock = names.client(placeOf(request.storage, request.name, request.bucket), client);
    super.ask({ ...request, tabs } satisfies OpenRequest);
  }

  protected override hear(event: { readonly data: WorkerMessage }): void {
    const { data } = event;
    if (isBytes(data)) return super.hear(event);
    switch (data.type) {
      case 'refused':
        this.#unanswered -= data.count;
        return this.events?.refuse(fromPlain(data.error), data.count);
      case 'blocked':
        return this.events?.blocked(data.reason);
      case 'joined':
        return void this.#watch();
      case 'left':
        return this.#left?.(data.error && fromPlain(data.error));
      default:
        super.hear(event);
    }
  }

  protected override opened(): void {
    super.opened();
    this.stopped = (reason) => this.#restart(reason);
    this.#hear();
  }

  protected override reply(bytes: Uint8Array, count: number, requests?: number): void {
    this.#unanswered -= count;
    this.#asker.answered();
    super.reply(bytes, count, requests);
  }

  protected say(message: LifecycleMessage): void {
    this.worker.postMessage(message);
  }

  /** Forwards the page's lifecycle events to the worker. */
  #hear(): void {
    const { document } = globalThis;
    if (document === undefined || this.#hears) return;
    this.#hears = true;
    const { signal } = this.#listeners;
    /** The page is being left, and told next that it is hidden. */
    let isLeaving = false;
    let isKept = false;
    let isLeft = false;
    const hide = (): void => {
      isLeft = true;
      // A page that waits for a lock is not kept in the back/forward cache.
      this.#unwatch();
      this.say({ type: 'hide' });
      // Browsers stop the worker together with the page, often before it receives this message, or
      // what was saved before. Still holding its locks, a page that is kept would be dropped as soon
      // as another tab wants them.
      const waitMs = this.#unanswered > 0 ? SAVE_MS : isKept ? LET_GO_MS : 0;
      for (const end = performance.now() + waitMs; performance.now() < end; );
    };
    const leave = (event: Event): void => {
      isKept = (event as PageTransitionEvent).persisted;
      isLeaving = document.visibilityState !== 'hidden';
      if (!isLeaving) hide();
    };
    const listenAgain = (): void => {
      // The listeners of a window are called in one round, so this one has to be the last already.
      globalThis.removeEventListener('pagehide', leave);
      globalThis.addEventListener('pagehide', leave, { signal });
    };
    const visibility = (): void => {
      listenAgain();
      if (isLeaving) hide();
      else this.say({ type: 'visible', isVisible: document.visibilityState !== 'hidden' });
    };
    const freeze = (): void => {
      // Chromium freezes a page that was left right after it.
      if (!isLeft) hide();
    };
    const show = (): void => {
      isLeaving = isKept = isLeft = false;
      this.say({ type: 'show' });
    };
    globalThis.addEventListener('pagehide', () => this.say({ type: 'leaving' }), { capture: true, signal });
    listenLast('visibilitychange', visibility, signal);
    listenAgain();
    listenLast('freeze', freeze, signal);
    globalThis.addEventListener('pageshow', show, { signal });
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
      if (!signal.aborted) this.stopped('it ended');
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
    void this.worker.terminate();
    const request = this.#request;
    const error = new KvError(
      'KV_IO',
      `the worker stopped (${reason}); pending calls may or may not have taken effect`,
    );
    const now = performance.now();
    if (request === undefined || now - this.#restartedAt < RESTART_PAUSE_MS) return this.fail(error);
    this.#restartedAt = now;
    const unanswered = this.#unanswered;
    this.#unanswered = 0;
    try {
      this.worker = this.#start();
    } catch {
      return this.fail(error);
    }
    this.listen();
    this.stopped = () => this.fail(error);
    this.ask(request, true);
    this.events?.backgroundError(error);
    this.events?.refuse(error, unanswered);
  }

  protected override fail(error: KvError): void {
    if (this.#isOver) return;
    this.end();
    super.fail(error);
  }

  protected override end(): void {
    this.#isOver = true;
    this.#unwatch();
    this.#listeners.abort();
    this.#asker.end();
    void this.worker.terminate();
  }
}
