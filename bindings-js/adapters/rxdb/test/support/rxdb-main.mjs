// Inserts documents with RxDB until it is killed; prints how many are acknowledged.
import { createRxDatabase } from 'rxdb';
import { getRxStorageMangrove } from '@mangrove-kv/rxdb';

const [path, from] = process.argv.slice(2);
const db = await createRxDatabase({
  name: 'killed',
  storage: getRxStorageMangrove({ path: () => path }),
  multiInstance: false,
});
const { notes } = await db.addCollections({
  notes: {
    schema: {
      version: 0,
      primaryKey: 'id',
      type: 'object',
      properties: {
        id: { type: 'string', maxLength: 20 },
        n: { type: 'integer', minimum: 0, maximum: 1e6, multipleOf: 1 },
      },
      required: ['id', 'n'],
      indexes: ['n'],
    },
  },
});
for (let n = Number(from); ; n++) {
  await notes.bulkInsert([
    { id: `a${n}`, n },
    { id: `b${n}`, n },
  ]);
  console.log(n);
}
