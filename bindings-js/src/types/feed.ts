// What is told about commits to those who follow them.
import type { Bounds, SignalOptions } from './range.ts';

/** An entry was stored. */
export interface SetChange<K, V> {
  readonly type: 'set';
  /** Name of the collection at that time, `""` for the database's own. */
  readonly collection: string;
  readonly key: K;
  readonly value: V;
  /** When it expires, in milliseconds since 1970; missing if it does not. */
  readonly expiresAt?: number;
  /** Set where the codecs are not known here: `key` and `value` are the stored bytes, as Uint8Array. */
  readonly raw?: true;
}

/** An entry was removed, or there was none. */
export interface DeleteChange<K> {
  readonly type: 'delete';
  readonly collection: string;
  readonly key: K;
  /** Set where the codecs are not known here: `key` is a Uint8Array. */
  readonly raw?: true;
}

/** All entries of a range were removed; it is one change however many there were. */
export interface ClearChange<K> {
  readonly type: 'clear';
  readonly collection: string;
  /** The range, not cut to the one that is watched. */
  readonly range: Bounds<K>;
  /** False if a bound stands for no key of the codec. It is left out then, so `range` holds more than what was removed. */
  readonly isExact: boolean;
  /** Set where the codecs are not known here: the bounds are Uint8Arrays. */
  readonly raw?: true;
}

/** A collection was removed with all its entries. */
export interface DropChange {
  readonly type: 'drop';
  readonly collection: string;
}

/** A collection got another name. */
export interface RenameChange {
  readonly type: 'rename';
  /** Its name before. */
  readonly collection: string;
  /** Its name from now on. */
  readonly to: string;
}

/** One change of a commit. */
export type Change<K = unknown, V = unknown> =
  SetChange<K, V> | DeleteChange<K> | ClearChange<K> | DropChange | RenameChange;

/** What one commit changed. */
export interface Commit<K = unknown, V = unknown> {
  /** Number of the commit: what to give as `since` to go on after it. */
  readonly version: number;
  /** In the order in which they were made. */
  readonly changes: readonly Change<K, V>[];
}

/**
 * Commits in order, without an end. Left by `break`, `return()` or the abort of its signal; the close of the database
 * ends it. It asks for more only when it is asked: whoever is slow gets the same commits later.
 */
export interface CommitIterator<K = unknown, V = unknown> extends AsyncIterableIterator<Commit<K, V>, undefined> {
  /** The next commit, as soon as there is one. */
  next(): Promise<IteratorResult<Commit<K, V>, undefined>>;
  /** Ends it. What waits for a commit gets the end. */
  return(): Promise<IteratorResult<Commit<K, V>, undefined>>;
  /** The iterator itself. */
  [Symbol.asyncIterator](): this;
  /** As `return()`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** Options of `changes`. */
export interface ChangesOptions {
  /** Begin after this commit. Default: the newest one. */
  since?: number | undefined;
  /** Ends it; what waits rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** Options of `watch`: a range, and how. */
export interface WatchOptions<K> extends Bounds<K> {
  /** Give the entries that are there first, as one commit that sets them all, also if there are none. Default false. */
  initial?: boolean | undefined;
  /** Ends it; what waits rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** A listener that is called until it is unsubscribed. */
export interface Subscription {
  /** The listener is not called again. Idempotent. */
  unsubscribe(): void;
  /** As `unsubscribe()`. */
  [Symbol.dispose](): void;
}

/** Reads what happens to a collection. */
export interface Watchable<K, V> {
  /**
   * One event per commit from now on that touches the range, in commit order, with the changes in the range: `clear` where it overlaps
   * it, `drop` and `rename` of the collection. Entries that expire make no commit; their removal by `purgeExpired` does. Without a
   * feed (see `OpenOptions.feed`) up to 32 MiB of commits wait for those who are slow.
   *
   * A commit costs O(its changes) for each that watches.
   *
   * It fails with KV_TRUNCATED_FEED if commits were dropped before they were taken, and with KV_CODEC_MISMATCH if the collection is
   * stored, or after a drop stored anew, with other codecs.
   */
  watch(options?: WatchOptions<K>): CommitIterator<K, V>;
  /**
   * Calls `listener` with what `watch(range)` gives. What it throws, and what ends the watching before its time, is reported as an
   * uncaught error; other listeners are not affected, nor is the next call. The range's `signal` unsubscribes it.
   */
  subscribe(range: Bounds<K> & SignalOptions, listener: (commit: Commit<K, V>) => void): Subscription;
}
