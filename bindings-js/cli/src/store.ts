// A database on disk: the directory that Node and native programs use, or the single file that a browser exports.
import * as fs from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import process from 'node:process';
import { KvError, destroy, open } from 'mangrove-kv';
import type { CustomStorage, Database, Encryption, OpenOptions, StorageFile } from 'mangrove-kv';
import { PROGRAM, StaleOutput, attempt, codeOf, messageOf, told } from './failure.ts';
import { isHeldElsewhere, leaderOf } from 'mangrove-kv/internal/tool';
import { note } from './output.ts';
import type { Files } from 'mangrove-kv/internal/tool';

/** The data file in a directory. */
const DATA_FILE = 'data';
const LOG_FILE = 'log';
/** First bytes of a backup. */
const BACKUP_MAGIC = 'MANGRBAK';
/** How often a read is attempted while a writer overwrites the data. */
const READ_ATTEMPTS = 10;
/** How long a process that has the database open may take to answer. */
const ANSWER_MS = 10_000;

export function isFile(path: string): boolean {
  try {
    return fs.statSync(path).isFile();
  } catch {
    return false;
  }
}

export const hasName = (path: string): boolean => fs.lstatSync(path, { throwIfNoEntry: false }) !== undefined;

/** Makes the names in a directory durable. Windows has no such call and does not need it. */
export function flushDirectory(directory: string): void {
  if (process.platform === 'win32' || isRestricted) return;
  const handle = fs.openSync(directory, 'r');
  try {
    fs.fsyncSync(handle);
  } finally {
    fs.closeSync(handle);
  }
}

/** Under its permission model Node flushes no file; what is written there has to be written through. */
export const isRestricted = (process as { readonly permission?: unknown }).permission !== undefined;

class DataFile implements StorageFile {
  readonly #path: string;
  #handle: number | undefined;

  constructor(path: string, isReading: boolean) {
    this.#path = path;
    const { O_RDONLY, O_RDWR, O_CREAT, O_DSYNC } = fs.constants;
    const isNew = !isReading && !fs.existsSync(path);
    this.#handle = fs.openSync(path, isReading ? O_RDONLY : O_RDWR | O_CREAT | (isRestricted ? O_DSYNC : 0));
    if (isNew) flushDirectory(dirname(path));
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
    if (!isRestricted) this.#call('flush', fs.fdatasyncSync);
  }

  size(): number {
    return this.#call('size of', (handle) => fs.fstatSync(handle).size);
  }

  truncate(size: number): void {
    this.#call('resize', (handle) => fs.ftruncateSync(handle, size));
  }

