import { Dexie } from 'dexie';
import type { EntityTable } from 'dexie';
import { show } from './page.ts';
import type { Row } from './page.ts';

await show(async () => {
  const db = new Dexie('bench-start-dexie') as Dexie & { rows: EntityTable<Row & { id: number }, 'id'> };
  db.version(1).stores({ rows: 'id' });
  await db.open();
  return {
    seed: async (rows) => void (await db.rows.bulkPut(rows.map((row, id) => ({ ...row, id })))),
    first: (limit) => db.rows.orderBy('id').limit(limit).toArray(),
  };
});
