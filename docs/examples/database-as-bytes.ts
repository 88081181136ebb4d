// A custom storage: keeps a database in a byte array, which can go wherever bytes go, such as an
// editor's document or a cell of another database.
import { open } from 'mangrove-kv';
import type { CustomStorage, StorageFile } from 'mangrove-kv';

class BytesFile implements StorageFile {
  #bytes: Uint8Array;
  #size: number;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#size = bytes.length;
  }

  get bytes(): Uint8Array {
    return this.#bytes.slice(0, this.#size);
  }

  read(at: number, into: Uint8Array): void {
    if (at + into.length > this.#size) throw new Error('the file ends before');
    into.set(this.#bytes.subarray(at, at + into.length));
  }

  write(at: number, from: Uint8Array): void {
    this.#reserve(at + from.length);
    this.#bytes.set(from, at);
    this.#size = Math.max(this.#size, at + from.length);
  }

  size(): number {
    return this.#size;
  }

  truncate(size: number): void {
    this.#reserve(size);
    // Bytes added later must read as zeros.
    this.#bytes.fill(0, Math.min(size, this.#size), Math.max(size, this.#size));
    this.#size = size;
  }

  flush(): void {}

  close(): void {}

  #reserve(size: number): void {
    if (size <= this.#bytes.length) return;
    const grown = new Uint8Array(Math.max(size, this.#bytes.length * 2));
    grown.set(this.#bytes);
    this.#bytes = grown;
  }
}

export class BytesStorage implements CustomStorage {
  readonly #files = new Map<string, BytesFile>();

  /** `bytes` come from another `BytesStorage`. */
  constructor(bytes?: Uint8Array) {
    if (bytes !== undefined) this.#files.set('data', new BytesFile(bytes.slice()));
  }

  /** The whole database, once it is closed: then its log is empty and may be left out. */
  get bytes(): Uint8Array {
    return this.#files.get('data')?.bytes ?? new Uint8Array();
  }

  open(file: string): StorageFile {
    const opened = this.#files.get(file) ?? new BytesFile(new Uint8Array());
    this.#files.set(file, opened);
    return opened;
  }

  list(): string[] {
    return [...this.#files.keys()];
  }

  remove(file: string): void {
    this.#files.delete(file);
  }
}

const storage = new BytesStorage();
const db = await open<string, string>('document', { storage });
await db.setMany([
  ['title', 'Sketch of the Analytical Engine'],
  ['author', 'Ada Lovelace'],
]);
await db.close();
const { bytes } = storage;
console.log(bytes.length > 0 && bytes.length % 512 === 0);

const copy = await open<string, string>('document', { storage: new BytesStorage(bytes) });
console.log(await copy.entries().toArray(), (await copy.verify()).ok);
await copy.close();
