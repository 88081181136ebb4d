import { removeEntries } from './opfs.ts';
import { openRemote } from './sqlite.ts';
import type { Peer } from './peer.ts';

export const peer: Peer = {
  open: (name, durability) =>
    openRemote(new Worker(new URL('./wa-sqlite-worker.ts', import.meta.url), { type: 'module' }), name, durability),
  destroy: (name) => removeEntries((entry) => [name, `${name}-wa0`, `${name}-wa1`].includes(entry)),
};
