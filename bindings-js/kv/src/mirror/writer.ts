// Writes that are shown at once in all mirrors of a collection, and undone there if they fail.
import { ignore } from '../base/async.ts';
import { toExpiry, toNewExpiry } from '../api/arguments.ts';
import { isPromise } from '../api/schema.ts';
import type { Collection, Entry, SetOptions, Updated, Updater, WriteOptions } from '../types/index.ts';
import { DELETE, KEEP } from '../types/collection.ts';
import { decodeValue, encodeKey, encodeValue } from '../wire/codecs.ts';
import type { Target } from '../wire/collection-target.ts';
import type { MirrorHub, Write } from './hub.ts';
import { nameOf } from './names.ts';
import type { Store, Written } from './store.ts';

/** What a call writes: a key alone is deleted. */
type Item = readonly [key: unknown, value?: unknown];

export class MirrorWriter<K, V, I> {
  readonly #collection: Collection<K, V, I>;
  readonly #hub: MirrorHub;
  readonly #store: Store;
  readonly #target: Target<unknown, unknown>;
  readonly #onRollback: (error: unknown, keys: readonly unknown[]) => void;

  constructor(
    collection: Collection<K, V, I>,
    hub: MirrorHub,
    store: Store,
    onRollback: (error: unknown, keys: readonly unknown[]) => void,
  ) {
    this.#collection = collection;
    this.#hub = hub;
    this.#store = store;
    this.#target = store.target;
    this.#onRollback = onRollback;
  }

  set(key: K, value: I, options: SetOptions | undefined): Promise<void> {
    return this.#write(this.#collection.set(key, value, options), () => [[key, value]], options);
  }

  setMany(entries: Iterable<readonly [K, I]>, options: SetOptions | undefined): Promise<void> {
    const list = listOf(entries);
    return this.#write(
      this.#collection.setMany(list, options),
      // An entry without a value is refused, and not taken for one that is deleted.
      () => itemsOf(list, ([key, value]) => [key, value]),
      options,
    );
  }

  delete(key: K, options: WriteOptions | undefined): Promise<boolean> {
    return this.#write(this.#collection.delete(key, options), () => [[key]]);
  }

  deleteMany(keys: Iterable<K>, options: WriteOptions | undefined): Promise<number> {
    const list = listOf(keys);
    return this.#write(this.#collection.deleteMany(list, options), () => itemsOf(list, (key) => [key]));
  }

  update(key: K, fn: Updater<K, V, I>, options: SetOptions | undefined): Promise<V | undefined> {
    if (typeof fn !== 'function') return this.#collection.update(key, fn, options);
    let write: Write | undefined;
    const writtenBy = (next: Updated<I>, entry: Entry<K, V> | undefined): Map<string, Written> | undefined => {
      if (next === KEEP) return new Map();
      const item: Item = next === DELETE ? [key] : [key, next];
      return this.#written(
        () => [item],
        () => toNewExpiry(options, this.#target.expireIn, entry),
      );
    };
    let commit: Promise<V | undefined> | undefined;
    commit = this.#collection.update(
      key,
      (old, given, entry) => {
        const next = fn(old, given, entry);
        const written = isPromise(next) ? undefined : writtenBy(next, entry);
        if (written === undefined || commit === undefined) return next;
        if (write === undefined) write = this.#show(written, commit, [key]);
        else this.#hub.rewrite(write, written);
        return next;
      },
      options,
    );
    const entries = this.#guess(key, fn, writtenBy);
    if (entries === undefined) return commit;
    write = this.#show(entries, commit, [key]);
    return commit;
  }

  /** What an update writes, going by what is mirrored; undefined if that cannot be told at once. */
  #guess(
    key: K,
    fn: Updater<K, V, I>,
    writtenBy: (next: Updated<I>, entry: Entry<K, V> | undefined) => Map<string, Written> | undefined,
  ): Map<string, Written> | undefined {
    try {
      const found = this.#hub.find(this.#store, nameOf(encodeKey(this.#target, key)));
      if (found === undefined) return undefined;
      const { held } = found;
      const entry = held && {
        key,
        // `fn` may change what it is given, as the collection gives it a copy of its own.
        value: decodeValue(this.#target.value, encodeValue(this.#target, held.value).slice()) as V,
        version: held.version,
        ...(held.expiresAt > 0 && { expiresAt: held.expiresAt }),
      };
      const next = fn(entry?.value, key, entry);
      if (!isPromise(next)) return writtenBy(next, entry);
      next.catch(ignore);
      return undefined;
    } catch {
      // The commit fails with the same.
      return undefined;
    }
  }

  #write<T>(commit: Promise<T>, items: () => readonly Item[], options?: SetOptions): Promise<T> {
    const entries = this.#written(items, () => toExpiry(options, this.#target.expireIn));
    if (entries === undefined) return commit;
    const keys = Array.from(entries.values(), ({ key }) => key);
    this.#show(entries, commit, keys);
    return commit;
  }

  #show(entries: Map<string, Written>, commit: Promise<unknown>, keys: readonly unknown[]): Write {
    const write = { store: this.#store, entries, committedAt: undefined };
    this.#hub.write(write, commit, (error) => this.#onRollback(error, keys));
    return write;
  }

  /**
   * What is to be shown of a write: what reading it is going to return, and nothing that the caller can still change.
   * Undefined if that is not known yet, or if the write is going to be refused.
   */
  #written(items: () => readonly Item[], expiry: () => number): Map<string, Written> | undefined {
    const target = this.#target;
    try {
      const expiresAt = expiry();
      const written = new Map<string, Written>();
      for (const [key, ...given] of items()) {
        const keyBytes = encodeKey(target, key);
        const isDelete = given.length === 0;
        let bytes = keyBytes.length;
        let value: unknown;
        if (!isDelete) {
          const valid = target.validate === undefined ? given[0] : target.validate(given[0]);
          if (isPromise(valid)) {
            Promise.resolve(valid).catch(ignore);
            return undefined;
          }
          // The contents of Blobs are read asynchronously.
          if (target.value.isBlob) return undefined;
          const valueBytes = encodeValue(target, valid);
          bytes += valueBytes.length;
          // Throws if the index function does, which the commit is refused for.
          target.indexes?.keysOf(key, valid);
          value = decodeValue(target.value, valueBytes.slice());
        }
        written.set(nameOf(keyBytes), { key, value, bytes, expiresAt, isDelete });
      }
      return written;
    } catch {
      return undefined;
    }
  }
}

/** What can be gone through twice. */
function listOf<T>(given: Iterable<T>): Iterable<T> {
  const isOther = typeof given === 'object' && given !== null && Symbol.iterator in given && !Array.isArray(given);
  return isOther ? [...given] : given;
}

/** Throws for what is no list, which the collection refuses. */
function itemsOf<T>(list: Iterable<T>, itemOf: (each: T) => Item): Item[] {
  if (Array.isArray(list)) return (list as T[]).map(itemOf);
  throw new TypeError('no list');
}
