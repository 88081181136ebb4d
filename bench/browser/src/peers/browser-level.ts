import { BrowserLevel } from 'browser-level';
import type { Entry, Peer, Row } from './peer.ts';

const CHUNK = 1000;

export const peer: Peer = {
  async open(name, durability) {
    const db = new BrowserLevel<string, Row>(name, { valueEncoding: 'json' });
    await db.open();
    // It leaves the durability to the browser and has no option for it.
    const idb = (db as unknown as { readonly db: IDBDatabase }).db;
    const begin = idb.transaction.bind(idb);
    idb.transaction = (stores, mode) => begin(stores, mode, { durability });
    return {
      put: (key, value) => db.put(key, value),
      putMany: (entries) => db.batch(entries.map(([key, value]) => ({ type: 'put', key, value }))),
      get: (key) => db.get(key),
      getMany: (keys) => db.getMany([...keys]),
      async scan({ reverse, limit }, take) {
        await using iterator = db.iterator({ reverse, limit });
        for (let chunk: Entry[]; (chunk = await iterator.nextv(CHUNK)).length > 0; ) take(chunk);
      },
      page: (prefix, limit) => db.iterator({ gte: prefix, lt: `${prefix}\uffff`, limit }).all(),
      close: () => db.close(),
    };
  },
  destroy: (name) => BrowserLevel.destroy(name),
};
