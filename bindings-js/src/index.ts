/**
 * Entry for browsers. Everything else is as in the entry for Node, Deno and Bun.
 *
 * @module mangrove-kv in browsers
 */
import type { Key } from './codec/keys.ts';
import { createBrowserLoader, openIn } from './browser.ts';
import type { Database, OpenOptions } from './types.ts';

export * from './api.ts';
export { checkSupport, destroy, estimate, list, openSync, persist } from './browser.ts';

// Bundlers know this form.
const loadModule = createBrowserLoader(() => new URL('./mangrove_bg.wasm', import.meta.url));

/**
 * Opens a database, creating it if it is missing.
 *
 * @throws KvError KV_UNSUPPORTED if databases cannot be kept here (see `checkSupport`); KV_LOCKED if it is open
 * elsewhere and stays so for `lockTimeout`; KV_NOT_FOUND and KV_EXISTS as the options say; KV_CORRUPT,
 * KV_VERSION_UNSUPPORTED, KV_QUOTA_EXCEEDED and KV_IO. A failed open removes and overwrites nothing.
 */
export async function open<K = Key, V = unknown, I = V>(
  name: string | URL,
  options: OpenOptions<K, V, I> = {},
): Promise<Database<K, V, I>> {
  return openIn(loadModule, name, options);
}
