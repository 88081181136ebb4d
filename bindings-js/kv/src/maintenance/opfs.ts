// Restores and recovers in the origin private file system, in a worker.
import { KvError } from '../base/errors.ts';
import {
  DATA_FILE,
  HELD,
  LOG_FILE,
  OpfsFile,
  RESTORED_FILE,
  acquire,
  acquireData,
  directoryName,
  finishRestore,
  hasFile,
  nameOf,
  rootDirectory,
  toKvError,
} from '../storage/opfs.ts';
import type { FileHandle } from '../storage/opfs.ts';
import type { CustomStorage, StorageFile } from '../types/index.ts';
import { checkOpfsFile } from '../storage/opfs-files.ts';
import { checkOurs } from '../storage/recognize.ts';
import type { RestoreOptions } from '../types/maintenance.ts';
import { UnchangedStorage } from './files.ts';
import { alreadyExists } from './options.ts';
import { RESTORING_SUFFIX, SPOOL_FILE } from './run.ts';
import type { Source, Target } from './run.ts';

export const MADE_FILES = [`${DATA_FILE}${RESTORING_SUFFIX}`, `${LOG_FILE}${RESTORING_SUFFIX}`, SPOOL_FILE] as const;
/** A worker that was terminated a moment ago may still hold its files. */
const LOCK_WAIT_MS = 500;
const FINISH_PAUSE_MS = 10;

/** Files that were opened in advance. */
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

  /** Files created only to get a handle count as missing. */
  list(): string[] {
    return [...this.#files].filter(([, file]) => file.size() > 0).map(([name]) => name);
  }

  /** Does nothing: the file is removed with the others, once all are closed. */
  remove(): void {}
}

async function openData(parent: FileSystemDirectoryHandle, database: string, create: boolean): Promise<OpfsFile> {
  return new OpfsFile(await acquireData(database, parent, create, LOCK_WAIT_MS));
}

async function openFile(
  parent: FileSystemDirectoryHandle,
  name: string,
  database: string,
  create: boolean,
): Promise<OpfsFile> {
  const handle = await parent.getFileHandle(name, { create });
  return new OpfsFile(await acquire(database, handle as FileHandle, LOCK_WAIT_MS));
}

export class OpfsTarget implements Target {
  readonly storage: CustomStorage;
  readonly #parent: FileSystemDirectoryHandle;
  readonly #name: string;
  readonly #isNew: boolean;
  readonly #bucket: string | undefined;
  readonly #files: ReadonlyMap<string, OpfsFile>;

  private constructor(
    parent: FileSystemDirectoryHandle,
    name: string,
    isNew: boolean,
    files: ReadonlyMap<string, OpfsFile>,
    bucket: string | undefined,
  ) {
    this.#bucket = bucket;
    this.#parent = parent;
    this.#name = name;
    this.#isNew = isNew;
    this.#files = files;
    const made = [DATA_FILE, LOG_FILE].map((file) => [file, files.get(file + RESTORING_SUFFIX) as OpfsFile] as const);
    this.storage = new OpenedFiles(new Map(made));
  }

