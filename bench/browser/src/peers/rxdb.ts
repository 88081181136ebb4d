import { getRxStorageDexie } from 'rxdb/plugins/storage-dexie';
import { peerOf } from './rxdb-store.ts';

export const peer = peerOf(getRxStorageDexie({ chromeTransactionDurability: 'strict' }), true);
