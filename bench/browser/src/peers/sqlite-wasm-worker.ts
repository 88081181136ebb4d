import sqlite3InitModule from '@sqlite.org/sqlite-wasm';
import type { Database, PreparedStatement } from '@sqlite.org/sqlite-wasm';
import { serve } from './rpc.ts';
import { SQL } from './sqlite.ts';
import type { Durability } from './peer.ts';
import type { TextEntry } from './sqlite.ts';

let db: Database;
let statements: Record<'put' | 'get' | 'first' | 'last' | 'prefix', PreparedStatement>;

function entries(statement: PreparedStatement, values: (string | number)[]): TextEntry[] {
  const found: TextEntry[] = [];
  statement.bind(values);
  while (statement.step()) found.push([statement.getString(0) as string, statement.getString(1) as string]);
  statement.reset();
  return found;
}

serve({
  async open(name: string, durability: Durability) {
    const sqlite3 = await sqlite3InitModule();
    const pool = await sqlite3.installOpfsSAHPoolVfs({ directory: name, preserveOnInitFailure: true });
    db = new pool.OpfsSAHPoolDb('/kv.sqlite');
    db.exec(
      `PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = ${durability === 'strict' ? 'FULL' : 'NORMAL'}; PRAGMA cache_size = -32768; ${SQL.create}`,
    );
    statements = {
      put: db.prepare(SQL.put),
      get: db.prepare(SQL.get),
      first: db.prepare(SQL.first),
      last: db.prepare(SQL.last),
      prefix: db.prepare(SQL.prefix),
    };
  },
  putMany(list: TextEntry[]) {
    const put = ([key, value]: TextEntry): void => {
      statements.put.bind(1, key).bind(2, value).stepReset();
    };
    if (list.length === 1) list.forEach(put);
    else {
      db.transaction('IMMEDIATE', () => {
        list.forEach(put);
      });
    }
  },
  getMany: (keys: string[]) =>
    keys.map((key) => {
      const found = statements.get.bind(1, key).step() ? (statements.get.getString(0) as string) : undefined;
      statements.get.reset();
      return found;
    }),
  scan: (from: string, limit: number, reverse: boolean) =>
    entries(reverse ? statements.last : statements.first, [from, limit]),
  page: (from: string, to: string, limit: number) => entries(statements.prefix, [from, to, limit]),
  close() {
    for (const statement of Object.values(statements)) statement.finalize();
    db.close();
  },
});
