// The two persistences, chosen by the address of the page. All else is the same for both.
import { BTreeIndex, createCollection } from '@tanstack/db';
import type { Collection } from '@tanstack/db';

export interface Rows {
  readonly id: number;
}

export interface CollectionRequest<T> {
  readonly name: string;
  /** Properties by which the views look rows up. */
  readonly indexes: readonly (keyof T & string)[];
}

export interface Storage {
  /** A collection that loads the rows that live queries ask for. */
  collection<T extends Rows>(request: CollectionRequest<T>): Collection<T, number>;
  /** Resolves when this tab can write to the collections. */
  readonly writable: () => Promise<void>;
}

const NAME = 'tanstack-example';
const getKey = ({ id }: Rows): number => id;

async function mangrove(): Promise<Storage> {
  const [{ open }, { mangroveCollectionOptions }] = await Promise.all([
    import('mangrove-kv'),
    import('@mangrove-kv/tanstack-db'),
  ]);
  const database = open(NAME);
  return {
    collection: <T extends Rows>({ name, indexes }: CollectionRequest<T>) =>
      createCollection(
        mangroveCollectionOptions<T, number>({
          database,
          name,
          getKey,
          keyPath: 'id',
          // The key needs none.
          indexes: indexes.filter((property) => property !== 'id'),
          syncMode: 'on-demand',
        }),
      ) as unknown as Collection<T, number>,
    writable: async () => {
      await database;
    },
  };
}

/** What the browser calls this tab in its list of locks. */
function clientId(): Promise<string | undefined> {
  const name = crypto.randomUUID();
  return navigator.locks.request(
    name,
    async () => (await navigator.locks.query()).held?.find((lock) => lock.name === name)?.clientId,
  );
}

async function waSqlite(): Promise<Storage> {
  const {
    BrowserCollectionCoordinator,
    createBrowserWASQLitePersistence,
    openBrowserWASQLiteOPFSDatabase,
    persistedCollectionOptions,
  } = await import('@tanstack/browser-db-sqlite-persistence');
  const database = await openBrowserWASQLiteOPFSDatabase({ databaseName: `${NAME}.sqlite` });
  const coordinator = new BrowserCollectionCoordinator({ dbName: NAME });
  const persistence = createBrowserWASQLitePersistence({ database, coordinator });
  const names: string[] = [];
  return {
    collection: <T extends Rows>({ name, indexes }: CollectionRequest<T>) => {
      const options = persistedCollectionOptions<T, number>({
        id: name,
        getKey,
        persistence,
        syncMode: 'on-demand',
        autoIndex: 'eager',
        defaultIndexType: BTreeIndex,
      } as never);
      const collection = createCollection(options as never) as unknown as Collection<T, number>;
      // They are indexes of the table, too.
      for (const property of indexes) collection.createIndex((row) => (row as Record<string, unknown>)[property]);
      names.push(name);
      return collection;
    },
    // The leader of a collection writes for all tabs, and is not asked twice: there has to be one.
    writable: async () => {
      const own = await clientId();
      const isLed = async (): Promise<boolean> => {
        const { held = [] } = await navigator.locks.query();
        const leads = (name: string): boolean =>
          held.some((lock) => lock.name === `tsdb:leader:${NAME}:${name}` && lock.clientId !== own);
        return names.every((name) => coordinator.isLeader(name) || leads(name));
      };
      while (!(await isLed())) await new Promise((resolve) => setTimeout(resolve, 20));
    },
  };
}

export const STORAGES: Readonly<Record<string, () => Promise<Storage>>> = { mangrove, 'wa-sqlite': waSqlite };
