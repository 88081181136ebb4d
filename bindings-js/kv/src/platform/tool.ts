/**
 * For the command line tool, which is released together with this package: exempt from semantic versioning.
 *
 * @module mangrove-kv/internal/tool
 */
import type { CustomStorage, Database, Encryption } from '../types/index.ts';
import { createModuleLoader } from '../engine/node-wasm.ts';
import { NodeStorage } from '../storage/node-fs.ts';
import { lockDirectory } from '../storage/node-lock.ts';
import { isRunning, lockFile } from '../storage/os-lock.ts';
import { readAddress } from '../processes/address.ts';
import type { LeaderInfo } from '../types/sharing.ts';
import { backupSince, restoreCommits } from '../maintenance/incremental.ts';
import { Directory, openBackup, openSource } from '../maintenance/node.ts';
import { appendTo, pour, toMaker } from '../maintenance/options.ts';
import type { FullRecoverReport, IncrementalReport, RestoreReport, Watch } from '../maintenance/report.ts';
import { recoverInto, restoreInto } from '../maintenance/run.ts';
import { ownModule } from './module-maintenance.ts';
import type { Connection } from '../wire/connection.ts';
import { Op } from '../wire/opcodes.ts';

export type { FullRecoverReport, IncrementalReport, RestoreReport, Watch };

/** A collection as it is stored. */
export interface StoredCollection {
  readonly name: string;
  readonly count: number;
  readonly keyCodec: string;
  readonly valueCodec: string;
}

const connectionOf = (db: Database): Connection =>
  (db as unknown as { readonly target: { readonly connection: Connection } }).target.connection;

/** All collections, in the order of their names: `Database.collections` leaves out the default one and what is stored with each. */
export function storedCollections(db: Database): Promise<StoredCollection[]> {
  return connectionOf(db).request(
    (writer) => writer.u8(Op.collections),
    (reader) => {
      const found: StoredCollection[] = [];
      for (let left = reader.uv(); left > 0; left--) {
        found.push({ name: reader.str(), count: reader.uv(), keyCodec: reader.str(), valueCodec: reader.str() });
      }
      return found;
    },
  );
}

/**
 * A codec of a collection stored without one, as native programs make them. The package knows its
 * empty id, but its options refuse that: they look at it first.
 */
export function withoutId<T extends { readonly id: string }>(codec: T): T {
  let isChecked = false;
  return Object.defineProperty({ ...codec }, 'id', {
    get: () => {
      const id = isChecked ? '' : 'none';
      isChecked = true;
      return id;
    },
  });
}

export interface CompactReport {
  readonly end: 'done' | 'noRoom';
  readonly fileSizeBefore: number;
  readonly fileSizeAfter: number;
  readonly movedSize: number;
}

/** Slices of 1 MiB moved per message. */
const SLICES = 4;

/** `Database.compact` with a threshold, and with all that the engine reports. */
export async function compactTo(
  db: Database,
  thresholdBytes: number,
  onProgress: (moved: number, size: number, used: number) => void,
): Promise<CompactReport> {
  let first: number | undefined;
  let movedSize = 0;
  for (let slices = SLICES; ; ) {
    const { isAll, before, after, used, isFull, moved } = await connectionOf(db).requestLoading(
      (writer) => writer.u8(Op.compact).uv(slices).uv(thresholdBytes),
      (reader) => ({
        isAll: reader.u8() !== 0,
        before: reader.uv(),
        after: reader.uv(),
        used: reader.uv(),
        isFull: reader.u8() !== 0,
        moved: reader.uv(),
      }),
    );
    first ??= before;
    movedSize += moved;
    onProgress(movedSize, after, used);
    if (isAll) return { end: isFull ? 'noRoom' : 'done', fileSizeBefore: first, fileSizeAfter: after, movedSize };
    // Each message starts over, so one that is too short to shrink the file needs more slices.
    if (after >= before) slices *= 2;
  }
}

const { load } = createModuleLoader(ownModule);
const reason = (): unknown => undefined;

export interface RestoreSettings {
  readonly encryption: Encryption | undefined;
  readonly overwrite: boolean;
  readonly force: boolean;
}

/** `restore`, with its report. */
export async function restoreReported(
  path: string,
  backup: string | AsyncIterable<Uint8Array>,
  { encryption, overwrite, force }: RestoreSettings,
  watch: Watch,
): Promise<RestoreReport> {
  const [file, reader] = openBackup(backup);
  try {
    const maker = await toMaker(load, { encryption });
    const target = await Directory.open(path, { overwrite, force }, true);
    return await restoreInto(
      maker,
      target,
      async () => {
        if (file !== undefined) return file;
        const made = await target.spool();
        await pour(reader, undefined, appendTo(made));
        return made;
      },
      watch,
      reason,
    );
  } finally {
    file?.close();
  }
}

/** `recover`, with its full report and its phases. */
export async function recoverReported(
  path: string,
  into: string,
  encryption: Encryption | undefined,
  watch: Watch,
): Promise<FullRecoverReport> {
  const maker = await toMaker(load, { encryption });
  const source = await openSource(path, {});
  return recoverInto(maker, source, () => Directory.open(into, {}, false), watch, reason);
}

/** The process that has a directory's database open and shares it, if there is one on this machine. */
export function leaderOf(directory: string): LeaderInfo | undefined {
  const address = readAddress(directory);
  return address?.socket === undefined || !isRunning({ pid: address.pid, started: '' }) ? undefined : address;
}

/**
 * Takes the system's lock of a single data file, which native programs take too, until this process
 * ends; returns whether somebody else has it. On Windows nobody could open the file any more.
 */
export function isHeldElsewhere(file: string): boolean {
  return process.platform !== 'win32' && lockFile(file) === 'held';
}

/** Files of a database: of its directory, or a storage with a single one. */
export type Files = { readonly directory: string } | { readonly storage: CustomStorage };

/** Passes the commits after a version to `take`; `Database.backup` has the whole state only. */
export async function backupCommits(
  files: Files,
  version: number,
  encryption: Encryption | undefined,
  take: (bytes: Uint8Array) => void,
  watch: Watch,
): Promise<IncrementalReport> {
  const maker = await toMaker(load, { encryption });
  const isDirectory = 'directory' in files;
  return backupSince(
    maker,
    isDirectory ? new NodeStorage(files.directory, true) : files.storage,
    isDirectory,
    version,
    take,
    watch,
  );
}

/** Where a backup is kept that arrives as a stream. */
const SPOOL_FILE = 'backup.restoring';

/** Adds the commits of an incremental backup; `restore` refuses those. */
export async function addCommits(
  files: Files,
  backup: string | AsyncIterable<Uint8Array>,
  encryption: Encryption | undefined,
  watch: Watch,
): Promise<Omit<IncrementalReport, 'base'>> {
  const maker = await toMaker(load, { encryption });
  const storage = 'directory' in files ? new NodeStorage(files.directory) : files.storage;
  const release = 'directory' in files ? await lockDirectory(files.directory, { lockTimeoutMs: 0 }) : () => {};
  const [file, reader] = openBackup(backup);
  const read = file ?? storage.open(SPOOL_FILE);
  try {
    if (reader !== undefined) await pour(reader, undefined, appendTo(read));
    return restoreCommits(maker, read, storage, watch);
  } finally {
    read.close();
    if (file === undefined) storage.remove(SPOOL_FILE);
    release();
  }
}
