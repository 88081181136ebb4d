// Wrappers of storages.
import { KvError } from '../base/errors.ts';
import type { CustomStorage, StorageFile } from '../types/index.ts';

/**
 * The files of a storage under other names. Remembers which files are open, since an engine that
 * stopped closes none.
 */
export class RenamedStorage implements CustomStorage {
  readonly #storage: CustomStorage;
  readonly #rename: (file: string) => string;
  readonly #open: StorageFile[] = [];

  constructor(storage: CustomStorage, rename: (file: string) => string) {
    this.#storage = storage;
    this.#rename = rename;
  }

  open(file: string): StorageFile {
    const opened = this.#storage.open(this.#rename(file));
    this.#open.push(opened);
    return opened;
  }

  list(): string[] {
    const names = new Set(this.#storage.list());
    return ['data', 'log'].filter((name) => names.has(this.#rename(name)));
  }

  remove(file: string): void {
    this.closeAll();
    this.#storage.remove(this.#rename(file));
  }

  closeAll(): void {
    for (const file of this.#open.splice(0)) file.close();
  }
}

function refuse(): never {
  throw new KvError('KV_READ_ONLY', 'a damaged database is not written to');
}

/** A read-only view of the files of a storage. */
export class UnchangedStorage implements CustomStorage {
  readonly remove = refuse;
  readonly #storage: CustomStorage;

  constructor(storage: CustomStorage) {
    this.#storage = storage;
  }

  open(name: string): StorageFile {
    if (!this.list().includes(name)) throw new KvError('KV_NOT_FOUND', `there is no file ${name}`);
    const file = this.#storage.open(name);
    return {
      read: (at, into) => file.read(at, into),
      size: () => file.size(),
      close: () => file.close(),
      write: refuse,
      flush: refuse,
      truncate: refuse,
    };
  }

  list(): string[] {
    return this.#storage.list();
  }
}
