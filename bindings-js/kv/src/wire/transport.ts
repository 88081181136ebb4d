// The interface between a connection and what carries its messages to the engine.
import type { KvError } from '../base/errors.ts';
import type { ClientInfo, LeaderInfo } from '../types/sharing.ts';
import type { Lookups } from './lookup.ts';
import type { SyncFaces } from './contracts.ts';

/** How far a message was executed whose reply is full. What is left of it is another message. */
export interface Cut {
  /** Where that begins. */
  readonly at: number;
  /** Number of requests before. */
  readonly requests: number;
}

/** Why tabs wait for each other, see `PageEvents`. */
export type BlockedReason = 'leader' | 'version' | 'maintenance';

/** Callbacks of a transport. */
export interface TransportEvents {
  /**
   * The replies to the `count` oldest unanswered messages. If `count` is 0, those to the next
   * `requests` requests of messages that remain unanswered.
   */
  reply(bytes: Uint8Array, count: number, requests?: number): void;
  /**
   * The `count` oldest unanswered messages get no reply, and what the session had open may be lost.
   * `count` may be 0.
   */
  refuse(error: KvError, count: number): void;
  /** This tab waits for another one, or another one for this tab. */
  blocked(reason: BlockedReason): void;
  /** Another process leads. */
  leader(leader: LeaderInfo): void;
  /** Followers may have commits to fetch. Comes after the message that made them has executed. */
  wake(): void;
  /** The transport is no longer busy. */
  idle(): void;
  /** Background work failed; the transport remains usable. */
  backgroundError(error: KvError): void;
  /** The engine is gone; no reply follows. */
  fail(error: KvError): void;
}

/** Carries messages to one engine. Replies arrive in the order of the messages. */
export interface Transport {
  /** Whether `send` transfers the message's buffer, because the engine runs in another thread. */
  readonly takesBuffers: boolean;
  /** Set before the first message is sent. */
  events: TransportEvents | undefined;
  /**
   * Whether a message sent now would have to wait. The connection then batches requests until
   * `events.idle`.
   */
  readonly isBusy?: boolean;
  send(message: Uint8Array<ArrayBuffer>): void;
  /** Stops being busy: delivers outstanding replies before it returns. */
  settle?(): void;
  /** Sends a message and returns its reply; only where the engine runs in this thread. */
  sendSync?(message: Uint8Array<ArrayBuffer>): Uint8Array;
  /** Present where the synchronous API is available. */
  readonly syncFaces?: SyncFaces | undefined;
  /** Only where the engine runs in this thread and its replies do not wait for the storage. */
  readonly lookups?: Lookups | undefined;
  /** Whether calls that never wait yield to the event loop now and then. */
  readonly takesTurns?: boolean;
  /** Present where the database may be opened again with what it was opened with: changes that. */
  rekey?(change: (opening: Uint8Array) => Uint8Array): void;
  /** Where processes share the database: the one that leads. */
  readonly leader?: LeaderInfo | undefined;
  /** Where processes share the database: the handles that the one that leads serves. */
  clients?(): Promise<readonly ClientInfo[]>;
  /** Releases the engine. Called after its last reply or failure; rejects if releasing fails. */
  dispose(): Promise<void> | void;
}
