// Restores and recovers in directories.
import * as fs from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { noBuckets } from '../api/bucket.ts';
import { toBytes } from '../codec/key-bytes.ts';
import { KvError } from '../base/errors.ts';
import { MemoryStorage } from '../storage/memory.ts';
import { checkFilesOurs, prepareDirectory, toPath } from '../storage/node-directory.ts';
import {
  DATA_FILE,
  LOG_FILE,
  NodeStorage,
  attemptTo,
  isMissing,
  syncDirectory,
  toKvError,
} from '../storage/node-fs.ts';
import { lockDirectory, lockReplacement } from '../storage/node-lock.ts';
import type { StorageFile } from '../types/index.ts';
import type { LoadModule } from '../engine/wasm.ts';
import type { BackupSource, RecoverOptions, RecoverReport, RestoreOptions } from '../types/maintenance.ts';
import type { Maker } from './job.ts';
import { RenamedStorage, UnchangedStorage } from './files.ts';
import {
  Watcher,
  alreadyExists,
  appendTo,
  checkMaintenanceOptions,
  isBlob,
  pour,
  readerOf,
  toMaker,
  watchRestore,
} from './options.ts';
import type { PieceReader } from './options.ts';
import { toRecoverReport } from './report.ts';
import { RESTORING_SUFFIX, SPOOL_FILE, recoverInto, restoreInto } from './run.ts';
import type { Source, Target } from './run.ts';

const MADE_FILES = [`${DATA_FILE}${RESTORING_SUFFIX}`, `${LOG_FILE}${RESTORING_SUFFIX}`, SPOOL_FILE];

function sizeOf(path: string): number {
  try {
    return fs.statSync(path).size;
  } catch (error) {
    if (isMissing(error)) return 0;
    throw toKvError(error, `look at ${path}`);
  }
}

function isFile(path: string): boolean {
  return attemptTo(`look at ${path}`, () => fs.statSync(path, { throwIfNoEntry: false })?.isFile() ?? false);
}

function exists(directory: string): boolean {
  return sizeOf(join(directory, DATA_FILE)) > 0;
}

export class Directory implements Target {
  readonly storage: RenamedStorage;
  readonly #path: string;
  readonly #isNew: boolean;
  readonly #release: () => void;
  #spool: StorageFile | undefined;

  private constructor(path: string, isNew: boolean, release: () => void) {
    this.#path = path;
    this.#isNew = isNew;
    this.#release = release;
    this.storage = new RenamedStorage(new NodeStorage(path), (file) => file + RESTORING_SUFFIX);
  }

  /** `canOverwrite`: whether the caller could have set `overwrite`. */
  static async open(
    path: string,
    { overwrite = false, force = false, lockTimeout = 0, signal }: RestoreOptions,
    canOverwrite: boolean,
  ): Promise<Directory> {
    const check = (): void => {
      // A file is either a database exported by a browser, or not a Mangrove database.
      if (isFile(path) || (!overwrite && exists(path))) throw alreadyExists(path, canOverwrite);
      // A log is removed even if there is no data file.
      if (!force) checkFilesOurs(path, [DATA_FILE, LOG_FILE]);
    };
    // Checked before anything is created there, and again when nobody else can write there.
    check();
    const isNew = !attemptTo(`look for ${path}`, () => fs.existsSync(path));
    prepareDirectory(path, true);
    const target = new Directory(path, isNew, await lockDirectory(path, { lockTimeoutMs: lockTimeout, signal }));
    try {
      check();
      target.#removeMade();
      return target;
    } catch (error) {
      await target.abandon();
      throw error;
    }
  }

