import { getRxStorageDexie } from 'rxdb/plugins/storage-dexie';
import type { Durability, Peer } from './peer.ts';
import { peerOf } from './rxdb-store.ts';

const rxStorage = (durability: Durability) => getRxStorageDexie({ chromeTransactionDurability: durability });

export const peer: Peer = { ...peerOf(rxStorage('strict'), true), rxStorage };
