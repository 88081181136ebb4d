// Indexes of the rows of a collection. The name of an index says what it indexes, so that every
// program knows how to keep all indexes that it finds stored.
import { KvError } from 'mangrove-kv';
import type { Collection, Database, IndexOptions, Key } from 'mangrove-kv';
import { toKey, valueAt } from './keys.ts';
import type { Row } from './expressions.ts';

/** Paths of the properties that an index has, in the order of its columns. */
export type Columns = readonly (readonly string[])[];

const PREFIX = 'tanstack:';
/** Version of the function from values to index keys. */
const VERSION = 1;
/** Attempts of a write while indexes change. */
const ATTEMPTS = 20;

/** The name of the index of some columns. */
export const nameOf = (columns: Columns): string => PREFIX + JSON.stringify(columns);

/** The columns of an index of this package; `undefined` for another one. */
export function columnsOf(name: string): Columns | undefined {
  if (!name.startsWith(PREFIX)) return undefined;
  try {
    const columns: unknown = JSON.parse(name.slice(PREFIX.length));
    const isPath = (path: unknown): boolean =>
      Array.isArray(path) && path.length > 0 && path.every((property) => typeof property === 'string');
    return Array.isArray(columns) && columns.length > 0 && columns.every(isPath) ? (columns as Columns) : undefined;
  } catch {
    return undefined;
  }
}

/** How an index of some columns is declared. */
export function indexOf(columns: Columns): IndexOptions<Key, unknown> {
  return { key: (row): Key => columns.map((path) => toKey(valueAt(row, path))), version: VERSION };
}

/** A property by its path, as `'address.city'`, or several for an index of several columns. */
export type IndexedProperties = string | readonly string[];

/** Turns properties into columns. */
export function toColumns(properties: IndexedProperties): Columns {
  const paths: readonly unknown[] = Array.isArray(properties) ? properties : [properties];
  if (paths.length === 0 || paths.some((path) => typeof path !== 'string' || path.split('.').includes('')))
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      `an index has to be the path of a property, as "address.city", or an array of them, not ${JSON.stringify(properties)}`,
    );
  return (paths as readonly string[]).map((path) => path.split('.'));
}

const isMismatch = (error: unknown): boolean => (error as Partial<KvError> | undefined)?.code === 'KV_INDEX_MISMATCH';

/** The rows of a collection, with all indexes that anybody has declared. */
export class Rows {
  readonly database: Database;
  readonly name: string;
  /** Names of the indexes that are wanted here. */
  readonly #wanted: Set<string>;
  #collection: Collection<Key, Row>;
  #declared = '';

  constructor(database: Database, name: string, wanted: Iterable<Columns>) {
    this.database = database;
    this.name = name;
    this.#wanted = new Set([...wanted].map(nameOf));
    this.#collection = this.#open([]);
  }

  /** The collection, with the indexes that were known last. */
  get collection(): Collection<Key, Row> {
    return this.#collection;
  }

  /** The columns of the indexes of `collection`, by name. */
  get indexes(): ReadonlyMap<string, Columns> {
    return this.#indexes;
  }
  #indexes: ReadonlyMap<string, Columns> = new Map();

  #open(stored: readonly string[]): Collection<Key, Row> {
    const names = [...new Set([...stored, ...this.#wanted])].filter((name) => columnsOf(name) !== undefined).sort();
    const declared = JSON.stringify(names);
    if (this.#collection !== undefined && declared === this.#declared) return this.#collection;
    this.#declared = declared;
    this.#indexes = new Map(names.map((name) => [name, columnsOf(name)!]));
    return this.database.collection<Key, Row>(this.name, {
      indexes: Object.fromEntries(names.map((name) => [name, indexOf(columnsOf(name)!)])),
    });
  }

  /** Looks which indexes are stored. O(number of indexes in the database). */
  async refresh(): Promise<void> {
    const { indexes } = await this.database.stats();
    this.#collection = this.#open(indexes.filter(({ collection }) => collection === this.name).map(({ name }) => name));
  }

  /** Declares an index and resolves when it is complete. */
  async ensure(columns: Columns): Promise<void> {
    this.#wanted.add(nameOf(columns));
    // A handle declares all indexes or none: a partial declaration would lock other programs out of writing.
    await writing([this], async () => {
      await this.refresh();
      await this.#collection.buildIndexes();
    });
  }

  /** Removes an index. A program that still wants it declares it again with its next write. */
  async drop(columns: Columns): Promise<void> {
    const name = nameOf(columns);
    this.#wanted.delete(name);
    await this.#collection.dropIndex(name);
    await this.refresh();
  }
}

/**
 * Runs a write that declares the indexes of these rows, and again after another program has declared
 * or removed one.
 */
export async function writing<T>(rows: readonly Rows[], write: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await write();
    } catch (error) {
      if (!isMismatch(error) || attempt === ATTEMPTS) throw error;
      await Promise.all(rows.map((each) => each.refresh()));
    }
  }
}
