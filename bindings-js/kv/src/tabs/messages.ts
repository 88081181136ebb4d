// The messages between the tabs of one database.

import type { KvErrorCode } from '../base/errors.ts';
import type { Cut } from '../wire/transport.ts';

/** Incremented with each incompatible change of the messages. */
export const PROTOCOL = 2;

/** Broadcast to all tabs of the database. */
export type Announcement =
  /** A tab looks for the leader. */
  | { readonly type: 'who'; readonly protocol: number; readonly client: string }
  /**
   * The leader announces itself: when it begins to serve, as its heartbeat, and in reply to `who`.
   * `version` is that of the last commit. An encrypted database has a sealed key, by which a tab
   * that joins checks its own.
   */
  | {
      readonly type: 'lead';
      readonly protocol: number;
      readonly term: number;
      readonly client: string;
      readonly version: number;
      readonly sealedKey?: Uint8Array | undefined;
    }
  /** A tab holds the leader's lock and opens the files. */
  | { readonly type: 'opening'; readonly client: string }
  /** The leader has closed the files. Other tabs should let `heir` lead next. */
  | { readonly type: 'resign'; readonly term: number; readonly heir: string | undefined }
  /** A restore waits for the end of all tabs. */
  | { readonly type: 'wanted' }
  /** A client introduces itself to the leader. */
  | {
      readonly type: 'hello';
      readonly protocol: number;
      readonly term: number;
      readonly client: string;
      readonly visible: boolean;
    };

/** Between a client and the leader of a term, on the client's own channel. */
export type Exchange =
  /** Leader: it listens to this channel. The next request has to carry a `hello`. */
  | { readonly type: 'ready'; readonly term: number }
  /**
   * Client: a request, numbered one higher than the previous one, or a resend under the same
   * number. `hello` is included until the leader replies; its `state` is what the client has open,
   * null if nothing.
   */
  | {
      readonly type: 'request';
      readonly term: number;
      readonly seq: number;
      readonly message: Uint8Array;
      readonly hello: { readonly state: Uint8Array | null; readonly readOnly: boolean } | undefined;
    }
  /**
   * Leader: the reply, and what the client has open if that changed. If the reply is full, the
   * client makes its next request of what is left of this one.
   */
  | {
      readonly type: 'reply';
      readonly term: number;
      readonly seq: number;
      readonly bytes: Uint8Array<ArrayBuffer>;
      readonly state: Uint8Array<ArrayBuffer> | undefined;
      readonly cut: Cut | undefined;
    }
  /** Leader: the request, or the storing of its commits, crashed the engine. */
  | {
      readonly type: 'crashed';
      readonly term: number;
      readonly seq: number;
      readonly code: KvErrorCode;
      readonly reason: string;
    }
  /**
   * Resigning leader: what the client has open after request `seq`, including the commits that its
   * followers have not read.
   */
  | { readonly type: 'state'; readonly term: number; readonly seq: number; readonly state: Uint8Array<ArrayBuffer> }
  /** Leader: there are new commits for the client's followers. */
  | { readonly type: 'wake'; readonly term: number }
  /** Client: whether its page is visible. */
  | { readonly type: 'visible'; readonly term: number; readonly visible: boolean };

export type Message = Announcement | Exchange;
export type Request = Extract<Exchange, { type: 'request' }>;
export type Reply = Extract<Exchange, { type: 'reply' }>;

export const names = {
  all: (database: string): string => `mangrove-kv:${database}`,
  of: (database: string, client: string): string => `mangrove-kv:${database}:${client}`,
  leader: (database: string): string => `mangrove-kv:${database}:leader`,
  client: (database: string, client: string): string => `mangrove-kv:${database}:client:${client}`,
} as const;

/** Interval of the leader's announcements, and of the tick with which peers check for them. */
export const HEARTBEAT_MS = 1000;
/** Number of heartbeats that may be missing before a leader counts as silent. */
export const MISSED_HEARTBEATS = 3;
