// Databases in IndexedDB, loaded by the browser's entry only where they are asked for.
import { HeldTransport } from './client/held-transport.ts';
import type { CheckedOptions } from './client/options.ts';
import type { Transport } from './client/transport.ts';
import { SIZES, idbName, listIdb, openIdb, removeIdb, result } from './storage/idb.ts';
import { IndexedDbStorage } from './storage/indexeddb.ts';
import { lockByName } from './storage/web-lock.ts';

/** A worker that was ended a moment ago may still have its lock. */
const DESTROY_WAIT_MS = 500;

/** Where there are no workers, as in extension service workers, the engine runs in the caller's thread. */
export async function openHere(module: WebAssembly.Module, name: string, options: CheckedOptions): Promise<Transport> {
  const { engine, lockTimeoutMs, signal } = options;
  const storage = await IndexedDbStorage.open(name, engine.create && !engine.readOnly, lockTimeoutMs, signal);
  if (signal?.aborted) {
    storage.close();
    throw signal.reason;
  }
  return new HeldTransport(module, storage, engine);
}

export async function destroy(name: string): Promise<boolean> {
  idbName(name);
  const release = await lockByName(name, DESTROY_WAIT_MS);
  try {
    return await removeIdb(name);
  } finally {
    release();
  }
}

export async function list(): Promise<{ name: string; size: number }[]> {
  const found: { name: string; size: number }[] = [];
  for (const name of await listIdb()) {
    const db = await openIdb(name, false);
    if (db === undefined) continue;
    try {
      const sizes = await result(db.transaction(SIZES).objectStore(SIZES).getAll() as IDBRequest<number[]>);
      found.push({ name, size: sizes.reduce((sum, size) => sum + size, 0) });
    } finally {
      db.close();
    }
  }
  return found;
}
