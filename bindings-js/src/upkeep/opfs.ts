// Restoring and recovering in the origin private file system, in a worker.
import { KvError } from '../errors.ts';
import { DATA_FILE, LOG_FILE, OpfsFile, acquire, directoryName, nameOf, rootDirectory, toKvError } from '../storage/opfs.ts';
import type { FileHandle } from '../storage/opfs.ts';
import type { CustomStorage, StorageFile } from '../types.ts';
import { UnchangedStorage } from './files.ts';
import { alreadyExists } from './options.ts';
import { ASIDE, SPOOL_FILE } from './run.ts';
import type { Source, Target } from './run.ts';

export const MADE_FILES = [`${DATA_FILE}${ASIDE}`, `${LOG_FILE}${ASIDE}`, SPOOL_FILE] as const;
/** A worker that was ended a moment ago may still have its files. */
const LOCK_WAIT_MS = 500;

/** `FileSystemFileHandle.move`, which the types lack. Within a directory it takes the place of another file in one step. */
interface MovableHandle {
  move?(name: string): Promise<void>;
}

/** Files that were opened beforehand. */
class OpenedFiles implements CustomStorage {
  readonly #files: ReadonlyMap<string, OpfsFile>;

  constructor(files: ReadonlyMap<string, OpfsFile>) {
    this.#files = files;
  }

  open(name: string): StorageFile {
    const file = this.#files.get(name);
    if (file === undefined) throw new KvError('KV_IO', `${name} was not opened beforehand`);
    return file;
  }

  /** What was only created to have its handle counts as missing. */
  list(): string[] {
    return [...this.#files].filter(([, file]) => file.size() > 0).map(([name]) => name);
  }

  /** It is removed with the others, once nothing is open any more. */
  remove(): void {}
}

async function has(parent: FileSystemDirectoryHandle, name: string): Promise<boolean> {
  try {
    await parent.getFileHandle(name);
    return true;
  } catch (error) {
    if (nameOf(error) === 'NotFoundError') return false;
    throw error;
  }
}

async function openFile(parent: FileSystemDirectoryHandle, name: string, database: string, create: boolean): Promise<OpfsFile> {
  const handle = await parent.getFileHandle(name, { create });
  return new OpfsFile(await acquire(database, handle as FileHandle, LOCK_WAIT_MS));
}

export class OpfsTarget implements Target {
  readonly storage: CustomStorage;
  readonly #parent: FileSystemDirectoryHandle;
  readonly #name: string;
  readonly #isNew: boolean;
  readonly #files: ReadonlyMap<string, OpfsFile>;

  private constructor(parent: FileSystemDirectoryHandle, name: string, isNew: boolean, files: ReadonlyMap<string, OpfsFile>) {
    this.#parent = parent;
    this.#name = name;
    this.#isNew = isNew;
    this.#files = files;
    const made = [DATA_FILE, LOG_FILE].map((file) => [file, files.get(file + ASIDE) as OpfsFile] as const);
    this.storage = new OpenedFiles(new Map(made));
  }

  static async open(name: string, overwrite: boolean, canOverwrite: boolean): Promise<OpfsTarget> {
    const files = new Map<string, OpfsFile>();
    let target: OpfsTarget | undefined;
    try {
      const root = await rootDirectory(true) as FileSystemDirectoryHandle;
      const parent = await root.getDirectoryHandle(directoryName(name), { create: true });
      const isNew = !await has(parent, DATA_FILE);
      // Held until the new file takes its place, so that nobody opens the database meanwhile.
      files.set(DATA_FILE, await openFile(parent, DATA_FILE, name, true));
      if (!overwrite && (files.get(DATA_FILE)?.size() ?? 0) > 0) throw alreadyExists(name, canOverwrite);
      for (const file of MADE_FILES) {
        const opened = await openFile(parent, file, name, true);
        files.set(file, opened);
        opened.truncate(0);
      }
      target = new OpfsTarget(parent, name, isNew, files);
      if (typeof (await parent.getFileHandle(MADE_FILES[0]) as MovableHandle).move !== 'function') {
        throw new KvError('KV_UNSUPPORTED', 'this browser cannot put a file in the place of another one in one step');
      }
      return target;
    } catch (error) {
      for (const file of files.values()) file.close();
      await target?.abandon();
      throw toKvError(error, `open ${name}`);
    }
  }

  async spool(): Promise<StorageFile> {
    return this.#files.get(SPOOL_FILE) as OpfsFile;
  }

  async install(): Promise<void> {
    try {
      const made = await this.#parent.getFileHandle(MADE_FILES[0]) as MovableHandle;
      this.#close();
      // The step from the old database to the new one. It fails if somebody opened the old one just now.
      await made.move?.(DATA_FILE);
    } catch (error) {
      await this.abandon();
      if (['NoModificationAllowedError', 'InvalidStateError'].includes(nameOf(error))) {
        throw new KvError('KV_LOCKED', `${this.#name} was opened meanwhile; close it first`, { cause: error, retryable: true });
      }
      throw toKvError(error, `put the new database in the place of ${this.#name}`);
    }
    // The new database was closed, so it needs no log; the salt of an old one is not its own, so what is in there means nothing to it.
    await this.#remove([LOG_FILE, ...MADE_FILES]);
  }

  async abandon(): Promise<void> {
    const isEmpty = this.#files.get(DATA_FILE)?.size() === 0;
    this.#close();
    await this.#remove(this.#isNew && isEmpty ? [DATA_FILE, ...MADE_FILES] : MADE_FILES);
    if (!this.#isNew) return;
    const root = await rootDirectory(false).catch(() => undefined);
    // It stays if there is something else in it.
    await root?.removeEntry(directoryName(this.#name)).catch(() => undefined);
  }

  #close(): void {
    for (const file of this.#files.values()) file.close();
  }

  /** What cannot be removed is only in the way; the next restoration removes it. */
  async #remove(names: readonly string[]): Promise<void> {
    for (const name of names) await this.#parent.removeEntry(name).catch(() => undefined);
  }
}

export async function openOpfsSource(name: string): Promise<Source> {
  const files = new Map<string, OpfsFile>();
  const close = (): void => files.forEach((file) => file.close());
  try {
    const root = await rootDirectory(false);
    const parent = await root?.getDirectoryHandle(directoryName(name));
    if (parent === undefined) throw new DOMException('there are no databases', 'NotFoundError');
    files.set(DATA_FILE, await openFile(parent, DATA_FILE, name, false));
    if (await has(parent, LOG_FILE)) files.set(LOG_FILE, await openFile(parent, LOG_FILE, name, false));
  } catch (error) {
    close();
    if (nameOf(error) === 'NotFoundError') throw new KvError('KV_NOT_FOUND', `the database ${name} does not exist`, { cause: error });
    throw toKvError(error, `open ${name}`);
  }
  const all = { ...methodsOf(new OpenedFiles(files)), list: () => [...files.keys()] };
  return { storage: new UnchangedStorage(all), close };
}

function methodsOf(storage: CustomStorage): CustomStorage {
  return { open: (file) => storage.open(file), list: () => storage.list(), remove: (file) => storage.remove(file) };
}
