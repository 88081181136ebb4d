import { getRxStorageMemory } from 'rxdb/plugins/storage-memory';
import type { Peer } from './peer.ts';
import { peerOf } from './rxdb-store.ts';

export const peer: Peer = { ...peerOf(getRxStorageMemory(), false), rxStorage: () => getRxStorageMemory() };
