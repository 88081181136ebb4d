/**
 * A collection as a storage adapter of Keyv 5 and 6.
 *
 * @module @mangrove-kv/keyv
 */
import { KvError } from 'mangrove-kv';
import type { Collection, SetOptions } from 'mangrove-kv';
import { isCollection } from 'mangrove-kv/internal';

/**
 * One entry of `setMany`. Keyv 6 sets `expires`, in milliseconds since 1970; Keyv 5 sets `ttl`, in
 * milliseconds from now.
 */
export interface KeyvEntry {
  readonly key: string;
  readonly value: unknown;
  readonly expires?: number | undefined;
  readonly ttl?: number | undefined;
}

/**
 * A store for one Keyv instance. It uses the namespace of the instance that set it last. The
 * database stays open until its owner closes it. Called without Keyv, the store behaves as with
 * Keyv 6.
 */
export class KeyvMangrove {
  /** Set by Keyv. The keys of a namespace's entries start with the namespace and a colon. */
  namespace: string | undefined;
  readonly #collection: Collection<string, unknown>;
  /**
   * Keyv 5 adds the namespace to the keys itself, and passes a time to live where Keyv 6 passes an
   * expiry time.
   */
  #isKeyv5 = false;

  /** The collection stays open when Keyv disconnects. */
  constructor(collection: Collection<string, unknown>) {
    if (!isCollection(collection))
      throw new KvError('KV_INVALID_ARGUMENT', 'new KeyvMangrove needs a collection of an open database');
    this.#collection = collection;
  }

  /**
   * Read only by Keyv 5, when it receives the store. Keyv 5 iterates only over stores whose dialect
   * it knows.
   */
  get opts(): { readonly dialect: string; readonly url: string } {
    this.#isKeyv5 = true;
    return { dialect: 'sqlite', url: '' };
  }

  /**
   * Read only by Keyv 6, when it receives the store. `expires` means that entries have an expiry
   * time.
   */
  get capabilities(): { readonly expires: true } {
    this.#isKeyv5 = false;
    return { expires: true };
  }

  /** Returns the value, or `undefined`. */
  async get<T>(key: string): Promise<T | undefined> {
    return (await this.#collection.get(this.#keyOf(key))) as T | undefined;
  }

  /** Returns values in the order of `keys`, all from the same state. */
  async getMany<T>(keys: string[]): Promise<(T | undefined)[]> {
    return (await this.#collection.getMany(this.#keysOf(keys))) as (T | undefined)[];
  }

  /** Returns whether there is an entry. */
  async has(key: string): Promise<boolean> {
    return this.#collection.has(this.#keyOf(key));
  }

  /** Like `has` for several keys, in the order of `keys`. */
  async hasMany(keys: string[]): Promise<boolean[]> {
    return this.#collection.hasMany(this.#keysOf(keys));
  }

  /**
   * Stores an entry that expires at `expires`, in milliseconds since 1970, or never. With Keyv 5,
   * `expires` is the time to live in milliseconds.
   */
  async set(key: string, value: unknown, expires?: number): Promise<boolean> {
    await this.#collection.set(this.#keyOf(key), value, this.#isKeyv5 ? expiringIn(expires) : expiringAt(expires));
    return true;
  }

  /**
   * Stores each entry in its own commit, since each may expire at another time. The commits share
   * one flush.
   */
  async setMany(entries: readonly KeyvEntry[]): Promise<boolean[]> {
    if (!Array.isArray(entries)) throw new KvError('KV_INVALID_ARGUMENT', 'the entries of setMany have to be an array');
    return Promise.all(
      (entries as readonly KeyvEntry[]).map((entry) => {
        if (typeof entry !== 'object' || entry === null)
          throw new KvError('KV_INVALID_ARGUMENT', 'an entry of setMany has to be an object { key, value }');
        return this.set(entry.key, entry.value, this.#isKeyv5 ? entry.ttl : entry.expires);
      }),
    );
  }

  /** Deletes an entry; returns whether there was one. */
  async delete(key: string): Promise<boolean> {
    return this.#collection.delete(this.#keyOf(key));
  }

  /**
   * Deletes each key in its own commit; returns for each whether there was an entry. With Keyv 5,
   * deletes all of them or none; returns whether there was any entry.
   */
  async deleteMany(keys: string[]): Promise<boolean[] | boolean> {
    const all = this.#keysOf(keys);
    if (this.#isKeyv5) return (await this.#collection.deleteMany(all)) > 0;
    return Promise.all(all.map((key) => this.#collection.delete(key)));
  }

  /** Deletes the entries of the namespace, or all entries if there is no namespace. */
  async clear(): Promise<void> {
    await this.#collection.clear(this.#range(this.namespace));
  }

  /** Iterates over the entries of the namespace, in key order. */
  async *iterator<T>(namespace: string | undefined = this.namespace): AsyncGenerator<[string, T], void> {
    const begin = this.#isKeyv5 ? 0 : this.#prefix(namespace).length;
    for await (const [key, value] of this.#collection.entries(this.#range(namespace)))
      yield [key.slice(begin), value as T];
  }

  #keyOf(key: string): string {
    if (typeof key !== 'string') throw new KvError('KV_INVALID_KEY', 'a key of Keyv has to be a string');
    return this.#isKeyv5 ? key : this.#prefix(this.namespace) + key;
  }

  #keysOf(keys: string[]): string[] {
    if (!Array.isArray(keys)) throw new KvError('KV_INVALID_ARGUMENT', 'the keys have to be an array');
    return (keys as string[]).map((key) => this.#keyOf(key));
  }

  #range(namespace: string | undefined): { prefix?: string } {
    const prefix = this.#prefix(namespace);
    return prefix === '' ? {} : { prefix };
  }

  /**
   * Escapes a colon within a namespace, since the namespace `a` would otherwise include part of
   * `a:b`; not if Keyv 5 made the keys.
   */
  #prefix(namespace = ''): string {
    if (namespace === '') return '';
    return `${this.#isKeyv5 ? namespace : namespace.replaceAll(/[%:]/g, encodeURIComponent)}:`;
  }
}

function expiringIn(ttl: number | undefined): SetOptions {
  return Number.isFinite(ttl) ? { expireIn: Math.max(0, Math.ceil(ttl as number)) } : {};
}

/** As in Keyv 6, a value that is not a number means never. */
function expiringAt(expires: number | undefined): SetOptions {
  return Number.isFinite(expires) ? { expireAt: Math.max(0, Math.ceil(expires as number)) } : {};
}
