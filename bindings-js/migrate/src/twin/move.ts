// Moves an object store into a collection, in place of which programs use it from then on: copies, compares every entry,
// and only then empties the source.
import { KvError, keyCodecs, valueCodecs } from 'mangrove-kv';
import type { Collection, Database, Key } from 'mangrove-kv';
import { lockByName } from 'mangrove-kv/internal';
import { migrateIndexedDB } from '../index.ts';
import type { MigrationTarget } from '../index.ts';
import { failed, objectsOf, openSource, result } from '../source.ts';
import { STATES, placeOf, statesOf } from '../states.ts';
import { Digest } from './digest.ts';
import { isSameValue } from './same-value.ts';
import { fromStored, holdsBlob, isRefusal, stored, toStored, toStoredWithBlobs } from './stored.ts';

/** What to move, and how. */
export interface Move {
  /** Name of the IndexedDB database. */
  readonly name: string;
  /** Name of its object store. */
  readonly store: string;
  /** Receives the entries. Nobody may write to it before the move is complete. */
  readonly into: Collection<Key, unknown>;
  /** Whether the source stays as it is. */
  readonly keepSource: boolean;
  /** What to do with entries that only IndexedDB can hold, such as CryptoKeys and file handles. */
  readonly onUnmovable: 'throw' | 'leave';
  readonly indexedDB?: IDBFactory | undefined;
}

/** Exists from the moment on at which the move is complete, and is never deleted: moving happens once. */
interface Moved {
  /** Checksum of the source; absent if there was none, or if not all of it could be moved. */
  readonly digest?: string;
  /** Entries that stayed in the source. */
  readonly left: number;
  /** Whether nothing remains to be done with the source. */
  readonly isDone: boolean;
}

/** How often a source that changes meanwhile is copied again. */
const ATTEMPTS = 3;
/** Entries that are compared at once: at first, and later. */
const [FIRST_ENTRIES, MAX_ENTRIES, BATCH_BYTES] = [16, 256, 16 << 20];
/** The longest key of a database. */
const MAX_KEY_BYTES = 4096;

function movedPlace(name: string, store: string): Key {
  return ['moved', name, store];
}

function movesOf(db: Database): Collection<Key, Moved> {
  return db.collection<Key, Moved>(STATES);
}

function isConflict(error: unknown): boolean {
  return error instanceof KvError && error.code === 'KV_CONFLICT';
}

/** The IndexedDB of this program, or `undefined`. */
export function factoryOf(given: IDBFactory | undefined): IDBFactory | undefined {
  return given ?? (globalThis as { indexedDB?: IDBFactory }).indexedDB;
}

/** Commits of this target fail with KV_CONFLICT once the move is complete, so that nothing overwrites later writes. */
function guarded(db: Database, place: Key): MigrationTarget {
  return {
    collection: db.collection.bind(db),
    batch() {
      const batch = db.batch();
      batch.collection(movesOf(db)).check(place, undefined);
      return batch;
    },
  };
}

/** Records that the move is complete, unless it is. */
async function complete(db: Database, place: Key, moved: Moved): Promise<void> {
  const batch = db.batch();
  batch.collection(movesOf(db)).check(place, undefined).set(place, moved);
  await batch.commit({ durability: 'strict' });
}

/** Forgets what was copied, unless the move is complete. */
function startOver(db: Database, place: Key, { name, store, into }: Move): Promise<void> {
  return db.transaction(async (tx) => {
    if ((await tx.collection(movesOf(db)).get(place)) !== undefined) return;
    await tx.collection(into).clear();
    await tx.collection(statesOf(db)).delete(placeOf(name, store));
  });
}

/** Reads an object store in batches of at most about 16 MiB. */
async function* batchesOf(source: IDBDatabase, store: string): AsyncGenerator<[keys: Key[], values: unknown[]]> {
  let last: Key | undefined;
  for (let limit = FIRST_ENTRIES; ; ) {
    const range = last === undefined ? null : IDBKeyRange.lowerBound(last, true);
    const objects = objectsOf(source, store);
    const [keys, values] = (await Promise.all([
      result(objects.getAllKeys(range, limit), store),
      result(objects.getAll(range, limit), store),
    ])) as [Key[], unknown[]];
    if (keys.length > 0) yield [keys, values];
    if (keys.length < limit) return;
    last = keys.at(-1);
    limit = Math.max(1, Math.min(MAX_ENTRIES, limit * 2, Math.floor((BATCH_BYTES * limit) / sizeOf(values))));
  }
}

