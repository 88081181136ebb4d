/**
 * Entry for browsers. Everything not listed here is the same as in the entry for Node, Deno and
 * Bun.
 *
 * @module mangrove-kv in browsers
 */
import { loadChunk } from '../base/async.ts';
import type { Key } from '../codec/keys.ts';
import { openIn } from '../platform/browser.ts';
import { createBrowserLoader } from '../engine/browser-wasm.ts';
import { ownLazy, ownModule } from '../platform/module-core.ts';
import type { Database, OpenOptions } from '../types/index.ts';
import type { BackupSource, RecoverOptions, RecoverReport, RestoreOptions } from '../types/maintenance.ts';

export * from '../api/index.ts';
export { destroy, estimate, list, openSync, persist } from '../platform/browser.ts';
export { checkSupport } from '../storage/support.ts';

const modules = { load: createBrowserLoader(ownModule), ownLazy };

/**
 * Opens a database, creating it if it does not exist.
 *
 * @throws KvError KV_UNSUPPORTED if databases cannot be kept here (see `checkSupport`); KV_LOCKED
 * if it is open elsewhere and stays open for `lockTimeout`; KV_NOT_FOUND and KV_EXISTS depending on
 * the options; KV_CORRUPT, KV_VERSION_UNSUPPORTED, KV_QUOTA_EXCEEDED and KV_IO. A failed open
 * removes and overwrites nothing.
 */
export async function open<K = Key, V = unknown, I = V>(
  name: string | URL,
  options: OpenOptions<K, V, I> = {},
): Promise<Database<K, V, I>> {
  return openIn(modules, name, options);
}

/**
 * Creates a database from the output of `backup()`. An existing database must be closed. With
 * `overwrite`, the new database replaces the existing one in one step after it has been verified
 * completely: an interruption before that step leaves the old one unchanged. Needs space for both
 * databases, and for the backup if it is a stream. Entries keep their expiry. `onProgress` counts
 * entries.
 *
 * @throws KvError KV_EXISTS without `overwrite`; KV_LOCKED if the database is open; KV_CORRUPT if
 * the backup is damaged, cut off or not a backup, or if existing files are not a database's (see
 * `RestoreOptions.force`); KV_VERSION_UNSUPPORTED, KV_QUOTA_EXCEEDED and KV_IO; KV_UNSUPPORTED if
 * databases cannot be kept here; KV_INVALID_ARGUMENT for an incremental backup, and for a path.
 */
export async function restore(name: string | URL, backup: BackupSource, options: RestoreOptions = {}): Promise<void> {
  return (await loadChunk(import('./maintenance.ts'))).restore(name, backup, options);
}

/**
 * Writes what can be read of a damaged database into a new one, `into`, which must not exist. The
 * damaged database is locked and read, never changed. Collections whose names are lost are called
 * `recovered-<number>`. O(size of the damaged database). `onProgress` receives the number of
 * entries copied, with 0 as the total until all are copied.
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
  return (await loadChunk(import('./maintenance.ts'))).recover(name, into, options);
}
