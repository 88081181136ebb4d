// Options and results of upkeep: `verify`, `compact`, `backup`, `restore`, `recover`.
import type { KvErrorCode } from '../errors.ts';
import type { WasmSource, WorkerSource } from './open.ts';
import type { SignalOptions } from './range.ts';

/** Options of upkeep that may take long. */
export interface MaintenanceOptions extends SignalOptions {
  /** How far it is; `total` may change. What it throws ends the work. */
  onProgress?: ((done: number, total: number) => void) | undefined;
}

/** What `verify` found. */
export interface VerifyReport {
  /** Whether nothing is damaged. */
  readonly ok: boolean;
  /** Blocks that were read and checked. */
  readonly pagesChecked: number;
  /** Entries in them. */
  readonly entries: number;
  /** Damage, in the order it was found. */
  readonly problems: readonly VerifyProblem[];
}

/** One damage that `verify` found. */
export interface VerifyProblem {
  /** As of a `KvError`. */
  readonly code: KvErrorCode;
  /** Names the damage. */
  readonly message: string;
  /** Allocation unit where the damaged block begins. */
  readonly page?: number;
  /** Name of the collection it is in, if that is known. */
  readonly collection?: string;
}

/**
 * What `backup()` gave, from wherever it was kept: a web stream, a stream of Node or any other asynchronous iterable of `Uint8Array`s; a `Blob` or `File`;
 * bytes, as in a `Buffer`; in Node, Deno and Bun also the file it was written to, as its path or a `file:` URL. Only a stream is written to the disk once
 * more before it is read.
 */
export type BackupSource =
  | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array> | Blob | ArrayBuffer | ArrayBufferView | string | URL;

/** Options of `recover`. */
export interface RecoverOptions extends MaintenanceOptions {
  /** `"indexeddb"`: databases that are opened with it; otherwise those of the default storage. */
  storage?: 'indexeddb' | undefined;
  /** The module for upkeep, where the file beside the script is not it: the `mangrove_upkeep_bg.wasm` of this version. */
  wasm?: WasmSource | undefined;
  /** The script of the worker for upkeep, or a function that starts it. Without effect outside browsers. */
  worker?: WorkerSource | undefined;
}

/** Options of `restore`. */
export interface RestoreOptions extends RecoverOptions {
  /** Replaces a database that is there. Until all of the new one is, the old one stays what it is. */
  overwrite?: boolean | undefined;
  /**
   * With `overwrite`, replaces files with a database's names also if they do not begin like a database's: they are of another program, or their
   * beginning is damaged. Default false: KV_CORRUPT, and they stay.
   */
  force?: boolean | undefined;
}

/** What `recover` found. */
export interface RecoverReport {
  /** Entries of the new database. */
  readonly entries: number;
  /** Entries that are known to be lost, or stand there as they were at an earlier time. There may be more where `problems` say so. */
  readonly lost: number;
  /** What was damaged and what that means, in sentences. None: the new database has exactly the newest state. */
  readonly problems: readonly string[];
}
