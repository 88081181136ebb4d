// Entry for browsers where one more file to serve is one too many: the module is part of the script.
import type { Key } from './codec/keys.ts';
import { createBrowserLoader, openIn } from './browser.ts';
import { inlineModule } from './inline-wasm.ts';
import type { Database, OpenOptions } from './types.ts';

export * from './api.ts';
export { checkSupport, destroy, estimate, list, openSync, persist } from './browser.ts';

const loadModule = createBrowserLoader(inlineModule);

/** As `open` of `mangrove-kv`. */
export async function open<K = Key, V = unknown, I = V>(
  name: string | URL,
  options: OpenOptions<K, V, I> = {},
): Promise<Database<K, V, I>> {
  return openIn(loadModule, name, options);
}
