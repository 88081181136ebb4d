// Restores and recovers in IndexedDB, in a worker. The files are in memory; one transaction stores
// the result.
import type { KvError } from '../base/errors.ts';
import { deleteIdb } from '../storage/idb.ts';
import { IndexedDbStorage } from '../storage/indexeddb.ts';
import { MemoryStorage } from '../storage/memory.ts';
import { DATA_FILE, LOG_FILE } from '../storage/opfs.ts';
import { checkOurs } from '../storage/recognize.ts';
import type { CustomStorage, StorageFile } from '../types/index.ts';
import type { RestoreOptions } from '../types/maintenance.ts';
import { UnchangedStorage } from './files.ts';
import { alreadyExists } from './options.ts';
import type { Source, Target } from './run.ts';

/** A worker that was terminated a moment ago may still hold its lock. */
const LOCK_WAIT_MS = 500;

export class IdbTarget implements Target {
  readonly #storage: IndexedDbStorage;
  readonly #name: string;
  readonly #isNew: boolean;
  readonly #bucket: string | undefined;

  private constructor(storage: IndexedDbStorage, name: string, isNew: boolean, bucket: string | undefined) {
    this.#bucket = bucket;
    this.#storage = storage;
    this.#name = name;
    this.#isNew = isNew;
  }

  static async open(
    name: string,
    { overwrite = false, force = false }: RestoreOptions,
    canOverwrite: boolean,
    bucket?: string,
  ): Promise<IdbTarget> {
    let isNew = false;
    const storage = await IndexedDbStorage.open(name, false, LOCK_WAIT_MS, { bucket }).catch((error: KvError) => {
      if (error.code !== 'KV_NOT_FOUND') throw error;
      isNew = true;
      return IndexedDbStorage.open(name, true, LOCK_WAIT_MS, { bucket });
    });
    try {
      const files = storage.list();
      if (!overwrite && files.includes(DATA_FILE) && storage.open(DATA_FILE).size() > 0)
        throw alreadyExists(name, canOverwrite);
      for (const file of force ? [] : files) checkOurs(name, file, storage.open(file));
    } catch (error) {
      storage.close();
      throw error;
    }
    return new IdbTarget(storage, name, isNew, bucket);
  }

  /**
   * From here to `install` or `abandon` nothing may be awaited, since changes are stored at the end
   * of the task.
   */
  get storage(): CustomStorage {
    for (const file of [DATA_FILE, LOG_FILE]) this.#storage.remove(file);
    return this.#storage;
  }

  async spool(): Promise<StorageFile> {
    return new MemoryStorage().open('backup');
  }

  async install(): Promise<void> {
    try {
      await this.#storage.settled();
    } catch (error) {
      await this.abandon();
      throw error;
    }
    this.#storage.close();
  }

  async abandon(): Promise<void> {
    this.#storage.close();
    if (this.#isNew) await deleteIdb(this.#name, this.#bucket).catch(() => undefined);
  }
}

export async function openIdbSource(name: string, bucket?: string): Promise<Source> {
  const storage = await IndexedDbStorage.open(name, false, LOCK_WAIT_MS, { bucket });
  return { storage: new UnchangedStorage(storage), close: () => storage.close() };
}
