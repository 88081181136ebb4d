// Entry for Node, Deno and Bun where a program is bundled into one file.
import { Buffer } from 'node:buffer';
import { gunzipSync } from 'node:zlib';
import packed from '../build/wasm/inline.js';
import type { Key } from './codec/keys.ts';
import { openIn, openSyncIn, toPath } from './node-host.ts';
import { createNodeLoader } from './node-wasm.ts';
import type { Database, OpenOptions, SyncDatabase } from './types.ts';
import type { BackupSource, RecoverOptions, RecoverReport, RestoreOptions } from './types/upkeep.ts';

export * from './api.ts';
export { checkSupport, destroy, estimate, list, persist } from './node-host.ts';

const loader = createNodeLoader(
  () => gunzipSync(Buffer.from(packed, 'base64')),
  () => new URL('./node-worker.js', import.meta.url),
);

/** As `open` of `mangrove-kv`. */
export async function open<K = Key, V = unknown, I = V>(
  name: string | URL,
  options: OpenOptions<K, V, I> = {},
): Promise<Database<K, V, I>> {
  return openIn(loader, name, options);
}

/** As `openSync` of `mangrove-kv`. */
export function openSync<K = Key, V = unknown, I = V>(
  name: string | URL,
  options: OpenOptions<K, V, I> = {},
): SyncDatabase<K, V, I> {
  return openSyncIn(loader, name, options);
}

/** As `restore` of `mangrove-kv`. */
export async function restore(
  name: string | URL,
  backup: BackupSource,
  options: RestoreOptions = {},
): Promise<void> {
  toPath(name);
  return (await import('./node-upkeep-inline.ts')).restore(name, backup, options);
}

/** As `recover` of `mangrove-kv`. */
export async function recover(name: string | URL, into: string | URL, options: RecoverOptions = {}): Promise<RecoverReport> {
  for (const each of [name, into]) toPath(each);
  return (await import('./node-upkeep-inline.ts')).recover(name, into, options);
}
