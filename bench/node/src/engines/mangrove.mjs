import { keyCodecs, open as openDatabase, valueCodecs } from 'mangrove-kv';

const SCAN_CHUNK = 1000;

export async function open(directory, { ints, values, durable, cacheBytes }) {
  const key = ints ? keyCodecs.uint32 : keyCodecs.utf8;
  const value = ints ? valueCodecs.structured() : values === 'text' ? valueCodecs.string : valueCodecs.bytes;
  const db = await openDatabase(directory, { key, value, cacheBytes, durability: durable ? 'strict' : 'relaxed' });
  return {
    overlaps: true,
    write: (entries) => db.setMany(entries),
    put: (key, value) => db.set(key, value),
    get: (key) => db.get(key),
    getMany: (keys) => db.getMany(keys),
    async scan(reverse) {
      const entries = db.entries({ reverse });
      let count = 0;
      for (let chunk; (chunk = await entries.nextMany(SCAN_CHUNK)).length > 0;) count += chunk.length;
      return count;
    },
    range: (from, limit) => db.entries({ gte: from, limit }).toArray(),
    close: () => db.close(),
  };
}
