// What an encrypted database is locked with.

// Derived from the environment, so that programs without the DOM types compile too.
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
