import { mkdirSync } from 'node:fs';
import { open as openDatabase } from 'lmdb';

export function open(directory, { ints, values, durable, encryptionKey }) {
  mkdirSync(directory, { recursive: true });
  const db = openDatabase({
    path: directory,
    encryptionKey,
    keyEncoding: ints ? 'uint32' : 'ordered-binary',
    // By default a commit's promise does not wait for the flush, which goes on beside the next commit.
    overlappingSync: !durable,
    encoding: ints ? 'ordered-binary' : values === 'text' ? 'string' : 'binary',
  });
  return {
    overlaps: true,
    write: (entries) =>
      db.batch(() => {
        for (const [key, value] of entries) db.put(key, value);
      }),
    put: (key, value) => db.put(key, value),
    get: (key) => db.get(key),
    getSync: (key) => db.get(key),
    getMany: (keys) => db.getMany(keys),
    scan(reverse) {
      let count = 0;
      for (const { value } of db.getRange({ reverse })) if (value !== undefined) count++;
      return count;
    },
    range: (from, limit) => db.getRange({ start: from, limit }).asArray,
    take: () =>
      db.transaction(() => {
        for (const entry of db.getRange({ limit: 1 })) {
          db.remove(entry.key);
          return entry;
        }
      }),
    close: () => db.close(),
  };
}

export function openIndexed(directory) {
  mkdirSync(directory, { recursive: true });
  const root = openDatabase({ path: directory, overlappingSync: false, encoding: 'msgpack' });
  const rows = root.openDB('rows', { encoding: 'msgpack' });
  const index = (name) => root.openDB(name, { dupSort: true, encoding: 'ordered-binary' });
  const [byAuthor, byDue, byScore] = ['byAuthor', 'byDue', 'byScore'].map(index);
  const dueOf = ({ done, due }) => [done, due];
  // A function has no index: the program fills it, here in one transaction.
  const fill = (name, keyOf) =>
    root.transaction(() => {
      const filled = index(name);
      for (const { key, value } of rows.getRange()) filled.put(keyOf(value), key);
    });
  return {
    load: (list) =>
      root.transaction(() => {
        for (const row of list) {
          rows.put(row.id, row);
          byAuthor.put(row.author, row.id);
          byDue.put(dueOf(row), row.id);
          byScore.put(row.score, row.id);
        }
      }),
    update: (id, due) =>
      root.transaction(() => {
        const row = rows.get(id);
        byDue.remove(dueOf(row), id);
        byDue.put([row.done, due], id);
        rows.put(id, { ...row, due });
      }),
    get: (id) => rows.get(id),
    query: (due, limit) =>
      byDue.getRange({ start: [false, due], end: [true], limit }).map(({ value }) => rows.get(value)).asArray,
    count: (from, to) => byDue.getCount({ start: [false, from], end: [false, to] }),
    build: () => fill('byBody', ({ body }) => body.slice(0, 12)),
    buildBeside: () => fill('byEnd', ({ body }) => body.slice(-12)),
    countBuilt: () => index('byBody').getCount(),
    countBuiltBeside: () => index('byEnd').getCount(),
    close: () => root.close(),
  };
}
