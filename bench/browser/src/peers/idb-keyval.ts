import { get, getMany, set, setMany } from 'idb-keyval';
import type { UseStore } from 'idb-keyval';
import { deleteDatabase, openDatabase } from './indexeddb.ts';
import { Unsupported } from './peer.ts';
import type { Peer, Row } from './peer.ts';

function noRanges(): never {
  throw new Unsupported('it has no ranges: entries() reads all there is');
}

export const peer: Peer = {
  async open(name, durability) {
    const db = await openDatabase(name);
    // As its own `createStore`, which leaves the durability to the browser.
    const store: UseStore = async (mode, callback) =>
      callback(db.transaction('kv', mode, { durability }).objectStore('kv'));
    return {
      put: (key, value) => set(key, value, store),
      putMany: (entries) =>
        setMany(
          entries.map(([key, value]): [string, Row] => [key, value]),
          store,
        ),
      get: (key) => get<Row>(key, store),
      getMany: (keys) => getMany<Row | undefined>([...keys], store),
      scan: async () => noRanges(),
      page: async () => noRanges(),
      async close() {
        db.close();
      },
    };
  },
  destroy: deleteDatabase,
};
