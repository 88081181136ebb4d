// Stores files as pages in the SQLite database of a Cloudflare Durable Object, whose calls are
// synchronous.
import { KvError } from '../base/errors.ts';
import type { CustomStorage, StorageFile } from '../types/index.ts';

/** A value in a row of a query's result; the platform's `SqlStorageValue`. */
export type SqlValue = ArrayBuffer | string | number | null;

/** The parts of `ctx.storage.sql` that are used here. */
export interface SqlStorageLike {
  /** Runs a query; returns its rows. */
  exec(query: string, ...bindings: (ArrayBuffer | string | number | null)[]): Iterable<Record<string, SqlValue>>;
}

/** The parts of `ctx.storage` that are used here. */
export interface DurableObjectStorageLike {
  readonly sql: SqlStorageLike;
}

/** A row is billed as one row whatever its size, and rewritten as a whole. */
const PAGE_BYTES = 16 << 10;
/** Page ids of a file are consecutive, so that one B-tree holds all of its pages in order. */
const PAGES_PER_FILE = 2 ** 32;
/** Maximum number of whole pages read by one query. */
const PAGES_PER_QUERY = 64;

const SCHEMA = [
  'CREATE TABLE IF NOT EXISTS mangrove_files (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, size INTEGER NOT NULL)',
  'CREATE TABLE IF NOT EXISTS mangrove_pages (id INTEGER PRIMARY KEY, bytes BLOB NOT NULL)',
];

function toKvError(error: unknown, action: string): KvError {
  if (error instanceof KvError) return error;
  const reason = error instanceof Error ? error.message : String(error);
  const message = `${action}: ${reason}`;
  if (/SQL is not enabled/i.test(reason)) {
    return new KvError(
      'KV_UNSUPPORTED',
      `the Durable Object has no SQLite database, it needs new_sqlite_classes: ${reason}`,
      { cause: error },
    );
  }
  return /SQLITE_FULL|disk is full|storage limit/i.test(reason)
    ? new KvError('KV_QUOTA_EXCEEDED', message, { cause: error, retryable: true })
    : new KvError('KV_IO', message, { cause: error });
}

type Row = Record<string, SqlValue>;

/** Runs queries and converts their errors to KvErrors. */
class Sql {
  readonly #storage: DurableObjectStorageLike;

  constructor(storage: DurableObjectStorageLike) {
    this.#storage = storage;
  }

  all(action: string, query: string, ...bindings: (ArrayBuffer | string | number | null)[]): Row[] {
    try {
      return [...this.#storage.sql.exec(query, ...bindings)];
    } catch (error) {
      throw toKvError(error, action);
    }
  }
}

/** Copies the bytes to a buffer that holds nothing else. */
function bufferOf(bytes: Uint8Array): ArrayBuffer {
  return bytes.slice().buffer as ArrayBuffer;
}

class SqlFile implements StorageFile {
  readonly #sql: Sql;
  readonly #id: number;
  readonly #name: string;
  #size: number;
  #isClosed = false;

  constructor(sql: Sql, id: number, name: string, size: number) {
    this.#sql = sql;
    this.#id = id;
    this.#name = name;
    this.#size = size;
  }

  read(at: number, into: Uint8Array): void {
    this.#check();
    if (at + into.length > this.#size)
      throw new KvError('KV_IO', `read ${this.#name} at ${at}: past the end of the file`);
    // Pages that were never written are not stored; they read as zeros.
    into.fill(0);
    const last = Math.floor((at + into.length - 1) / PAGE_BYTES);
    for (let first = Math.floor(at / PAGE_BYTES); first <= last; first += PAGES_PER_QUERY) {
      this.#readPages(first, Math.min(first + PAGES_PER_QUERY - 1, last), at, into);
    }
  }

  write(at: number, from: Uint8Array): void {
    this.#check();
    const end = at + from.length;
    for (let offset = at; offset < end; ) {
      const page = Math.floor(offset / PAGE_BYTES);
      const pageStart = page * PAGE_BYTES;
      const pageEnd = Math.min(pageStart + PAGE_BYTES, end);
      this.#writePage(page, offset - pageStart, from.subarray(offset - at, pageEnd - at));
      offset = pageEnd;
    }
    if (end > this.#size) this.#setSize(end);
  }

  /**
   * Does nothing. The platform commits everything that an event writes without awaiting as one
   * unit, and holds back the object's outgoing messages until that commit is on several machines.
   */
  flush(): void {
    this.#check();
  }

  size(): number {
    this.#check();
    return this.#size;
  }

  truncate(size: number): void {
    this.#check();
    if (size < this.#size) {
      const kept = Math.ceil(size / PAGE_BYTES);
      this.#sql.all(
        `truncate ${this.#name}`,
        'DELETE FROM mangrove_pages WHERE id >= ? AND id < ?',
        this.#pageId(kept),
        this.#pageId(PAGES_PER_FILE),
      );
      const rest = size % PAGE_BYTES;
      const page = rest === 0 ? undefined : this.#page(kept - 1);
      if (page !== undefined && page.length > rest) this.#putPage(kept - 1, page.subarray(0, rest));
    }
    if (size !== this.#size) this.#setSize(size);
  }

  close(): void {
    this.#isClosed = true;
  }

  #check(): void {
    if (this.#isClosed) throw new KvError('KV_CLOSED', `${this.#name} is closed`);
  }

  #pageId(page: number): number {
    return this.#id * PAGES_PER_FILE + page;
  }

  #readPages(first: number, last: number, at: number, into: Uint8Array): void {
    const rows = this.#sql.all(
      `read ${this.#name}`,
      'SELECT id, bytes FROM mangrove_pages WHERE id BETWEEN ? AND ?',
      this.#pageId(first),
      this.#pageId(last),
    );
    for (const { id, bytes } of rows) {
      const pageStart = ((id as number) - this.#pageId(0)) * PAGE_BYTES;
      const stored = new Uint8Array(bytes as ArrayBuffer);
      const from = Math.max(at - pageStart, 0);
      const to = Math.min(stored.length, at + into.length - pageStart);
      if (to > from) into.set(stored.subarray(from, to), pageStart + from - at);
    }
  }

