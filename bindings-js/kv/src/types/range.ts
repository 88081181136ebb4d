// Ranges of keys, and iterators over them.
import type { Bound, KeyPrefix } from '../codec/keys.ts';

/**
 * Bounds in key order, even when reading in reverse. All bounds that are given apply together. A
 * bound that is present but `undefined` is refused with KV_INVALID_ARGUMENT, because it would mean
 * everything.
 */
export interface Bounds<K> {
  /** Only keys after this one. */
  gt?: Bound<K>;
  /** Only this key and those after it. */
  gte?: Bound<K>;
  /** Only keys before this one. */
  lt?: Bound<K>;
  /** Only this key and those before it. */
  lte?: Bound<K>;
  /**
   * Only keys that start like this: with a string, with bytes, or with the leading elements of a
   * tuple, given as an array. A string is not a prefix of tuples: with the codec `tuple` that is
   * KV_INVALID_ARGUMENT, and so it is with the default codec if no string key starts with it but
   * the first element of a tuple key does.
   */
  prefix?: KeyPrefix<K>;
}

/** Which entries, and in which order. */
export interface Range<K> extends Bounds<K> {
  /** Read from the last key to the first. Default: false. */
  reverse?: boolean | undefined;
  /** Maximum number of entries. Default: Infinity. `clear` refuses `undefined`. */
  limit?: number;
  /** Number of entries to skip at the start. O(log n). Default: 0. `clear` refuses `undefined`. */
  offset?: number;
}

/** Option of iterators over entries. */
export interface WithMeta {
  /** Return entries with version and expiry, like `getEntry`, instead of pairs. Default: false. */
  readonly meta: true;
}

/** Option of every call that waits. */
export interface SignalOptions {
  /**
   * Ends the wait: the promise rejects with the signal's reason. If the signal is already aborted,
   * nothing is done at all. A write called before the abort is not undone; it takes effect as if
   * no one were waiting for it.
   */
  signal?: AbortSignal | undefined;
}

/** A range, with a signal that stops reading it. */
export interface RangeOptions<K> extends Range<K>, SignalOptions {}

/**
 * Reads entries in order, in chunks, prefetching one chunk. It sees the state at the time of the
 * call that created it, whatever is written later. The helpers are those of JavaScript's own
 * iterators.
 *
 * Its resources in the engine are released at its end, by `return()` (which leaving a `for await`
 * loop calls), or when it is garbage-collected. Until then the file keeps the space that it may
 * still read.
 */
export interface KvIterator<T, K = unknown> extends AsyncIterableIterator<T, undefined> {
  /** Returns the next item. */
  next(): Promise<IteratorResult<T, undefined>>;
  /** Ends the iteration and releases its resources. */
  return(): Promise<IteratorResult<T, undefined>>;
  /** The iterator itself. */
  [Symbol.asyncIterator](): this;
  /** Same as `return()`. */
  [Symbol.asyncDispose](): Promise<void>;
  /**
   * Returns the next `max` items, fewer at the end, `[]` after it. Several times as fast as that
   * many calls of `next()`.
   */
  nextMany(max: number): Promise<T[]>;
  /**
   * Continues at the first key at or past `key` in the direction of the iteration; may also go
   * back. Has no effect after the end.
   */
  seek(key: KeyPrefix<K>): void;
  /** Returns all remaining items. */
  toArray(): Promise<T[]>;
  /** Iterates over the results of `fn` for each item. */
  map<U>(fn: (item: T, index: number) => U | Promise<U>): KvIterator<U, K>;
  /** Iterates over the items for which `fn` returns true. */
  filter<S extends T>(fn: (item: T, index: number) => item is S): KvIterator<S, K>;
  /** Iterates over the items for which `fn` returns a truthy value. */
  filter(fn: (item: T, index: number) => unknown): KvIterator<T, K>;
  /** Iterates over at most `count` items. */
  take(count: number): KvIterator<T, K>;
  /** Iterates over all but the first `count` items. */
  drop(count: number): KvIterator<T, K>;
  /** Iterates over all items of the iterables that `fn` returns. */
  flatMap<U>(fn: (item: T, index: number) => Iterable<U> | AsyncIterable<U>): KvIterator<U, K>;
  /** Reads to the end; returns the result of the last call of `fn`. */
  reduce<A>(fn: (acc: A, item: T, index: number) => A | Promise<A>, initial: A): Promise<A>;
  /** Calls `fn` for each item, to the end. */
  forEach(fn: (item: T, index: number) => unknown): Promise<void>;
  /** Whether `fn` returns a truthy value for any item; reads up to the first such item. */
  some(fn: (item: T, index: number) => unknown): Promise<boolean>;
  /**
   * Whether `fn` returns a truthy value for all items; reads up to the first for which it does not.
   */
  every(fn: (item: T, index: number) => unknown): Promise<boolean>;
  /** Returns the first item for which `fn` returns a truthy value; reads up to it. */
  find(fn: (item: T, index: number) => unknown): Promise<T | undefined>;
}
