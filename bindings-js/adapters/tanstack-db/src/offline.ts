/**
 * The storage of TanStack's offline transactions in a database.
 *
 * @module @mangrove-kv/tanstack-db/offline
 */
import { keyCodecs } from 'mangrove-kv';
import type { Collection, Database, Durability } from 'mangrove-kv';
import { untilWhole } from 'mangrove-kv/internal';

/** Options of `MangroveStorageAdapter`. */
export interface MangroveStorageAdapterOptions {
  /** Name of the collection of the database. Default: `"offline-transactions"`. */
  readonly collection?: string | undefined;
  /** When a write resolves. Default: as the database was opened. */
  readonly durability?: Durability | undefined;
}

interface Stored {
  /** Its place among all that have been stored. */
  readonly place: number;
  readonly value: string;
}

type Transactions = Collection<string, Stored>;

/**
 * The option `storage` of `startOfflineExecutor`: transactions survive a reload, and tabs share
 * them. Transactions keep the order in which they were stored, also those of one millisecond. What cannot
 * be read or stored rejects with a KvError, so that no transaction is taken for one that is not there.
 */
export class MangroveStorageAdapter {
  readonly #transactions: Promise<Transactions>;
  readonly #database: Database | Promise<Database>;
  readonly #durability: Durability | undefined;

  constructor(
    database: Database | Promise<Database>,
    { collection = 'offline-transactions', durability }: MangroveStorageAdapterOptions = {},
  ) {
    this.#database = database;
    this.#durability = durability;
    this.#transactions = Promise.resolve(database).then((db) =>
      db.collection<string, Stored>(collection, {
        key: keyCodecs.string,
        indexes: { place: { key: ({ place }) => place } },
      }),
    );
    // Each call awaits it and reports the failure.
    this.#transactions.catch(() => undefined);
  }

  /** The value of a key, or null. */
  async get(key: string): Promise<string | null> {
    return (await (await this.#transactions).get(key))?.value ?? null;
  }

  /** Inserts a value, as the last one, or replaces it in its place. */
  async set(key: string, value: string): Promise<void> {
    const transactions = await this.#transactions;
    const durability = this.#durability;
    await (await this.#database).transaction(
      async (tx) => {
        const stored = tx.collection(transactions);
        const place = (await stored.get(key))?.place ?? ((await stored.index('place').last())?.value.place ?? 0) + 1;
        await stored.set(key, { place, value });
      },
      { durability },
    );
  }

  /** Removes a key, if it is there. */
  async delete(key: string): Promise<void> {
    await (await this.#transactions).delete(key, { durability: this.#durability });
  }

  /** All keys, in the order in which they were first stored. */
  async keys(): Promise<string[]> {
    const transactions = await this.#transactions;
    return untilWhole(() => transactions.index('place', { whenIncomplete: 'wait' }).keys().toArray());
  }

  /** Removes everything. */
  async clear(): Promise<void> {
    await (await this.#transactions).clear(undefined, { durability: this.#durability });
  }
}
