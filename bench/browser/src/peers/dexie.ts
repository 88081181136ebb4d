import { Dexie } from 'dexie';
import type { Table } from 'dexie';
import { openIndexed } from './dexie-indexed.ts';
import type { Entry, Peer, Row } from './peer.ts';

const CHUNK = 1000;

type Stored = Row & { readonly key: string };

const toEntry = (stored: Stored): Entry => [stored.key, stored];

export const peer: Peer = {
  async open(name, durability) {
    const db = new Dexie(name, { chromeTransactionDurability: durability });
    db.version(1).stores({ kv: 'key' });
    await db.open();
    const kv: Table<Stored, string> = db.table('kv');
    return {
      async put(key, value) {
        await kv.put({ ...value, key });
      },
      async putMany(entries) {
        await kv.bulkPut(entries.map(([key, value]) => ({ ...value, key })));
      },
      get: (key) => kv.get(key),
      getMany: (keys) => kv.bulkGet([...keys]),
      async scan({ reverse, limit }, take) {
        let last: string | undefined;
        for (let left = limit; left > 0; ) {
          const count = Math.min(CHUNK, left);
          const next =
            last === undefined
              ? kv.orderBy('key')
              : reverse
                ? kv.where('key').below(last)
                : kv.where('key').above(last);
          const found = await (reverse ? next.reverse() : next).limit(count).toArray();
          last = found.at(-1)?.key;
          if (last === undefined) return;
          take(found.map(toEntry));
          left -= found.length;
        }
      },
      page: async (prefix, limit) => (await kv.where('key').startsWith(prefix).limit(limit).toArray()).map(toEntry),
      async close() {
        db.close();
      },
    };
  },
  openIndexed,
  destroy: (name) => Dexie.delete(name),
};
