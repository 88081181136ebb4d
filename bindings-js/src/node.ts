/**
 * Entry for Node, Deno and Bun.
 *
 * @module mangrove-kv
 */
import type { Key } from './codec/keys.ts';
import { openIn, openSyncIn } from './node-host.ts';
import { createNodeLoader } from './node-wasm.ts';
import type { Database, OpenOptions, SyncDatabase } from './types.ts';

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
