// The parts of IndexedDB that store files, as promises. Each Mangrove database is one IndexedDB
// database.
import { KvError } from '../base/errors.ts';
import { openBucket } from './bucket.ts';
import { directoryName, toKvError } from './opfs.ts';

const PREFIX = 'mangrove-kv:';
const VERSION = 1;
/** Object store of blocks, by `[file, index]`. */
export const BLOCKS = 'blocks';
/** Object store of file sizes, by file name. */
export const SIZES = 'sizes';

/** `undefined` if the bucket is missing and `create` is false. */
async function factory(bucket: string | undefined, create = false): Promise<IDBFactory | undefined> {
  if (bucket !== undefined) return (await openBucket(bucket, create))?.indexedDB;
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
export async function openIdb(name: string, create: boolean, bucket?: string): Promise<IDBDatabase | undefined> {
  let isMissing = false;
  try {
    const databases = await factory(bucket, create);
    if (databases === undefined) return undefined;
    const request = databases.open(idbName(name), VERSION);
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

export async function deleteIdb(name: string, bucket?: string): Promise<void> {
  try {
    const databases = await factory(bucket);
    if (databases !== undefined) await result(databases.deleteDatabase(idbName(name)));
  } catch (error) {
    throw toKvError(error, `remove ${name} from IndexedDB`);
  }
}

export async function listIdb(bucket?: string): Promise<string[]> {
  try {
    const found = (await (await factory(bucket))?.databases()) ?? [];
    const names = found.map(({ name = '' }) => name).filter((name) => name.startsWith(PREFIX));
    return names.map((name) => decodeURIComponent(name.slice(PREFIX.length)));
  } catch (error) {
    throw toKvError(error, 'list databases in IndexedDB');
  }
}
