// How messages reach the engine.
import type { KvError } from '../base/errors.ts';
import type { Lookups } from './lookup.ts';
import type { syncFaces } from '../api/sync.ts';

/** Where a transport reports to. */
export interface TransportEvents {
  /** The replies to so many of the oldest messages that have none yet. */
  reply(bytes: Uint8Array, count: number): void;
  /** So many of the oldest messages get no reply, and what was open may be gone. */
  refuse(error: KvError, count: number): void;
  /** Another tab is waited for, or waits for this one. */
  blocked(): void;
  /** There are commits that those who follow them were not told of. Comes when the message that made them has been executed. */
  news(): void;
  /** A transport that was busy is not any more. */
  idle(): void;
  /** Work in the background failed; the engine goes on. */
  trouble(error: KvError): void;
  /** The engine is gone; no further reply comes. */
  fail(error: KvError): void;
}

/** A way to one engine. Replies come in the order of the messages. */
export interface Transport {
  /** Whether a sent message's buffer is given away. */
  readonly takesBuffers: boolean;
  /** Set before the first message. */
  events: TransportEvents | undefined;
  /** Whether what is sent now would have to wait; then it had better be collected until `idle`. */
  readonly isBusy?: boolean;
  send(message: Uint8Array<ArrayBuffer>): void;
  /** Ends being busy at once; the replies that were waited for come meanwhile. */
  settle?(): void;
  /** Sends a message and gives its reply at once; only where the engine runs in this thread. */
  sendSync?(message: Uint8Array<ArrayBuffer>): Uint8Array;
  /** There where the synchronous API is. */
  readonly syncFaces?: typeof syncFaces | undefined;
  /** Lookups without messages; only where the engine runs in this thread and answers messages at once. */
  readonly lookups?: Lookups | undefined;
  /** Whether calls that never wait give the event loop its turn now and then. */
  readonly takesTurns?: boolean;
  /** Frees what the engine holds; called once, after its last reply or failure. Rejects if that failed. */
  dispose(): Promise<void> | void;
}
