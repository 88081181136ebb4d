// What both of RxDB's free storages have in common.
import { addRxPlugin, createRxDatabase, removeRxDatabase } from 'rxdb/plugins/core';
import type { RxCollection, RxDatabase, RxJsonSchema, RxStorage } from 'rxdb/plugins/core';
import { RxDBMigrationSchemaPlugin } from 'rxdb/plugins/migration-schema';
import type { IndexedRow, IndexedStore } from './indexed.ts';
import { Unsupported } from './peer.ts';
import type { Peer } from './peer.ts';

interface Note {
  readonly id: string;
  readonly value: number;
}

interface Collections {
  readonly rows: RxCollection<IndexedRow>;
  readonly notes: RxCollection<Note>;
}

type Storage = RxStorage<unknown, unknown>;

const text = (maxLength: number) => ({ type: 'string', maxLength }) as const;
const whole = (maximum: number) => ({ type: 'number', minimum: 0, maximum, multipleOf: 1 }) as const;

const NOTES: RxJsonSchema<Note> = {
  version: 0,
  primaryKey: 'id',
  type: 'object',
  properties: { id: text(10), value: { type: 'number' } },
  required: ['id', 'value'],
};

/** In version 1 there is an index by `code`, too. */
function schema(version: 0 | 1): RxJsonSchema<IndexedRow> {
  return {
    version,
    primaryKey: 'id',
    type: 'object',
    properties: {
      id: text(24),
      author: text(20),
      done: whole(1),
      due: whole(200_000),
      score: whole(2 ** 32),
      code: text(12),
      body: { type: 'string' },
    },
    required: ['id', 'author', 'done', 'due', 'score', 'code', 'body'],
    indexes: ['author', ['done', 'due'], 'score', ...(version === 1 ? ['code'] : [])],
  };
}

/** Rows that a migration copies at once; RxDB's default is 200. */
const MIGRATED = 1000;

async function connect(name: string, storage: Storage, version: 0 | 1): Promise<RxDatabase<Collections>> {
  addRxPlugin(RxDBMigrationSchemaPlugin);
  const db = await createRxDatabase<Collections>({ name, storage, multiInstance: false });
  await db.addCollections({
    rows: {
      schema: schema(version),
      migrationStrategies: version === 1 ? { 1: (row: IndexedRow) => row } : {},
      autoMigrate: false,
    },
    notes: { schema: NOTES },
  });
  if (version === 1) await db.rows.migratePromise(MIGRATED);
  return db;
}

async function openIndexed(name: string, storage: Storage, isDurable: boolean): Promise<IndexedStore> {
  let db = await connect(name, storage, 0);
  return {
    async load(list) {
      const { error } = await db.rows.bulkInsert([...list]);
      if (error.length > 0) throw new Error(`${error.length} rows were not inserted`);
    },
    async update(id, due) {
      await (await db.rows.findOne(id).exec())?.incrementalPatch({ due });
    },
    async get(id) {
      return (await db.rows.findOne(id).exec())?.toJSON();
    },
    async query(due, limit) {
      const found = await db.rows
        .find({
          selector: { done: 0, due: { $gte: due } },
          sort: [{ done: 'asc' }, { due: 'asc' }, { id: 'asc' }],
          limit,
          index: ['done', 'due'],
        })
        .exec();
      return found.map((row) => row.toJSON());
    },
    count: (from, to) =>
      db.rows.count({ selector: { done: 0, due: { $gte: from, $lt: to } }, index: ['done', 'due'] }).exec(),
    async build() {
      if (!isDurable) throw new Unsupported('a changed schema needs an opening, which finds nothing in memory');
      await db.close();
      db = await connect(name, storage, 1);
    },
    countBuilt: () => db.rows.count({ selector: { code: { $gte: '' } }, index: ['code'] }).exec(),
    async note(value) {
      await db.notes.incrementalUpsert({ id: 'note', value });
    },
    async close() {
      await db.close();
    },
  };
}

export function peerOf(storage: Storage, isDurable: boolean): Peer {
  return {
    open() {
      throw new Unsupported('it is measured with indexes only');
    },
    openIndexed: (name) => openIndexed(name, storage, isDurable),
    async destroy(name) {
      await removeRxDatabase(name, storage);
    },
  };
}
