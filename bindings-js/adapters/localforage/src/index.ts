/**
 * The interface of localForage 1.10 on Mangrove. Items that localForage stored in IndexedDB are moved when a store is
 * first used.
 *
 * @module @mangrove-kv/localforage
 */
import './types.ts';
import { Instance } from './instance.ts';
import { twinFor } from './mangrove-driver.ts';

/** The default instance, with localForage's interface; `createInstance` makes others. */
const localforage = new Instance() as unknown as LocalForage;

/**
 * Closes the database of an instance, for all instances with the same name. The next call opens it again. Not in
 * localForage.
 */
export async function close(instance: LocalForage = localforage): Promise<void> {
  await twinFor(instance as unknown as Instance).close();
}

export default localforage;
