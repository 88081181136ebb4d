/**
 * Entry for Node, Deno and Bun with the WebAssembly module as a part of the script.
 *
 * @module mangrove-kv/inline
 */
import { createNodeLoader } from '../engine/node-wasm.ts';
import { ownModule } from '../platform/module-packed.ts';
import { openIn, openSyncIn } from '../platform/node.ts';
import { toPath } from '../storage/node-directory.ts';
import type * as plain from './node.ts';

export * from '../api/index.ts';
export { checkSupport, destroy, estimate, list, persist } from '../platform/node.ts';

const loader = createNodeLoader(ownModule, () => new URL('./node-worker.js', import.meta.url));

export const open: typeof plain.open = async (name, options = {}) => openIn(loader, name, options);

export const openSync: typeof plain.openSync = (name, options = {}) => openSyncIn(loader, name, options);

export const restore: typeof plain.restore = async (name, backup, options = {}) => {
  toPath(name);
  return (await import('./node-maintenance-inline.ts')).restore(name, backup, options);
};

export const recover: typeof plain.recover = async (name, into, options = {}) => {
  for (const each of [name, into]) toPath(each);
  return (await import('./node-maintenance-inline.ts')).recover(name, into, options);
};
