// What a replicated log and an object store have to do for replication. Drivers implement this and know
// nothing of the protocol: records are bytes to them.
//
// `expect` refers to the newest record, so replication never purges that one.
import { KvError } from 'mangrove-kv';

/** Place of a record in the log: grows, may have gaps. 0 is before the first record. */
export type Position = number;

/** A record as the log keeps it. */
export interface LoggedRecord {
  readonly position: Position;
  /** The log's clock when it took the record, in milliseconds since 1970. */
  readonly serverTime: number;
  /** Who appended it, where the log makes sure of that: devices cannot write under each other's ids then. At most 64 characters. */
  readonly sender?: string | undefined;
  readonly record: Uint8Array;
}

/** Options of `append`. */
export interface AppendOptions {
  /** `<device>:<seq>`: an append that is repeated with it after a lost reply has no second effect. */
  readonly idempotencyKey: string;
  /**
   * Appends only if the newest record of this database is at this position; otherwise throws
   * {@link logConflict}.
   */
  readonly expect?: Position | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * The log of one database. An operation that fails with KV_LOG_UNAVAILABLE may or may not have had
 * its effect, and can be repeated.
 */
export interface RemoteLog {
  /** Appends a record durably; resolves to its position. */
  append(record: Uint8Array, options: AppendOptions): Promise<Position>;
  /**
   * Records after a position, in order, at most `limit`; fewer or none if there are no more now.
   * Throws {@link logTruncated} if records after `after` were purged.
   */
  read(after: Position, limit: number, signal?: AbortSignal): Promise<readonly LoggedRecord[]>;
  /**
   * The record at exactly this position, or undefined once it is known that the log does not have
   * it. Throws {@link logTruncated} if it was purged.
   */
  at(position: Position): Promise<LoggedRecord | undefined>;
  /**
   * Calls the listener when there may be something new of other devices: a hint, never trusted. `isReconnected`: the
   * connection was interrupted, and is there again; the servers may have lost something meanwhile.
   * Returns what ends it.
   */
  wake(listener: (isReconnected?: boolean) => void): () => void;
  /**
   * The manifest and its revision, or undefined if there is none yet. It may lag behind what other
   * devices have written, but not behind what this object has returned or written.
   */
  manifest(): Promise<{ readonly revision: Position; readonly manifest: Uint8Array } | undefined>;
  /**
   * Replaces the manifest if its revision is still `previous` (0: there is none yet), otherwise
   * throws {@link logConflict}; resolves to the new revision, which is greater.
   */
  replaceManifest(previous: Position, next: Uint8Array): Promise<Position>;
  /** Removes records up to and including this position, which is before the newest record. */
  purge(upTo: Position): Promise<void>;
  /** Ends the connection. Idempotent; later calls fail. */
  close(): Promise<void>;
}

/** Objects that are created once and never changed. */
export interface SnapshotStore {
  /**
   * Creates an object, which becomes visible when all of it is there; throws {@link logConflict} if
   * another object has the key.
   */
  put(key: string, bytes: ReadableStream<Uint8Array>, signal?: AbortSignal): Promise<void>;
  /** The object's bytes, or undefined if there is none. */
  get(key: string, signal?: AbortSignal): Promise<ReadableStream<Uint8Array> | undefined>;
  /** The keys that start with `prefix`, in order. */
  list(prefix: string): Promise<readonly string[]>;
  /** Deletes an object; nothing happens if there is none. */
  delete(key: string): Promise<void>;
}

/** Something else was there first: read again and decide. */
export const logConflict = (message: string, cause?: unknown): KvError =>
  new KvError('KV_LOG_CONFLICT', message, { retryable: true, cause });

/** Records that were to be read are purged: continue from a snapshot. */
export const logTruncated = (message: string, cause?: unknown): KvError =>
  new KvError('KV_LOG_TRUNCATED', message, { cause });

/** Whether an error is {@link logTruncated}. */
export const isTruncated = (error: unknown): boolean => (error as Partial<KvError>).code === 'KV_LOG_TRUNCATED';

/** No answer, or no connection, or the servers have no quorum: repeat later. */
export const logUnavailable = (message: string, cause?: unknown): KvError =>
  new KvError('KV_LOG_UNAVAILABLE', message, { retryable: true, cause });

/** The servers refuse this client, this record or this bucket: repeating does not help. */
export const logRefused = (message: string, cause?: unknown): KvError =>
  new KvError('KV_LOG_REFUSED', message, { cause });
