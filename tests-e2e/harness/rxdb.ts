// A database of RxDB with a collection of people, driven by the tests of its storage.
import { addRxPlugin, createBlob, createRxDatabase } from 'rxdb';
import type { MangoQuery, RxCollection, RxDatabase } from 'rxdb';
import { RxDBAttachmentsPlugin } from 'rxdb/plugins/attachments';
import { getRxStorageMangrove } from '@mangrove-kv/rxdb';
import type { MangroveInternals } from '@mangrove-kv/rxdb';

interface Person {
  id: string;
  name: string;
  age: number;
}

addRxPlugin(RxDBAttachmentsPlugin);

const SCHEMA = {
  version: 0,
  primaryKey: 'id',
  type: 'object',
  properties: {
    id: { type: 'string', maxLength: 20 },
    name: { type: 'string', maxLength: 20 },
    age: { type: 'integer', minimum: 0, maximum: 200, multipleOf: 1 },
  },
  required: ['id', 'name', 'age'],
  indexes: ['name', 'age'],
  attachments: {},
} as const;

let db: RxDatabase;
let people: RxCollection<Person>;
/** The ids that each followed query showed, newest last. */
const shown: string[][] = [];

export async function open(name: string): Promise<void> {
  db = await createRxDatabase({ name, storage: getRxStorageMangrove(), multiInstance: true });
  ({ people } = (await db.addCollections({ people: { schema: SCHEMA } })) as unknown as {
    people: RxCollection<Person>;
  });
}

export function follow(query: MangoQuery<Person>): void {
  people.find(query).$.subscribe((documents) => shown.push(documents.map(({ id }) => id)));
}

export const newest = (): string[] | undefined => shown.at(-1);

export async function insert(documents: Person[]): Promise<number> {
  return (await people.bulkInsert(documents)).success.length;
}

export async function find(query: MangoQuery<Person>): Promise<string[]> {
  return (await people.find(query).exec()).map(({ id }) => id);
}

export const count = (query: MangoQuery<Person>): Promise<number> => people.count(query).exec();

/** Adds one to an age, again after each conflict. */
export async function birthday(id: string): Promise<void> {
  await (await people.findOne(id).exec(true)).incrementalModify((data) => ({ ...data, age: data.age + 1 }));
}

export const age = async (id: string): Promise<number> => (await people.findOne(id).exec(true)).age;

export async function remove(id: string): Promise<void> {
  await (await people.findOne(id).exec(true)).remove();
}

export async function attach(id: string, text: string): Promise<void> {
  await (await people.findOne(id).exec(true)).putAttachment({
    id: 'note',
    type: 'text/plain',
    data: createBlob(text, 'text/plain'),
  });
}

export async function attached(id: string): Promise<string | undefined> {
  return (await people.findOne(id).exec(true)).getAttachment('note')?.getStringData();
}

/** Where the database is kept, and what is wrong with it. */
export async function verify(): Promise<unknown> {
  const { database } = db.internalStore.internals as MangroveInternals;
  return [database.persistence, (await database.verify()).problems];
}

export const close = (): Promise<boolean> => db.close();