/** A rough number of bytes, of the parts that can be large. */
function sizeOf(values: readonly unknown[]): number {
  let bytes = 1;
  for (const value of values) {
    if (typeof value === 'string') bytes += value.length * 2;
    else if (value instanceof ArrayBuffer || ArrayBuffer.isView(value)) bytes += value.byteLength;
    else if (value instanceof Blob) bytes += value.size;
    else bytes += 1024;
  }
  return bytes;
}

interface Comparison {
  /** The first key whose entries differ; `missing` if the collection has others. */
  readonly differs?: string;
  readonly digest?: string;
  readonly left: number;
}

/** Compares every entry of the source with what was copied, and their numbers. */
async function compare(source: IDBDatabase, { store, into, onUnmovable }: Move): Promise<Comparison> {
  const digest = new Digest();
  let [count, left] = [0, 0];
  for await (const [keys, values] of batchesOf(source, store)) {
    const entries: [Key, unknown][] = [];
    for (const [index, key] of keys.entries()) {
      if (onUnmovable === 'leave' && !(await isMovable(key, values[index]))) left++;
      else entries.push([key, values[index]]);
    }
    const copies = await into.getMany(entries.map(([key]) => key));
    for (const [index, [key, value]] of entries.entries()) {
      const copy = copies[index];
      if (copy === undefined || !(await isSameValue(value, fromStored(copy)))) return { differs: String(key), left };
      digest.add(key, await stored(value));
    }
    count += entries.length;
  }
  if ((await into.size) !== count) return { differs: 'the number of entries', left };
  return left === 0 ? { digest: digest.text, left } : { left };
}

/** Whether an entry can be stored. */
async function isMovable(key: Key, value: unknown): Promise<boolean> {
  try {
    if (keyCodecs.any.encode(key).length > MAX_KEY_BYTES) return false;
    valueCodecs.structured().encode(await stored(value));
    return true;
  } catch (error) {
    if (isRefusal(error)) return false;
    throw error;
  }
}

/** Copies and compares; resolves when the move is complete. */
async function copyAll(db: Database, place: Key, move: Move, factory: IDBFactory): Promise<void> {
  const { name, store, into, onUnmovable } = move;
  const source = await openSource(factory, name);
  try {
    if (source === undefined || !source.objectStoreNames.contains(store))
      return await complete(db, place, { left: 0, isDone: true });
    let differs: string | undefined;
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      await migrateIndexedDB<Key, unknown>(guarded(db, place), {
        name,
        stores: [store],
        into: () => into,
        indexedDB: factory as never,
        async transform({ key, value }) {
          if (onUnmovable === 'leave' && !(await isMovable(key, value))) return undefined;
          return [key, await stored(value)];
        },
      });
      const comparison = await compare(source, move);
      ({ differs } = comparison);
      const { digest, left } = comparison;
      if (differs === undefined) {
        return await complete(db, place, { ...(digest !== undefined && { digest }), left, isDone: left > 0 });
      }
      // Somebody has written to the source since it was copied, or this move was interrupted there.
      await startOver(db, place, move);
      if ((await movesOf(db).get(place)) !== undefined) return;
    }
    throw new KvError(
      'KV_CONFLICT',
      `the object store ${JSON.stringify(store)} of ${JSON.stringify(name)} and its copy still differ at ${differs} after ${ATTEMPTS} attempts; close other tabs that write to it`,
      { retryable: true },
    );
  } finally {
    source?.close();
  }
}

/** Lets one tab at a time move, where there are Web Locks. Without them moves at once do the same work twice. */
async function oneAtATime(name: string, work: () => Promise<void>): Promise<void> {
  const release = await lockByName(`move ${name}`, Number.POSITIVE_INFINITY).catch((error: unknown) => {
    if (error instanceof KvError && error.code === 'KV_UNSUPPORTED') return () => undefined;
    throw error;
  });
  try {
    await work();
  } finally {
    release();
  }
}

/**
 * Moves an object store into a collection, unless that has been done. Resolves when every entry was copied and compared;
 * the source is emptied afterwards, in the background. An interrupted move is continued by the next call, here or in
 * another tab. Where there is no IndexedDB, or no such object store, nothing is created there.
 *
 * @throws KvError KV_INVALID_VALUE or KV_KEY_TOO_LARGE, which name an entry that cannot be stored; KV_IO if IndexedDB
 * cannot be read; KV_CONFLICT (retryable) if the source keeps changing.
 */
