import { getRxStorageMemory } from 'rxdb/plugins/storage-memory';
import { peerOf } from './rxdb-store.ts';

export const peer = peerOf(getRxStorageMemory(), false);
