import { keyCodecs, openSync, valueCodecs } from 'mangrove-kv';
import { INDEXES, ROWS } from './mangrove.mjs';

export function open(directory, { ints, values, durable, cacheBytes }) {
  const key = ints ? keyCodecs.uint32 : keyCodecs.utf8;
  const value = ints ? valueCodecs.structured() : values === 'text' ? valueCodecs.string : valueCodecs.bytes;
  const db = openSync(directory, { key, value, cacheBytes, durability: durable ? 'strict' : 'relaxed' });
  return {
    write: (entries) => db.setMany(entries),
    put: (key, value) => db.set(key, value),
    get: (key) => db.get(key),
    getSync: (key) => db.get(key),
    getMany: (keys) => db.getMany(keys),
    scan(reverse) {
      let count = 0;
      for (const entry of db.entries({ reverse })) count += entry.length >> 1;
      return count;
    },
    range: (from, limit) => [...db.entries({ gte: from, limit })],
    take: () =>
      db.transaction((tx) => {
        const entry = tx.first();
        if (entry !== undefined) tx.delete(entry[0]);
        return entry;
      }),
    close: () => db.close(),
  };
}

/** The synchronous API writes to indexed collections and does not read indexes. */
export function openIndexed(directory, { cacheBytes }) {
  const db = openSync(directory, { cacheBytes });
  const rows = db.collection('rows', { ...ROWS, indexes: INDEXES });
  return {
    load: (list) => rows.setMany(list.map((row) => [row.id, row])),
    update: (id, due) => rows.update(id, (row) => ({ ...row, due })),
    close: () => db.close(),
  };
}
