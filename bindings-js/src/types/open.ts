// How a database is opened, and whether one can be.
import type { Key } from '../codec/keys.ts';
import type { CollectionOptions, Durability } from './collection.ts';
import type { CustomStorage } from './storage.ts';

// Taken from the environment, so that a program without the types of browsers compiles too. `object`, as a module has
// no members by which to tell it from a number.
type ModuleType = typeof globalThis extends { WebAssembly: { Module: new (...args: never[]) => infer M } } ? M & object : never;
type ResponseType = typeof globalThis extends { Response: new (...args: never[]) => infer R } ? R : never;
type WorkerType = typeof globalThis extends { Worker: new (...args: never[]) => infer W } ? W : never;

/**
 * Where the engine's module is: a URL (a relative one begins at the page, outside browsers at the working directory),
 * the `Response` to a request for it, its bytes, or a compiled `WebAssembly.Module`.
 * `openSync` can neither fetch nor wait for a response.
 */
export type WasmSource = string | URL | ResponseType | ArrayBuffer | ArrayBufferView | ModuleType;

/**
 * Where the worker's script is, or a function that starts a module worker with it: `worker-indexeddb.js` if its argument is "indexeddb",
 * else `worker.js`.
 */
export type WorkerSource = string | URL | ((storage: 'opfs' | 'indexeddb' | 'memory') => WorkerType);

/** Options of `open`. */
export interface OpenOptions<K = Key, V = unknown, I = V> extends CollectionOptions<K, V, I> {
  /**
   * Where the database is kept. `"auto"`, the default, is `"opfs"` in browsers and `"fs"` elsewhere; there is no
   * silent change to another. `"indexeddb"` is for browsers where there is no OPFS: the whole database is in memory.
   */
  storage?: 'auto' | 'opfs' | 'indexeddb' | 'fs' | 'memory' | CustomStorage | undefined;
  /** Create it if it does not exist; otherwise KV_NOT_FOUND. Default true. */
  create?: boolean | undefined;
  /** Fail with KV_EXISTS if it exists. Default false. */
  exclusive?: boolean | undefined;
  /**
   * Refuse all writes with KV_READ_ONLY. In Node, Deno and Bun nothing is locked and no permission to write is needed: the database can be read
   * while another process writes to it. It shows the state of its opening until `refresh()`; what was overwritten meanwhile is answered with
   * KV_STALE. In a browser it is about this opening's writes: others may write meanwhile, and what they commit is seen at once. Default false.
   */
  readOnly?: boolean | undefined;
  /**
   * What becomes of an `open` for which a browser has no OPFS or no workers, as in private windows and on pages without HTTPS: KV_UNSUPPORTED,
   * or a database in IndexedDB, or one in memory that is lost with the page. `Database.persistence` tells where it is. What is in one place is
   * not seen in the other. It has no effect with another storage than "auto" and "opfs", nor outside browsers. Default "throw".
   */
  onUnavailable?: 'throw' | 'indexeddb' | 'memory' | undefined;
  /**
   * Milliseconds to wait for files that another process, tab or handle still holds, then KV_LOCKED; may be `Infinity`. Where tabs share the database also for a tab
   * that answers, then KV_TIMEOUT. Default 10 000.
   */
  lockTimeout?: number | undefined;
  /**
   * Milliseconds that a snapshot, an iterator or a backup may stay open without being used, or `Infinity`; then it is closed and its next use rejects with
   * KV_TIMEOUT. One that is forgotten but still reachable keeps space in the file. A watch that waits for the next commit is in use, and a page
   * that is frozen or a machine that sleeps does not count. Transactions have their own `timeout`. Default 3 600 000, an hour.
   */
  idleTimeout?: number | undefined;
  /**
   * Where the engine runs: in a worker of its own, or in the thread that opens it, which the synchronous API needs. `"auto"`, the default, is
   * the same thread in Node, Deno and Bun, where a call costs a few microseconds and flushes are made in another thread, and a worker
   * in browsers. There `"same"` with OPFS works in dedicated workers only. A storage of your own is always used in the same thread.
   */
  thread?: 'auto' | 'worker' | 'same' | undefined;
  /** For all writes that do not say otherwise. Default "strict". */
  durability?: Durability | undefined;
  /** Memory for cached parts of the file in bytes. Default 32 MiB. */
  cacheBytes?: number | undefined;
  /** Of what is stored; fixed at creation, later ignored. Default "lz4". */
  compression?: 'lz4' | 'none' | undefined;
  /** Allocation unit in bytes, a power of two from 512 to 65 536; fixed at creation, later ignored. Default 4096. */
  unitBytes?: number | undefined;
  /** Size of a tree node in bytes, 256 to 65 536; fixed at creation, later ignored. Default 16 384. */
  nodeBytes?: number | undefined;
  /**
   * Keep the newest commits in the file, for `changes({ since })`. `true` keeps 10 000, as does an object without `retainCommits`. Each
   * commit is stored once more then. Default false, which leaves a feed that the database already keeps as it is. Following commits while
   * the database is open takes no feed.
   */
  feed?: boolean | { readonly retainCommits?: number | undefined } | undefined;
  /** Ends the wait, for a lock too; `open` rejects with the signal's reason, and nothing stays open. */
  signal?: AbortSignal | undefined;
  /**
   * The engine's module, where the file beside the script is not it: from another place, fetched or compiled already,
   * or where a bundler has lost it. It has to be the `mangrove_bg.wasm` of this version. Each source is compiled once.
   */
  wasm?: WasmSource | undefined;
  /**
   * The worker's script, where the file beside the script is not it, or a function that starts it: under Trusted
   * Types, or where a bundler has its own way. The function is called once for each `open`, and its worker belongs to
   * the database, which ends it. Without effect with a custom storage and outside browsers, where there is no worker.
   */
  worker?: WorkerSource | undefined;
}

/** Which databases `destroy` and `list` are about. */
export interface PlaceOptions {
  /** Those that were opened with `storage: "indexeddb"`; otherwise those of the default storage. */
  storage?: 'indexeddb' | undefined;
}

/** Options of `destroy`. */
export interface DestroyOptions extends PlaceOptions {
  /**
   * Removes files with a database's names also if they do not begin like a database's: they are of another program, or their beginning is
   * damaged. Default false: KV_CORRUPT, and nothing is removed.
   */
  force?: boolean | undefined;
}

/** What `checkSupport` gives. */
export type Support =
  | { readonly ok: true; readonly storage: 'opfs' | 'fs' }
  | { readonly ok: false; readonly reason: UnsupportedReason; readonly message: string };

/** Why databases cannot be kept here. */
export type UnsupportedReason = 'insecure-context' | 'private-mode' | 'no-opfs' | 'no-worker';
