// The databases that storages have open. Outside browsers a database has a single opener, so all
// collections of an RxDatabase, and all RxDatabases of one name in this thread, share one.
import { open } from 'mangrove-kv';
import type { Database, OpenOptions } from 'mangrove-kv';

interface Shared {
  readonly database: Promise<Database>;
  users: number;
}

/** The use of an open database. */
export interface Lease {
  readonly database: Database;
  /** Closes the database if this was its last use. Idempotent. */
  release(): Promise<void>;
}

const databases = new Map<string, Shared>();
/** Databases that are being closed, which have to be before they can be opened again. */
const closing = new Map<string, Promise<void>>();

/** Storages of the caller's own: each of them is a place of its own. */
const places = new WeakMap<object, number>();
let placeCount = 0;

function placeOf(storage: OpenOptions['storage']): string {
  if (typeof storage !== 'object') return storage ?? 'auto';
  let place = places.get(storage);
  if (place === undefined) places.set(storage, (place = placeCount++));
  return `custom ${place}`;
}

function share(key: string, name: string, options: OpenOptions): Shared {
  const known = databases.get(key);
  if (known !== undefined) return known;
  const database = Promise.resolve(closing.get(key)).then(() => open(name, options));
  const shared: Shared = { database, users: 0 };
  const forget = (): void => {
    if (databases.get(key) === shared) databases.delete(key);
  };
  // One that has ended by itself is opened again by the next collection.
  database.then((db) => db.addEventListener('close', forget), forget);
  databases.set(key, shared);
  return shared;
}

async function leave(key: string, shared: Shared): Promise<void> {
  if (--shared.users > 0) return;
  if (databases.get(key) === shared) databases.delete(key);
  const closed = shared.database.then((db) => db.close());
  const settled = closed.catch(() => undefined);
  closing.set(key, settled);
  void settled.then(() => {
    if (closing.get(key) === settled) closing.delete(key);
  });
  return closed;
}

/** Opens a database, or shares it if it is open. */
export async function lease(name: string, options: OpenOptions): Promise<Lease> {
  const key = `${placeOf(options.storage)} ${name}`;
  const shared = share(key, name, options);
  shared.users++;
  const database = await shared.database;
  let released: Promise<void> | undefined;
  return { database, release: () => (released ??= leave(key, shared)) };
}
