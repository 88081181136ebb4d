/**
 * A collection as a storage adapter of Keyv 5 and 6.
 *
 * @module mangrove-kv/keyv
 */
import { KvError } from 'mangrove-kv';
import type { Collection, SetOptions } from 'mangrove-kv';
import { isCollection } from '../names.ts';

/** One entry of `setMany`: Keyv 6 says when it expires, in milliseconds since 1970; Keyv 5 in how many milliseconds. */
export interface KeyvEntry {
  readonly key: string;
  readonly value: unknown;
  readonly expires?: number | undefined;
  readonly ttl?: number | undefined;
}

/**
 * The store of one Keyv instance, which has the namespace of the one that set it last. The database stays its owner's, who closes it.
 * Called without Keyv it behaves as with Keyv 6.
 */
export class KeyvMangrove {
  /** Set by Keyv. Entries of a namespace have keys that begin with it and a colon. */
  namespace: string | undefined;
  readonly #collection: Collection<string, unknown>;
  /** Keyv 5 begins the keys of a namespace itself, and has times to live where Keyv 6 has times. */
  #isKeyv5 = false;

  /** The collection stays open when Keyv disconnects. */
  constructor(collection: Collection<string, unknown>) {
    if (!isCollection(collection)) throw new KvError('KV_INVALID_ARGUMENT', 'new KeyvMangrove needs a collection of an open database');
    this.#collection = collection;
  }

  /** Only Keyv 5 asks for it, when it is given the store: it iterates over those whose dialect it knows. */
  get opts(): { readonly dialect: string; readonly url: string } {
    this.#isKeyv5 = true;
    return { dialect: 'sqlite', url: '' };
  }

  /** Only Keyv 6 asks for it, when it is given the store: entries have a time at which they expire. */
  get capabilities(): { readonly expires: true } {
    this.#isKeyv5 = false;
    return { expires: true };
  }

  /** The value, or `undefined`. */
  async get<T>(key: string): Promise<T | undefined> {
    return await this.#collection.get(this.#keyOf(key)) as T | undefined;
  }

  /** Values in the order of `keys`, all of one state. */
  async getMany<T>(keys: string[]): Promise<(T | undefined)[]> {
    return await this.#collection.getMany(this.#keysOf(keys)) as (T | undefined)[];
  }

  /** Whether there is an entry. */
  async has(key: string): Promise<boolean> {
    return this.#collection.has(this.#keyOf(key));
  }

  /** As `has`, in the order of `keys`. */
  async hasMany(keys: string[]): Promise<boolean[]> {
    return this.#collection.hasMany(this.#keysOf(keys));
  }

  /** Stores an entry that expires at `expires`, in milliseconds since 1970, or never. With Keyv 5 it is the time to live in milliseconds. */
  async set(key: string, value: unknown, expires?: number): Promise<boolean> {
    await this.#collection.set(this.#keyOf(key), value, this.#isKeyv5 ? expiringIn(expires) : expiringAt(expires));
    return true;
  }

  /** Each entry is a commit of its own, as each may expire at another time; they share one flush. */
  async setMany(entries: readonly KeyvEntry[]): Promise<boolean[]> {
    if (!Array.isArray(entries)) throw new KvError('KV_INVALID_ARGUMENT', 'the entries of setMany have to be an array');
    return Promise.all((entries as readonly KeyvEntry[]).map((entry) => {
      if (typeof entry !== 'object' || entry === null) throw new KvError('KV_INVALID_ARGUMENT', 'an entry of setMany has to be an object { key, value }');
      return this.set(entry.key, entry.value, this.#isKeyv5 ? entry.ttl : entry.expires);
    }));
  }

  /** Tells whether there was an entry. */
  async delete(key: string): Promise<boolean> {
    return this.#collection.delete(this.#keyOf(key));
  }

  /** Tells of each key whether there was an entry, each in a commit of its own; to Keyv 5, of all or none, whether there was any. */
  async deleteMany(keys: string[]): Promise<boolean[] | boolean> {
    const all = this.#keysOf(keys);
    if (this.#isKeyv5) return await this.#collection.deleteMany(all) > 0;
    return Promise.all(all.map((key) => this.#collection.delete(key)));
  }

  /** Removes what belongs to the namespace, or everything if there is none. */
  async clear(): Promise<void> {
    await this.#collection.clear(this.#range(this.namespace));
  }

  /** Entries of the namespace, in the order of their keys. */
  async *iterator<T>(namespace: string | undefined = this.namespace): AsyncGenerator<[string, T], void> {
    const begin = this.#isKeyv5 ? 0 : this.#prefix(namespace).length;
    for await (const [key, value] of this.#collection.entries(this.#range(namespace))) yield [key.slice(begin), value as T];
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

  /** A colon within a namespace is escaped, as `a` would have part of `a:b`, unless Keyv 5 has made the keys. */
  #prefix(namespace = ''): string {
    if (namespace === '') return '';
    return `${this.#isKeyv5 ? namespace : namespace.replaceAll(/[%:]/g, encodeURIComponent)}:`;
  }
}

function expiringIn(ttl: number | undefined): SetOptions {
  return Number.isFinite(ttl) ? { expireIn: Math.max(0, Math.ceil(ttl as number)) } : {};
}

/** As Keyv 6 has it, what is no number is never. */
function expiringAt(expires: number | undefined): SetOptions {
  return Number.isFinite(expires) ? { expireAt: Math.max(0, Math.ceil(expires as number)) } : {};
}
