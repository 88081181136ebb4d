import { removeEntries } from './opfs.ts';
import { openRemote } from './sqlite.ts';
import { openIndexed } from './sqlite-indexed.ts';
import type { Peer } from './peer.ts';

export const peer: Peer = {
  open: (name, durability) =>
    openRemote(new Worker(new URL('./sqlite-wasm-worker.ts', import.meta.url), { type: 'module' }), name, durability),
  openIndexed,
  destroy: (name) => removeEntries((entry) => entry === name),
};
