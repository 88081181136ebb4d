// A user's storage, watched: an asynchronous method would seem to succeed before anything was done.
import { KvError } from '../errors.ts';
import type { CustomStorage, StorageFile } from '../types.ts';

function sync<T>(method: string, result: T): T {
  if (typeof (result as { then?: unknown } | null | undefined)?.then === 'function') {
    // What becomes of it is no longer of interest, a rejection included.
    Promise.resolve(result).catch(() => undefined);
    throw new KvError('KV_INVALID_ARGUMENT', `the storage's method ${method} has to be synchronous, but gave a promise`);
  }
  return result;
}

class WatchedFile implements StorageFile {
  readonly #file: StorageFile;
  #isClosed = false;

  constructor(file: StorageFile) {
    this.#file = file;
  }

  read(at: number, into: Uint8Array): void {
    sync('read', this.#file.read(at, into));
  }

  write(at: number, from: Uint8Array): void {
    sync('write', this.#file.write(at, from));
  }

  flush(): void {
    sync('flush', this.#file.flush());
  }

  size(): number {
    return sync('size', this.#file.size());
  }

  truncate(size: number): void {
    sync('truncate', this.#file.truncate(size));
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    sync('close', this.#file.close());
  }
}

export class WatchedStorage implements CustomStorage {
  readonly #storage: CustomStorage;

  constructor(storage: CustomStorage) {
    this.#storage = storage;
  }

  get reserveBytes(): number {
    return this.#storage.reserveBytes ?? 0;
  }

  open(file: string): StorageFile {
    return new WatchedFile(sync('open', this.#storage.open(file)));
  }

  list(): string[] {
    const names = sync('list', this.#storage.list());
    if (Array.isArray(names) && names.every((name) => typeof name === 'string')) return names;
    throw new KvError('KV_INVALID_ARGUMENT', "the storage's method list has to give an array of names");
  }

  remove(file: string): void {
    sync('remove', this.#storage.remove(file));
  }
}
