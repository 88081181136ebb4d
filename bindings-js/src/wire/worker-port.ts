// A worker as the transport needs it: a browser's, or a thread of Node.
import type { WorkerMessage } from './worker-protocol.ts';

export interface WorkerPort {
  onmessage: ((event: { readonly data: WorkerMessage }) => void) | null;
  onerror: ((event: { readonly message?: string; preventDefault(): void }) => void) | null;
  onmessageerror: (() => void) | null;
  postMessage(message: unknown, transfer?: ArrayBuffer[]): void;
  /** Gives a promise where the end is not at once. */
  terminate(): Promise<void> | void;
}
