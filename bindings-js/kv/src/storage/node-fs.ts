// Files of a directory, through node:fs, which Deno and Bun provide too.
import * as fs from 'node:fs';
import { dirname, join } from 'node:path';
import { KvError } from '../base/errors.ts';
import { performance } from '../base/platform.ts';
import type { CustomStorage, StorageFile } from '../types/index.ts';

/** The file that holds the database. */
export const DATA_FILE = 'data';
/** The log: commits that are not in the data file yet. */
export const LOG_FILE = 'log';
/**
 * For so long an unchanged directory proves that a name in it leads where it did: older systems count
 * time in ticks, and a link may lead to another directory.
 */
const DIRECTORY_PROVES_MS = 1000;

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException | undefined)?.code ?? '';
}

export function isMissing(error: unknown): boolean {
  return ['ENOENT', 'ENOTDIR'].includes(codeOf(error));
}

/** Node's permission model says neither what it refuses nor how to allow it. Deno says both. */
export function adviceFor(error: unknown): string {
  if (codeOf(error) !== 'ERR_ACCESS_DENIED') return '';
  const {
    message,
    permission,
    resource = '',
  } = error as Error & { readonly permission?: string; readonly resource?: string };
  if (/f(?:data)?sync/.test(message))
    return '; no flag allows it and without it nothing is durable, so under --permission a database can only be opened with readOnly on this system';
  if (permission === 'WorkerThreads') return '; allow it with --allow-worker';
  return `; allow it with --allow-fs-${permission === 'FileSystemWrite' ? 'write' : 'read'}=${resource}`;
}

/** Whether Node refuses all flushes, as newer releases do under --permission. No flag allows them. */
function refusesFlushes(): boolean {
  if ((process as { readonly permission?: unknown }).permission === undefined) return false;
  try {
    // No such file: where flushes are allowed, this fails with another error.
    fs.fdatasyncSync(-1);
  } catch (error) {
    return codeOf(error) === 'ERR_ACCESS_DENIED';
  }
  return false;
}

/**
 * There every write waits until it is on disk. The journals of Linux's file systems keep the order of
 * changes, so earlier truncations, names and renames are on disk then, too. Others do not promise it.
 */
const WRITES_THROUGH = process.platform === 'linux' && refusesFlushes();
const { O_RDWR, O_CREAT, O_EXCL, O_SYNC, O_DSYNC } = fs.constants;
const READ_WRITE = WRITES_THROUGH ? O_RDWR | O_DSYNC : 'r+';
const CREATE = WRITES_THROUGH ? O_RDWR | O_DSYNC | O_CREAT | O_EXCL : 'wx+';

/** Converts the error of a system call to a KvError. */
export function toKvError(error: unknown, action: string): KvError {
  if (error instanceof KvError) return error;
  const message = `${action}: ${error instanceof Error ? error.message : String(error)}${adviceFor(error)}`;
  if (['ENOSPC', 'EDQUOT'].includes(codeOf(error))) {
    return new KvError('KV_QUOTA_EXCEEDED', message, { cause: error, retryable: true });
  }
  return new KvError('KV_IO', message, { cause: error });
}

export function attemptTo<T>(action: string, call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw toKvError(error, action);
  }
}

/** Makes the names in a directory survive a power cut. */
export function syncDirectory(directory: string): void {
  // Windows has no such call and does not need it.
  if (process.platform === 'win32') return;
  if (WRITES_THROUGH) {
    carryNames(directory);
    return;
  }
  const handle = fs.openSync(directory, 'r');
  try {
    fs.fsyncSync(handle);
  } finally {
    fs.closeSync(handle);
  }
}

/** Makes them survive by a write to a new file there. */
function carryNames(directory: string): void {
  const path = join(directory, `.sync-${crypto.randomUUID()}`);
  try {
    const handle = fs.openSync(path, O_RDWR | O_CREAT | O_EXCL | O_SYNC);
    try {
      fs.writeSync(handle, '.');
    } finally {
      fs.closeSync(handle);
      fs.rmSync(path);
    }
  } catch (error) {
    // In the directory above the database's: the name goes with the first write to the database.
    if (codeOf(error) !== 'ERR_ACCESS_DENIED') throw error;
  }
}

/** Systems count the time of changes in ticks no longer than this. */
const TICK_MS = 50;

