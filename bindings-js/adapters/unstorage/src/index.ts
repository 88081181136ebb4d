/**
 * A collection as a driver for unstorage.
 *
 * @module @mangrove-kv/unstorage
 */
import { KvError } from 'mangrove-kv';
import type { Collection } from 'mangrove-kv';
import type { Driver, StorageMeta, StorageValue, TransactionOptions } from 'unstorage';
import { isCollection, misnamed, untilWhole } from 'mangrove-kv/internal';
import type { Names } from 'mangrove-kv/internal';

/** Options of the driver. */
export interface MangroveDriverOptions {
  /** Holds the items. Its database is opened and closed by its owner. */
  readonly collection: Collection<string, unknown>;
}

const NAMES: Names<MangroveDriverOptions> = { collection: 1 };

function invalid(message: string): KvError {
  return new KvError('KV_INVALID_ARGUMENT', message);
}

/** Checks the items of a call for several: an array of objects with a key. */
function listOf<T extends { key: string }>(items: readonly T[]): readonly T[] {
  const isList = Array.isArray(items) && items.every((item) => typeof item === 'object' && item !== null);
  if (isList) return items;
  throw invalid('the items have to be an array of objects with a key');
}

function expiryOf(...options: (TransactionOptions | undefined)[]): { expireIn?: number } {
  const ttlSeconds: unknown = options.find((given) => given?.['ttl'] !== undefined)?.['ttl'];
  // As in unstorage's own drivers, 0 and null keep the item.
  return ttlSeconds === undefined || ttlSeconds === null || ttlSeconds === 0
    ? {}
    : { expireIn: Math.ceil(Number(ttlSeconds) * 1000) };
}

/**
 * A driver for `createStorage`. The option `ttl` of a write is the entry's time to live in seconds; 0 and
 * null are none. Raw items may be anything that structured clone keeps, and are stored as they are. The database
 * stays open until its owner closes it.
 */
export function mangroveDriver(options: MangroveDriverOptions) {
  const wrong = misnamed('mangroveDriver', options, NAMES);
  if (wrong !== undefined) throw invalid(wrong);
  const { collection } = options ?? {};
  if (!isCollection(collection)) throw invalid('mangroveDriver needs { collection }: a collection of an open database');
  return {
    name: 'mangrove-kv',
    flags: { ttl: true },
    options,
    getInstance: () => collection,

    hasItem: (key: string): Promise<boolean> => collection.has(key),

    getItem: async (key: string): Promise<StorageValue> => ((await collection.get(key)) ?? null) as StorageValue,

    async getItems(items: { key: string }[]): Promise<{ key: string; value: StorageValue }[]> {
      const values = await collection.getMany(listOf(items).map(({ key }) => key));
      return items.map(({ key }, index) => ({ key, value: (values[index] ?? null) as StorageValue }));
    },

    getItemRaw: async (key: string): Promise<unknown> => (await collection.get(key)) ?? null,

    setItem: (key: string, value: string, opts?: TransactionOptions): Promise<void> =>
      collection.set(key, value, expiryOf(opts)),

    setItemRaw: (key: string, value: unknown, opts?: TransactionOptions): Promise<void> =>
      collection.set(key, value, expiryOf(opts)),

    async setItems(
      items: { key: string; value: string; options?: TransactionOptions }[],
      common?: TransactionOptions,
    ): Promise<void> {
      await Promise.all(
        listOf(items).map(({ key, value, options: own }) => collection.set(key, value, expiryOf(own, common))),
      );
    },

    async removeItem(key: string): Promise<void> {
      await collection.delete(key);
    },

    async getMeta(key: string): Promise<StorageMeta | null> {
      const entry = await collection.getEntry(key);
      if (entry === undefined) return null;
      const { version, expiresAt } = entry;
      return expiresAt === undefined ? { version } : { version, ttl: Math.max(0, (expiresAt - Date.now()) / 1000) };
    },

    getKeys: (base = ''): Promise<string[]> => untilWhole(() => collection.keys({ prefix: base }).toArray()),

    clear: (base = ''): Promise<void> => collection.clear({ prefix: base }),
  } satisfies Driver<MangroveDriverOptions, Collection<string, unknown>>;
}

export default mangroveDriver;
