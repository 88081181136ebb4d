/**
 * A collection as the storage adapter of automerge-repo.
 *
 * @module @mangrove-kv/automerge
 */
import type { Chunk, StorageAdapterInterface, StorageKey } from '@automerge/automerge-repo';
import { KvError } from 'mangrove-kv';
import type { Collection } from 'mangrove-kv';
import { isCollection, untilWhole } from 'mangrove-kv/internal';

/**
 * Storage adapter of a Repo. Its collection has keys of the codec `tuple` (or the default codec)
 * and values of the codec `bytes`. The database stays open until its owner closes it, after
 * `repo.shutdown()`.
 */
export class MangroveStorageAdapter implements StorageAdapterInterface {
  readonly #collection: Collection<readonly string[], Uint8Array>;

  /** Stores the chunks in `collection`. */
  constructor(collection: Collection<readonly string[], Uint8Array>) {
    if (!isCollection(collection))
      throw new KvError('KV_INVALID_ARGUMENT', 'new MangroveStorageAdapter needs a collection of an open database');
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

  /** In key order. */
  loadRange(keyPrefix: StorageKey): Promise<Chunk[]> {
    return untilWhole(() =>
      this.#collection
        .prefix(keyPrefix)
        .map(([key, data]) => ({ key: [...key], data }))
        .toArray(),
    );
  }

  removeRange(keyPrefix: StorageKey): Promise<void> {
    return this.#collection.clear({ prefix: keyPrefix });
  }
}
