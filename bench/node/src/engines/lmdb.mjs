import { mkdirSync } from 'node:fs';
import { open as openDatabase } from 'lmdb';

export function open(directory, { ints, values, durable }) {
  mkdirSync(directory, { recursive: true });
  const db = openDatabase({
    path: directory,
    keyEncoding: ints ? 'uint32' : 'ordered-binary',
    // By default a commit's promise does not wait for the flush, which goes on beside the next commit.
    overlappingSync: !durable,
    encoding: ints ? 'ordered-binary' : values === 'text' ? 'string' : 'binary',
  });
  return {
    overlaps: true,
    write: (entries) => db.batch(() => {
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
    close: () => db.close(),
  };
}
