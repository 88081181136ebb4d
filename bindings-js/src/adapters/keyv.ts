/**
 * A collection as a storage adapter of Keyv 5, which begins the keys of a namespace with its name; Keyv 6 does not.
 *
 * @module mangrove-kv/keyv
 */
import type { Collection } from 'mangrove-kv';

/** One entry of `setMany`; `ttl` is in milliseconds. */
export interface KeyvEntry {
  readonly key: string;
  readonly value: unknown;
  readonly ttl?: number | undefined;
}

/** The store of one Keyv instance, or of several with namespaces. The database stays its owner's, who closes it. */
export class KeyvMangrove {
  /** Keyv 5 iterates only over stores whose dialect it knows. */
  opts: Record<string, unknown> = { dialect: 'sqlite', url: '' };
  /** Set by Keyv, which begins each key with it and a colon. */
  namespace?: string | undefined;
  readonly #collection: Collection<string, unknown>;

  /** The collection stays open when Keyv disconnects. */
  constructor(collection: Collection<string, unknown>) {
    this.#collection = collection;
  }

  /** The value, or `undefined`. */
  async get<T>(key: string): Promise<T | undefined> {
    return await this.#collection.get(key) as T | undefined;
  }

  /** Values in the order of `keys`, all of one state. */
  async getMany<T>(keys: string[]): Promise<(T | undefined)[]> {
    return await this.#collection.getMany(keys) as (T | undefined)[];
  }

  /** Whether there is an entry. */
  async has(key: string): Promise<boolean> {
    return this.#collection.has(key);
  }

  /** As `has`, in the order of `keys`. */
  async hasMany(keys: string[]): Promise<boolean[]> {
    return this.#collection.hasMany(keys);
  }

  /** Stores an entry that expires after `ttl` milliseconds, or never. */
  async set(key: string, value: unknown, ttl?: number): Promise<boolean> {
    await this.#collection.set(key, value, { expireIn: ttl });
    return true;
  }

  /** Each entry is a commit of its own, as each may expire at another time; they share one flush. */
  async setMany(entries: readonly KeyvEntry[]): Promise<void> {
    await Promise.all(entries.map(({ key, value, ttl }) => this.set(key, value, ttl)));
  }

  /** Tells whether there was an entry. */
  async delete(key: string): Promise<boolean> {
    return this.#collection.delete(key);
  }

  /** Tells whether any was there. */
  async deleteMany(keys: string[]): Promise<boolean> {
    return await this.#collection.deleteMany(keys) > 0;
  }

  /** Removes what belongs to the namespace, or everything if there is none. */
  async clear(): Promise<void> {
    await this.#collection.clear(prefixOf(this.namespace));
  }

  /** Entries of a namespace, in the order of their keys. */
  async *iterator<T>(namespace: string | undefined = this.namespace): AsyncGenerator<[string, T], void> {
    for await (const [key, value] of this.#collection.entries(prefixOf(namespace))) yield [key, value as T];
  }
}

function prefixOf(namespace: string | undefined): { prefix?: string } {
  return namespace === undefined ? {} : { prefix: `${namespace}:` };
}