/** What a path leads to, if anything. The system's numbers may exceed 2^53. */
export function statIfAny(path: string): fs.BigIntStats | undefined {
  try {
    return fs.statSync(path, { bigint: true, throwIfNoEntry: false });
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/**
 * Which directory a path leads to, and when a name in it last changed. Asking for a file's own times
 * would make the next write to it several times slower on file systems that then count its time in
 * nanoseconds (Linux 6.13).
 */
function stateOf(directory: string): string | undefined {
  try {
    const stat = statIfAny(directory);
    // Another change in the same tick would not show.
    if (stat === undefined || Date.now() - Number(stat.mtimeMs) < TICK_MS) return undefined;
    return `${stat.dev}/${stat.ino}/${stat.mtimeNs}`;
  } catch {
    return undefined;
  }
}

/** Whether a path leads to an open file. */
function leadsTo(path: string, handle: number): boolean {
  let named: fs.BigIntStats | undefined;
  try {
    named = statIfAny(path);
  } catch {
    // This proves nothing.
    return true;
  }
  const ours = fs.fstatSync(handle, { bigint: true });
  return named !== undefined && named.ino === ours.ino && named.dev === ours.dev;
}

/** A file that another thread can flush. */
export interface FlushableFile extends StorageFile {
  /**
   * Flushes all earlier writes in another thread, then calls `done` with the error, if any. Calls
   * `done` before it returns if it had to flush in this thread.
   */
  flushLater(done: (error: unknown) => void): void;
}

class NodeFile implements FlushableFile {
  readonly #path: string;
  #handle: number | undefined;
  /**
   * A separate descriptor for flushes on another thread, since systems report lost writes only once
   * per descriptor.
   */
  #flushHandle: number | undefined;
  #flushes = 0;
  #checkedAt = performance.now();
  #directory: string | undefined;

  constructor(path: string, handle: number) {
    this.#path = path;
    this.#handle = handle;
  }

  read(at: number, into: Uint8Array): void {
    this.#whole('read', into.length, (handle, done) => fs.readSync(handle, into, done, into.length - done, at + done));
  }

  write(at: number, from: Uint8Array): void {
    this.#whole('write', from.length, (handle, done) =>
      fs.writeSync(handle, from, done, from.length - done, at + done),
    );
  }

  flush(): void {
    if (!WRITES_THROUGH) this.#call('flush', fs.fdatasyncSync);
  }

  flushLater(done: (error: unknown) => void): void {
    try {
      this.#flushHandle ??= fs.openSync(this.#path, 'r+');
    } catch {
      // Too many files may be open.
      done(this.#failureOf(() => this.flush()));
      return;
    }
    this.#flushes++;
    fs.fdatasync(this.#flushHandle, (error) => {
      this.#flushes--;
      if (this.#handle === undefined) this.#closeFlushHandle();
      done(error === null ? undefined : toKvError(error, `flush ${this.#path}`));
    });
  }

  size(): number {
    return this.#call('size of', (handle) => fs.fstatSync(handle).size);
  }

  truncate(size: number): void {
    this.#call('resize', (handle) => fs.ftruncateSync(handle, size));
  }

  /**
   * Checks that the file's path still leads to it; a check that began less than `maxAgeMs` ago
   * counts.
   *
   * @throws KvError KV_EVICTED.
   */
  checkName(maxAgeMs: number): void {
    const now = performance.now();
    const age = now - this.#checkedAt;
    // On Windows an open file keeps its name.
    if (age < maxAgeMs || process.platform === 'win32') return;
    const directory = stateOf(dirname(this.#path));
    if (age < DIRECTORY_PROVES_MS && directory !== undefined && directory === this.#directory) return;
    if (!this.#call('find', (handle) => leadsTo(this.#path, handle))) {
      throw new KvError('KV_EVICTED', `${this.#path} was removed, renamed or replaced; open the database again`);
    }
    this.#checkedAt = now;
    this.#directory = directory;
  }

  close(): void {
    if (this.#handle === undefined) return;
    this.#closeFlushHandle();
    this.#call('close', fs.closeSync);
    this.#handle = undefined;
  }

  /** Leaves the descriptor open while a flush uses it. */
  #closeFlushHandle(): void {
    if (this.#flushHandle === undefined || this.#flushes > 0) return;
    fs.closeSync(this.#flushHandle);
    this.#flushHandle = undefined;
  }

  #failureOf(action: () => void): unknown {
    try {
      action();
      return undefined;
    } catch (error) {
      return error;
    }
  }

  /** Repeats `step` until all bytes are done: a system call may transfer fewer than requested. */
  #whole(action: string, total: number, step: (handle: number, done: number) => number): void {
    this.#call(action, (handle) => {
      for (let done = 0; done < total; ) {
        const count = step(handle, done);
        if (count <= 0) throw new KvError('KV_IO', `${action} ${this.#path}: only ${done} of ${total} bytes`);
        done += count;
      }
    });
  }

  #call<T>(action: string, call: (handle: number) => T): T {
    const handle = this.#handle;
    if (handle === undefined) throw new KvError('KV_CLOSED', `${this.#path} is closed`);
    return attemptTo(`${action} ${this.#path}`, () => call(handle));
  }
}

/**
 * The files in one database's directory. The directory exists and is locked, unless the files are
 * only read.
 */
export class NodeStorage implements CustomStorage {
  /**
   * Checks for a second opener before each write, since locks do not work on every file system, and
   * for files that are taken away.
   */
  readonly watch = 2;
  /** Files that are only read are never flushed, nor those that are written through. */
  readonly flushesLater: boolean;
  readonly #directory: string;
  readonly #isReading: boolean;

  constructor(directory: string, isReading = false) {
    this.#directory = directory;
    this.#isReading = isReading;
    this.flushesLater = !isReading && !WRITES_THROUGH;
  }

  open(file: string): StorageFile {
    const path = join(this.#directory, file);
    return attemptTo(`open ${path}`, () => new NodeFile(path, this.#openHandle(path)));
  }

  list(): string[] {
    return attemptTo(`list ${this.#directory}`, () => fs.readdirSync(this.#directory));
  }

  remove(file: string): void {
    const path = join(this.#directory, file);
    attemptTo(`remove ${path}`, () => {
      fs.rmSync(path, { force: true });
      syncDirectory(this.#directory);
    });
  }

  #openHandle(path: string): number {
    if (this.#isReading) return fs.openSync(path, 'r');
    try {
      const handle = fs.openSync(path, READ_WRITE);
      // The file is new, or its creator died before the file's name was on disk.
      if (fs.fstatSync(handle).size === 0) syncDirectory(this.#directory);
      return handle;
    } catch (error) {
      if (codeOf(error) !== 'ENOENT') throw error;
    }
    const handle = fs.openSync(path, CREATE);
    syncDirectory(this.#directory);
    return handle;
  }
}