  /** The stored part of a page. It may be shorter than a page; the rest is zeros. */
  #page(page: number): Uint8Array | undefined {
    const [row] = this.#sql.all(
      `read ${this.#name}`,
      'SELECT bytes FROM mangrove_pages WHERE id = ?',
      this.#pageId(page),
    );
    return row === undefined ? undefined : new Uint8Array(row['bytes'] as ArrayBuffer);
  }

  #writePage(page: number, start: number, part: Uint8Array): void {
    const end = start + part.length;
    if (start === 0 && end === PAGE_BYTES) return this.#putPage(page, part);
    const before = this.#page(page);
    const changed = new Uint8Array(Math.max(before?.length ?? 0, end));
    if (before !== undefined) changed.set(before);
    changed.set(part, start);
    this.#putPage(page, changed);
  }

  #putPage(page: number, bytes: Uint8Array): void {
    const query =
      'INSERT INTO mangrove_pages (id, bytes) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET bytes = excluded.bytes';
    this.#sql.all(`write ${this.#name}`, query, this.#pageId(page), bufferOf(bytes));
  }

  #setSize(size: number): void {
    this.#sql.all(`resize ${this.#name}`, 'UPDATE mangrove_files SET size = ? WHERE id = ?', size, this.#id);
    this.#size = size;
  }
}

/**
 * The files of one database in the SQLite database of a Durable Object, in the tables
 * `mangrove_files` and `mangrove_pages`. Databases with other names keep their files in the same
 * tables.
 */
export class DurableObjectStorage implements CustomStorage {
  readonly #sql: Sql;
  readonly #prefix: string;

  /** Creates the tables if they are missing. `storage` is `ctx.storage`. */
  constructor(storage: DurableObjectStorageLike, name: string = 'main') {
    this.#sql = new Sql(storage);
    this.#prefix = `${name}/`;
    for (const query of SCHEMA) this.#sql.all('create tables', query);
  }

  open(file: string): StorageFile {
    const name = this.#prefix + file;
    this.#sql.all(`open ${name}`, 'INSERT OR IGNORE INTO mangrove_files (name, size) VALUES (?, 0)', name);
    const [row] = this.#sql.all(`open ${name}`, 'SELECT id, size FROM mangrove_files WHERE name = ?', name);
    return new SqlFile(this.#sql, row?.['id'] as number, name, row?.['size'] as number);
  }

  list(): string[] {
    const rows = this.#sql.all(
      'list files',
      'SELECT name FROM mangrove_files WHERE substr(name, 1, ?) = ?',
      this.#prefix.length,
      this.#prefix,
    );
    return rows.map(({ name }) => (name as string).slice(this.#prefix.length)).filter((name) => !name.includes('/'));
  }

  remove(file: string): void {
    const [row] = this.#sql.all(
      `remove ${file}`,
      'DELETE FROM mangrove_files WHERE name = ? RETURNING id',
      this.#prefix + file,
    );
    if (row === undefined) return;
    const first = (row['id'] as number) * PAGES_PER_FILE;
    this.#sql.all(
      `remove ${file}`,
      'DELETE FROM mangrove_pages WHERE id >= ? AND id < ?',
      first,
      first + PAGES_PER_FILE,
    );
  }
}
