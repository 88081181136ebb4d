/**
 * Entry for Node, Deno and Bun.
 *
 * @module mangrove-kv
 */
import type { Key } from '../codec/keys.ts';
import { ownModule } from '../platform/module.ts';
import { openIn, openSyncIn } from '../platform/node.ts';
import { createNodeLoader } from '../engine/node-wasm.ts';
import { toPath } from '../storage/node-directory.ts';
import type { Database, OpenOptions, SyncDatabase } from '../types/index.ts';
import type { BackupSource, RecoverOptions, RecoverReport, RestoreOptions } from '../types/maintenance.ts';

export * from '../api/index.ts';
export { checkSupport, destroy, estimate, list, persist } from '../platform/node.ts';

const loader = createNodeLoader(ownModule, () => new URL('./node-worker.js', import.meta.url));

/**
 * Opens a database, creating it if it does not exist.
 *
 * @param name Path of its directory, or a `file:` URL.
 * @throws KvError KV_LOCKED if it is open elsewhere and stays open for `lockTimeout`; KV_NOT_FOUND
 * and KV_EXISTS depending on the options; KV_CORRUPT, KV_VERSION_UNSUPPORTED, KV_QUOTA_EXCEEDED and
 * KV_IO. A failed open removes and overwrites nothing.
 */
export async function open<K = Key, V = unknown, I = V>(
  name: string | URL,
  options: OpenOptions<K, V, I> = {},
): Promise<Database<K, V, I>> {
  return openIn(loader, name, options);
}

/**
 * Same as `open`, but synchronous. While it waits for a lock, nothing else runs in this thread.
 *
 * @throws what `open` rejects with.
 */
export function openSync<K = Key, V = unknown, I = V>(
  name: string | URL,
  options: OpenOptions<K, V, I> = {},
): SyncDatabase<K, V, I> {
  return openSyncIn(loader, name, options);
}

/**
 * Creates a database from the output of `backup()`. An existing database must be closed. With
 * `overwrite`, the new database replaces the existing one in one step after it has been verified
 * completely: an interruption before that step leaves the old one unchanged. Needs space for both
 * databases, and for the backup if it is a stream. Entries keep their expiry. `onProgress` counts
 * entries.
 *
 * The work is done in this thread: once the backup is there, nothing else runs, and `signal` can
 * end the work only from `onProgress`.
 *
 * @throws KvError KV_EXISTS without `overwrite`; KV_LOCKED if the database is open; KV_CORRUPT if
 * the backup is damaged, cut off or not a backup, or if existing files are not a database's (see
 * `RestoreOptions.force`); KV_NOT_FOUND if `backup` is a path without a file;
 * KV_VERSION_UNSUPPORTED, KV_QUOTA_EXCEEDED and KV_IO; KV_UNSUPPORTED if databases cannot be kept
 * here; KV_INVALID_ARGUMENT for an incremental backup.
 */
export async function restore(name: string | URL, backup: BackupSource, options: RestoreOptions = {}): Promise<void> {
  toPath(name);
  return (await import('./node-maintenance.ts')).restore(name, backup, options);
}

/**
 * Writes what can be read of a damaged database into a new one, `into`, which must not exist. The
 * damaged database is locked and read, never changed. Collections whose names are lost are called
 * `recovered-<number>`. O(size of the damaged database). `onProgress` receives the number of
 * entries copied, with 0 as the total until all are copied.
 *
 * The work is done in this thread: nothing else runs meanwhile, and `signal` can end the work only
 * from `onProgress`.
 *
 * @throws KvError KV_NOT_FOUND if there is no database; KV_EXISTS if `into` exists; KV_LOCKED if
 * one of the two is open; KV_CORRUPT if nothing in it is a database; KV_VERSION_UNSUPPORTED,
 * KV_QUOTA_EXCEEDED, KV_IO and KV_UNSUPPORTED. Damage is not an error; the report describes it.
 */
export async function recover(
  name: string | URL,
  into: string | URL,
  options: RecoverOptions = {},
): Promise<RecoverReport> {
  for (const each of [name, into]) toPath(each);
  return (await import('./node-maintenance.ts')).recover(name, into, options);
}
