// Messages between a page and its worker, other than the binary requests.
import type { PlainError } from '../base/plain-error.ts';
import type { Trace } from '../base/trace.ts';
import type { EngineOptions } from './contracts.ts';
import type { ClientInfo, LeaderInfo } from '../types/sharing.ts';
import type { BlockedReason } from './transport.ts';

/** The first message to a worker. */
export interface OpenRequest {
  readonly module: WebAssembly.Module;
  /** Address of the lazy part of a split module. */
  readonly lazy?: string | undefined;
  readonly storage: 'opfs' | 'indexeddb' | 'fs' | 'memory';
  /** Name of the database; with "fs" the path of its directory. */
  readonly name: string;
  /** The storage bucket that it is in; absent for the origin's default storage. */
  readonly bucket?: string | undefined;
  readonly lockTimeoutMs: number;
  readonly engine: EngineOptions;
  /** Whether the page wants traces. */
  readonly isTraced?: boolean;
  /** See `OpenOptions`; for a database that is shared with other processes. */
  readonly takeOver?: boolean;
  /** Absent unless the database is shared with other tabs, or with other processes. */
  readonly tabs?:
    | {
        /** Unique id of the client, new for each worker. */
        readonly client: string;
        readonly isVisible: boolean;
        /** The worker replaces one that died, whose state is lost. */
        readonly isAgain: boolean;
      }
    | undefined;
}

/** Lifecycle of the page, for a worker that shares its database with other tabs. */
export type LifecycleMessage =
  | { readonly type: 'visible'; readonly isVisible: boolean }
  /** The page's listeners are about to learn that it is left. */
  | { readonly type: 'leaving' }
  /** The page is hidden by navigation or frozen, or it is back. */
  | { readonly type: 'hide' | 'show' }
  /** Asks which handles the one that leads serves. */
  | { readonly type: 'clients' }
  /** The page closes the database and awaits no more replies. */
  | { readonly type: 'leave' }
  /** The page changed the database's key. */
  | { readonly type: 'rekey'; readonly opening: Uint8Array };

/** Messages from a worker. A bare `Uint8Array` replies to one message. */
export type WorkerMessage =
  /** The script runs. */
  | { readonly type: 'started' }
  | { readonly type: 'opened' }
  | { readonly type: 'wake' }
  /**
   * "failed": the database could not be opened, or the engine is gone. "backgroundError": the
   * engine goes on.
   */
  | { readonly type: 'failed' | 'backgroundError'; readonly error: PlainError }
  /** Replies to `count` messages, or to `requests` requests: see `TransportEvents`. */
  | {
      readonly type: 'reply';
      readonly bytes: Uint8Array<ArrayBuffer>;
      readonly count: number;
      readonly requests?: number | undefined;
    }
  /** `count` messages get no reply. */
  | { readonly type: 'refused'; readonly error: PlainError; readonly count: number }
  /** The worker holds its lock, by which the page notices that the worker has died. */
  | { readonly type: 'joined' }
  /**
   * This tab waits for a leader, tabs with different protocol versions wait for each other, or a
   * restore waits for this tab.
   */
  | { readonly type: 'blocked'; readonly reason: BlockedReason }
  /** Another process leads the database that the worker shares, or the worker does. */
  | { readonly type: 'leader'; readonly leader: LeaderInfo }
  /** The answer to the page's question of that name. */
  | { readonly type: 'clients'; readonly clients: readonly ClientInfo[] }
  /** The worker has closed everything. */
  | { readonly type: 'left'; readonly error: PlainError | undefined }
  | { readonly type: 'trace'; readonly detail: Parameters<Trace>[0] }
  | Uint8Array;
