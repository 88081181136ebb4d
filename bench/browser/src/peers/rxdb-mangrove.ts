import { getRxStorageMangrove } from '@mangrove-kv/rxdb';
import { Unsupported } from './peer.ts';
import type { Peer } from './peer.ts';

export const peer: Peer = {
  open() {
    throw new Unsupported("it is measured by RxDB's harness only");
  },
  rxStorage: (durability) => getRxStorageMangrove({ durability }),
  destroy: () => Promise.resolve(),
};
