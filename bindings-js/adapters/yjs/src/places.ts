// The databases that providers open by name. All providers of a page share one handle for each name, because a tab has
// room for about a hundred open databases, and outside browsers only one handle can have a database.
import { KvError, open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { isCollection } from 'mangrove-kv/internal';

/** Where documents are kept: an open database, a promise of one, or the name or directory of one. */
export type Place = Database | PromiseLike<Database> | string | URL;

/** A database in use. */
export interface Lease {
  readonly opening: Promise<Database>;
  /** Closes the database if it was opened by name and nothing else uses it. Idempotent. */
  release(): Promise<void>;
}

interface Shared {
  readonly opening: Promise<Database>;
  users: number;
}

const shared = new Map<string, Shared>();
/** Databases that are being closed; opening them again waits for that. */
const closing = new Map<string, Promise<void>>();

/** Begins to use a database. */
export function lease(place: Place): Lease {
  if (typeof place === 'string' || place instanceof URL) return leaseNamed(place);
  if (isDatabase(place) || typeof (place as Partial<PromiseLike<Database>> | null)?.then === 'function') {
    return { opening: Promise.resolve(place).then(checked), release: () => Promise.resolve() };
  }
  throw noDatabase();
}

function leaseNamed(place: string | URL): Lease {
  const name = String(place);
  const used = shared.get(name) ?? share(name, place);
  used.users++;
  let released: Promise<void> | undefined;
  const release = async (): Promise<void> => {
    if (--used.users > 0) return;
    forget(name, used);
    const closed = used.opening.then(
      (db) => db.close(),
      () => undefined,
    );
    closing.set(name, closed);
    try {
      await closed;
    } finally {
      if (closing.get(name) === closed) closing.delete(name);
    }
  };
  return { opening: used.opening, release: () => (released ??= release()) };
}

function share(name: string, place: string | URL): Shared {
  // Where y-indexeddb works, its replacement should: private windows and service workers have IndexedDB only.
  const openIt = (): Promise<Database> => open(place, { onUnavailable: 'indexeddb' });
  const opening = (closing.get(name) ?? Promise.resolve()).catch(() => undefined).then(openIt);
  const used: Shared = { opening, users: 0 };
  shared.set(name, used);
  // A database that ended or did not open is of no use to the next provider.
  opening.then(
    (db) => db.addEventListener('close', () => forget(name, used)),
    () => forget(name, used),
  );
  return used;
}

function forget(name: string, used: Shared): void {
  if (shared.get(name) === used) shared.delete(name);
}

function isDatabase(value: unknown): value is Database {
  return (
    isCollection(value) &&
    typeof (value as Partial<Database>).batch === 'function' &&
    typeof (value as Partial<Database>).snapshot === 'function'
  );
}

function checked(db: Database): Database {
  if (isDatabase(db)) return db;
  throw noDatabase();
}

function noDatabase(): KvError {
  return new KvError(
    'KV_INVALID_ARGUMENT',
    'database has to be an open database, a promise of one, a name or the URL of a directory',
  );
}
