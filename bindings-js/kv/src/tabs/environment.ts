// What the multi-tab protocol needs of its environment: a clock, channels, locks and an engine.
// Apart from `settled`, nothing returns a promise, so that a simulation can interleave tabs at
// every step.
import type { KvError } from '../base/errors.ts';
import type { Trace } from '../base/trace.ts';
import type { BlockedReason, Cut } from '../wire/transport.ts';
import type { Message } from './messages.ts';

/**
 * Broadcasts to all other channels of this name, and on `names.all` to the sender itself. Messages
 * may be lost, delayed, reordered or duplicated.
 */
export interface Channel {
  post(message: Message): void;
  close(): void;
}

export interface LockCallbacks {
  /** The lock is held until `release` is called. */
  granted(release: () => void): void;
  /** Another tab stole the lock, possibly before `granted` was called. */
  lost?(): void;
}

/** The engine, with a session for each client. If a method throws, the engine is unusable. */
export interface LeaderEngine {
  /** Version of the last commit. */
  readonly version: number;
  /** The sealed key of an encrypted database. */
  readonly sealedKey?: Uint8Array | undefined;
  /**
   * Opens a session and returns its number. `state` is what the client had open, as an earlier
   * session exported it; empty bytes mean that all of it is lost.
   */
  attach(client: string, state: Uint8Array | undefined, readOnly: boolean): number;
  /** Ends a session and closes what is open in it. */
  detach(session: number): void;
  /**
   * Executes a message. Writes that an earlier leader committed under the same `seq` are not
   * repeated; the reply contains their stored replies.
   */
  execute(message: Uint8Array, session: number, seq: number): Uint8Array<ArrayBuffer>;
  /** How far the last message was executed, if its reply is full. */
  readonly cut: Cut | undefined;
  /** What the client of the last message has open; undefined if the message did not change that. */
  readonly state: Uint8Array<ArrayBuffer> | undefined;
  /** Sessions whose followers have new commits to read, as of the last message. */
  readonly wakes: readonly number[];
  /**
   * What the client has open, including the commits that its followers have not read. Nothing may
   * be executed afterwards.
   */
  lastState(session: number): Uint8Array<ArrayBuffer> | undefined;
  /** Resolves when everything executed so far is stored; undefined if it already is. */
  settled(): Promise<void> | undefined;
  /** Stores that at once, where it is possible. */
  store?(): void;
  /** Clients with a row in the client table. */
  remembered(): string[];
  /** Deletes the row of a client that has ended, at the latest with the next commit. */
  forget(client: string): void;
  /**
   * Releases the version at which the database was opened. Sessions attached from now on lose their
   * snapshots and iterators.
   */
  endInheritance(): void;
  /** Completes pending work and closes the files, which are closed even if this throws. */
  close(): void;
  /** Closes the files without completing pending work. */
  dispose(): void;
}

export interface Environment {
  /** Messages come in order, and only from the one who leads: none of them is late. */
  readonly isOrdered: boolean;
  /** Monotonic time in milliseconds; advances while the tab is frozen. */
  now(): number;
  /** Unix time in milliseconds. */
  time(): number;
  /** Returns a function that cancels the timer. */
  after(ms: number, run: () => void): () => void;
  channel(name: string, receive: (message: Message) => void): Channel;
  /**
   * Requests a lock, or steals it from its holder. Returns a function that withdraws the request.
   */
  lock(name: string, steal: boolean, callbacks: LockCallbacks): () => void;
  /**
   * Makes the browser drop pages that it keeps in the back/forward cache together with their locks
   * (docs/BROWSERS.md). Called when an expected message is missing.
   */
  dropKept(): void;
  /** Says that the one who leads did not answer within this time. */
  noAnswer(ms: number): string;
  /** KV_LOCKED, which says who has the database, if they do not share it. */
  locked(title: string): KvError;
  /**
   * Opens the files, waiting while they are held, and then the engine. Returns a function that
   * cancels.
   */
  openEngine(opened: (engine: LeaderEngine) => void, failed: (error: KvError) => void): () => void;
}

/** Events for the tab's page. */
export interface PageEvents {
  /**
   * The tab holds the lock of its name: from now on, acquiring that lock proves that the tab has
   * ended.
   */
  joined(): void;
  /** A leader has served this tab for the first time. */
  opened(): void;
  /** See `TransportEvents`. */
  reply(bytes: Uint8Array<ArrayBuffer>, count: number, requests?: number): void;
  /** The `count` oldest unanswered messages get no reply. */
  refuse(error: KvError, count: number): void;
  /** There may be new commits for the page's followers. */
  wake(): void;
  /**
   * This tab waits for a leader or for a tab of another version, or such a tab or a restore waits
   * for this one.
   */
  blocked(reason: BlockedReason): void;
  /** A failure that the tab survives. */
  backgroundError(error: KvError): void;
  /** The database could not be opened, or can no longer be used. */
  failed(error: KvError): void;
  /** Everything is closed, as requested by `leave`. `error` says what failed while closing. */
  left(error: KvError | undefined): void;
  /** Present if the page traces. */
  readonly trace?: Trace | undefined;
}
