// Checks the options of `restore` and `recover`, and reports progress.
import { isBytes } from '../codec/bytes.ts';
import { abortable, checkBoolean, checkFunction, checkLimit, checkSignal } from '../base/async.ts';
import { MAINTENANCE } from '../api/arguments.ts';
import { checkNames } from '../base/names.ts';
import { checkPlaceStorage, checkWasm, checkWorker } from '../api/options.ts';
import { KvError } from '../base/errors.ts';
import type { Names } from '../base/names.ts';
import { checkBucketName } from '../api/bucket.ts';
import { checkForce } from '../storage/recognize.ts';
import type { StorageFile } from '../types/index.ts';
import type { RecoverOptions, RestoreOptions } from '../types/maintenance.ts';
import { toSecret } from '../api/encryption.ts';
import type { LoadModule } from '../engine/wasm.ts';
import type { Maker } from './job.ts';
import type { Phase } from './report.ts';

/** Reports progress to the caller, and remembers why the work has to end. */
export class Watcher {
  readonly signal: AbortSignal | undefined;
  readonly #onProgress: RecoverOptions['onProgress'];
  #thrown: { readonly error: unknown } | undefined;

  constructor({ signal, onProgress }: RecoverOptions) {
    if (onProgress !== undefined) checkFunction(onProgress);
    this.signal = signal;
    this.#onProgress = onProgress;
    signal?.throwIfAborted();
  }

  readonly watch = (phase: Phase, done: number, total: number): boolean => {
    if (this.signal?.aborted) return false;
    try {
      // Nothing is copied yet while the file is scanned.
      if (phase === 'scanning') this.#onProgress?.(0, 0);
      else this.#onProgress?.(done, total);
      return true;
    } catch (error) {
      this.#thrown = { error };
      return false;
    }
  };

  readonly reason = (): unknown => (this.#thrown === undefined ? this.signal?.reason : this.#thrown.error);

  /** The last report. The work is done, so it can no longer be ended. */
  done(entries: number): void {
    this.#onProgress?.(entries, entries);
  }
}

const RECOVER: Names<RecoverOptions> = {
  encryption: 1,
  storage: 1,
  bucket: 1,
  lockTimeout: 1,
  wasm: 1,
  worker: 1,
  ...MAINTENANCE,
};
const RESTORE: Names<RestoreOptions> = { overwrite: 1, force: 1, ...RECOVER };

export function checkMaintenanceOptions(call: 'restore' | 'recover', options: RestoreOptions): void {
  checkNames(call, options, call === 'restore' ? RESTORE : RECOVER);
  const { overwrite = false, lockTimeout = 0, storage, bucket, wasm, worker, signal } = options;
  checkPlaceStorage(storage);
  if (bucket !== undefined) checkBucketName(bucket);
  checkWasm(wasm);
  checkWorker(worker);
  checkLimit('lockTimeout', lockTimeout);
  checkSignal(signal);
  checkForce(options);
  checkBoolean('overwrite', overwrite);
}

/** Loads what makes the new database. */
export async function toMaker(load: LoadModule, { encryption, wasm }: RecoverOptions): Promise<Maker> {
  const secret = encryption === undefined ? new Uint8Array(0) : await toSecret(encryption);
  return { secret, module: await load(wasm) };
}

export function isBlob(backup: unknown): backup is Blob {
  return (
    typeof (backup as Partial<Blob> | null | undefined)?.arrayBuffer === 'function' &&
    typeof (backup as Partial<Blob>).stream === 'function'
  );
}

/** The parts of a stream reader that are used here. */
export interface PieceReader {
  read(): Promise<{ readonly done?: boolean | undefined; readonly value?: unknown }>;
  cancel(reason: unknown): Promise<unknown>;
}

/** Returns a reader for a backup that arrives in pieces. */
export function readerOf(backup: unknown): PieceReader {
  const { getReader, [Symbol.asyncIterator]: iterate } = (backup ?? {}) as Partial<
    ReadableStream & AsyncIterable<unknown>
  >;
  if (typeof getReader === 'function') return (backup as ReadableStream).getReader();
  if (typeof iterate !== 'function') {
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      'the backup has to be a stream of bytes, a Blob, bytes, or in Node, Deno and Bun the path of a file',
    );
  }
  const iterator = (backup as AsyncIterable<unknown>)[Symbol.asyncIterator]();
  return {
    read: () => iterator.next(),
    // Destroys a Node stream: its iterator would wait for the pending read first.
    cancel: async () => {
      const { destroy } = backup as { destroy?: unknown };
      return typeof destroy === 'function' ? void destroy.call(backup) : iterator.return?.();
    },
  };
}

/**
 * Checks the options of a restore. As in a pipe, cancels a stream that will not be read because the
 * signal was already aborted.
 */
export function watchRestore(options: RestoreOptions, backup: unknown): Watcher {
  try {
    checkMaintenanceOptions('restore', options);
    return new Watcher(options);
  } catch (error) {
    const { signal } = ((options as unknown) ?? {}) as RestoreOptions;
    if (signal?.aborted !== true) throw error;
    const { getReader, [Symbol.asyncIterator]: iterate } = (backup ?? {}) as Partial<
      ReadableStream & AsyncIterable<unknown>
    >;
    const isLocked = (backup as Partial<ReadableStream> | undefined)?.locked === true;
    if (!isLocked && (typeof getReader === 'function' || typeof iterate === 'function')) {
      readerOf(backup)
        .cancel(error)
        .catch(() => undefined);
    }
    throw error;
  }
}

/** Passes a stream to `take` piece by piece; cancels the stream if `take` or the signal ends it. */
export async function pour(
  reader: PieceReader,
  signal: AbortSignal | undefined,
  take: (piece: Uint8Array) => void,
): Promise<void> {
  try {
    for (;;) {
      const { done, value } = await abortable(reader.read(), signal);
      if (done) return;
      take(checkPiece(value));
    }
  } catch (error) {
    reader.cancel(error).catch(() => undefined);
    throw error;
  }
}

export function checkPiece(piece: unknown): Uint8Array {
  if (isBytes(piece)) return piece;
  throw new KvError('KV_INVALID_ARGUMENT', 'the stream of a backup has to yield Uint8Arrays');
}

/** Returns a function that appends pieces to `file`, from its beginning. */
export function appendTo(file: StorageFile): (piece: Uint8Array) => void {
  let at = 0;
  return (piece) => {
    if (piece.length > 0) file.write(at, piece);
    at += piece.length;
  };
}

export function alreadyExists(name: string, canOverwrite: boolean): KvError {
  return new KvError(
    'KV_EXISTS',
    `the database ${name} already exists${canOverwrite ? '; overwrite: true replaces it' : ''}`,
  );
}
