// Files of the origin private file system through synchronous access handles, which exist only in
// dedicated workers. Opening a handle is asynchronous, so all are opened before the engine starts.
// Nothing here removes or truncates a file on its own account.
import { KvError } from '../base/errors.ts';
import { crypto, performance } from '../base/platform.ts';
import { openBucket } from './bucket.ts';
import { BROWSER_MS, isOpaque, within } from './support.ts';
import type { CustomStorage, StorageFile } from '../types/index.ts';

/** `FileSystemSyncAccessHandle`, which is missing from the types for windows. */
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
  /**
   * Also missing from the types. Renames within a directory. Firefox first removes an existing file
   * of the new name, in a separate step.
   */
  move?(name: string): Promise<void>;
}

/** The file that holds the database. */
export const DATA_FILE = 'data';
/** The log: commits that are not in the data file yet. */
export const LOG_FILE = 'log';
/** A restored database on the way to its place. If there is no other data, it is the database. */
export const RESTORED_FILE = 'data.restored';
const ROOT_DIRECTORY = 'mangrove';
const FIRST_WAIT_MS = 10;
const MAX_WAIT_MS = 100;
/** The last of ten waits, about 10 s in total. */
const LAST_ROOT_WAIT_MS = 5120;

/**
 * Names of the errors that browsers throw while a file is held: by another tab, or by a worker that
 * is terminating.
 */
export const HELD = ['NoModificationAllowedError', 'InvalidStateError'];

export function nameOf(error: unknown): string {
  return (error as { name?: unknown } | null | undefined)?.name?.toString() ?? '';
}

/** Converts the browser's error to a KvError. */
export function toKvError(error: unknown, action: string): KvError {
  if (error instanceof KvError) return error;
  const message = `${action}: ${error instanceof Error ? error.message : String(error)}`;
  switch (nameOf(error)) {
    case 'QuotaExceededError':
    // Firefox, on extending a file.
    case 'NS_ERROR_FILE_NO_DEVICE_SPACE':
      return new KvError('KV_QUOTA_EXCEEDED', message, { cause: error, retryable: true });
    case 'SecurityError':
    case 'NotSupportedError':
      return new KvError('KV_UNSUPPORTED', message, { cause: error });
    default:
      return new KvError('KV_IO', message, { cause: error });
  }
}

/** Name of a database's directory. `.` and `..`, which are special in file systems, are escaped. */
export function directoryName(name: string): string {
  try {
    if (name === '.' || name === '..') return name.replaceAll('.', '%2E');
    if (name !== '') return encodeURIComponent(name);
  } catch {
    // A lone surrogate cannot be encoded as UTF-8.
  }
  throw new KvError('KV_INVALID_ARGUMENT', 'the name of a database has to be a well-formed string that is not empty');
}

/**
 * The directory of all databases of this origin, or of one of its buckets; `undefined` if it is
 * missing and `create` is false.
 */
export async function rootDirectory(create: boolean, bucket?: string): Promise<FileSystemDirectoryHandle | undefined> {
  // Checked at run time: outside browsers, `navigator` is not what the types say.
  if (typeof globalThis.navigator?.storage?.getDirectory !== 'function') {
    throw new KvError('KV_UNSUPPORTED', 'there is no origin private file system here (no-opfs)');
  }
  const place = bucket === undefined ? navigator.storage : await openBucket(bucket, create).catch(refuseBucket);
  if (place === undefined) return undefined;
  for (let waitMs = FIRST_WAIT_MS; ; waitMs *= 2) {
    let root: FileSystemDirectoryHandle;
    try {
      root = await within(place.getDirectory(), BROWSER_MS, 'opening the origin private file system');
    } catch (error) {
      if (error instanceof KvError) throw error;
      // Each browser names this error differently.
      throw new KvError(
        'KV_UNSUPPORTED',
        `the browser refuses the origin private file system (${isOpaque() ? 'opaque-origin' : 'private-mode'})`,
        { cause: error },
      );
    }
    try {
      return await within(
        root.getDirectoryHandle(ROOT_DIRECTORY, { create }),
        BROWSER_MS,
        `opening the directory ${ROOT_DIRECTORY}`,
      );
    } catch (error) {
      if (!create && nameOf(error) === 'NotFoundError') return undefined;
      // While Chromium still removes the site's data, it returns a root that vanishes at once.
      if (nameOf(error) !== 'InvalidStateError' || waitMs > LAST_ROOT_WAIT_MS)
        throw toKvError(error, 'open the origin private file system');
    }
    await new Promise((resolve) => setTimeout(resolve, waitMs));
  }
}

