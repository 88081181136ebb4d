// The IndexedDB database that is read.
import { KvError } from 'mangrove-kv';

export function failed(what: string, error: unknown): KvError {
  return new KvError(
    'KV_IO',
    `reading IndexedDB failed: ${what}: ${error instanceof Error ? error.message : String(error)}`,
    { cause: error },
  );
}

export function result<T>(request: IDBRequest<T>, what: string): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(failed(what, request.error));
  });
}

export function objectsOf(source: IDBDatabase, store: string): IDBObjectStore {
  try {
    return source.transaction(store).objectStore(store);
  } catch (error) {
    // For one, another tab upgrades or deletes the source.
    throw failed(`object store ${JSON.stringify(store)}`, error);
  }
}

/** `undefined` if there is no such database; does not create one. */
export async function openSource(factory: IDBFactory, name: string): Promise<IDBDatabase | undefined> {
  let request: IDBOpenDBRequest;
  try {
    request = factory.open(name);
  } catch (error) {
    throw failed(`database ${JSON.stringify(name)}`, error);
  }
  let isMissing = false;
  request.onupgradeneeded = () => {
    isMissing = true;
    request.transaction?.abort();
  };
  try {
    const source = await result(request, `database ${JSON.stringify(name)}`);
    // Does not block another tab that wants to upgrade or delete the source; this migration then
    // fails and can be resumed.
    source.onversionchange = () => source.close();
    return source;
  } catch (error) {
    if (isMissing) return undefined;
    throw error;
  }
}
