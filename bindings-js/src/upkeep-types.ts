// Options and results of `restore` and `recover`.
import type { MaintenanceOptions, WasmSource, WorkerSource } from './types.ts';

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