function refuseBucket(error: unknown): never {
  throw toKvError(error, 'open the storage bucket');
}

let checkedAt = -Infinity;

/**
 * Throws if the page of this worker is gone.
 *
 * Chromium stops a worker in the middle of its script when it keeps the worker's page in the
 * background, and may then drop both. In that case the script continues for a while although others
 * have the files, and a write kills the process, including every page of the site in it. Such a
 * worker can no longer set timers. Checking that costs a quarter of a write, so it is checked only
 * if time has passed.
 */
function checkAlive(): void {
  const now = performance.now();
  if (now - checkedAt < 1) return;
  checkedAt = now;
  const timer = setTimeout(() => {});
  clearTimeout(timer);
  if ((timer as unknown) === 0) throw new KvError('KV_IO', 'the page of this worker is gone');
}

/** Time from the first write after a check to the next check. */
const LOOK_AFTER_MS = 1000;
/** Without an answer in this time, the files are assumed to exist. */
const LOOK_MS = 5000;
/**
 * The database's random id, in the superblock that is written first. It distinguishes a new file of
 * the same name from the old one.
 */
const ID_AT = 4096 + 16;
const ID_BYTES = 16;

/**
 * Checks whether the files of open handles still exist. When a browser removes a site's data, open
 * handles keep working: writes are lost without an error, and in Chromium closing a handle never
 * returns. So the check runs after writes, and before any handle is closed.
 */
class Presence {
  /** Called once, when the files are gone. */
  onLost: ((error: KvError) => void) | undefined;
  readonly #parent: FileSystemDirectoryHandle;
  readonly #name: string;
  readonly #file: string;
  readonly #handle: AccessHandle;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isLost = false;
  #leaving: Promise<boolean> | undefined;
  /**
   * Resolves when every handle passed to `letGo` is closed, or left open because its file is gone.
   */
  closing: Promise<void> | undefined;

  /** Watches the database `name`, whose `file` in `parent` is open as `handle`. */
  constructor(parent: FileSystemDirectoryHandle, name: string, file: string, handle: AccessHandle) {
    this.#parent = parent;
    this.#name = name;
    this.#file = file;
    this.#handle = handle;
  }

  /** Schedules a check, because something is written. */
  touched(): void {
    if (this.#isLost || this.#leaving !== undefined) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.#look();
    }, LOOK_AFTER_MS);
  }

  /** Closes a handle, unless its file is gone: then only the end of the worker frees it. */
  letGo(handle: AccessHandle): void {
    clearTimeout(this.#timer);
    this.#leaving ??= this.#look();
    const closed = this.#leaving.then((isThere) => {
      if (isThere) handle.close();
    });
    this.closing = Promise.all([this.closing, closed]).then(() => undefined);
  }

  async #look(): Promise<boolean> {
    const isThere =
      !this.#isLost && (await within(this.#isThere(), LOOK_MS, 'looking for the files').catch(() => true));
    if (isThere || this.#isLost) return isThere;
    this.#isLost = true;
    this.onLost?.(
      new KvError(
        'KV_EVICTED',
        `the files of ${this.#name} were removed by the browser or the user while it was open; everything written since is lost; open it again to start over`,
      ),
    );
    return false;
  }

  async #isThere(): Promise<boolean> {
    let stored: Uint8Array;
    try {
      const file = await (await this.#parent.getFileHandle(this.#file)).getFile();
      stored = new Uint8Array(await file.slice(ID_AT, ID_AT + ID_BYTES).arrayBuffer());
    } catch (error) {
      // Any other failure proves nothing.
      return (error as { name?: unknown } | null)?.name !== 'NotFoundError';
    }
    if (this.#handle.getSize() < ID_AT + ID_BYTES) return true;
    const own = new Uint8Array(ID_BYTES);
    this.#handle.read(own, { at: ID_AT });
    return stored.every((byte, at) => byte === own[at]) && stored.length === ID_BYTES;
  }
}

