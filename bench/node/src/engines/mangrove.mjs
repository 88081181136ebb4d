import { keyCodecs, open as openDatabase, valueCodecs } from 'mangrove-kv';

const SCAN_CHUNK = 1000;

export async function open(directory, { ints, values, durable, cacheBytes, encryption }) {
  const key = ints ? keyCodecs.uint32 : keyCodecs.utf8;
  const value = ints ? valueCodecs.structured() : values === 'text' ? valueCodecs.string : valueCodecs.bytes;
  const db = await openDatabase(directory, {
    key,
    value,
    cacheBytes,
    encryption,
    durability: durable ? 'strict' : 'relaxed',
  });
  return {
    overlaps: true,
    write: (entries) => db.setMany(entries),
    put: (key, value) => db.set(key, value),
    get: (key) => db.get(key),
    getMany: (keys) => db.getMany(keys),
    async scan(reverse) {
      const entries = db.entries({ reverse });
      let count = 0;
      for (let chunk; (chunk = await entries.nextMany(SCAN_CHUNK)).length > 0; ) count += chunk.length;
      return count;
    },
    range: (from, limit) => db.entries({ gte: from, limit }).toArray(),
    take: () =>
      db.transaction(async (tx) => {
        const entry = await tx.first();
        if (entry !== undefined) tx.delete(entry[0]);
        return entry;
      }),
    close: () => db.close(),
  };
}

export const INDEXES = {
  byAuthor: { key: (row) => row.author },
  byDue: { key: (row) => [row.done, row.due] },
  byScore: { key: (row) => row.score },
};
const BY_BODY = { byBody: { key: (row) => row.body.slice(0, 12) } };
const BY_END = { byEnd: { key: (row) => row.body.slice(-12) } };
export const ROWS = { key: keyCodecs.utf8, value: valueCodecs.structured() };

export async function openIndexed(directory, { cacheBytes }) {
  const db = await openDatabase(directory, { cacheBytes });
  const declare = (indexes) => db.collection('rows', { ...ROWS, indexes });
  let rows = declare(INDEXES);
  const byDue = rows.index('byDue');
  const build = (indexes) => {
    // Who writes declares all indexes.
    rows = declare(indexes);
    return rows.buildIndexes();
  };
  return {
    load: (list) => rows.setMany(list.map((row) => [row.id, row])),
    update: (id, due) => rows.update(id, (row) => ({ ...row, due })),
    get: (id) => rows.get(id),
    query: (due, limit) => byDue.values({ gte: [false, due], lt: [true], limit }).toArray(),
    count: (from, to) => byDue.count({ gte: [false, from], lt: [false, to] }),
    build: () => build({ ...INDEXES, ...BY_BODY }),
    buildBeside: () => build({ ...INDEXES, ...BY_BODY, ...BY_END }),
    countBuilt: () => rows.index('byBody').count(),
    countBuiltBeside: () => rows.index('byEnd').count(),
    close: () => db.close(),
  };
}
