// Options for opening a database, and whether the environment can keep one.
import type { KvError } from '../base/errors.ts';
import type { TraceEvent } from '../base/trace.ts';
import type { Key } from '../codec/keys.ts';
import type { CollectionOptions, Durability } from './collection.ts';
import type { CustomStorage, Encryption, WasmSource, WorkerSource } from './sources.ts';
import type { Migrations, UpgradeFunction, UpgradeProgress } from './versions.ts';

/** Options of the storage engine that few databases need. */
export interface AdvancedOptions {
  /**
   * Size of an allocation unit in bytes, a power of two from 512 to 65 536. Default: 4096.
   */
  unitBytes?: number | undefined;
  /**
   * Size of a tree node in bytes, from 256 to 65 536. Default: 16 384.
   */
  nodeBytes?: number | undefined;
}

/** A storage bucket. All but the name and `expires` only matter to the call that creates it. */
export interface BucketOptions {
  /** Up to 64 of the characters a-z, 0-9, "_" and "-", of which the first is a letter or digit. */
  readonly name: string;
  /** Ask the browser not to evict the bucket when space runs short. It may refuse. Default: false. */
  readonly persisted?: boolean | undefined;
  /** Passed to the browser; commits are durable as `open` says in either case. Default: the browser's, "relaxed". */
  readonly durability?: 'strict' | 'relaxed' | undefined;
  /** Bytes that the bucket may use, at least 1. Default: what the origin may use. */
  readonly quota?: number | undefined;
  /** Unix time in milliseconds, in the future, from which the browser removes the bucket. Default: never. */
  readonly expires?: number | undefined;
}

