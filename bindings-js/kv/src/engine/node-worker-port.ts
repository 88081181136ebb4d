// Wraps a thread of Node, Deno or Bun in the interface of a browser's worker.
import { isBytes } from '../codec/bytes.ts';
import type { Worker, WorkerOptions } from 'node:worker_threads';
import type { WorkerPort } from '../wire/worker-transport.ts';
import type { WorkerMessage } from '../wire/worker-protocol.ts';

/** How many messages one from the worker answers: the request to open, or some of those after it. */
function answersIn(data: WorkerMessage): number {
  if (isBytes(data)) return 1;
  switch (data.type) {
    case 'reply':
    case 'refused':
      return data.count;
    case 'opened':
    case 'failed':
    case 'left':
    case 'clients':
      return 1;
    default:
      return 0;
  }
}

/** Keeps the process alive only while a reply is due. */
export class NodeWorkerPort implements WorkerPort {
  /** Does not inherit the program's flags: `--input-type`, for one, forbids script files. */
  static readonly options: WorkerOptions = { execArgv: [] };
  onmessage: WorkerPort['onmessage'] = null;
  onerror: WorkerPort['onerror'] = null;
  onmessageerror: WorkerPort['onmessageerror'] = null;
  readonly #worker: Worker;
  readonly #ended: Promise<void>;
  #isEnding = false;
  #awaited = 0;

  /** `release` is called when the thread has ended. */
  constructor(worker: Worker, release: () => void) {
    this.#worker = worker;
    this.#worker.on('message', (data: WorkerMessage) => this.#onMessage(data));
    this.#worker.on('messageerror', () => this.onmessageerror?.());
    this.#worker.on('error', (error: Error) => this.#fail(error.message));
    this.#ended = new Promise((resolve) => {
      this.#worker.on('exit', () => {
        release();
        if (!this.#isEnding) this.#fail('it ended');
        resolve();
      });
    });
  }

  postMessage(message: unknown, transfer: ArrayBuffer[] = []): void {
    this.#awaited++;
    this.#worker.ref();
    this.#worker.postMessage(message, transfer);
  }

  terminate(): Promise<void> {
    this.#isEnding = true;
    void this.#worker.terminate();
    return this.#ended;
  }

  #onMessage(data: WorkerMessage): void {
    this.#awaited -= answersIn(data);
    this.onmessage?.({ data });
    if (this.#awaited <= 0) this.#worker.unref();
  }

  #fail(message: string): void {
    this.#isEnding = true;
    this.onerror?.({ message, preventDefault: () => undefined });
  }
}
