// What a store with indexes has to do for the benchmark.

/** Flags are numbers, because IndexedDB has no index keys of booleans. */
export interface IndexedRow {
  readonly id: string;
  readonly author: string;
  readonly done: 0 | 1;
  readonly due: number;
  readonly score: number;
  readonly code: string;
  readonly body: string;
}

/** Rows by `id`, with indexes by `author`, by `[done, due]` and by `score`. */
export interface IndexedStore {
  /** Inserts rows in one durable transaction. */
  load(rows: readonly IndexedRow[]): Promise<void>;
  /** Changes `due` of one row, durably. */
  update(id: string, due: number): Promise<void>;
  get(id: string): Promise<IndexedRow | undefined>;
  /** The first rows that are not done and due at `due` or later, by what is due and then by `id`. */
  query(due: number, limit: number): Promise<readonly IndexedRow[]>;
  /** How many rows are not done and due from `from` on and before `to`. */
  count(from: number, to: number): Promise<number>;
  /** Adds an index by `code`. */
  build(): Promise<void>;
  /** How many entries the index by `code` has. */
  countBuilt(): Promise<number>;
  /** Writes a number beside the rows, durably. */
  note(value: number): Promise<void>;
  close(): Promise<void>;
}
