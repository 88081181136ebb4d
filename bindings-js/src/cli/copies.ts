// `backup`, `restore` and `recover`.
import * as fs from 'node:fs';
import { dirname, resolve } from 'node:path';
import { backup as backupOf } from '../client/upkeep.ts';
import { KvError } from '../errors.ts';
import { createModuleLoader } from '../node-wasm.ts';
import { syncDirectory } from '../storage/node-fs.ts';
import type { Phase, Watch } from '../upkeep/job.ts';
import { recoverFully, restoreFully } from '../upkeep/node.ts';
import { Watcher } from '../upkeep/options.ts';
import type { Parsed } from './arguments.ts';
import { NobodyReads, invalid } from './failure.ts';
import { Progress } from './progress.ts';
import { checkNoBackup, read } from './store.ts';
import { Output, note, print, readInput } from './streams.ts';

const READ_BYTES = 1 << 20;

const loader = createModuleLoader(() => new URL('./mangrove_upkeep_bg.wasm', import.meta.url));

function refuseIncremental(option: string): never {
  throw new KvError('KV_UNSUPPORTED', `--${option}: this build has no incremental backups; the native tool has`);
}

function failed(action: string, error: unknown): KvError {
  return error instanceof KvError ? error : new KvError('KV_IO', `${action}: ${(error as Error).message}`, { cause: error });
}

/** What the front of a backup says. */
function reportOf(header: Uint8Array, bytes: number): string {
  const view = new DataView(header.buffer, header.byteOffset, header.length);
  const id = (view.getBigUint64(24, true) << 64n) | view.getBigUint64(16, true);
  const [version, entries, collections] = [Number(view.getBigUint64(32, true)), Number(view.getBigUint64(48, true)), view.getUint32(56, true)];
  return JSON.stringify({ databaseId: id.toString(16).padStart(32, '0'), version, collections, entries, bytes });
}

async function save(path: string, progress: Progress, open: () => { write(piece: Uint8Array): void; end(isWhole: boolean): void }, isStream: boolean): Promise<string> {
  return read(path, async (store, output) => {
    const into = open();
    let [header, bytes, isWhole] = [new Uint8Array(), 0, false];
    try {
      const stream = backupOf(store.connection, { onProgress: (done, total) => progress.copied(done, total, 'records', bytes) });
      const reader = stream.getReader();
      for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
        if (bytes === 0) header = piece.value.slice(0, 64);
        if (isStream) output.hasBegun = true;
        into.write(piece.value);
        bytes += piece.value.length;
      }
      isWhole = true;
    } finally {
      into.end(isWhole);
    }
    return reportOf(header, bytes);
  });
}

export async function backup(parsed: Parsed): Promise<void> {
  const [path, file] = parsed.positionals as [string, string];
  if (parsed.text('since') !== undefined) refuseIncremental('since');
  const progress = new Progress(parsed.flag('progress'));
  if (file === '-') {
    const output = new Output();
    note(await save(path, progress, () => ({ write: (piece) => output.write(piece), end: () => {} }), true));
    return;
  }
  print(await save(path, progress, () => newFile(file), false));
}

function newFile(file: string): { write(piece: Uint8Array): void; end(isWhole: boolean): void } {
  const full = resolve(file);
  let handle: number;
  try {
    handle = fs.openSync(full, 'wx');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw new KvError('KV_EXISTS', `${file} already exists`, { cause: error });
    throw failed(`writing ${file}`, error);
  }
  return {
    write(piece) {
      try {
        for (let at = 0; at < piece.length;) at += fs.writeSync(handle, piece, at);
      } catch (error) {
        throw failed(`writing ${file}`, error);
      }
    },
    end(isWhole) {
      try {
        if (isWhole) fs.fsyncSync(handle);
        fs.closeSync(handle);
        if (isWhole) syncDirectory(dirname(full));
        // Half a backup is of no use to anybody.
        else fs.rmSync(full);
      } catch (error) {
        throw failed(`writing ${file}`, error);
      }
    },
  };
}

function openBackup(file: string): ReadableStream<Uint8Array> {
  if (file === '-') {
    return new ReadableStream({
      pull(controller) {
        const bytes = readInput();
        if (bytes === undefined) controller.close();
        else controller.enqueue(bytes);
      },
    }, { highWaterMark: 0 });
  }
  let handle: number;
  try {
    handle = fs.openSync(file, 'r');
  } catch (error) {
    throw failed(`opening ${file}`, error);
  }
  return new ReadableStream({
    pull(controller) {
      const bytes = new Uint8Array(READ_BYTES);
      let count;
      try {
        count = fs.readSync(handle, bytes, 0, bytes.length, null);
      } catch (error) {
        throw failed(`reading ${file}`, error);
      }
      if (count > 0) return controller.enqueue(bytes.subarray(0, count));
      fs.closeSync(handle);
      controller.close();
    },
    cancel: () => fs.closeSync(handle),
  }, { highWaterMark: 0 });
}

export async function restore(parsed: Parsed): Promise<void> {
  const [file, path] = parsed.positionals as [string, string];
  if (parsed.flag('incremental')) refuseIncremental('incremental');
  const [overwrite, force] = [parsed.flag('overwrite'), parsed.flag('force')];
  if (force && !overwrite) throw invalid('--force goes with --overwrite');
  const progress = new Progress(parsed.flag('progress'));
  const stream = openBackup(file);
  const size = file === '-' ? 0 : fs.statSync(file).size;
  const watch: Watch = (_phase, done, total) => {
    progress.copied(done, total, 'records', size);
    return true;
  };
  const report = await restoreFully(loader.load, path, stream, { overwrite, force }, new Watcher({}), watch).catch((error: unknown) => {
    throw error instanceof KvError ? new KvError(error.code, inOptions(error.message), { cause: error }) : error;
  });
  print(JSON.stringify(report));
}

/** What to do, as the command line has it. */
function inOptions(message: string): string {
  return message.replace(/(overwrite|force): true/, '--$1');
}

/** Says what goes on, at every new phase and every tenth of a phase. */
function watchRecovery(): Watch {
  let shown = '';
  return (phase: Phase, done, total) => {
    const step = phase === 'scanning' ? Math.floor(total === 0 ? 0 : done * 10 / total) : Math.floor(done / 1_000_000);
    const now = `${phase} ${step}`;
    if (now !== shown) {
      if (phase === 'scanning') note(`scanning, ${done} of ${total} bytes`);
      else note(phase === 'copying' ? `copying, ${done} records` : 'verifying the new database');
    }
    shown = now;
    return true;
  };
}

export async function recover(parsed: Parsed): Promise<void> {
  const [source, target] = parsed.positionals as [string, string];
  checkNoBackup(resolve(source), source);
  const report = await recoverFully(loader.load, source, target, {}, new Watcher({}), watchRecovery());
  try {
    print(JSON.stringify(report));
  } catch (error) {
    if (!(error instanceof NobodyReads)) throw error;
  }
  const { completeness } = report;
  if (completeness === 'exact') return;
  throw new KvError('KV_CORRUPT', `something was lost, or may have been (completeness: ${completeness}); standard output says what`);
}
