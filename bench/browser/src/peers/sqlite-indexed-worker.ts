import sqlite3InitModule from '@sqlite.org/sqlite-wasm';
import type { Database, PreparedStatement } from '@sqlite.org/sqlite-wasm';
import { serve } from './rpc.ts';
import type { IndexedRow } from './indexed.ts';

const SQL = {
  put: 'INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)',
  update: 'UPDATE rows SET due = ? WHERE id = ?',
  get: 'SELECT * FROM rows WHERE id = ?',
  query: 'SELECT * FROM rows WHERE done = 0 AND due >= ? ORDER BY due, id LIMIT ?',
  count: 'SELECT COUNT(*) FROM rows WHERE done = 0 AND due >= ? AND due < ?',
  note: "INSERT OR REPLACE INTO notes VALUES ('note', ?)",
} as const;

let db: Database;
let statements: Record<keyof typeof SQL, PreparedStatement>;

function rows(statement: PreparedStatement, values: (string | number)[]): IndexedRow[] {
  const found: IndexedRow[] = [];
  statement.bind(values);
  while (statement.step()) {
    const [id, author, done, due, score, code, body] = statement.get([]) as [
      string,
      string,
      0 | 1,
      number,
      number,
      string,
      string,
    ];
    found.push({ id, author, done, due, score, code, body });
  }
  statement.reset();
  return found;
}

serve({
  async open(name: string) {
    const sqlite3 = await sqlite3InitModule();
    const pool = await sqlite3.installOpfsSAHPoolVfs({ directory: name, preserveOnInitFailure: true });
    db = new pool.OpfsSAHPoolDb('/rows.sqlite');
    db.exec(
      'PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -32768',
    );
    db.exec(
      'CREATE TABLE IF NOT EXISTS rows (id TEXT PRIMARY KEY, author TEXT, done INTEGER, due INTEGER, score INTEGER, code TEXT, body TEXT) WITHOUT ROWID',
    );
    db.exec(
      'CREATE INDEX IF NOT EXISTS by_author ON rows (author); CREATE INDEX IF NOT EXISTS by_due ON rows (done, due); CREATE INDEX IF NOT EXISTS by_score ON rows (score)',
    );
    db.exec('CREATE TABLE IF NOT EXISTS notes (key TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID');
    statements = Object.fromEntries(
      Object.entries(SQL).map(([key, text]) => [key, db.prepare(text)]),
    ) as typeof statements;
  },
  load(list: IndexedRow[]) {
    db.transaction('IMMEDIATE', () => {
      for (const { id, author, done, due, score, code, body } of list)
        statements.put.bind([id, author, done, due, score, code, body]).stepReset();
    });
  },
  update(id: string, due: number) {
    statements.update.bind([due, id]).stepReset();
  },
  get: (id: string) => rows(statements.get, [id])[0],
  query: (due: number, limit: number) => rows(statements.query, [due, limit]),
  count(from: number, to: number) {
    const { count } = statements;
    count.bind([from, to]).step();
    const found = count.getInt(0);
    count.reset();
    return found;
  },
  build() {
    db.exec('CREATE INDEX by_code ON rows (code)');
  },
  countBuilt: () => db.selectValue("SELECT COUNT(*) FROM rows INDEXED BY by_code WHERE code >= ''"),
  note(value: number) {
    statements.note.bind([value]).stepReset();
  },
  close() {
    for (const statement of Object.values(statements)) statement.finalize();
    db.close();
  },
});
