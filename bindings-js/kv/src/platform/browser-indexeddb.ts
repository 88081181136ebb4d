// Databases in IndexedDB. The browser entry loads this module only when it is needed.
import { InThreadTransport } from '../engine/in-thread-transport.ts';
import type { CheckedOptions } from '../api/options.ts';
import type { Transport } from '../wire/transport.ts';
import { KvError } from '../base/errors.ts';
import { BLOCKS, SIZES, deleteIdb, idbName, listIdb, openIdb, result } from '../storage/idb.ts';
import { IndexedDbStorage } from '../storage/indexeddb.ts';
import { FRONT_BYTES, checkForce, isOurs, notOurs } from '../storage/recognize.ts';
import { checkBucketName } from '../api/bucket.ts';
import { lockByName } from '../storage/web-lock.ts';
import type { DestroyOptions, PlaceOptions } from '../types/index.ts';

/** A worker that was just terminated may still hold its lock. */
const DESTROY_WAIT_MS = 500;

/**
 * Runs the engine in the caller's thread: on request, or where there are no workers, as in
 * extension service workers.
 */
export async function openHere(
  module: WebAssembly.Module,
  lazy: WebAssembly.Module | undefined,
  name: string,
  options: CheckedOptions,
): Promise<Transport> {
  const { engine, lockTimeoutMs, signal, bucket, tracer } = options;
  const storage = await IndexedDbStorage.open(name, engine.create && !engine.readOnly, lockTimeoutMs, {
    signal,
    bucket,
  });
  if (signal?.aborted) {
    storage.close();
    throw signal.reason;
  }
  return new InThreadTransport(module, storage, engine, {
    release: () => storage.close(),
    lazy,
    trace: tracer?.record,
  });
}

export async function destroy(name: string, options: DestroyOptions): Promise<boolean> {
  const force = checkForce(options);
  const bucket = checkBucketName(options.bucket);
  idbName(name);
  const release = await lockByName(name, DESTROY_WAIT_MS, undefined, bucket);
  try {
    const db = await openIdb(name, false, bucket).catch((error: KvError) => {
      if (error.code !== 'KV_CORRUPT') throw error;
      if (!force) throw new KvError('KV_CORRUPT', `${error.message}; force: true removes it`, { cause: error });
      return null;
    });
    if (db === undefined) return false;
    try {
      if (db !== null && !force) await checkIdb(db, name);
    } finally {
      db?.close();
    }
    await deleteIdb(name, bucket);
    return true;
  } finally {
    release();
  }
}

/** @throws KvError KV_CORRUPT if the database contains a file that is not Mangrove's. */
async function checkIdb(db: IDBDatabase, name: string): Promise<void> {
  for (const [file, size] of await sizesOf(db)) {
    const block = await result(
      db.transaction(BLOCKS).objectStore(BLOCKS).get([file, 0]) as IDBRequest<Uint8Array | undefined>,
    );
    // Blocks that were never written are zeros.
    if (!isOurs(file, block?.subarray(0, Math.min(size, FRONT_BYTES)) ?? new Uint8Array(), size))
      throw notOurs(name, file);
  }
}

async function sizesOf(db: IDBDatabase): Promise<Map<string, number>> {
  const sizes = db.transaction(SIZES).objectStore(SIZES);
  const [names, values] = await Promise.all([
    result(sizes.getAllKeys()),
    result(sizes.getAll() as IDBRequest<number[]>),
  ]);
  return new Map(names.map((name, at) => [String(name), values[at] as number]));
}

export async function list(options: PlaceOptions = {}): Promise<{ name: string; size: number }[]> {
  const bucket = checkBucketName(options.bucket);
  const found: { name: string; size: number }[] = [];
  for (const name of await listIdb(bucket)) {
    const db = await openIdb(name, false, bucket).catch((error: KvError) => {
      // Not a Mangrove database: only its name looks like one.
      if (error.code !== 'KV_CORRUPT') throw error;
    });
    if (db === undefined) continue;
    try {
      const sizes = await sizesOf(db);
      found.push({ name, size: [...sizes.values()].reduce((sum, size) => sum + size, 0) });
    } finally {
      db.close();
    }
  }
  return found;
}
