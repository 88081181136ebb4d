// Opens a database at a schema version: the client joins before the database's handle exists, so
// that nothing reaches data of another version.
import { ignore } from '../base/async.ts';
import type { Database, OpenOptions } from '../types/index.ts';
import type { Connection } from '../wire/connection.ts';
import { KvDatabase } from './database.ts';
import type { DatabaseInfo } from './database.ts';

/** Joins, and upgrades through the handle that `make` returns; returns what follows the version. */
type Settle = (make: () => Database) => Promise<(db: Database) => void>;

/** The handle for an upgrade. Declaring an index would build it from data of the old version. */
export function makeForUpgrade<K, V, I>(
  connection: Connection,
  info: DatabaseInfo,
  options: OpenOptions<K, V, I>,
): () => Database {
  return () => new KvDatabase(connection, info, { ...options, indexes: undefined }) as unknown as Database;
}

export async function openAtVersion<K, V, I>(
  connection: Connection,
  info: DatabaseInfo,
  options: OpenOptions<K, V, I>,
  loading: Promise<Settle>,
): Promise<Database<K, V, I>> {
  try {
    const settle = await loading;
    const follow = await settle(makeForUpgrade(connection, info, options));
    const db = new KvDatabase(connection, info, options);
    follow(db as unknown as Database);
    return db;
  } catch (error) {
    await connection.close().catch(ignore);
    throw error;
  }
}