/** Options of `open`. */
export interface OpenOptions<K = Key, V = unknown, I = V> extends CollectionOptions<K, V, I> {
  /**
   * Where the database is kept. `"auto"`, the default, is `"opfs"` in browsers and `"fs"`
   * elsewhere, and never falls back to another silently. `"indexeddb"` is for browsers without
   * OPFS: the whole database is held in memory.
   */
  storage?: 'auto' | 'opfs' | 'indexeddb' | 'fs' | 'memory' | CustomStorage | undefined;
  /**
   * The storage bucket in which the browser keeps the database, by its name or with what it is
   * created with. The browser evicts, expires and counts a bucket by itself, so that drafts can go
   * while the rest stays. Databases of one name in two buckets are two databases. Browsers without
   * storage buckets fail with KV_UNSUPPORTED, as do Node, Deno and Bun; there is no fallback to
   * other storage. Default: the default storage of the origin.
   */
  bucket?: string | BucketOptions | undefined;
  /**
   * The schema version that this program is written for, a whole number from 1 on. A database of an
   * older version is upgraded by `upgrade`, once, whichever tab opens it first: `open` waits for
   * that. Handles that were opened with an older version get the event `versionchange`, and their
   * calls fail with KV_VERSION_CHANGED. A database of a newer version, or with an incomplete upgrade
   * to one, is refused with KV_VERSION_TOO_NEW. Default: versions are not looked at.
   */
  version?: number | undefined;
  /**
   * Brings the data from an older version to `version`: a function that runs in one transaction, or
   * steps made by `migrations` of `mangrove-kv/migrations`, which survive interruptions. If it
   * throws, `open` rejects with what it threw, and the version stays. During an upgrade the default
   * collection has no indexes. Default: only the number changes.
   */
  upgrade?: UpgradeFunction<K, V, I> | Migrations | undefined;
  /** Called as an upgrade proceeds, here or in another tab. */
  onUpgrade?: ((progress: UpgradeProgress) => void) | undefined;
  /**
   * Encrypts a database that is created here, and opens an encrypted one. Without it, or with another
   * key, an encrypted database is KV_WRONG_KEY; with it, a plain one is KV_NOT_ENCRYPTED. The engine
   * with encryption is a module of its own, which only such a call loads. Default: not encrypted.
   */
  encryption?: Encryption | undefined;
  /**
   * Create the database if it does not exist. If false, a missing database is KV_NOT_FOUND.
   * Default: true.
   */
  create?: boolean | undefined;
  /** Fail with KV_EXISTS if the database exists. Default: false. */
  exclusive?: boolean | undefined;
  /**
   * Refuse all writes with KV_READ_ONLY. Default: false.
   *
   * In Node, Deno and Bun nothing is locked and no write permission is needed, so the database can
   * be read while another process writes to it. Reads see the state as of opening until
   * `refresh()`; a read that reaches something overwritten since rejects with KV_STALE.
   *
   * In browsers only this handle's writes are refused: others may write meanwhile, and their
   * commits are visible at once.
   */
  readOnly?: boolean | undefined;
  /**
   * What `open` does in a browser without OPFS or workers, as in private windows and on pages
   * without HTTPS, or where pages have no storage at all, as in sandboxed frames: fail with KV_UNSUPPORTED, use a database in IndexedDB, or use one in memory that
   * is lost with the page. `Database.persistence` reports which. The places are separate: data in
   * one is not seen in another. Has no effect with a `storage` other than "auto" and "opfs", nor
   * outside browsers. Default: "throw".
   */
  onUnavailable?: 'throw' | 'indexeddb' | 'memory' | undefined;
  /**
   * Milliseconds to wait for files that another process, tab or handle still holds, before
   * KV_LOCKED. Where tabs share the database, also the wait for a tab that answers, before
   * KV_TIMEOUT. May be `Infinity`. Default: 10 000 in browsers, which may release the files of a page
   * late, and 2 000 in Node, Deno and Bun.
   */
  lockTimeout?: number | undefined;
  /**
   * In Node, Deno and Bun: called once, after a second in which `open` has waited for another holder,
   * with the KV_LOCKED that it will reject with unless that closes. Its message names the holder.
   */
  onBlocked?: ((error: KvError) => void) | undefined;
  /**
   * In Node, Deno and Bun, where the system or the missing program `flock` leaves only the file
   * `lock` as the lock: take it over from a holder in another machine that has shown no sign of life
   * for two minutes, or whose system lock cannot be asked for here. Without it that is KV_LOCKED, not
   * retryable, for ever. Say so only if that process is gone for sure; one that is not is stopped
   * before its next commit. A holder that is known to be alive keeps its lock. Default: false.
   */
  takeOver?: boolean | undefined;
  /**
   * In Node, Deno and Bun: whether other handles, threads and processes can open the database at the
   * same time. The first one leads, and executes what the others ask (docs/SHARING.md). With false the
   * database is locked while it is open. Of no effect with `openSync`, which locks it unless a handle of
   * this thread leads, with `readOnly`, which needs no lock, and in browsers, where tabs share anyway.
   * Default: true.
   */
  share?: boolean | undefined;
  /**
   * Milliseconds without use after which a snapshot, iterator or backup is closed, or `Infinity`;
   * its next use then rejects with KV_TIMEOUT. The limit exists because a forgotten one that is
   * still reachable keeps space in the file. A watch that waits for the next commit counts as in
   * use; time during which a page is frozen or the machine sleeps does not count. Transactions have
   * their own `timeout`. Default: 3 600 000, an hour.
   */
  idleTimeout?: number | undefined;
  /**
   * Where the engine runs: in its own worker, or in the thread that opens the database, which the
   * synchronous API needs. Default: `"auto"`.
   *
   * - `"auto"` in Node, Deno and Bun: the same thread. A call costs a few microseconds, and another
   *   thread flushes.
   * - `"auto"` in browsers: a worker. There, `"same"` with OPFS works in dedicated workers only.
   *
   * A custom storage is always used in the same thread.
   */
  thread?: 'auto' | 'worker' | 'same' | undefined;
  /** Durability of all writes that do not set their own. Default: "strict". */
  durability?: Durability | undefined;
  /** Memory for cached parts of the file, in bytes. Default: 32 MiB. */
  cacheBytes?: number | undefined;
  /** Compression of stored data. Fixed at creation and ignored later. Default: "lz4". */
  compression?: 'lz4' | 'none' | undefined;
  /** Sizes of the file's units and nodes, for measured needs. Fixed at creation and ignored later. */
  advanced?: AdvancedOptions | undefined;
  /**
   * Keep the newest commits in the file, for `changes({ since })`. `true` keeps 10 000 commits, as
   * does an object without `retainCommits`. Each commit is then stored a second time. Default:
   * false, which leaves a feed that the database already keeps as it is. Following commits while
   * the database is open needs no feed.
   */
  feed?: boolean | { readonly retainCommits?: number | undefined } | undefined;
  /**
   * Ends the wait, including the wait for a lock: `open` rejects with the signal's reason, and
   * nothing stays open.
   */
  signal?: AbortSignal | undefined;
  /**
   * For operators: records what happens to the database apart from calls, such as changes of the leading
   * tab, lost connections, merges and replication. The newest 200 events are attached to each KvError
   * that the database reports (`KvError.trace`). A function is called with each event, a little later;
   * what it throws is ignored. In Node, Deno and Bun, events are also published on the channel
   * "mangrove-kv" of `node:diagnostics_channel`; if that has subscribers when `open` is called, they are
   * recorded without this option, too. Default: false.
   */
  trace?: boolean | ((event: TraceEvent) => void) | undefined;
  /**
   * The engine's module, if it is not the file beside the script: loaded from elsewhere, already
   * fetched or compiled, or lost by a bundler. It must be the `mangrove_bg.wasm` of this version: all
   * of the module, encryption included, which browsers otherwise load in two parts. Each source is compiled once.
   */
  wasm?: WasmSource | undefined;
  /**
   * The worker's script, if it is not the file beside the script, or a function that starts the
   * worker, for Trusted Types or for bundlers with their own way of starting one. The function is
   * called once for each `open`; the worker belongs to the database, which terminates it.
   *
   * Has no effect where the engine runs in the caller's thread, as it does with a custom storage.
   * In Node, Deno and Bun, where only `thread: "worker"` starts a worker, it must be the URL of
   * `dist/node-worker.js`; a function is KV_INVALID_ARGUMENT.
   */
  worker?: WorkerSource | undefined;
}

/** Which databases `destroy` and `list` work on. */
export interface PlaceOptions {
  /** Databases opened with `storage: "indexeddb"`; if left out, those of the default storage. */
  storage?: 'indexeddb' | undefined;
  /** The storage bucket that they are in: see `open`. Default: the default storage of the origin. */
  bucket?: string | undefined;
}

/** Options of `destroy`. */
export interface DestroyOptions extends PlaceOptions {
  /**
   * Also removes files that have a database's names but do not start like a database, because they
   * belong to another program or their start is damaged. Default: false, which fails with
   * KV_CORRUPT and removes nothing.
   */
  force?: boolean | undefined;
}

/** Result of `checkSupport`. */
export type Support =
  | { readonly ok: true; readonly storage: 'opfs' | 'fs' }
  | { readonly ok: false; readonly reason: UnsupportedReason; readonly message: string };

/**
 * Why databases cannot be kept here. `"opaque-origin"`: in a sandboxed frame without
 * `allow-same-origin`, or a `data:` page.
 */
export type UnsupportedReason = 'insecure-context' | 'opaque-origin' | 'private-mode' | 'no-opfs' | 'no-worker';
