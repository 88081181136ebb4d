// The verbs for copies: backup and restore.
import * as fs from 'node:fs';
import process from 'node:process';
import type { Database } from 'mangrove-kv';
import { StaleOutput, attempt, codeOf, told } from '../failure.ts';
import { addCommits, backupCommits, restoreReported } from 'mangrove-kv/internal/tool';
import { Progress, note, print, writeAll, writeOutput } from '../output.ts';
import { createFile, read, readFiles, writeFiles } from '../store.ts';
import type { StoreOptions } from '../store.ts';

/** The header of a backup, which says what it is of; see docs/FORMAT.md. */
const HEADER_BYTES = 64;

export interface BackupOptions extends StoreOptions {
  readonly since?: number;
  readonly progress?: boolean;
}

interface BackupReport {
  readonly databaseId: string;
  readonly version: number;
  readonly collections: number;
  readonly entries: number;
  readonly bytes: number;
}

function toReport(header: Uint8Array, bytes: number): BackupReport {
  const view = new DataView(header.buffer, header.byteOffset, header.length);
  const id = view.getBigUint64(16, true) | (view.getBigUint64(24, true) << 64n);
  return {
    databaseId: id.toString(16).padStart(32, '0'),
    version: Number(view.getBigUint64(32, true)),
    collections: view.getUint32(56, true),
    entries: Number(view.getBigUint64(48, true)),
    bytes,
  };
}

async function save(db: Database, progress: Progress, take: (piece: Uint8Array) => void): Promise<BackupReport> {
  let bytes = 0;
  const header = new Uint8Array(HEADER_BYTES);
  const [state, stream] = [
    { done: 0, total: 0 },
    db.backup({ onProgress: (done, total) => Object.assign(state, { done, total }) }),
  ];
  for await (const piece of stream as unknown as AsyncIterable<Uint8Array>) {
    if (bytes < HEADER_BYTES) header.set(piece.subarray(0, HEADER_BYTES - bytes), bytes);
    take(piece);
    bytes += piece.length;
    progress.showCopied(state.done, state.total, 'records', bytes);
  }
  return toReport(header, bytes);
}

type Save = (take: (piece: Uint8Array) => void) => Promise<object>;

/** Writes a backup to a new file, or to standard output, which cannot begin again. */
async function keep(file: string, save: Save): Promise<object> {
  if (file !== '-')
    return createFile(file, (handle) => save((piece) => attempt(`writing ${file}`, () => writeAll(handle, piece))));
  try {
    return await save(writeOutput);
  } catch (error) {
    throw codeOf(error) === 'KV_STALE' ? new StaleOutput() : error;
  }
}

export async function backup(path: string, file: string, options: BackupOptions): Promise<void> {
  const { since, encryption } = options;
  const progress = new Progress(options.progress);
  try {
    const report =
      since === undefined
        ? await read(path, options, (db) => keep(file, (take) => save(db, progress, take)))
        : await readFiles(path, (files) =>
            keep(file, (take) => {
              let bytes = 0;
              return backupCommits(
                files,
                since,
                encryption,
                (piece) => {
                  take(piece);
                  bytes += piece.length;
                },
                (_, done, total) => {
                  progress.showCopied(done, total, 'commits', bytes);
                  return true;
                },
              );
            }),
          );
    progress.end();
    if (file === '-') note(JSON.stringify(report));
    else print(JSON.stringify(report));
  } finally {
    progress.end();
  }
}

export interface RestoreOptions extends StoreOptions {
  readonly incremental?: boolean;
  readonly overwrite?: boolean;
  readonly force?: boolean;
  readonly progress?: boolean;
}

function sourceOf(file: string): string | AsyncIterable<Uint8Array> {
  if (file === '-') return process.stdin as AsyncIterable<Uint8Array>;
  attempt(`opening ${file}`, () => fs.accessSync(file, fs.constants.R_OK));
  return file;
}

export async function restore(file: string, path: string, options: RestoreOptions): Promise<void> {
  const { encryption, overwrite = false, force = false, incremental = false } = options;
  const progress = new Progress(options.progress);
  const source = sourceOf(file);
  let all = 0;
  const watch =
    (things: string) =>
    (_: unknown, done: number, total: number): boolean => {
      all = total;
      // The last line is for the report, which has the bytes.
      if (done < total) progress.show(() => `${Math.floor((done * 100) / total)} %, ${done} of ${total} ${things}`);
      return true;
    };
  try {
    const report = incremental
      ? await writeFiles(path, (files) => addCommits(files, source, encryption, watch('commits')))
      : await restoreReported(path, source, { encryption, overwrite, force }, watch('records'));
    progress.showCopied(all, all, incremental ? 'commits' : 'records', report.bytes);
    progress.end();
    print(JSON.stringify(report));
  } catch (error) {
    progress.end();
    switch (codeOf(error)) {
      case 'KV_EXISTS':
        throw overwrite
          ? error
          : told(
              error,
              (message) => `${message.replace(/; overwrite: true replaces it$/, '')}; --overwrite replaces it`,
            );
      case 'KV_CORRUPT':
        throw told(error, (message) => message.replace('force: true removes it', '--force removes it'));
      default:
        throw error;
    }
  } finally {
    if (file === '-') process.stdin.destroy();
  }
}
