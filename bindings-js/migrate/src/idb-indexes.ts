// The indexes of IndexedDB's object stores, and of Dexie's schemas, as indexes of collections.
import { KvError } from 'mangrove-kv';
import type { IndexOptions, Key } from 'mangrove-kv';
import { isKeyPath, keyOf, keysOf } from './idb-keys.ts';

/** An index of an object store. An `IDBIndex` is one, too. */
export interface IndexedDBIndex {
  /** Its name, which is also the name of the index of the collection. */
  readonly name: string;
  /** Path of a property, `address.city`; several for a compound index. */
  readonly keyPath: string | readonly string[];
  /** Whether each member of an array is an index key. Default: false. */
  readonly multiEntry?: boolean | undefined;
  /** Whether no two entries may have the same index key. Default: false. */
  readonly unique?: boolean | undefined;
}

/** The option `indexes` of a collection, for values of any type. */
export interface Indexes {
  readonly [name: string]: IndexOptions<Key, unknown>;
}

function refused(name: unknown, what: string): KvError {
  return new KvError('KV_INVALID_ARGUMENT', `the index ${JSON.stringify(name)}: ${what}`);
}

function optionsOf({ name, keyPath, multiEntry = false, unique = false }: IndexedDBIndex): IndexOptions<Key, unknown> {
  const paths = Array.isArray(keyPath) ? (keyPath as readonly unknown[]) : [keyPath];
  if (paths.length === 0 || !paths.every(isKeyPath)) throw refused(name, `${JSON.stringify(keyPath)} is no key path`);
  if (!multiEntry) return { key: keyOf(keyPath), unique };
  if (typeof keyPath !== 'string') throw refused(name, 'a compound index cannot be multi-entry');
  return { key: keysOf(keyPath), multi: true, unique };
}

/**
 * Turns the indexes of an IndexedDB object store into the option `indexes` of a collection:
 * `indexesOf([{ name: 'byTag', keyPath: 'tags', multiEntry: true }])`.
 *
 * Index keys are computed as IndexedDB does it. An entry is not in an index if the key path leads to
 * nothing or to what is no key there, such as `null`, a boolean or `NaN`; of a compound key that
 * holds for each part. A multi-entry index has the members of an array that are keys, each once.
 *
 * @throws KvError KV_INVALID_ARGUMENT if a name is there twice, a key path is none, or a multi-entry
 * index has several.
 */
export function indexesOf(indexes: Iterable<IndexedDBIndex>): Indexes {
  if (typeof indexes === 'string' || typeof indexes?.[Symbol.iterator] !== 'function') {
    throw new KvError('KV_INVALID_ARGUMENT', 'indexesOf needs an array of indexes, or another iterable');
  }
  const options = new Map<string, IndexOptions<Key, unknown>>();
  for (const index of indexes) {
    const { name } = index ?? {};
    if (typeof name !== 'string' || name === '') throw refused(name, 'its name has to be a string that is not empty');
    if (options.has(name)) throw refused(name, 'it is declared twice');
    options.set(name, optionsOf(index));
  }
  return Object.fromEntries(options);
}

function parse(part: string): IndexedDBIndex {
  const text = part.split(':')[0]?.trim() ?? '';
  const name = text.replaceAll(/[&*]|\+\+/g, '');
  if (text.includes('++')) throw refused(name, 'only the primary key can be auto-incremented');
  const [, compound] = /^\[(.*)\]$/.exec(name) ?? [];
  return { name, keyPath: compound?.split('+') ?? name, multiEntry: text.includes('*'), unique: text.includes('&') };
}

/**
 * Turns a table's schema as Dexie's `stores` takes it into the option `indexes` of a collection:
 * `dexieIndexes('++id, name, [last+first], *tags, &email')`. The first item is the primary key, and
 * is left out: it is the key of the entries. The indexes have the names that `where` takes in Dexie:
 * `name`, `[last+first]`, `tags`, `email`. Otherwise as `indexesOf`.
 *
 * @throws KvError KV_INVALID_ARGUMENT if Dexie would refuse the schema.
 */
export function dexieIndexes(schema: string): Indexes {
  if (typeof schema !== 'string')
    throw new KvError('KV_INVALID_ARGUMENT', "dexieIndexes needs a table's schema, a string");
  const [, ...parts] = schema.split(',');
  // `text: Y.Doc` is a property that an addon fills in, not an index.
  return indexesOf(parts.filter((part) => !/:\s*Y\./.test(part)).map(parse));
}
