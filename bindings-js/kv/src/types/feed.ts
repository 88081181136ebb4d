// What followers learn about commits.
import type { Bounds, SignalOptions } from './range.ts';

/** An entry was stored. */
export interface SetChange<K, V> {
  readonly type: 'set';
  /** Name of the collection at that time; `""` for the database's default collection. */
  readonly collection: string;
  readonly key: K;
  readonly value: V;
  /** Expiry time in milliseconds since 1970; absent if the entry does not expire. */
  readonly expiresAt?: number;
  /**
   * Set if the codecs are not known here: `key` and `value` are then the stored bytes, as
   * Uint8Array.
   */
  readonly raw?: true;
}

/** An entry was deleted, or a delete found none. */
export interface DeleteChange<K> {
  readonly type: 'delete';
  readonly collection: string;
  readonly key: K;
  /** Set if nobody deleted the entry: it had expired, and was removed to free its space. */
  readonly expired?: true;
  /** Set if the codecs are not known here: `key` is then a Uint8Array. */
  readonly raw?: true;
}

/** All entries of a range were deleted: one change, however many there were. */
export interface ClearChange<K> {
  readonly type: 'clear';
  readonly collection: string;
  /** The range that was cleared, not clipped to the watched range. */
  readonly range: Bounds<K>;
  /**
   * False if a bound does not correspond to any key of the codec. That bound is then left out, so
   * `range` covers more than what was deleted.
   */
  readonly isExact: boolean;
  /** Set if the codecs are not known here: the bounds are then Uint8Arrays. */
  readonly raw?: true;
}

/** A collection was dropped with all its entries. */
export interface DropChange {
  readonly type: 'drop';
  readonly collection: string;
}

/** A collection was renamed. */
export interface RenameChange {
  readonly type: 'rename';
  /** The old name. */
  readonly collection: string;
  /** The new name. */
  readonly to: string;
}

/** One change of a commit. */
export type Change<K = unknown, V = unknown> =
  | SetChange<K, V>
  | DeleteChange<K>
  | ClearChange<K>
  | DropChange
  | RenameChange;

/** What one commit changed. */
export interface Commit<K = unknown, V = unknown> {
  /** Number of the commit; pass it as `since` to continue after it. */
  readonly version: number;
  /** The changes, in the order in which they were made. */
  readonly changes: readonly Change<K, V>[];
}

/**
 * Commits in order, without an end. `break`, `return()` or an abort of its signal stops it; closing
 * the database ends it. It pulls commits only as they are requested: a slow consumer gets the same
 * commits later.
 */
export interface CommitIterator<K = unknown, V = unknown> extends AsyncIterableIterator<Commit<K, V>, undefined> {
  /** Returns the next commit as soon as there is one. */
  next(): Promise<IteratorResult<Commit<K, V>, undefined>>;
  /** Ends the iteration. A `next()` that is waiting for a commit resolves with `done: true`. */
  return(): Promise<IteratorResult<Commit<K, V>, undefined>>;
  /** The iterator itself. */
  [Symbol.asyncIterator](): this;
  /** Same as `return()`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** Options of `changes`. */
export interface ChangesOptions {
  /** Start after this commit. Default: the newest one. */
  since?: number | undefined;
  /** Keys and values as they are stored: all changes are marked `raw`. Default: false. */
  raw?: boolean | undefined;
  /** Ends the iteration; a waiting call rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** Options of `changes` for replication. */
export interface ReplicationChangesOptions extends ChangesOptions {
  /** With `raw`: of commits that write this collection, only what they set there. */
  only?: string | undefined;
}

/** What `changes` returns, for replication. */
export interface ReplicationCommits<K = unknown, V = unknown> extends CommitIterator<K, V> {
  /**
   * Asks once more instead of waiting. When everything has been returned that was committed before
   * this call, `next()` returns a commit without changes, whose version is the one reached.
   */
  look(): void;
}

/** Options of `watch`: a range, and how to follow it. */
export interface WatchOptions<K> extends Bounds<K> {
  /**
   * First return the existing entries as one commit that sets them all, even if there are none.
   * Default: false.
   */
  initial?: boolean | undefined;
  /** Ends the iteration; a waiting call rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** A listener that is called until it is unsubscribed. */
export interface Subscription {
  /** Stops calling the listener. Idempotent. */
  unsubscribe(): void;
  /** Same as `unsubscribe()`. */
  [Symbol.dispose](): void;
}

/** Follows the changes of a collection. */
export interface Watchable<K, V> {
  /**
   * Returns one event per commit from now on that touches the range, in commit order. It has the
   * changes inside the range: also a `clear` that overlaps it, and `drop` and `rename` of the
   * collection. An expiring entry makes no commit; its removal by `purgeExpired` does. Without a
   * feed (see `OpenOptions.feed`), up to 32 MiB of commits are buffered for slow consumers.
   *
   * Each commit costs O(its changes) per watcher.
   *
   * Fails with KV_TRUNCATED_FEED if commits were dropped before they were read, and with
   * KV_CODEC_MISMATCH if the collection is stored with other codecs, or is recreated with others
   * after a drop.
   */
  watch(options?: WatchOptions<K>): CommitIterator<K, V>;
  /**
   * Calls `listener` with each event of `watch(range)`. What the listener throws, and an error that
   * ends the watch early, is reported as an uncaught error; other listeners and the next call are
   * not affected. The range's `signal` unsubscribes it.
   */
  subscribe(range: Bounds<K> & SignalOptions, listener: (commit: Commit<K, V>) => void): Subscription;
  /**
   * When the next entry of a range expires, in milliseconds since 1970; undefined if none does. O(log n),
   * unless more than a thousand others expire before it: then a time before which none of the range expires.
   */
  nextExpiry(options?: Bounds<K> & SignalOptions): Promise<number | undefined>;
}