  static async open(
    name: string,
    { overwrite = false, force = false }: RestoreOptions,
    canOverwrite: boolean,
    bucket?: string,
  ): Promise<OpfsTarget> {
    const files = new Map<string, OpfsFile>();
    let target: OpfsTarget | undefined;
    try {
      const root = (await rootDirectory(true, bucket)) as FileSystemDirectoryHandle;
      const parent = await root.getDirectoryHandle(directoryName(name), { create: true });
      // Checked before anything is created there, since the log is removed in the end.
      if (!force) await checkOpfsFile(parent, name, LOG_FILE);
      const hadData = await hasFile(parent, DATA_FILE);
      // Held until the new file replaces it, so that nobody opens the database meanwhile.
      const data = await openData(parent, name, true);
      files.set(DATA_FILE, data);
      if (!overwrite && data.size() > 0) throw alreadyExists(name, canOverwrite);
      if (!force) checkOurs(name, DATA_FILE, data);
      // Left by a restore that never replaced the data.
      if (data.size() > 0 && (await hasFile(parent, RESTORED_FILE))) await parent.removeEntry(RESTORED_FILE);
      for (const file of MADE_FILES) {
        const opened = await openFile(parent, file, name, true);
        files.set(file, opened);
        opened.truncate(0);
      }
      target = new OpfsTarget(parent, name, !hadData && data.size() === 0, files, bucket);
      if (typeof ((await parent.getFileHandle(MADE_FILES[0])) as FileHandle).move !== 'function') {
        throw new KvError('KV_UNSUPPORTED', 'this browser cannot replace a file atomically');
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
      const made = (await this.#parent.getFileHandle(MADE_FILES[0])) as FileHandle;
      this.#files.get(MADE_FILES[0])?.close();
      // From here on it replaces a database that is missing, so a crash while the old one is being
      // removed loses nothing.
      await made.move?.(RESTORED_FILE);
      const restored = (await this.#parent.getFileHandle(RESTORED_FILE)) as FileHandle;
      const isEmpty = this.#isEmpty;
      this.#close();
      // The step from the old database to the new one. It fails if somebody has just opened the old
      // one.
      if (!isEmpty) await restored.move?.(DATA_FILE);
      // Opening an empty database completes this step too.
      else
        while (!(await finishRestore(this.#parent)))
          await new Promise((resolve) => setTimeout(resolve, FINISH_PAUSE_MS));
    } catch (error) {
      await this.abandon();
      if (HELD.includes(nameOf(error))) {
        throw new KvError('KV_LOCKED', `${this.#name} was opened in the meantime; close it first`, {
          cause: error,
          retryable: true,
        });
      }
      throw toKvError(error, `put the new database in the place of ${this.#name}`);
    }
    // The new database was closed, so it needs no log. An old log has another salt, so its content
    // means nothing to the new database.
    await this.#remove([LOG_FILE, ...MADE_FILES]);
  }

  async abandon(): Promise<void> {
    const isEmpty = this.#isEmpty;
    this.#close();
    await this.#remove(MADE_FILES);
    // The restored database stays if the old one is gone.
    const left = await this.#parent.getFileHandle(DATA_FILE).then(
      (handle) => handle.getFile(),
      () => undefined,
    );
    if (isEmpty || (left?.size ?? 0) > 0) await this.#remove([RESTORED_FILE]);
    if (!this.#isNew) return;
    await this.#remove([DATA_FILE]);
    const root = await rootDirectory(false, this.#bucket).catch(() => undefined);
    // The directory stays if it contains anything else.
    await root?.removeEntry(directoryName(this.#name)).catch(() => undefined);
  }

  /** Whether there was no database. */
  get #isEmpty(): boolean {
    return this.#files.get(DATA_FILE)?.size() === 0;
  }

  #close(): void {
    for (const file of this.#files.values()) file.close();
  }

  /** Removes files. A file that cannot be removed does no harm; the next restore removes it. */
  async #remove(names: readonly string[]): Promise<void> {
    for (const name of names) await this.#parent.removeEntry(name).catch(() => undefined);
  }
}

export async function openOpfsSource(name: string, bucket?: string): Promise<Source> {
  const files = new Map<string, OpfsFile>();
  const close = (): void => files.forEach((file) => file.close());
  try {
    const root = await rootDirectory(false, bucket);
    const parent = await root?.getDirectoryHandle(directoryName(name));
    if (parent === undefined) throw new DOMException('there are no databases', 'NotFoundError');
    files.set(DATA_FILE, await openData(parent, name, false));
    if (await hasFile(parent, LOG_FILE)) files.set(LOG_FILE, await openFile(parent, LOG_FILE, name, false));
  } catch (error) {
    close();
    if (nameOf(error) === 'NotFoundError')
      throw new KvError('KV_NOT_FOUND', `the database ${name} does not exist`, { cause: error });
    throw toKvError(error, `open ${name}`);
  }
  const all = { ...methodsOf(new OpenedFiles(files)), list: () => [...files.keys()] };
  return { storage: new UnchangedStorage(all), close };
}

function methodsOf(storage: CustomStorage): CustomStorage {
  return { open: (file) => storage.open(file), list: () => storage.list(), remove: (file) => storage.remove(file) };
}
