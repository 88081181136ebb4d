// What both of SQLite's bindings have in common: a table of keys and values.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';

export function open(directory, { ints, values, durable, cacheBytes }, connect) {
  mkdirSync(directory, { recursive: true });
  const db = connect(join(directory, 'data.sqlite'));
  db.exec(
    `PRAGMA journal_mode = WAL; PRAGMA synchronous = ${durable ? 'FULL' : 'NORMAL'}; PRAGMA cache_size = -${cacheBytes >> 10}`,
  );
  // A number as primary key is the table's own; for other keys the table without is the smaller and faster one.
  const valueType = ints ? 'INTEGER' : values === 'text' ? 'TEXT' : 'BLOB';
  db.exec(
    `CREATE TABLE IF NOT EXISTS kv ${ints ? `(key INTEGER PRIMARY KEY, value ${valueType})` : `(key TEXT PRIMARY KEY, value ${valueType}) WITHOUT ROWID`}`,
  );
  const begin = db.prepare('BEGIN');
  const commit = db.prepare('COMMIT');
  const put = db.prepare('INSERT OR REPLACE INTO kv VALUES (?, ?)');
  const get = db.prepare('SELECT value FROM kv WHERE key = ?');
  const scans = ['ASC', 'DESC'].map((order) => db.prepare(`SELECT key, value FROM kv ORDER BY key ${order}`));
  const range = db.prepare('SELECT key, value FROM kv WHERE key >= ? ORDER BY key LIMIT ?');
  const take = db.prepare('DELETE FROM kv WHERE key = (SELECT key FROM kv ORDER BY key LIMIT 1) RETURNING key, value');
  const value = (key) => get.get(key)?.value;
  return {
    overlaps: false,
    write(entries) {
      begin.run();
      for (const [key, value] of entries) put.run(key, value);
      commit.run();
    },
    put: (key, value) => void put.run(key, value),
    get: value,
    getSync: value,
    getMany(keys) {
      begin.run();
      const found = keys.map(value);
      commit.run();
      return found;
    },
    scan(reverse) {
      let count = 0;
      for (const row of scans[Number(reverse)].iterate()) if (row.value !== undefined) count++;
      return count;
    },
    range: (from, limit) => range.all(from, limit),
    take: () => take.get(),
    close: () => db.close(),
  };
}

export function openIndexed(directory, { cacheBytes }, connect) {
  mkdirSync(directory, { recursive: true });
  const db = connect(join(directory, 'data.sqlite'));
  db.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -${cacheBytes >> 10}`);
  db.exec(
    'CREATE TABLE rows (id TEXT PRIMARY KEY, author TEXT, done INTEGER, due INTEGER, score INTEGER, body TEXT) WITHOUT ROWID',
  );
  db.exec(
    'CREATE INDEX by_author ON rows (author); CREATE INDEX by_due ON rows (done, due); CREATE INDEX by_score ON rows (score)',
  );
  const begin = db.prepare('BEGIN');
  const commit = db.prepare('COMMIT');
  const put = db.prepare('INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?, ?)');
  const update = db.prepare('UPDATE rows SET due = ? WHERE id = ?');
  const query = db.prepare('SELECT * FROM rows WHERE done = 0 AND due >= ? ORDER BY due, id LIMIT ?');
  const get = db.prepare('SELECT * FROM rows WHERE id = ?');
  // With the expression, so that the index answers.
  const countBy = (expression) =>
    db.prepare(`SELECT COUNT(*) AS count FROM rows WHERE ${expression} >= ''`).get().count;
  const count = db.prepare('SELECT COUNT(*) AS count FROM rows WHERE done = 0 AND due >= ? AND due < ?');
  return {
    load(list) {
      begin.run();
      for (const { id, author, done, due, score, body } of list) put.run(id, author, Number(done), due, score, body);
      commit.run();
    },
    update: (id, due) => void update.run(due, id),
    query: (due, limit) => query.all(due, limit),
    count: (from, to) => count.get(from, to).count,
    get: (id) => get.get(id),
    build: () => db.exec('CREATE INDEX by_body ON rows (substr(body, 1, 12))'),
    buildBeside: () => db.exec('CREATE INDEX by_end ON rows (substr(body, -12))'),
    countBuilt: () => countBy('substr(body, 1, 12)'),
    countBuiltBeside: () => countBy('substr(body, -12)'),
    close: () => db.close(),
  };
}
