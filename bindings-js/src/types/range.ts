// Ranges of keys, and what is read of them.
import type { Bound, KeyPrefix } from '../codec/keys.ts';

/**
 * Bounds in key order, also where entries are read in reverse. All that are given apply together. One that is there and `undefined` is refused
 * with KV_INVALID_ARGUMENT, as it would mean all.
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
   * Only keys that begin like this: a string's or byte string's start, or a tuple's leading elements, as an array. A string is no prefix of
   * tuples: KV_INVALID_ARGUMENT with the codec `tuple`, and with the default one where no string begins with it but the first element of a tuple does.
   */
  prefix?: KeyPrefix<K>;
}

/** Which entries, in which order. */
export interface Range<K> extends Bounds<K> {
  /** From the last key to the first. Default false. */
  reverse?: boolean | undefined;
  /** Most entries. Default Infinity. `clear` refuses `undefined`. */
  limit?: number;
  /** Entries left out at the start, O(log n). Default 0. `clear` refuses `undefined`. */
  offset?: number;
}

/** Of an iterator over entries. */
export interface WithMeta {
  /** Gives entries with version and expiry, as `getEntry` does, instead of pairs. Default false. */
  readonly meta: true;
}

/** Of a call that waits. */
export interface SignalOptions {
  /**
   * Ends the wait: the promise rejects with the signal's reason. If it is aborted already, nothing is done at all. A write that was
   * called before the abort is not undone and takes effect as if nobody waited for it.
   */
  signal?: AbortSignal | undefined;
}

/** A range that is read until a signal says otherwise. */
export interface RangeOptions<K> extends Range<K>, SignalOptions {}

/**
 * Reads entries in order, in chunks and a chunk ahead. It sees the state of the moment it was asked for, whatever is
 * written later. The helpers are those of the iterators of JavaScript.
 *
 * Its place in the engine is given back at its end, by `return()` (which leaving a `for await` loop calls), or when
 * it is garbage collected. Until then the file keeps what it may still read.
 */
export interface KvIterator<T, K = unknown> extends AsyncIterableIterator<T, undefined> {
  /** The next item. */
  next(): Promise<IteratorResult<T, undefined>>;
  /** Ends it and gives its place back. */
  return(): Promise<IteratorResult<T, undefined>>;
  /** The iterator itself. */
  [Symbol.asyncIterator](): this;
  /** As `return()`. */
  [Symbol.asyncDispose](): Promise<void>;
  /** The next `max` items, fewer at the end, `[]` after it. Several times faster than as many `next()`. */
  nextMany(max: number): Promise<T[]>;
  /** Goes on at the first key at or past `key` in this direction, also backwards. Without effect after the end. */
  seek(key: KeyPrefix<K>): void;
  /** All that is left. */
  toArray(): Promise<T[]>;
  /** What `fn` gives for each item. */
  map<U>(fn: (item: T, index: number) => U | Promise<U>): KvIterator<U, K>;
  /** The items of which `fn` says so. */
  filter<S extends T>(fn: (item: T, index: number) => item is S): KvIterator<S, K>;
  /** The items for which `fn` gives something true. */
  filter(fn: (item: T, index: number) => unknown): KvIterator<T, K>;
  /** At most `count` items, then the end. */
  take(count: number): KvIterator<T, K>;
  /** All but the first `count` items. */
  drop(count: number): KvIterator<T, K>;
  /** All items of what `fn` gives for each. */
  flatMap<U>(fn: (item: T, index: number) => Iterable<U> | AsyncIterable<U>): KvIterator<U, K>;
  /** Reads to the end; gives what the last call of `fn` gave. */
  reduce<A>(fn: (acc: A, item: T, index: number) => A | Promise<A>, initial: A): Promise<A>;
  /** Reads to the end. */
  forEach(fn: (item: T, index: number) => unknown): Promise<void>;
  /** Whether there is such an item; reads up to the first. */
  some(fn: (item: T, index: number) => unknown): Promise<boolean>;
  /** Whether all are such; reads up to the first that is not. */
  every(fn: (item: T, index: number) => unknown): Promise<boolean>;
  /** The first such item; reads up to it. */
  find(fn: (item: T, index: number) => unknown): Promise<T | undefined>;
}
