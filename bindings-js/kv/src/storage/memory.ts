// Files in memory, which vanish with the database.
import { KvError } from '../base/errors.ts';
import type { CustomStorage, StorageFile } from '../types/index.ts';

/** Files are stored in pieces, so that a growing file is never copied. */
const PIECE_BYTES = 256 << 10;

class MemoryFile implements StorageFile {
  readonly #pieces: Uint8Array[] = [];
  #size = 0;

  read(at: number, into: Uint8Array): void {
    if (at + into.length > this.#size) throw new KvError('KV_IO', 'read past the end of the file');
    this.#pass(at, into.length, (piece, from, offset, length) => {
      into.set(piece.subarray(from, from + length), offset);
    });
  }

  write(at: number, from: Uint8Array): void {
    this.#size = Math.max(this.#size, at + from.length);
    while (this.#pieces.length * PIECE_BYTES < this.#size) this.#pieces.push(new Uint8Array(PIECE_BYTES));
    this.#pass(at, from.length, (piece, to, offset, length) => {
      piece.set(from.subarray(offset, offset + length), to);
    });
  }

  flush(): void {}

  size(): number {
    return this.#size;
  }

  truncate(size: number): void {
    this.#pieces.length = Math.min(this.#pieces.length, Math.ceil(size / PIECE_BYTES));
    // Bytes past the end must read as zeros if the file grows again.
    this.#pieces[Math.floor(size / PIECE_BYTES)]?.fill(0, size % PIECE_BYTES);
    while (this.#pieces.length * PIECE_BYTES < size) this.#pieces.push(new Uint8Array(PIECE_BYTES));
    this.#size = size;
  }

  close(): void {}

  #pass(
    at: number,
    total: number,
    each: (piece: Uint8Array, start: number, offset: number, length: number) => void,
  ): void {
    for (let offset = 0; offset < total; ) {
      const start = (at + offset) % PIECE_BYTES;
      const length = Math.min(PIECE_BYTES - start, total - offset);
      each(this.#pieces[Math.floor((at + offset) / PIECE_BYTES)] as Uint8Array, start, offset, length);
      offset += length;
    }
  }
}

export class MemoryStorage implements CustomStorage {
  readonly #files = new Map<string, MemoryFile>();

  open(file: string): StorageFile {
    let opened = this.#files.get(file);
    if (opened === undefined) {
      opened = new MemoryFile();
      this.#files.set(file, opened);
    }
    return opened;
  }

  list(): string[] {
    return [...this.#files.keys()];
  }

  remove(file: string): void {
    this.#files.delete(file);
  }
}
