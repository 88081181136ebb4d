// Files of the origin private file system through synchronous access handles, which exist in dedicated workers only.
// Handles can only be had asynchronously, so that all are opened before the engine starts. Nothing here ever removes
// or truncates a file on its own account.
import { KvError } from '../errors.ts';
import type { CustomStorage, StorageFile } from '../types.ts';

/** `FileSystemSyncAccessHandle`, which the types of windows lack. */
interface AccessHandle {
  read(into: Uint8Array, options: { at: number }): number;
  write(from: Uint8Array, options: { at: number }): number;
  flush(): void;
  getSize(): number;
  truncate(size: number): void;
  close(): void;
}

export interface FileHandle {
  createSyncAccessHandle?(): Promise<AccessHandle>;
}

/** The file that holds the database. */
export const DATA_FILE = 'data';
/** The file of commits that are not in it yet. */
export const LOG_FILE = 'log';
const ROOT_DIRECTORY = 'mangrove';
const FIRST_WAIT_MS = 10;
const MAX_WAIT_MS = 250;

/** What a browser throws while a file is held: by another tab, or by a worker that is dying. */
const HELD = ['NoModificationAllowedError', 'InvalidStateError'];

export function nameOf(error: unknown): string {
  return (error as { name?: unknown } | null | undefined)?.name?.toString() ?? '';
}

/** The browser's error in our words. */
export function toKvError(error: unknown, action: string): KvError {
  if (error instanceof KvError) return error;
  const message = `${action}: ${error instanceof Error ? error.message : String(error)}`;
  switch (nameOf(error)) {
    case 'QuotaExceededError':
    // Firefox, when a file is to be made longer.
    case 'NS_ERROR_FILE_NO_DEVICE_SPACE':
      return new KvError('KV_QUOTA_EXCEEDED', message, { cause: error, retryable: true });
    case 'SecurityError':
    case 'NotSupportedError':
      return new KvError('KV_UNSUPPORTED', message, { cause: error });
    default:
      return new KvError('KV_IO', message, { cause: error });
  }
}

/** Name of a database's directory. Two names that the file system gives a meaning are written otherwise. */
export function directoryName(name: string): string {
  try {
    if (name === '.' || name === '..') return name.replaceAll('.', '%2E');
    if (name !== '') return encodeURIComponent(name);
  } catch {
    // A lone surrogate has no UTF-8.
  }
  throw new KvError('KV_INVALID_ARGUMENT', 'the name of a database has to be a well-formed string that is not empty');
}

/** The directory of all databases of this origin; undefined if it is missing and not to be created. */
export async function rootDirectory(create: boolean): Promise<FileSystemDirectoryHandle | undefined> {
  // On a server, where the types of a browser's `navigator` are not true.
  if (typeof globalThis.navigator?.storage?.getDirectory !== 'function') {
    throw new KvError('KV_UNSUPPORTED', 'there is no origin private file system here (no-opfs)');
  }
  let root: FileSystemDirectoryHandle;
  try {
    root = await navigator.storage.getDirectory();
  } catch (error) {
    // Each browser has its own name for it.
    throw new KvError('KV_UNSUPPORTED', 'the browser refuses the origin private file system, as private windows do (private-mode)', { cause: error });
  }
  try {
    return await root.getDirectoryHandle(ROOT_DIRECTORY, { create });
  } catch (error) {
    if (!create && nameOf(error) === 'NotFoundError') return undefined;
    throw toKvError(error, 'open the origin private file system');
  }
}

export class OpfsFile implements StorageFile {
  readonly #handle: AccessHandle;
  /** Asking the browser costs as much as a read. */
  #size: number;
  #isClosed = false;

  constructor(handle: AccessHandle) {
    this.#handle = handle;
    this.#size = handle.getSize();
  }

  read(at: number, into: Uint8Array): void {
    const count = this.#call('read', () => this.#handle.read(into, { at }));
    if (count !== into.length) throw new KvError('KV_IO', `read at ${at}: ${count} of ${into.length} bytes`);
  }

  write(at: number, from: Uint8Array): void {
    let count = -1;
    try {
      count = this.#call('write', () => this.#handle.write(from, { at }));
    } finally {
      if (count === from.length) this.#size = Math.max(this.#size, at + count);
      else this.#askSize();
    }
    if (count === from.length) return;
    // At the quota no browser throws: one gives a negative number, one a smaller.
    throw new KvError('KV_QUOTA_EXCEEDED', `write at ${at}: ${count} of ${from.length} bytes`, { retryable: true });
  }

  flush(): void {
    this.#call('flush', () => this.#handle.flush());
  }

  size(): number {
    return this.#size;
  }

