// Where a database gets the engine's code, its key and its files from.

// Derived from the environment, so that programs without the DOM types compile too. `object` is
// needed because a module has no members that tell it from a number.
export type ModuleType = typeof globalThis extends { WebAssembly: { Module: new (...args: never[]) => infer M } }
  ? M & object
  : never;
type ResponseType = typeof globalThis extends { Response: new (...args: never[]) => infer R } ? R : never;
type WorkerType = typeof globalThis extends { Worker: new (...args: never[]) => infer W } ? W : never;

/**
 * Where to get the engine's module: a URL (relative to the page, or to the working directory
 * outside browsers), the `Response` to a request for it, its bytes, or a compiled
 * `WebAssembly.Module`. `openSync` can neither fetch it nor wait for a response.
 */
export type WasmSource = string | URL | ResponseType | ArrayBuffer | ArrayBufferView | ModuleType;

/**
 * Where to get the worker's script: its URL, or a function that starts a module worker with
 * `worker-indexeddb.js` if its argument is "indexeddb", otherwise with `worker.js`.
 */
export type WorkerSource = string | URL | ((storage: 'opfs' | 'indexeddb' | 'memory') => WorkerType);

export type CryptoKeyType = typeof globalThis extends { CryptoKey: new (...args: never[]) => infer C } ? C : never;

/**
 * What an encrypted database is locked with: a key, or a passphrase that one is derived from. See
 * docs/ENCRYPTION.md for how to keep a key.
 */
export type Encryption = EncryptionKey | EncryptionPassphrase;

/** A key of an encrypted database. */
export interface EncryptionKey {
  /**
   * 32 secret random bytes, or a `CryptoKey`, which may be non-extractable: one for HMAC with at
   * least 256 bits and the usage "sign", or one for HKDF with the usage "deriveBits". `openSync`
   * needs bytes.
   */
  readonly key: Uint8Array | CryptoKeyType;
  readonly passphrase?: undefined;
}

/** A passphrase of an encrypted database. The key is derived by Argon2id. */
export interface EncryptionPassphrase {
  readonly passphrase: string;
  /**
   * Memory that the derivation takes, in KiB, from 8 to 1 048 576. The database stores it at its
   * creation and when the key is changed; otherwise this has no effect. Default: 19 456.
   */
  readonly memoryKiB?: number | undefined;
  /** Passes over that memory, from 1 to 1024, stored like it. Default: 2. */
  readonly passes?: number | undefined;
  readonly key?: undefined;
}

/** A custom place for files. Synchronous; every read and write completes in full or throws. */
export interface CustomStorage {
  /** Opens a file for reading and writing, creating it empty if it does not exist. */
  open(file: string): StorageFile;
  /** Returns the names of all existing files. */
  list(): string[];
  /** Removes a file that is not open; a missing file is not an error. */
  remove(file: string): void;
  /**
   * Bytes by which the data file is kept longer than its content, so that entries can be removed
   * even when there is no space left; at least 32 nodes. For storages whose `truncate` allocates
   * the space that it adds. Default: 0, no reserve.
   */
  readonly reserveBytes?: number | undefined;
}

/**
 * One open file. Offsets and sizes are in bytes. An exception with the `code`
 * `"KV_QUOTA_EXCEEDED"`, `"ENOSPC"` or `"EDQUOT"` means that there is no space left.
 */
export interface StorageFile {
  /** Fills `into`, which is valid only during the call. */
  read(at: number, into: Uint8Array): void;
  /** Writes all of `from`, which is valid only during the call, growing the file as needed. */
  write(at: number, from: Uint8Array): void;
  /** Returns once everything written before survives a power cut. */
  flush(): void;
  /** Returns the file's size in bytes. */
  size(): number;
  /** Shortens the file, or extends it with zeros. */
  truncate(size: number): void;
  /** Closes the file. Idempotent. */
  close(): void;
}
