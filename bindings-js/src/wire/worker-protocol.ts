// What travels between a page and its worker beside the binary messages.
import type { PlainError } from '../base/plain-error.ts';
import type { EngineOptions } from '../api/options.ts';

/** The first message to a worker. */
export interface OpenRequest {
  readonly module: WebAssembly.Module;
  readonly storage: 'opfs' | 'indexeddb' | 'fs' | 'memory';
  /** Of the database; with "fs" the path of its directory. */
  readonly name: string;
  readonly lockTimeoutMs: number;
  readonly engine: EngineOptions;
  /** Missing where the database is not shared with other tabs. */
  readonly tabs?: {
    /** Name of this opening, which no other has. */
    readonly client: string;
    readonly isVisible: boolean;
    /** Another worker served this opening before and is gone, with what it knew. */
    readonly isAgain: boolean;
  } | undefined;
}

/** To a worker that shares its database with other tabs: what becomes of the page. */
export type LifecycleMessage =
  | { readonly type: 'visible'; readonly isVisible: boolean }
  /** It goes into the background of its tab's history, and comes back. */
  | { readonly type: 'hide' | 'show' }
  /** It closes the database; everything was answered. */
  | { readonly type: 'leave' };

/** What a worker says; a binary reply without more answers one message. */
export type WorkerMessage =
  /** Its script runs. */
  | { readonly type: 'started' }
  | { readonly type: 'opened' }
  | { readonly type: 'news' }
  /** It could not open the database, or its engine is gone; or work in the background failed. */
  | { readonly type: 'failed' | 'trouble'; readonly error: PlainError }
  /** Answers as many messages. */
  | { readonly type: 'reply'; readonly bytes: Uint8Array<ArrayBuffer>; readonly count: number }
  /** So many messages are not answered. */
  | { readonly type: 'refused'; readonly error: PlainError; readonly count: number }
  /** The page can see by the worker's lock whether it is there. */
  | { readonly type: 'joined' }
  /** A tab is waited for, or waits for this one. */
  | { readonly type: 'blocked'; readonly reason: 'leader' | 'version' }
  /** Everything is closed. */
  | { readonly type: 'left'; readonly error: PlainError | undefined }
  | Uint8Array;
