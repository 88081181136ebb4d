// Files in memory that together have a maximum size, and can be copied as the death of a process
// leaves them.
import type { CustomStorage, StorageFile } from 'mangrove-kv';
import { failure } from './faulty-storage.ts';

class SizedFile implements StorageFile {
  readonly #storage: SizedStorage;
  #bytes: Uint8Array;
  #size: number;

  constructor(storage: SizedStorage, bytes = new Uint8Array(0)) {
    this.#storage = storage;
    this.#bytes = bytes;
    this.#size = bytes.length;
  }

  get content(): Uint8Array {
    return this.#bytes.subarray(0, this.#size);
  }

  read(at: number, into: Uint8Array): void {
    if (at + into.length > this.#size) throw new Error('the file ends before');
    into.set(this.#bytes.subarray(at, at + into.length));
  }

  write(at: number, from: Uint8Array): void {
    if (at + from.length > this.#size) this.#resize(at + from.length);
    this.#bytes.set(from, at);
  }

  truncate(size: number): void {
    this.#resize(size);
  }

  size(): number {
    return this.#size;
  }

  flush(): void {}

  close(): void {}

  #resize(size: number): void {
    this.#storage.grow(size - this.#size);
    if (size > this.#bytes.length) {
      const bytes = new Uint8Array(size * 2);
      bytes.set(this.content);
      this.#bytes = bytes;
    }
    if (size < this.#size) this.#bytes.fill(0, size, this.#size);
    this.#size = size;
  }
}

export class SizedStorage implements CustomStorage {
  readonly #files = new Map<string, SizedFile>();
  /** How large all files together may be. */
  readonly maxBytes: number;
  /** How large they are, and were at most. */
  bytes = 0;
  largest = 0;

  constructor(maxBytes = Infinity) {
    this.maxBytes = maxBytes;
  }

  /** As the process would leave it if it died now. */
  copy(): SizedStorage {
    const copy = new SizedStorage(this.maxBytes);
    for (const [name, { content }] of this.#files) copy.#files.set(name, new SizedFile(copy, content.slice()));
    copy.bytes = this.bytes;
    return copy;
  }

  open(name: string): StorageFile {
    const file = this.#files.get(name) ?? new SizedFile(this);
    this.#files.set(name, file);
    return file;
  }

  list(): string[] {
    return [...this.#files.keys()];
  }

  remove(name: string): void {
    this.grow(-(this.#files.get(name)?.size() ?? 0));
    this.#files.delete(name);
  }

  grow(bytes: number): void {
    if (this.bytes + bytes > this.maxBytes && bytes > 0) throw failure('ENOSPC');
    this.bytes += bytes;
    this.largest = Math.max(this.largest, this.bytes);
  }
}
