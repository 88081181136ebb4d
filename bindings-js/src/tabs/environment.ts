// What the protocol of many tabs needs of the world: a clock, channels, locks, and an engine. Nothing here returns a promise, so that a
// simulation can run everything between any two steps.
import type { KvError } from '../base/errors.ts';
import type { Message } from './messages.ts';

/** Reaches all others that have a channel of this name, in no promised way: messages may be lost, late or doubled. */
export interface Channel {
  post(message: Message): void;
  close(): void;
}

export interface LockCallbacks {
  /** It is held until `release` is called. */
  granted(release: () => void): void;
  /** Somebody took it away. */
  lost?(): void;
}

/** The engine with what each client has open in it. Where a method throws, the engine is gone. */
export interface LeaderEngine {
  /** Version of the last commit. */
  readonly version: number;
  /** Begins to serve a client; `state` is what the leader before said that the client has open. Gives the number of its session. */
  attach(client: string, state: Uint8Array | undefined, readOnly: boolean): number;
  /** What the client has open is closed. */
  detach(session: number): void;
  /**
   * Executes the requests of a message. Writes that a leader before committed under the same number are not done again, but answered as
   * they were then.
   */
  execute(message: Uint8Array, session: number, seq: number): Uint8Array<ArrayBuffer>;
  /** What the client has open, if the last message changed it. */
  readonly state: Uint8Array<ArrayBuffer> | undefined;
  /** Sessions whose clients have commits to read since the last message. */
  readonly news: readonly number[];
  /** What the client has open; nothing is executed afterwards. */
  lastState(session: number): Uint8Array<ArrayBuffer> | undefined;
  /** When all that was executed is stored; undefined if it is. */
  settled(): Promise<void> | undefined;
  /** Clients whose last outcome is kept. */
  remembered(): string[];
  /** Forgets what is kept for a client that will never ask again. */
  forget(client: string): void;
  /** From now on no state of before the opening can be taken up. */
  endInheritance(): void;
  /** Finishes and closes the files, also when it throws. */
  close(): void;
  /** Closes the files of an engine that is gone. */
  dispose(): void;
}

export interface Environment {
  /** Milliseconds; goes on while nothing runs. */
  now(): number;
  /** Milliseconds since 1970. */
  time(): number;
  /** Gives what cancels it. */
  after(ms: number, run: () => void): () => void;
  /** Undefined if there are no channels here. */
  channel(name: string, receive: (message: Message) => void): Channel;
  /** Waits for a lock, or takes it away from whoever has it. Gives what ends the waiting. */
  lock(name: string, steal: boolean, callbacks: LockCallbacks): () => void;
  /** Somebody who should answer does not. It may be a page that the browser stopped at work and keeps in the background, with its locks. */
  dropKept(): void;
  /** Opens the files, waiting for them if they are held, and the engine. Gives what ends the waiting. */
  openEngine(opened: (engine: LeaderEngine) => void, failed: (error: KvError) => void): () => void;
}

/** Whom a tab works for. */
export interface PageEvents {
  /** Who waits for this tab's lock learns from now on that it is gone. */
  joined(): void;
  /** There is an engine that serves this tab, for the first time. */
  opened(): void;
  /** Answers as many of the oldest messages. */
  reply(bytes: Uint8Array<ArrayBuffer>, count: number): void;
  /** As many of the oldest messages are not answered. */
  refuse(error: KvError, count: number): void;
  /** There may be commits for those who follow them. */
  news(): void;
  /** Something is waited for. */
  blocked(reason: BlockedReason): void;
  /** Something failed, and it goes on. */
  trouble(error: KvError): void;
  /** It cannot be opened, or not any more. */
  failed(error: KvError): void;
  /** Everything is closed, as was asked for. */
  left(error: KvError | undefined): void;
}

export type BlockedReason = 'leader' | 'version';
