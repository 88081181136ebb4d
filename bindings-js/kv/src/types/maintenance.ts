// Options and results of maintenance: `verify`, `compact`, `backup`, `restore`, `recover`.
import type { KvErrorCode } from '../base/errors.ts';
import type { Encryption, WasmSource, WorkerSource } from './sources.ts';
import type { SignalOptions } from './range.ts';

/** Options of maintenance calls that may take long. */
export interface MaintenanceOptions extends SignalOptions {
  /** Receives the progress; `total` may change. An exception that it throws ends the work. */
  onProgress?: ((done: number, total: number) => void) | undefined;
}

/** Result of `verify`. */
export interface VerifyReport {
  /** Whether nothing is damaged. */
  readonly ok: boolean;
  /** Number of blocks read and checked. */
  readonly pagesChecked: number;
  /** Number of entries in them. */
  readonly entries: number;
  /** Damage, in the order in which it was found. */
  readonly problems: readonly VerifyProblem[];
}

/** One instance of damage found by `verify`. */
export interface VerifyProblem {
  /** Same codes as those of a `KvError`. */
  readonly code: KvErrorCode;
  /** Describes the damage. */
  readonly message: string;
  /** Allocation unit at which the damaged block starts. */
  readonly page?: number;
  /** Name of the collection that is damaged, if known. */
  readonly collection?: string;
}

/**
 * The output of `backup()`, from wherever it was kept:
 *
 * - a web stream, a Node stream or any other asynchronous iterable of `Uint8Array`s;
 * - a `Blob` or `File`;
 * - bytes, for instance a `Buffer`;
 * - in Node, Deno and Bun also the file it was written to, as a path or a `file:` URL.
 *
 * Only a stream is written to disk once more before it is read.
 */
export type BackupSource =
  | ReadableStream<Uint8Array>
  | AsyncIterable<Uint8Array>
  | Blob
  | ArrayBuffer
  | ArrayBufferView
  | string
  | URL;

/** Options of `recover`. */
export interface RecoverOptions extends MaintenanceOptions {
  /**
   * The key of an encrypted database or backup, which the new database gets too. A plain one becomes
   * an encrypted one. Default: not encrypted.
   */
  encryption?: Encryption | undefined;
  /**
   * `"indexeddb"`: databases opened with that storage; if left out, those of the default storage.
   */
  storage?: 'indexeddb' | undefined;
  /** The storage bucket of the databases: see `open`. Default: the default storage of the origin. */
  bucket?: string | undefined;
  /**
   * Milliseconds to wait for a database that is open, before KV_LOCKED. In browsers its tabs get the
   * event `blocked` meanwhile, and let this call in by closing it. May be `Infinity`. Default: 10 000
   * in browsers, 0 in Node, Deno and Bun.
   */
  lockTimeout?: number | undefined;
  /**
   * The maintenance module, if it is not the file beside the script: the `mangrove_maintenance_bg.wasm` of
   * this version.
   */
  wasm?: WasmSource | undefined;
  /**
   * The maintenance worker's script, or a function that starts that worker. Has no effect outside
   * browsers.
   */
  worker?: WorkerSource | undefined;
}

/** Options of `restore`. */
export interface RestoreOptions extends RecoverOptions {
  /** Replaces an existing database. Until the new one is complete, the old one is unchanged. */
  overwrite?: boolean | undefined;
  /**
   * With `overwrite`, also replaces files that have a database's names but do not start like a
   * database, because they belong to another program or their start is damaged. Default: false,
   * which fails with KV_CORRUPT and keeps the files.
   */
  force?: boolean | undefined;
}

/** Result of `recover`. */
export interface RecoverReport {
  /** Number of entries in the new database. */
  readonly entries: number;
  /**
   * Number of entries known to be lost or recovered in an earlier state. There may be more if
   * `problems` says so.
   */
  readonly lost: number;
  /**
   * What was damaged and what that means, as sentences. Empty if the new database has exactly the
   * newest state.
   */
  readonly problems: readonly string[];
}
