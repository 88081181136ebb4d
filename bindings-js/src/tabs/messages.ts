// What tabs of one database say to each other.

import type { KvErrorCode } from '../base/errors.ts';

/** Grows with each change that tabs of another version would not understand. */
export const PROTOCOL = 1;

/** Everybody hears these. */
export type Announcement =
  /** Somebody looks for the leader. */
  | { readonly type: 'who'; readonly protocol: number; readonly client: string }
  /** The leader, from the moment it serves and then again and again. `version` is that of the last commit. */
  | { readonly type: 'lead'; readonly protocol: number; readonly term: number; readonly client: string; readonly version: number }
  /** Somebody holds the lock and opens the files. */
  | { readonly type: 'opening'; readonly client: string }
  /** The leader lets go, best for `heir`. */
  | { readonly type: 'resign'; readonly term: number; readonly heir: string | undefined }
  /** A client that wants to be served. */
  | { readonly type: 'hello'; readonly protocol: number; readonly term: number; readonly client: string; readonly visible: boolean };

/** Between a client and the leader of a term, over the client's own channel. */
export type Exchange =
  /** Leader: it listens, and wants to know what the client has open. */
  | { readonly type: 'ready'; readonly term: number }
  /** Client: requests under a number one higher than before, or the same again. The first to a leader says what the client has open, `null` being nothing. */
  | {
    readonly type: 'request'; readonly term: number; readonly seq: number; readonly message: Uint8Array;
    readonly hello: { readonly state: Uint8Array | null; readonly readOnly: boolean } | undefined;
  }
  /** Leader: the answer, and what the client has open if that changed. */
  | { readonly type: 'reply'; readonly term: number; readonly seq: number; readonly bytes: Uint8Array<ArrayBuffer>; readonly state: Uint8Array<ArrayBuffer> | undefined }
  /** Leader: the engine did not survive the request. */
  | { readonly type: 'crashed'; readonly term: number; readonly seq: number; readonly code: KvErrorCode; readonly reason: string }
  /** Leader, letting go: what the client had open after this request, with all that there was for those who follow the commits. */
  | { readonly type: 'state'; readonly term: number; readonly seq: number; readonly state: Uint8Array<ArrayBuffer> }
  /** Leader: there are commits for those who follow them. */
  | { readonly type: 'news'; readonly term: number }
  /** Client: whether its page can be seen. */
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

/** Milliseconds. */
export const HEARTBEAT_MS = 1000;
/** So many may be missing before a leader counts as silent. */
export const MISSED_HEARTBEATS = 3;
