import createModule from '@journeyapps/wa-sqlite/dist/wa-sqlite.mjs';
import { Factory, SQLITE_ROW } from '@journeyapps/wa-sqlite';
import { OPFSWriteAheadVFS } from '@journeyapps/wa-sqlite/src/examples/OPFSWriteAheadVFS.js';
import { serve } from './rpc.ts';
import { SQL } from './sqlite.ts';
import type { Durability } from './peer.ts';
import type { TextEntry } from './sqlite.ts';

let sqlite: ReturnType<typeof Factory>;
let db: number;
let statements: Record<'begin' | 'commit' | 'rollback' | 'put' | 'get' | 'first' | 'last' | 'prefix', number>;

/** One that is kept. */
async function prepare(sql: string): Promise<number> {
  for await (const statement of sqlite.statements(db, sql, { unscoped: true })) return statement;
  throw new Error(`no statement: ${sql}`);
}

async function entries(statement: number, values: (string | number)[]): Promise<TextEntry[]> {
  const found: TextEntry[] = [];
  sqlite.bind_collection(statement, values);
  while ((await sqlite.step(statement)) === SQLITE_ROW)
    found.push([sqlite.column_text(statement, 0), sqlite.column_text(statement, 1)]);
  await sqlite.reset(statement);
  return found;
}

async function run(statement: number, values: (string | number)[] = []): Promise<void> {
  sqlite.bind_collection(statement, values);
  await sqlite.step(statement);
  await sqlite.reset(statement);
}

async function putMany(list: readonly TextEntry[]): Promise<void> {
  const [only] = list;
  if (list.length === 1 && only !== undefined) {
    await run(statements.put, [...only]);
    return;
  }
  await run(statements.begin);
  try {
    for (const [key, value] of list) await run(statements.put, [key, value]);
    await run(statements.commit);
  } catch (error) {
    await run(statements.rollback).catch(() => undefined);
    throw error;
  }
}

serve({
  async open(name: string, durability: Durability) {
    const module: unknown = await createModule();
    sqlite = Factory(module);
    sqlite.vfs_register(await OPFSWriteAheadVFS.create('opfs', module, {}), true);
    db = await sqlite.open_v2(name);
    await sqlite.exec(
      db,
      `PRAGMA busy_timeout = 30000; PRAGMA synchronous = ${durability === 'strict' ? 'FULL' : 'NORMAL'}; PRAGMA cache_size = -32768; ${SQL.create}`,
    );
    statements = {
      begin: await prepare('BEGIN IMMEDIATE'),
      commit: await prepare('COMMIT'),
      rollback: await prepare('ROLLBACK'),
      put: await prepare(SQL.put),
      get: await prepare(SQL.get),
      first: await prepare(SQL.first),
      last: await prepare(SQL.last),
      prefix: await prepare(SQL.prefix),
    };
  },
  putMany,
  async getMany(keys: string[]) {
    const found: (string | undefined)[] = [];
    for (const key of keys) {
      sqlite.bind_text(statements.get, 1, key);
      found.push(
        (await sqlite.step(statements.get)) === SQLITE_ROW ? sqlite.column_text(statements.get, 0) : undefined,
      );
      await sqlite.reset(statements.get);
    }
    return found;
  },
  scan: (from: string, limit: number, reverse: boolean) =>
    entries(reverse ? statements.last : statements.first, [from, limit]),
  page: (from: string, to: string, limit: number) => entries(statements.prefix, [from, to, limit]),
  async close() {
    for (const statement of Object.values(statements)) await sqlite.finalize(statement);
    await sqlite.close(db);
  },
});
