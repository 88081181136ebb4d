import { Dexie } from 'dexie';
import type { Table } from 'dexie';
import type { IndexedRow, IndexedStore } from './indexed.ts';

const INDEXES = 'id, author, [done+due], score';

function connect(name: string, version: 1 | 2): Dexie {
  const db = new Dexie(name, { chromeTransactionDurability: 'strict' });
  db.version(version).stores({ rows: version === 1 ? INDEXES : `${INDEXES}, code`, notes: '' });
  return db;
}

export async function openIndexed(name: string): Promise<IndexedStore> {
  let db = connect(name, 1);
  const reconnect = (): void => {
    db.close();
    db = connect(name, 2);
  };
  // Another tab adds the index: calls wait until it is there.
  db.on('versionchange', reconnect);
  await db.open();
  const rows = (): Table<IndexedRow, string> => db.table('rows');
  return {
    async load(list) {
      await rows().bulkPut([...list]);
    },
    async update(id, due) {
      await rows().update(id, { due });
    },
    get: (id) => rows().get(id),
    query: (due, limit) => rows().where('[done+due]').between([0, due], [1, 0], true, false).limit(limit).toArray(),
    count: (from, to) => rows().where('[done+due]').between([0, from], [0, to], true, false).count(),
    async build() {
      reconnect();
      await db.open();
    },
    countBuilt: () => rows().where('code').aboveOrEqual('').count(),
    async note(value) {
      await db.table<number, string>('notes').put(value, 'note');
    },
    async close() {
      db.close();
    },
  };
}