export async function moveStore(db: Database, move: Move): Promise<void> {
  const { name, store, keepSource } = move;
  const place = movedPlace(name, store);
  const moves = movesOf(db);
  const factory = factoryOf(move.indexedDB);
  if ((await moves.get(place)) === undefined) {
    await oneAtATime(name, async () => {
      while ((await moves.get(place)) === undefined) {
        try {
          if (factory === undefined) await complete(db, place, { left: 0, isDone: true });
          else await copyAll(db, place, move, factory);
        } catch (error) {
          // Where there are no locks another tab may have completed it.
          if (!isConflict(error) || (await moves.get(place)) === undefined) throw error;
        }
      }
    });
  }
  if (factory !== undefined && !keepSource) removeSource(db, move, factory).catch(() => undefined);
}

/** Stores to delete; all of the database without `stores`. */
export type Drop = Pick<Move, 'name' | 'keepSource' | 'indexedDB'> & {
  readonly stores?: readonly string[] | undefined;
};

/** Deletes stores, moved or not: nothing of them is moved later. What is left in the source is deleted too. */
export async function dropStores(db: Database, { name, keepSource, indexedDB, stores: given }: Drop): Promise<void> {
  const factory = factoryOf(indexedDB);
  const stores = given ?? [
    ...new Set([...(await sourceStores(factory, name)), ...(await db.collections()).filter((each) => each !== STATES)]),
  ];
  // First: if the program ends in between, the collections are still there, and can be dropped again.
  if (factory !== undefined && !keepSource) await empty(factory, name, stores);
  await db.transaction(async (tx) => {
    for (const store of stores) {
      await tx.dropCollection(store);
      await tx.collection(statesOf(db)).delete(placeOf(name, store));
      await tx.collection(movesOf(db)).set(movedPlace(name, store), { left: 0, isDone: true });
    }
  });
}

/** The names of a source's object stores. */
async function sourceStores(factory: IDBFactory | undefined, name: string): Promise<string[]> {
  const source = factory && (await openSource(factory, name));
  source?.close();
  return [...(source?.objectStoreNames ?? [])];
}

/**
 * Clears those object stores of a source that exist, in a connection of its own: one that waited for other work may have
 * been closed for another tab's upgrade.
 */
async function empty(factory: IDBFactory, name: string, stores: readonly string[]): Promise<void> {
  const source = await openSource(factory, name);
  try {
    const left = stores.filter((store) => source?.objectStoreNames.contains(store));
    if (source === undefined || left.length === 0) return;
    await new Promise<void>((resolve, reject) => {
      const transaction = source.transaction(left, 'readwrite');
      for (const store of left) transaction.objectStore(store).clear();
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(failed(left.join(', '), transaction.error));
    });
  } finally {
    source?.close();
  }
}

/**
 * Empties the source if it is what was copied. The database stays: another tab may open it at any moment, and what that
 * writes would be deleted with it.
 */
async function removeSource(db: Database, { name, store }: Move, factory: IDBFactory): Promise<void> {
  const [place, moves] = [movedPlace(name, store), movesOf(db)];
  const moved = await moves.get(place);
  if (moved === undefined || moved.isDone || moved.digest === undefined) return;
  const source = await openSource(factory, name);
  try {
    if (source?.objectStoreNames.contains(store)) await emptyIfSame(source, store, moved.digest);
  } finally {
    source?.close();
  }
  // What an old program writes there from now on was not copied, even if it is the same again.
  await moves.set(place, { ...moved, isDone: true });
}

/**
 * Clears an object store in the transaction that finds it unchanged. If another program has written to it since it was
 * compared, it stays as it is: what was written there is nowhere else.
 */
function emptyIfSame(source: IDBDatabase, store: string, expected: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const transaction = source.transaction(store, 'readwrite');
    const objects = transaction.objectStore(store);
    const digest = new Digest();
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error);
    const add = (cursor: IDBCursor, value: unknown): void => {
      try {
        digest.add(cursor.key, value);
        cursor.continue();
      } catch {
        // A value that was not there before, and cannot be stored.
        transaction.abort();
      }
    };
    const request = objects.openCursor();
    request.onsuccess = () => {
      const cursor = request.result;
      if (cursor === null) {
        if (digest.text === expected) objects.clear();
        return;
      }
      if (!holdsBlob(cursor.value)) {
        add(cursor, toStored(cursor.value));
        return;
      }
      let copy: unknown;
      toStoredWithBlobs(cursor.value).then(
        (value) => {
          copy = value;
        },
        () => transaction.abort(),
      );
      // The transaction would end if it were asked for nothing while the Blobs are read.
      const wait = (): void => {
        if (copy !== undefined) add(cursor, copy);
        else objects.getKey(cursor.key).onsuccess = wait;
      };
      wait();
    };
  });
}
