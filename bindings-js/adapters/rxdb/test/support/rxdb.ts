// Schemas, documents and storages for the tests of the adapter for RxDB.
import {
  createBlob,
  fillWithDefaultSettings,
  getQueryMatcher,
  getSortComparator,
  normalizeMangoQuery,
  now,
  prepareQuery,
  randomToken,
} from 'rxdb';
import type {
  BulkWriteRow,
  MangoQuery,
  PreparedQuery,
  RxAttachmentWriteData,
  RxDocumentData,
  RxDocumentWriteData,
  RxJsonSchema,
  RxStorage,
  RxStorageInstance,
} from 'rxdb';
import { getRxStorageMangrove } from '@mangrove-kv/rxdb';
import type { MangroveInternals } from '@mangrove-kv/rxdb';

/** A document with a field of each type that RxDB indexes. */
export interface Person {
  id: string;
  name: string;
  age: number;
  score: number;
  active: boolean;
  /** Not required, though it is indexed. */
  city?: string | undefined;
  rank?: number | undefined;
  address: { street: string };
  tags?: string[] | undefined;
}

export const PERSON: RxJsonSchema<Person> = {
  version: 0,
  primaryKey: 'id',
  type: 'object',
  properties: {
    id: { type: 'string', maxLength: 40 },
    name: { type: 'string', maxLength: 20 },
    age: { type: 'integer', minimum: -10, maximum: 150, multipleOf: 1 },
    score: { type: 'number', minimum: -100, maximum: 100, multipleOf: 0.01 },
    active: { type: 'boolean' },
    city: { type: 'string', maxLength: 20 },
    rank: { type: 'integer', minimum: 0, maximum: 100, multipleOf: 1 },
    address: { type: 'object', properties: { street: { type: 'string', maxLength: 20 } } },
    tags: { type: 'array', items: { type: 'string' } },
  },
  required: ['id', 'name', 'age', 'score', 'active', 'address'],
  indexes: [
    'name',
    'age',
    'score',
    ['active', 'age'],
    ['age', 'name'],
    'address.street',
    ['name', 'active', 'score'],
    'city',
    ['rank', 'city'],
  ],
};

/** As RxDB hands it to a storage. */
export const FILLED = fillWithDefaultSettings(PERSON);

export const FILLED_WITH_ATTACHMENTS = fillWithDefaultSettings<Person>({ ...PERSON, attachments: {} });

export type PersonStorage = RxStorageInstance<Person, MangroveInternals, object>;

export interface InstanceOptions {
  readonly databaseName?: string;
  readonly collectionName?: string;
  readonly schema?: RxJsonSchema<RxDocumentData<Person>>;
  readonly multiInstance?: boolean;
  readonly options?: object;
}

/** The storage of one collection, as RxDB creates it. */
export function createInstance<I>(
  storage: RxStorage<I, object>,
  {
    databaseName = 'people',
    collectionName = 'person',
    schema = FILLED,
    multiInstance = false,
    options = {},
  }: InstanceOptions = {},
): Promise<RxStorageInstance<Person, I, object>> {
  return storage.createStorageInstance<Person>({
    databaseInstanceToken: randomToken(10),
    databaseName,
    collectionName,
    schema,
    options,
    multiInstance,
    devMode: false,
  });
}

/** Calls `use` with an instance in a database of its own in memory. */
export async function withInstance(
  use: (instance: PersonStorage) => Promise<void>,
  options: InstanceOptions = {},
): Promise<void> {
  const instance = await createInstance(getRxStorageMangrove({ storage: 'memory' }), {
    databaseName: randomToken(10),
    ...options,
  });
  try {
    await use(instance);
  } finally {
    await instance.close();
  }
}

export function person(id: string, fields: Partial<Person> = {}): Person {
  return { id, name: 'Ada', age: 36, score: 1.5, active: true, address: { street: 'St James' }, ...fields };
}

let revision = 0;

/** The next state of a document. */
export function written(data: Person, previous?: RxDocumentData<Person>, deleted = false): RxDocumentWriteData<Person> {
  const height = previous === undefined ? 1 : Number(previous._rev.split('-')[0]) + 1;
  return { ...data, _deleted: deleted, _attachments: {}, _meta: { lwt: now() }, _rev: `${height}-${revision++}` };
}

export function row(data: Person, previous?: RxDocumentData<Person>, deleted = false): BulkWriteRow<Person> {
  return { document: written(data, previous, deleted), ...(previous === undefined ? {} : { previous }) };
}

/** An attachment as it is written. */
export function attachment(text: string): RxAttachmentWriteData {
  return {
    length: text.length,
    type: 'text/plain',
    digest: `digest of ${text.slice(0, 40)}`,
    data: createBlob(text, 'text/plain'),
  };
}

export function prepare(query: MangoQuery<Person>, schema = FILLED): PreparedQuery<Person> {
  return prepareQuery(schema, normalizeMangoQuery(schema, query as MangoQuery<RxDocumentData<Person>>) as never);
}

/** What a query finds in a list of all documents: the definition, without indexes or plans. */
export function found(
  all: readonly RxDocumentData<Person>[],
  { query }: PreparedQuery<Person>,
): RxDocumentData<Person>[] {
  const matches = all.filter(getQueryMatcher(FILLED, query));
  matches.sort(getSortComparator(FILLED as never, query) as never);
  const { skip, limit = Infinity } = query;
  return matches.slice(skip, skip + limit);
}
