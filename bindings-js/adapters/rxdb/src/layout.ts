// How a collection of RxDB is stored: a collection of documents with the indexes of its schema, and
// one of attachments, so that no query reads those.
import { keyCodecs } from 'mangrove-kv';
import type { Collection, Database, IndexOptions, Key } from 'mangrove-kv';
import { getPrimaryFieldOfPrimaryKey, getSchemaByObjectPath, objectPathMonad } from 'rxdb';
import type { RxDocumentData, RxJsonSchema, RxStorageInstanceCreationParams } from 'rxdb';

/** What a storage instance consists of. */
export interface MangroveInternals {
  /** The database, for backups, statistics and the like. */
  readonly database: Database;
}

/** An attachment as it is stored. */
export interface StoredAttachment {
  readonly type: string;
  readonly digest: string;
  readonly data: Uint8Array;
}

/** Key of an attachment: the document's, and its own. */
export type AttachmentKey = readonly [documentId: string, attachmentId: string];

/** A field of an index. */
export interface IndexField {
  readonly path: string;
  /** What its values are, by the schema. */
  readonly type: 'string' | 'number' | 'boolean';
}

/** The stored form of a collection. */
export interface Layout<D> {
  readonly database: Database;
  readonly documents: Collection<string, RxDocumentData<D>>;
  /** `undefined` if the schema has no attachments. */
  readonly attachments: Collection<AttachmentKey, StoredAttachment> | undefined;
  /** Fields of each index, by its name. */
  readonly fields: ReadonlyMap<string, readonly IndexField[]>;
  readonly primary: string;
}

/** Deleted documents by the time of their deletion. No live document is in it. */
export const DELETED = ':deleted';

/** Sorts after all strings; no field has it. */
export const AFTER_STRINGS = new Uint8Array();
const OBJECT = Uint8Array.of(1);
const ARRAY = Uint8Array.of(2);
const FALSE = Uint8Array.of(3, 0);
const TRUE = Uint8Array.of(3, 1);

/**
 * The element of an index key for a field's value. These elements sort as RxDB sorts the values:
 * missing, null, numbers, strings. Booleans would follow, but they stand for themselves where the
 * schema has them. NaN, in no range of numbers, is kept apart from them.
 */
export function toElement(value: unknown, type: IndexField['type']): Key {
  switch (typeof value) {
    case 'string':
      return value;
    case 'number':
      return Number.isNaN(value) ? true : value;
    case 'boolean':
      if (type === 'boolean') return value;
      return value ? TRUE : FALSE;
    case 'object':
      if (value !== null) return Array.isArray(value) ? ARRAY : OBJECT;
      return type === 'boolean' ? null : false;
    default:
      return null;
  }
}

/** The name of the index of these fields. */
export function indexName(fields: readonly string[]): string {
  return fields.join(',');
}

function toField<D>(schema: RxJsonSchema<RxDocumentData<D>>, path: string): IndexField {
  const type = getSchemaByObjectPath(schema, path).type as string | undefined;
  return { path, type: type === 'string' || type === 'boolean' ? type : 'number' };
}

function toIndex<D>(fields: readonly IndexField[]): IndexOptions<string, RxDocumentData<D>> {
  const parts = fields.map(({ path, type }) => ({ type, get: objectPathMonad<RxDocumentData<D>, unknown>(path) }));
  return { key: (document) => parts.map(({ type, get }) => toElement(get(document), type)) };
}

/** Returns the collections of a storage instance. Nothing is written yet. */
export function toLayout<D>(
  database: Database,
  { collectionName, schema }: RxStorageInstanceCreationParams<D, unknown>,
): Layout<D> {
  const primary = getPrimaryFieldOfPrimaryKey(schema.primaryKey) as string;
  const fields = new Map<string, readonly IndexField[]>();
  // RxDB adds the second one to every schema that it fills in.
  for (const index of [...(schema.indexes ?? []), ['_meta.lwt', primary]]) {
    const paths = typeof index === 'string' ? [index] : (index as readonly string[]);
    fields.set(
      indexName(paths),
      paths.map((path) => toField(schema, path)),
    );
  }
  const indexes: Record<string, IndexOptions<string, RxDocumentData<D>>> = {
    [DELETED]: { key: ({ _deleted, _meta }) => (_deleted ? _meta.lwt : undefined) },
  };
  for (const [name, its] of fields) indexes[name] = toIndex(its);
  // The version comes first, as a name may end like one.
  const name = `${schema.version}:${collectionName}`;
  return {
    database,
    documents: database.collection<string, RxDocumentData<D>>(`rxdb:${name}`, { key: keyCodecs.string, indexes }),
    attachments: schema.attachments
      ? database.collection<AttachmentKey, StoredAttachment>(`rxdb-attachments:${name}`, {
          key: keyCodecs.tuple<AttachmentKey>(),
        })
      : undefined,
    fields,
    primary,
  };
}
