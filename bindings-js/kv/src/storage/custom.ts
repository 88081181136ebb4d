// Checks a user's storage: an asynchronous method would seem to succeed before anything was done.
import { KvError } from '../base/errors.ts';
import type { CustomStorage, StorageFile } from '../types/index.ts';

function sync<T>(method: string, result: T): T {
  if (typeof (result as { then?: unknown } | null | undefined)?.then === 'function') {
    // The promise's outcome no longer matters, not even a rejection.
    Promise.resolve(result).catch(() => undefined);
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      `the storage's method ${method} has to be synchronous, but returned a promise`,
    );
  }
  return result;
}

/** Checks the value, since the WebAssembly module treats anything as a number. */
function count(what: string, value: unknown, max: number): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= max) return value;
  throw new KvError('KV_INVALID_ARGUMENT', `the storage's ${what} has to be a whole number of bytes from 0 to ${max}`);
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
    return count('size', sync('size', this.#file.size()), Number.MAX_SAFE_INTEGER);
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
    return count('reserveBytes', this.#storage.reserveBytes ?? 0, 0xffff_ffff);
  }

  open(file: string): StorageFile {
    const opened = sync('open', this.#storage.open(file));
    const methods = ['read', 'write', 'flush', 'size', 'truncate', 'close'] as const;
    if (methods.every((method) => typeof opened?.[method] === 'function')) return new WatchedFile(opened);
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      `the storage's method open has to return an object with ${methods.join(', ')}`,
    );
  }

  list(): string[] {
    const names = sync('list', this.#storage.list());
    if (Array.isArray(names) && names.every((name) => typeof name === 'string')) return names;
    throw new KvError('KV_INVALID_ARGUMENT', "the storage's method list has to return an array of names");
  }

  remove(file: string): void {
    sync('remove', this.#storage.remove(file));
  }
}
