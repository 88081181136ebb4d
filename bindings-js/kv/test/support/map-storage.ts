// The example of docs/STORAGE.md, verbatim.
import type { CustomStorage, StorageFile } from 'mangrove-kv';

const BLOCK_BYTES = 65_536;

class MapFile implements StorageFile {
  readonly #blocks = new Map<number, Uint8Array>();
  #size = 0;

  read(at: number, into: Uint8Array): void {
    if (at + into.length > this.#size) throw new Error('the file ends before');
    this.#each(at, into.length, (block, start, done, length) => {
      const bytes = this.#blocks.get(block);
      const part = into.subarray(done, done + length);
      if (bytes === undefined) part.fill(0);
      else part.set(bytes.subarray(start, start + length));
    });
  }

  write(at: number, from: Uint8Array): void {
    this.#each(at, from.length, (block, start, done, length) => {
      const bytes = this.#blocks.get(block) ?? new Uint8Array(BLOCK_BYTES);
      bytes.set(from.subarray(done, done + length), start);
      this.#blocks.set(block, bytes);
    });
    this.#size = Math.max(this.#size, at + from.length);
  }

  flush(): void {}

  size(): number {
    return this.#size;
  }

  truncate(size: number): void {
    for (const block of this.#blocks.keys()) if (block * BLOCK_BYTES >= size) this.#blocks.delete(block);
    this.#blocks.get(Math.floor(size / BLOCK_BYTES))?.fill(0, size % BLOCK_BYTES);
    this.#size = size;
  }

  close(): void {}

  #each(at: number, total: number, use: (block: number, start: number, done: number, length: number) => void): void {
    for (let done = 0; done < total; ) {
      const start = (at + done) % BLOCK_BYTES;
      const length = Math.min(BLOCK_BYTES - start, total - done);
      use(Math.floor((at + done) / BLOCK_BYTES), start, done, length);
      done += length;
    }
  }
}

export class MapStorage implements CustomStorage {
  readonly #files = new Map<string, MapFile>();

  open(name: string): StorageFile {
    const file = this.#files.get(name) ?? new MapFile();
    this.#files.set(name, file);
    return file;
  }

  list(): string[] {
    return [...this.#files.keys()];
  }

  remove(name: string): void {
    this.#files.delete(name);
  }
}
