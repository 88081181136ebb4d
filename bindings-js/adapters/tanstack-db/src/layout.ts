// Where persisted collections are in a database.
import { keyCodecs } from 'mangrove-kv';
import type { Collection, Database, Key } from 'mangrove-kv';
import { Rows } from './indexes.ts';

/** The id of a collection of TanStack DB, what is stored of it, and which. */
export type StateKey = readonly [collectionId: string, kind: string, ...rest: Key[]];

/** How far the transactions of a collection have come, in TanStack DB's terms. */
export interface Position {
  readonly term: number;
  readonly seq: number;
  readonly rowVersion: number;
}

export const START: Position = { term: 0, seq: 0, rowVersion: 0 };

export const keyOf = {
  position: (id: string): StateKey => [id, 'position'],
  schema: (id: string): StateKey => [id, 'schema'],
  applied: (id: string, ...transaction: Key[]): StateKey => [id, 'applied', ...transaction],
  metadata: (id: string, ...name: Key[]): StateKey => [id, 'metadata', ...name],
  index: (id: string, ...signature: Key[]): StateKey => [id, 'index', ...signature],
};

/** A change of a persisted collection: which one, and what. */
export interface Place {
  readonly id: string;
  readonly kind: 'rows' | 'row-metadata';
}

/** The collections of a database that hold persisted collections. */
export class Layout {
  readonly database: Database;
  readonly prefix: string;
  /** Everything but rows: positions, versions, metadata of collections, what was applied. */
  readonly state: Collection<StateKey, unknown>;
  readonly #rows = new Map<string, Rows>();

  constructor(database: Database, prefix: string) {
    this.database = database;
    this.prefix = prefix;
    this.state = database.collection(`${prefix}/state`, { key: keyCodecs.tuple<StateKey>() });
  }

  /** The rows of a collection, by their keys. */
  rowsOf(id: string): Rows {
    let rows = this.#rows.get(id);
    if (rows === undefined) this.#rows.set(id, (rows = new Rows(this.database, `${this.prefix}/rows/${id}`, [])));
    return rows;
  }

  /** The metadata of its rows that have some. */
  rowMetadataOf(id: string): Collection<Key, unknown> {
    return this.database.collection(`${this.prefix}/row-metadata/${id}`);
  }

  /** What a collection of the database is, if it holds rows or their metadata. */
  placeOf(name: string): Place | undefined {
    for (const kind of ['rows', 'row-metadata'] as const) {
      const start = `${this.prefix}/${kind}/`;
      if (name.startsWith(start)) return { id: name.slice(start.length), kind };
    }
    return undefined;
  }
}