  close(): void {
    if (this.#handle !== undefined) fs.closeSync(this.#handle);
    this.#handle = undefined;
  }

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
    return attempt(`${action} ${this.#path}`, () => call(this.#handle as number));
  }
}

/** A data file of any name. The engine's other files lie beside it, with names that begin with its own. */
class SingleFile implements CustomStorage {
  readonly #path: string;
  readonly #isReading: boolean;

  constructor(path: string, isReading: boolean) {
    if (!isReading && isHeldElsewhere(path)) throw new KvError('KV_LOCKED', `${path} is open in another process`);
    this.#path = path;
    this.#isReading = isReading;
  }

  open(file: string): StorageFile {
    return attempt(`opening ${this.pathOf(file)}`, () => new DataFile(this.pathOf(file), this.#isReading));
  }

  list(): string[] {
    return [DATA_FILE, LOG_FILE].filter((file) => fs.existsSync(this.pathOf(file)));
  }

  remove(file: string): void {
    attempt(`removing ${this.pathOf(file)}`, () => {
      fs.rmSync(this.pathOf(file), { force: true });
      flushDirectory(dirname(this.#path));
    });
  }

  pathOf(file: string): string {
    return file === DATA_FILE ? this.#path : `${this.#path}.${file}`;
  }

  /** Removes an empty log, so that a single file stays one. After a close the log is empty and may be missing. */
  removeEmptyLog(): void {
    const log = this.pathOf(LOG_FILE);
    if (fs.statSync(log, { throwIfNoEntry: false })?.size === 0) this.remove(LOG_FILE);
  }
}

/** Refuses what no database can be at, with the errors of the system. */
export function check(path: string): void {
  const stat = attempt(`looking at ${path}`, () => fs.statSync(path, { throwIfNoEntry: false }));
  if (stat === undefined) {
    // A file where a directory has to be; Node sees nothing there.
    const above = dirname(resolve(path));
    if (isFile(above)) throw new KvError('KV_IO', `looking at ${path}: ${above} is no directory`);
  } else if (stat.isDirectory()) {
    const data = fs.statSync(join(path, DATA_FILE), { throwIfNoEntry: false });
    if (data !== undefined && !data.isFile())
      throw new KvError('KV_IO', `opening ${join(path, DATA_FILE)}: it is no file`);
  } else if (isBackup(path)) {
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      `${path} is a backup; "${PROGRAM} restore ${path} DIRECTORY" makes a database of it`,
    );
  }
}

/** Whether a file is a backup, which its owner may take for a database. Opening it reports that it cannot be read. */
function isBackup(path: string): boolean {
  try {
    const handle = fs.openSync(path, 'r');
    try {
      const front = new Uint8Array(BACKUP_MAGIC.length);
      return fs.readSync(handle, front) === front.length && new TextDecoder().decode(front) === BACKUP_MAGIC;
    } finally {
      fs.closeSync(handle);
    }
  } catch {
    return false;
  }
}

/** Where the files of a database are. */
interface Place {
  readonly directory: string;
  readonly single: SingleFile | undefined;
}

function placeOf(path: string, isReading: boolean): Place {
  check(path);
  // The data file of a directory is that of the database there.
  const isSingle = isFile(path) && basename(path) !== DATA_FILE;
  return {
    directory: isFile(path) ? dirname(resolve(path)) : path,
    single: isSingle ? new SingleFile(resolve(path), isReading) : undefined,
  };
}

/** What is said if a database cannot be opened. */
function refused(path: string, single: SingleFile | undefined, error: unknown): unknown {
  switch (codeOf(error)) {
    case 'KV_CORRUPT':
      return told(error, (message) => `${message}; "${PROGRAM} recover" saves what can still be read`);
    case 'KV_NOT_FOUND':
      return told(error, (message) =>
        isFile(join(path, DATA_FILE)) || single !== undefined
          ? `there is no database at ${path}: its creation was interrupted`
          : message,
      );
    default:
      return error;
  }
}

async function openAt(
  path: string,
  options: OpenOptions<unknown, unknown>,
): Promise<{ readonly db: Database; readonly single: SingleFile | undefined }> {
  const { directory, single } = placeOf(path, options.readOnly === true);
  // What only reads runs beside a writer anyway, even if that is busy.
  const leader = single === undefined && options.readOnly !== true ? leaderOf(directory) : undefined;
  if (leader !== undefined) note(`attached to process ${leader.pid}, which has the database open`);
  try {
    return {
      db: (await open(directory, {
        ...options,
        lockTimeout: leader === undefined ? 0 : ANSWER_MS,
        idleTimeout: Infinity,
        ...(single && { storage: single }),
      })) as Database,
      single,
    };
  } catch (error) {
    throw refused(path, single, error);
  }
}

export interface StoreOptions {
  readonly encryption: Encryption | undefined;
}

/**
 * Runs work that only reads, beside other readers and writers. If a writer overwrites what is being
 * read, the work begins again with the newest state.
 */
export async function read<T>(
  path: string,
  { encryption }: StoreOptions,
  work: (db: Database) => Promise<T>,
): Promise<T> {
  return repeated(async () => {
    const { db } = await openAt(path, { readOnly: true, create: false, encryption });
    try {
      return await work(db);
    } finally {
      await db.close();
    }
  });
}

/** As `read`, with the files instead of the database. */
export async function readFiles<T>(path: string, work: (files: Files) => Promise<T>): Promise<T> {
  return repeated(() => work(filesAt(path, true)));
}

/** Runs a change of the files. */
export async function writeFiles<T>(path: string, change: (files: Files) => Promise<T>): Promise<T> {
  const files = filesAt(path, false);
  const result = await change(files);
  if ('storage' in files) files.storage.removeEmptyLog();
  return result;
}

function filesAt(path: string, isReading: boolean): { readonly directory: string } | { readonly storage: SingleFile } {
  const { directory, single } = placeOf(path, isReading);
  if (single !== undefined) return { storage: single };
  if (!fs.existsSync(join(directory, DATA_FILE)))
    throw new KvError('KV_NOT_FOUND', `the database ${path} does not exist`);
  return { directory: resolve(directory) };
}

async function repeated<T>(work: () => Promise<T>): Promise<T> {
  for (let attempts = 1; ; attempts++) {
    try {
      return await work();
    } catch (error) {
      if (codeOf(error) !== 'KV_STALE' || error instanceof StaleOutput) throw error;
      if (attempts === READ_ATTEMPTS)
        throw told(
          error,
          () =>
            'a writer overwrites the database faster than it can be read; run it again, or when the writer has closed it',
        );
    }
  }
}

export interface WriteOptions extends StoreOptions {
  /** Creates the database if it is missing. */
  readonly create?: boolean;
  /** Removes a new database if the work fails before any commit. */
  readonly isUndone?: boolean;
}

/** Runs a change and makes durable what it committed, whether or not it fails. */
export async function write<T>(
  path: string,
  { encryption, create = false, isUndone = false }: WriteOptions,
  change: (db: Database) => Promise<T>,
): Promise<T> {
  const isNewDirectory = !fs.existsSync(path);
  const isNew = isNewDirectory || (!isFile(path) && !fs.existsSync(join(path, DATA_FILE)));
  const { db, single } = await openAt(path, { create, encryption });
  let outcome: { readonly value: T } | { readonly error: unknown };
  let isEmpty = false;
  try {
    outcome = { value: await change(db) };
  } catch (error) {
    outcome = { error };
    isEmpty = isUndone && isNew && (await db.stats()).version === 0;
  }
  if ('error' in outcome) {
    // Why the work failed is what counts.
    await db.close().catch(() => undefined);
    if (isEmpty) await undo(path, isNewDirectory);
    throw outcome.error;
  }
  await db.close();
  single?.removeEmptyLog();
  return outcome.value;
}

async function undo(path: string, isNewDirectory: boolean): Promise<void> {
  try {
    await destroy(path, { force: true });
    if (isNewDirectory) fs.rmdirSync(path);
  } catch {
    // Somebody else has put something there.
  }
}

/** Runs a call that writes to a file which must not exist, and removes the file if that fails. */
export async function createFile<T>(path: string, work: (handle: number) => Promise<T>): Promise<T> {
  const { O_WRONLY, O_CREAT, O_EXCL, O_DSYNC } = fs.constants;
  let handle: number;
  try {
    handle = fs.openSync(path, O_WRONLY | O_CREAT | O_EXCL | (isRestricted ? O_DSYNC : 0));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST')
      throw new KvError('KV_EXISTS', `${path} already exists`, { cause: error });
    throw new KvError('KV_IO', `writing ${path}: ${messageOf(error)}`, { cause: error });
  }
  try {
    try {
      const result = await work(handle);
      attempt(`writing ${path}`, () => {
        if (!isRestricted) fs.fsyncSync(handle);
        flushDirectory(dirname(resolve(path)));
      });
      return result;
    } finally {
      fs.closeSync(handle);
    }
  } catch (error) {
    fs.rmSync(path, { force: true });
    throw error;
  }
}
