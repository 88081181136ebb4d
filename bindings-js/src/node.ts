/**
 * Entry for Node, Deno and Bun.
 *
 * @module mangrove-kv
 */
import type { Key } from './codec/keys.ts';
import { openIn, openSyncIn, toPath } from './node-host.ts';
import { createNodeLoader } from './node-wasm.ts';
import type { Database, OpenOptions, SyncDatabase } from './types.ts';
import type { BackupSource, RecoverOptions, RecoverReport, RestoreOptions } from './types/upkeep.ts';

export * from './api.ts';
export { checkSupport, destroy, estimate, list, persist } from './node-host.ts';

const loader = createNodeLoader(
  () => new URL('./mangrove_bg.wasm', import.meta.url),
  () => new URL('./node-worker.js', import.meta.url),
);

/**
 * Opens a database, creating it if it is missing.
 *
 * @param name Path of its directory, or a `file:` URL.
 * @throws KvError KV_LOCKED if it is open elsewhere and stays so for `lockTimeout`; KV_NOT_FOUND and KV_EXISTS as the
 * options say; KV_CORRUPT, KV_VERSION_UNSUPPORTED, KV_QUOTA_EXCEEDED and KV_IO. A failed open removes and overwrites
 * nothing.
 */
export async function open<K = Key, V = unknown, I = V>(
  name: string | URL,
  options: OpenOptions<K, V, I> = {},
): Promise<Database<K, V, I>> {
  return openIn(loader, name, options);
}

/**
 * As `open`, synchronously.
 *
 * @throws what `open` rejects with. It waits for a lock without letting anything else run.
 */
export function openSync<K = Key, V = unknown, I = V>(
  name: string | URL,
  options: OpenOptions<K, V, I> = {},
): SyncDatabase<K, V, I> {
  return openSyncIn(loader, name, options);
}

/**
 * Makes a database of what `backup()` gave; a database that is there has to be closed. With `overwrite` it takes the place of the one that is there, in one
 * step, when all of it was verified: whatever ends the work before, the old one is as it was. It needs the space of both, and of the backup
 * if that is a stream. Entries keep when they expire. `onProgress` is told entries. The work is done in this thread: nothing else runs once the
 * backup is there, and `signal` can end it only from `onProgress`.
 *
 * @throws KvError KV_EXISTS without `overwrite`; KV_LOCKED if it is open; KV_CORRUPT if the backup is damaged, was cut off, or is none;
 * or if files of the database's are not ours (see `RestoreOptions.force`); KV_NOT_FOUND if `backup` is a path where no file is;
 * KV_VERSION_UNSUPPORTED, KV_QUOTA_EXCEEDED and KV_IO; KV_UNSUPPORTED where databases cannot be kept; KV_INVALID_ARGUMENT for an incremental backup.
 */
export async function restore(
  name: string | URL,
  backup: BackupSource,
  options: RestoreOptions = {},
): Promise<void> {
  toPath(name);
  return (await import('./node-upkeep.ts')).restore(name, backup, options);
}

/**
 * Writes what can be read of a damaged database into a new one, `into`, which must not exist. The damaged one is locked and read, never changed.
 * Collections that have lost their names are called `recovered-<number>`. O(its size). `onProgress` is told the entries that were copied, and 0 as their
 * number until all are. The work is done in this thread: nothing else runs meanwhile, and
 * `signal` can end it only from `onProgress`.
 *
 * @throws KvError KV_NOT_FOUND if there is nothing; KV_EXISTS; KV_LOCKED if one of the two is open; KV_CORRUPT if nothing in it is a database;
 * KV_VERSION_UNSUPPORTED, KV_QUOTA_EXCEEDED, KV_IO and KV_UNSUPPORTED. Damage is no error; it is in what this gives.
 */
export async function recover(name: string | URL, into: string | URL, options: RecoverOptions = {}): Promise<RecoverReport> {
  for (const each of [name, into]) toPath(each);
  return (await import('./node-upkeep.ts')).recover(name, into, options);
}
