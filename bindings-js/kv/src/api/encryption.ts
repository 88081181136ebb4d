// Checks the option `encryption`, and encodes what it names for the engine; see the crate
// `mangrove-host`, file `secret.rs`. A part of the package that few programs load.
import { isBytes } from '../codec/bytes.ts';
import { checkCount } from '../base/async.ts';
import { KvError } from '../base/errors.ts';
import { TextEncoder, crypto } from '../base/platform.ts';
import type { Names } from '../base/names.ts';
import type { Encryption, EncryptionKey, EncryptionPassphrase } from '../types/index.ts';
import { checkNames } from '../base/names.ts';
import type { CheckedOptions } from './options.ts';

const KEY: Names<EncryptionKey> = { key: 1, passphrase: 1 };
const PASSPHRASE: Names<EncryptionPassphrase> = { memoryKiB: 1, passes: 1, ...KEY };

const utf8 = new TextEncoder();

const KEY_BYTES = 32;
const DEFAULT_MEMORY_KIB = 19_456;
const MAX_MEMORY_KIB = 1_048_576;
const DEFAULT_PASSES = 2;
const MAX_PASSES = 1024;
/** What a `CryptoKey` derives the database's key from: nothing else may derive the same. */
const PURPOSE = 'mangrove-kv: key of a database';

function invalid(what: string): KvError {
  return new KvError('KV_INVALID_ARGUMENT', what);
}

function ofBytes(bytes: ArrayBuffer | Uint8Array): Uint8Array<ArrayBuffer> {
  if (bytes.byteLength !== KEY_BYTES) throw invalid(`the key has ${bytes.byteLength} bytes instead of ${KEY_BYTES}`);
  const secret = new Uint8Array(1 + KEY_BYTES);
  secret[0] = 1;
  secret.set(isBytes(bytes) ? bytes : new Uint8Array(bytes), 1);
  return secret;
}

function ofPassphrase({
  passphrase,
  memoryKiB = DEFAULT_MEMORY_KIB,
  passes = DEFAULT_PASSES,
}: EncryptionPassphrase): Uint8Array<ArrayBuffer> {
  if (typeof passphrase !== 'string' || passphrase === '') throw invalid('passphrase has to be a non-empty string');
  if (checkCount('memoryKiB', memoryKiB, MAX_MEMORY_KIB) < 8) throw invalid('memoryKiB has to be at least 8');
  if (checkCount('passes', passes, MAX_PASSES) < 1) throw invalid('passes has to be at least 1');
  const text = utf8.encode(passphrase);
  const secret = new Uint8Array(9 + text.length);
  secret[0] = 2;
  const view = new DataView(secret.buffer);
  view.setUint32(1, memoryKiB, true);
  view.setUint32(5, passes, true);
  secret.set(text, 9);
  return secret;
}

async function ofCryptoKey(key: CryptoKey): Promise<Uint8Array<ArrayBuffer>> {
  const { name } = key.algorithm ?? {};
  const purpose = utf8.encode(PURPOSE);
  if (name === 'HKDF' && key.usages.includes('deriveBits')) {
    const algorithm = { name, hash: 'SHA-256', salt: new Uint8Array(KEY_BYTES), info: purpose };
    return ofBytes(await crypto.subtle.deriveBits(algorithm, key, 8 * KEY_BYTES));
  }
  const { length = 0 } = key.algorithm as { readonly length?: number };
  if (name === 'HMAC' && key.usages.includes('sign') && length >= 8 * KEY_BYTES) {
    const mac = await crypto.subtle.sign(name, key, purpose);
    if (mac.byteLength >= KEY_BYTES) return ofBytes(mac.slice(0, KEY_BYTES));
  }
  throw invalid(
    'a CryptoKey has to be for HMAC with SHA-256 or longer, a length of 256 bits or more and the usage "sign", or for HKDF with the usage "deriveBits"',
  );
}

/** Encodes what can be encoded at once: bytes and passphrases. */
function atOnce(encryption: Encryption): Uint8Array<ArrayBuffer> | CryptoKey {
  checkNames('encryption', encryption, PASSPHRASE);
  const { key, passphrase } = (encryption as Encryption | undefined) ?? {};
  if ((key === undefined) === (passphrase === undefined))
    throw invalid('encryption has to have either a key or a passphrase');
  if (passphrase !== undefined) return ofPassphrase(encryption as EncryptionPassphrase);
  checkNames('encryption', encryption, KEY);
  if (ArrayBuffer.isView(key)) return ofBytes(new Uint8Array(key.buffer, key.byteOffset, key.byteLength));
  if (Object.prototype.toString.call(key) === '[object CryptoKey]') return key as CryptoKey;
  throw invalid('the key has to be 32 bytes in a Uint8Array, or a CryptoKey');
}

/**
 * Encodes the secret of an encrypted database.
 *
 * @throws KvError KV_INVALID_ARGUMENT
 */
export async function toSecret(encryption: Encryption): Promise<Uint8Array<ArrayBuffer>> {
  const secret = atOnce(encryption);
  return isBytes(secret) ? secret : ofCryptoKey(secret);
}

/**
 * As `toSecret`, without waiting.
 *
 * @throws KvError KV_INVALID_ARGUMENT; KV_UNSUPPORTED for a `CryptoKey`.
 */
export function toSecretSync(encryption: Encryption): Uint8Array<ArrayBuffer> {
  const secret = atOnce(encryption);
  if (isBytes(secret)) return secret;
  throw new KvError('KV_UNSUPPORTED', 'openSync cannot wait for a CryptoKey; use open');
}

/**
 * Loads a module with encryption. A plain one would have to make a plain database.
 *
 * @throws KvError KV_INVALID_ARGUMENT if the caller gave a plain one as `wasm`.
 */
export function checkModule(module: WebAssembly.Module): WebAssembly.Module {
  if (WebAssembly.Module.exports(module).some(({ name }) => name === 'engine_sealed_key')) return module;
  throw invalid('the module given as wasm has no encryption; give mangrove_bg.wasm');
}

/** Adds a secret to the options of an opening. */
export function withKey(options: CheckedOptions, secret: Uint8Array): CheckedOptions {
  const { engine } = options;
  return { ...options, engine: { ...engine, opening: withSecret(engine.opening, secret) } };
}

/** Adds a secret to the random bytes of an opening, in place of the one that was there. */
export function withSecret(opening: Uint8Array, secret: Uint8Array): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(16 + secret.length);
  whole.set(opening.subarray(0, 16));
  whole.set(secret, 16);
  return whole;
}
