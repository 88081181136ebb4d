// The interface of a worker that transports use: a browser's `Worker` or a thread of Node.
import type { WorkerMessage } from './worker-protocol.ts';

export interface WorkerPort {
  onmessage: ((event: { readonly data: WorkerMessage }) => void) | null;
  onerror: ((event: { readonly message?: string; preventDefault(): void }) => void) | null;
  onmessageerror: (() => void) | null;
  postMessage(message: unknown, transfer?: ArrayBuffer[]): void;
  /** Returns a promise if the worker ends asynchronously. */
  terminate(): Promise<void> | void;
}
