/**
 * A collection as the storage of an automerge-repo.
 *
 * @module mangrove-kv/automerge
 */
import type { Chunk, StorageAdapterInterface, StorageKey } from '@automerge/automerge-repo';
import { KvError } from 'mangrove-kv';
import type { Collection } from 'mangrove-kv';
import { isCollection } from '../names.ts';

/**
 * Storage of a Repo. Its collection has keys of the codec `tuple` (or the default one) and values of the codec `bytes`. The database stays
 * its owner's, who closes it after `repo.shutdown()`.
 */
export class MangroveStorageAdapter implements StorageAdapterInterface {
  readonly #collection: Collection<readonly string[], Uint8Array>;

  /** Where the chunks are. */
  constructor(collection: Collection<readonly string[], Uint8Array>) {
    if (!isCollection(collection)) throw new KvError('KV_INVALID_ARGUMENT', 'new MangroveStorageAdapter needs a collection of an open database');
    this.#collection = collection;
  }

  load(key: StorageKey): Promise<Uint8Array | undefined> {
    return this.#collection.get(key);
  }

  save(key: StorageKey, data: Uint8Array): Promise<void> {
    return this.#collection.set(key, data);
  }

  async remove(key: StorageKey): Promise<void> {
    await this.#collection.delete(key);
  }

  /** In the order of the keys. */
  loadRange(keyPrefix: StorageKey): Promise<Chunk[]> {
    return this.#collection.prefix(keyPrefix).map(([key, data]) => ({ key: [...key], data })).toArray();
  }

  removeRange(keyPrefix: StorageKey): Promise<void> {
    return this.#collection.clear({ prefix: keyPrefix });
  }
}