export class OpfsFile implements StorageFile {
  readonly #handle: AccessHandle;
  /** Cached, since asking the browser costs as much as a read. */
  #size: number;
  #isClosed = false;
  readonly #presence: Presence | undefined;

  /** `presence`, if given, closes the handle. */
  constructor(handle: AccessHandle, presence?: Presence) {
    this.#handle = handle;
    this.#size = handle.getSize();
    this.#presence = presence;
  }

  read(at: number, into: Uint8Array): void {
    const count = this.#call('read', () => this.#handle.read(into, { at }));
    if (count !== into.length) throw new KvError('KV_IO', `read at ${at}: ${count} of ${into.length} bytes`);
  }

  write(at: number, from: Uint8Array): void {
    this.#presence?.touched();
    let count = -1;
    try {
      count = this.#call('write', () => {
        checkAlive();
        return this.#handle.write(from, { at });
      });
    } finally {
      if (count === from.length) this.#size = Math.max(this.#size, at + count);
      else this.#askSize();
    }
    if (count === from.length) return;
    // At the quota no browser throws: one returns a negative count, another a smaller one.
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
      this.#call('truncate', () => {
        checkAlive();
        this.#handle.truncate(size);
      });
    } finally {
      this.#askSize();
    }
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    if (this.#presence === undefined) this.#handle.close();
    else this.#presence.letGo(this.#handle);
  }

  /**
   * Refreshes the size after a failure. The caller sees that failure's error, whatever happens
   * here.
   */
  #askSize(): void {
    try {
      if (!this.#isClosed) this.#size = this.#handle.getSize();
    } catch {
      // A file that cannot report its size fails at the next call too.
    }
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

/** The files of one database, opened in advance. */
export class OpfsStorage implements CustomStorage {
  /**
   * Extra length of the data file, so that entries can be removed when the quota is reached.
   * Browsers count file length against the quota.
   */
  readonly reserveBytes = 512 << 10;
  readonly #files: ReadonlyMap<string, OpfsFile>;
  readonly #hadLog: boolean;
  readonly #presence: Presence;

  private constructor(files: ReadonlyMap<string, OpfsFile>, hadLog: boolean, presence: Presence) {
    this.#files = files;
    this.#hadLog = hadLog;
    this.#presence = presence;
  }

  /** Called once, when the files were removed behind the database's back. */
  set onLost(lost: (error: KvError) => void) {
    this.#presence.onLost = lost;
  }

  /** Resolves when others can open the closed files; `undefined` if no file was closed. */
  get closing(): Promise<void> | undefined {
    return this.#presence.closing;
  }

  /** Opens the files; waits up to `timeoutMs` while somebody else holds them. */
  static async open(name: string, create: boolean, timeoutMs: number, bucket?: string): Promise<OpfsStorage> {
    const missing = (): KvError => new KvError('KV_NOT_FOUND', `the database ${name} does not exist`);
    const directory = directoryName(name);
    const handles: AccessHandle[] = [];
    const soon = <T>(promise: Promise<T>): Promise<T> => within(promise, BROWSER_MS, `finding the files of ${name}`);
    try {
      const root = await rootDirectory(create, bucket);
      if (root === undefined) throw missing();
      const parent = await soon(root.getDirectoryHandle(directory, { create }));
      const dataHandle = await acquireData(name, parent, create, timeoutMs);
      handles.push(dataHandle);
      const hadLog = await soon(hasFile(parent, LOG_FILE));
      const log = await soon(parent.getFileHandle(LOG_FILE, { create: true }));
      const logHandle = await acquire(name, log as FileHandle, timeoutMs);
      handles.push(logHandle);
      const presence = new Presence(parent, name, DATA_FILE, dataHandle);
      const files = [
        [DATA_FILE, new OpfsFile(dataHandle, presence)],
        [LOG_FILE, new OpfsFile(logHandle, presence)],
      ] as const;
      return new OpfsStorage(new Map(files), hadLog, presence);
    } catch (error) {
      for (const handle of handles) handle.close();
      throw !create && nameOf(error) === 'NotFoundError' ? missing() : toKvError(error, `open ${name}`);
    }
  }

  open(file: string): StorageFile {
    const opened = this.#files.get(file);
    if (opened === undefined) throw new KvError('KV_IO', `${file} was not opened beforehand`);
    return opened;
  }

  /** Files created only to get a handle count as missing. */
  list(): string[] {
    const hasData = (this.#files.get(DATA_FILE)?.size() ?? 0) > 0;
    const hasLog = this.#hadLog || (this.#files.get(LOG_FILE)?.size() ?? 0) > 0;
    return [...(hasData ? [DATA_FILE] : []), ...(hasLog ? [LOG_FILE] : [])];
  }

  remove(file: string): void {
    throw new KvError('KV_IO', `${file} cannot be removed while the database is open`);
  }

  /** Resolves when others can open the files. */
  close(): Promise<void> | undefined {
    for (const file of this.#files.values()) file.close();
    return this.closing;
  }
}

export async function hasFile(parent: FileSystemDirectoryHandle, name: string): Promise<boolean> {
  try {
    await parent.getFileHandle(name);
    return true;
  } catch (error) {
    if (nameOf(error) === 'NotFoundError') return false;
    throw error;
  }
}

/**
 * Moves a restored database to the place of a missing or empty one; false if somebody has that one
 * open. True also if somebody else already moved it.
 */
export async function finishRestore(parent: FileSystemDirectoryHandle): Promise<boolean> {
  try {
    const restored = (await parent.getFileHandle(RESTORED_FILE)) as FileHandle;
    if (restored.move === undefined) throw new KvError('KV_UNSUPPORTED', 'this browser cannot rename files');
    await restored.move(DATA_FILE);
  } catch (error) {
    if (HELD.includes(nameOf(error))) return false;
    if (nameOf(error) !== 'NotFoundError') throw error;
  }
  return true;
}

/**
 * Opens the data file of a database, after completing a restore that was interrupted at its last
 * step.
 *
 * @throws the browser's NotFoundError if the file is missing and `create` is false.
 */
export async function acquireData(
  name: string,
  parent: FileSystemDirectoryHandle,
  create: boolean,
  timeoutMs: number,
): Promise<AccessHandle> {
  const soon = <T>(promise: Promise<T>): Promise<T> => within(promise, BROWSER_MS, `finding the files of ${name}`);
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    let handle: AccessHandle | undefined;
    try {
      const data = await soon(parent.getFileHandle(DATA_FILE, { create }));
      handle = await acquire(name, data as FileHandle, timeoutMs);
      // A data file with content is whole: the restored file beside it did not replace it.
      if (handle.getSize() > 0 || !(await soon(hasFile(parent, RESTORED_FILE)))) return handle;
      handle.close();
    } catch (error) {
      handle?.close();
      if (nameOf(error) !== 'NotFoundError' || !(await soon(hasFile(parent, RESTORED_FILE)))) throw error;
    }
    if (await soon(finishRestore(parent))) continue;
    if (performance.now() >= deadline)
      throw new KvError('KV_LOCKED', `${name} is being restored; try again`, { retryable: true });
    await new Promise((resolve) => setTimeout(resolve, FIRST_WAIT_MS));
  }
}

/**
 * Detects WebKitGTK, which opens no handles but says so only once for each file; after that it
 * reports the file as held. For a new file it reports the truth.
 *
 * @throws WebKitGTK's NotSupportedError, and nothing else.
 */
async function checkHandles(): Promise<void> {
  const root = await navigator.storage.getDirectory();
  const name = `mangrove-${crypto.randomUUID()}`;
  try {
    const file = (await root.getFileHandle(name, { create: true })) as FileHandle;
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
      return await within(file.createSyncAccessHandle(), Math.max(timeoutMs, BROWSER_MS), `opening a file of ${name}`);
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