  async spool(): Promise<StorageFile> {
    return (this.#spool = new NodeStorage(this.#path).open(SPOOL_FILE));
  }

  async install(): Promise<void> {
    const [made] = MADE_FILES as [string];
    const data = join(this.#path, DATA_FILE);
    let releaseNew = (): void => {};
    try {
      this.#close();
      releaseNew = lockReplacement(join(this.#path, made));
      // The new file and its directory entry are on disk. This is the step from the old database to
      // the new one.
      fs.renameSync(join(this.#path, made), data);
      syncDirectory(this.#path);
    } catch (error) {
      releaseNew();
      await this.abandon();
      throw toKvError(error, `put the new database in the place of ${data}`);
    }
    try {
      // The new database was closed, so it needs no log. An old log has another salt, so its
      // content means nothing to the new database.
      fs.rmSync(join(this.#path, LOG_FILE), { force: true });
      this.#removeMade();
      syncDirectory(this.#path);
    } catch {
      // Leftover files do no harm.
    } finally {
      this.#release();
      releaseNew();
    }
  }

  async abandon(): Promise<void> {
    try {
      this.#close();
      this.#removeMade();
    } catch {
      // The next restore removes the files. What matters is why this one failed.
    } finally {
      this.#release();
    }
    if (!this.#isNew) return;
    try {
      fs.rmdirSync(this.#path);
    } catch {
      // Somebody else has put something there.
    }
  }

  #close(): void {
    this.storage.closeAll();
    this.#spool?.close();
  }

  #removeMade(): void {
    for (const name of MADE_FILES) fs.rmSync(join(this.#path, name), { force: true });
  }
}

/**
 * System error codes for places where nothing can be written, so that nobody needs to be locked
 * out.
 */
const READ_ONLY_PLACES = ['EACCES', 'EPERM', 'EROFS'];

export async function openSource(path: string, { lockTimeout = 0, signal }: RecoverOptions): Promise<Source> {
  const isSingle = isFile(path);
  if (!isSingle && !exists(path)) throw new KvError('KV_NOT_FOUND', `the database ${path} does not exist`);
  if (isSingle) return { storage: new UnchangedStorage(singleFile(path)), close: () => {} };
  const release = await lockDirectory(path, { lockTimeoutMs: lockTimeout, signal }).catch((error: unknown) => {
    const { code = '' } = (error as { cause?: { code?: string } }).cause ?? {};
    if (READ_ONLY_PLACES.includes(code)) return () => {};
    throw error;
  });
  return { storage: new UnchangedStorage(new NodeStorage(path, true)), close: release };
}

/**
 * A data file of any name, as a browser exports it. Its log is `log` beside it if the file is named
 * `data`, otherwise the file's name with the suffix `.log`.
 */
function singleFile(path: string): RenamedStorage {
  const at = Math.max(path.lastIndexOf('/'), path.lastIndexOf('\\')) + 1;
  const [directory, name] = [path.slice(0, at), path.slice(at)];
  const isOwn = name === DATA_FILE;
  return new RenamedStorage(new NodeStorage(directory, true), (file) =>
    isOwn ? file : file === DATA_FILE ? name : `${name}.${file}`,
  );
}

/**
 * Opens a backup. Bytes and paths are read at any offset; everything else is read piece by piece.
 */
export function openBackup(backup: BackupSource): [StorageFile, undefined] | [undefined, PieceReader] {
  const bytes = toBytes(backup);
  if (bytes !== undefined) {
    const file = new MemoryStorage().open('backup');
    file.write(0, bytes);
    return [file, undefined];
  }
  if (typeof backup === 'string' || backup instanceof URL) {
    const path = toPath(backup);
    if (!isFile(path)) throw new KvError('KV_NOT_FOUND', `there is no backup ${path}`);
    return [new NodeStorage(dirname(path), true).open(basename(path)), undefined];
  }
  return [undefined, readerOf(isBlob(backup) ? backup.stream() : backup)];
}

function checkStorage({ storage, bucket }: RecoverOptions): void {
  if (bucket !== undefined) throw noBuckets();
  if (storage !== undefined) throw new KvError('KV_UNSUPPORTED', 'databases in IndexedDB exist in browsers only');
}

export async function restoreWith(
  load: LoadModule,
  name: string | URL,
  backup: BackupSource,
  options: RestoreOptions,
): Promise<void> {
  const watcher = watchRestore(options, backup);
  checkStorage(options);
  const path = toPath(name);
  const [file, reader] = openBackup(backup);
  let target: Directory;
  let maker: Maker;
  try {
    maker = await toMaker(load, options);
    watcher.signal?.throwIfAborted();
    target = await Directory.open(path, options, true);
  } catch (error) {
    file?.close();
    reader?.cancel(error).catch(() => undefined);
    throw error;
  }
  const spool = async (): Promise<StorageFile> => {
    if (file !== undefined) return file;
    const made = await target.spool();
    await pour(reader, watcher.signal, appendTo(made));
    return made;
  };
  try {
    await restoreInto(maker, target, spool, watcher.watch, watcher.reason);
  } catch (error) {
    // The work may have ended before the stream was read.
    reader?.cancel(error).catch(() => undefined);
    throw error;
  } finally {
    file?.close();
  }
}

export async function recoverWith(
  load: LoadModule,
  name: string | URL,
  into: string | URL,
  options: RecoverOptions,
): Promise<RecoverReport> {
  checkMaintenanceOptions('recover', options);
  checkStorage(options);
  const watcher = new Watcher(options);
  const [from, to] = [toPath(name), toPath(into)];
  const maker = await toMaker(load, options);
  watcher.signal?.throwIfAborted();
  if (isFile(to) || exists(to)) throw alreadyExists(to, false);
  const source = await openSource(from, options);
  const report = toRecoverReport(
    await recoverInto(maker, source, () => Directory.open(to, {}, false), watcher.watch, watcher.reason),
  );
  watcher.done(report.entries);
  return report;
}
