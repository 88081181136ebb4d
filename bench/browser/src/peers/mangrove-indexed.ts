import type * as kv from 'mangrove-kv';
import type { IndexedRow, IndexedStore } from './indexed.ts';

const INDEXES = {
  byAuthor: { key: ({ author }: IndexedRow) => author },
  byDue: { key: ({ done, due }: IndexedRow) => [done, due] },
  byScore: { key: ({ score }: IndexedRow) => score },
};
const ALL = { ...INDEXES, byCode: { key: ({ code }: IndexedRow) => code } };

export async function openIndexed({ open }: Pick<typeof kv, 'open'>, name: string): Promise<IndexedStore> {
  const db = await open<string, number>(name);
  const rows = db.collection<string, IndexedRow>('rows', { indexes: INDEXES });
  const byDue = rows.index('byDue');
  const withCode = (): kv.Collection<string, IndexedRow> => db.collection<string, IndexedRow>('rows', { indexes: ALL });
  return {
    load: (list) => rows.setMany(list.map((row) => [row.id, row])),
    async update(id, due) {
      await rows.update(id, (row) => ({ ...(row as IndexedRow), due }));
    },
    get: (id) => rows.get(id),
    query: (due, limit) => byDue.values({ gte: [0, due], lt: [1], limit }).toArray(),
    count: (from, to) => byDue.count({ gte: [0, from], lt: [0, to] }),
    build: () => withCode().buildIndexes(),
    countBuilt: () => withCode().index('byCode').count(),
    note: (value) => db.set('note', value),
    close: () => db.close(),
  };
}
