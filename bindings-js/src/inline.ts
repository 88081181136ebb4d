// Entry for browsers for when serving one more file is not an option: the module is embedded in the
// script.
import type { Key } from './codec/keys.ts';
import { createBrowserLoader, openIn } from './browser.ts';
import { inlineModule } from './inline-wasm.ts';
import type { Database, OpenOptions } from './types.ts';
import type { BackupSource, RecoverOptions, RecoverReport, RestoreOptions } from './types/upkeep.ts';

export * from './api.ts';
export { checkSupport, destroy, estimate, list, openSync, persist } from './browser.ts';

const loadModule = createBrowserLoader(inlineModule);

/** Same as `open` of `mangrove-kv`. */
export async function open<K = Key, V = unknown, I = V>(
  name: string | URL,
  options: OpenOptions<K, V, I> = {},
): Promise<Database<K, V, I>> {
  return openIn(loadModule, name, options);
}

/** Same as `restore` of `mangrove-kv`. */
export async function restore(
  name: string | URL,
  backup: BackupSource,
  options: RestoreOptions = {},
): Promise<void> {
  return (await import('./upkeep-inline.ts')).restore(name, backup, options);
}

/** Same as `recover` of `mangrove-kv`. */
export async function recover(name: string | URL, into: string | URL, options: RecoverOptions = {}): Promise<RecoverReport> {
  return (await import('./upkeep-inline.ts')).recover(name, into, options);
}
