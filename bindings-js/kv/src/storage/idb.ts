// The parts of IndexedDB that store files, as promises. Each Mangrove database is one IndexedDB
// database.
import { KvError } from '../base/errors.ts';
import { directoryName, toKvError } from './opfs.ts';

const PREFIX = 'mangrove-kv:';
const VERSION = 1;
/** Object store of blocks, by `[file, index]`. */
export const BLOCKS = 'blocks';
/** Object store of file sizes, by file name. */
export const SIZES = 'sizes';

function factory(): IDBFactory {
  const found = globalThis.indexedDB as IDBFactory | undefined;
  if (found === undefined) throw new KvError('KV_UNSUPPORTED', 'there is no IndexedDB here');
  return found;
}

/** Name of the IndexedDB database. Throws for a name that is not allowed. */
export function idbName(name: string): string {
  return PREFIX + directoryName(name);
}

export function result<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function isForeign(name: string, cause?: unknown): KvError {
  return new KvError('KV_CORRUPT', `the IndexedDB database ${idbName(name)} is not a database of this package`, {
    cause,
  });
}

/** Opens the IndexedDB database; `undefined` if it is missing and `create` is false. */
export async function openIdb(name: string, create: boolean): Promise<IDBDatabase | undefined> {
  let isMissing = false;
  try {
    const request = factory().open(idbName(name), VERSION);
    request.onupgradeneeded = () => {
      isMissing = true;
      // Aborting the upgrade removes the database that it was creating.
      if (!create) return request.transaction?.abort();
      request.result.createObjectStore(BLOCKS);
      request.result.createObjectStore(SIZES);
    };
    const db = await result(request);
    const names = [...db.objectStoreNames];
    if (names.length === 2 && names.includes(BLOCKS) && names.includes(SIZES)) return db;
    db.close();
    throw isForeign(name);
  } catch (error) {
    if (isMissing && !create) return undefined;
    if ((error as DOMException | undefined)?.name === 'VersionError') throw isForeign(name, error);
    throw toKvError(error, `open ${name} in IndexedDB`);
  }
}

export function finished(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error ?? new Error('the transaction was aborted'));
  });
}

export async function deleteIdb(name: string): Promise<void> {
  try {
    await result(factory().deleteDatabase(idbName(name)));
  } catch (error) {
    throw toKvError(error, `remove ${name} from IndexedDB`);
  }
}

export async function listIdb(): Promise<string[]> {
  try {
    const found = await factory().databases();
    const names = found.map(({ name = '' }) => name).filter((name) => name.startsWith(PREFIX));
    return names.map((name) => decodeURIComponent(name.slice(PREFIX.length)));
  } catch (error) {
    throw toKvError(error, 'list databases in IndexedDB');
  }
}