  truncate(size: number): void {
    try {
      this.#call('truncate', () => this.#handle.truncate(size));
    } finally {
      this.#askSize();
    }
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#handle.close();
  }

  #askSize(): void {
    if (!this.#isClosed) this.#size = this.#handle.getSize();
  }

  #call<T>(action: string, call: () => T): T {
    if (this.#isClosed) throw new KvError('KV_CLOSED', 'the file is closed');
    try {
      return call();
    } catch (error) {
      throw toKvError(error, action);
    }
  }
}

/** The files of one database, opened beforehand. */
export class OpfsStorage implements CustomStorage {
  readonly #files: ReadonlyMap<string, OpfsFile>;
  readonly #hadLog: boolean;

  private constructor(files: ReadonlyMap<string, OpfsFile>, hadLog: boolean) {
    this.#files = files;
    this.#hadLog = hadLog;
  }

  /** Opens the files, waiting up to `timeoutMs` while somebody else holds them. */
  static async open(name: string, create: boolean, timeoutMs: number): Promise<OpfsStorage> {
    const missing = (): KvError => new KvError('KV_NOT_FOUND', `the database ${name} does not exist`);
    const directory = directoryName(name);
    const files = new Map<string, OpfsFile>();
    try {
      const root = await rootDirectory(create);
      if (root === undefined) throw missing();
      const parent = await root.getDirectoryHandle(directory, { create });
      const data = await parent.getFileHandle(DATA_FILE, { create });
      files.set(DATA_FILE, new OpfsFile(await acquire(name, data as FileHandle, timeoutMs)));
      const hadLog = await parent.getFileHandle(LOG_FILE).then(() => true, isMissing);
      const log = await parent.getFileHandle(LOG_FILE, { create: true });
      files.set(LOG_FILE, new OpfsFile(await acquire(name, log as FileHandle, timeoutMs)));
      return new OpfsStorage(files, hadLog);
    } catch (error) {
      for (const file of files.values()) file.close();
      throw !create && nameOf(error) === 'NotFoundError' ? missing() : toKvError(error, `open ${name}`);
    }
  }

  open(file: string): StorageFile {
    const opened = this.#files.get(file);
    if (opened === undefined) throw new KvError('KV_IO', `${file} was not opened beforehand`);
    return opened;
  }

  /** What was only created to have its handle counts as missing. */
  list(): string[] {
    const hasData = (this.#files.get(DATA_FILE)?.size() ?? 0) > 0;
    const hasLog = this.#hadLog || (this.#files.get(LOG_FILE)?.size() ?? 0) > 0;
    return [...(hasData ? [DATA_FILE] : []), ...(hasLog ? [LOG_FILE] : [])];
  }

  remove(file: string): void {
    throw new KvError('KV_IO', `${file} cannot be removed while the database is open`);
  }

  close(): void {
    for (const file of this.#files.values()) file.close();
  }
}

function isMissing(error: unknown): false {
  if (nameOf(error) === 'NotFoundError') return false;
  throw error;
}

/**
 * WebKitGTK opens no handles, but says so once for each file: from then on that the file is held. Of a file that is new it says the truth.
 *
 * @throws its NotSupportedError, and nothing else.
 */
async function checkHandles(): Promise<void> {
  const root = await navigator.storage.getDirectory();
  const name = `mangrove-${crypto.randomUUID()}`;
  try {
    const file = await root.getFileHandle(name, { create: true }) as FileHandle;
    (await file.createSyncAccessHandle?.())?.close();
  } catch (error) {
    if (nameOf(error) === 'NotSupportedError') throw error;
  } finally {
    await root.removeEntry(name).catch(() => undefined);
  }
}

export async function acquire(name: string, file: FileHandle, timeoutMs: number): Promise<AccessHandle> {
  if (file.createSyncAccessHandle === undefined) {
    throw new KvError('KV_UNSUPPORTED', 'this browser has no synchronous access to files in workers (no-opfs)');
  }
  const deadline = performance.now() + timeoutMs;
  for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * 2, MAX_WAIT_MS)) {
    try {
      return await file.createSyncAccessHandle();
    } catch (error) {
      if (!HELD.includes(nameOf(error))) throw error;
      if (waitMs === FIRST_WAIT_MS && nameOf(error) === 'InvalidStateError') await checkHandles();
      const leftMs = deadline - performance.now();
      if (leftMs <= 0) {
        throw new KvError('KV_LOCKED', `${name} is open in another tab or handle; close it there first`, {
          cause: error,
          retryable: true,
        });
      }
      await new Promise((resolve) => setTimeout(resolve, Math.min(waitMs, leftMs)));
    }
  }
}
