/**
 * Keys of encrypted databases from passkeys, by the PRF extension of WebAuthn: what unlocks the device unlocks the
 * database, and no server takes part.
 *
 * @module mangrove-kv/passkey
 */
import { checkLimit, checkOneOf, checkSignal } from '../base/async.ts';
import { KvError } from '../base/errors.ts';
import { checkNames } from '../base/names.ts';
import type { Names } from '../base/names.ts';
import type { CryptoKeyType } from '../types/sources.ts';

/** A passkey that the user has just unlocked. */
export interface Passkey {
  /** The credential's id, in base64url. It is no secret: keep it, for `getPasskey`. */
  readonly id: string;
  /**
   * Secret of this passkey, the same each time: a key for HKDF that no script can read. Give it to
   * `open` as `encryption: { key }`, or seal a key with it.
   */
  readonly key: CryptoKeyType;
}

/** Options of `createPasskey`. */
export interface CreatePasskeyOptions {
  /** Tells the user's passkeys apart where the browser lists them, such as an address or the name of the database. */
  readonly name: string;
  /** Name of the user or the purpose, for display. Default: `name`. */
  readonly displayName?: string | undefined;
  /** Domain that the passkey belongs to: that of the page or a parent of it. Default: that of the page. */
  readonly rpId?: string | undefined;
  /** Name of the application, for display. Default: the domain. */
  readonly rpName?: string | undefined;
  /** Passkeys of which the authenticator must have none, by their ids. Default: none. */
  readonly excludeIds?: readonly string[] | undefined;
  /** `"platform"` for this device, `"cross-platform"` for a security key or another device. Default: the user chooses. */
  readonly attachment?: 'platform' | 'cross-platform' | undefined;
  /** Milliseconds for the user to decide, a hint to the browser. Default: the browser's. */
  readonly timeout?: number | undefined;
  /** Ends the dialogue: the call rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Options of `getPasskey`. */
export interface GetPasskeyOptions {
  /** Passkeys to choose from, by their ids. Default: all that this site has. */
  readonly ids?: readonly string[] | undefined;
  /** Domain that the passkey belongs to, as in `createPasskey`. Default: that of the page. */
  readonly rpId?: string | undefined;
  /** Milliseconds for the user to decide, a hint to the browser. Default: the browser's. */
  readonly timeout?: number | undefined;
  /** Ends the dialogue: the call rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** The key of a database, encrypted for one passkey. It is plain data and no secret: store it as JSON. */
export interface SealedKey {
  /** Version of this format. */
  readonly version: 1;
  /** Id of the passkey that opens it. */
  readonly passkey: string;
  /** Nonce and ciphertext of AES-256-GCM, in base64url. */
  readonly sealed: string;
}

const CREATE: Names<CreatePasskeyOptions> = {
  name: 1,
  displayName: 1,
  rpId: 1,
  rpName: 1,
  excludeIds: 1,
  attachment: 1,
  timeout: 1,
  signal: 1,
};
const GET: Names<GetPasskeyOptions> = { ids: 1, rpId: 1, timeout: 1, signal: 1 };

/** Input of the PRF, and what else is derived from its output. Changing one of them would lock all databases. */
const PRF_INPUT = 'mangrove-kv: passkey';
const SEAL_PURPOSE = 'mangrove-kv: key that seals the key of a database';
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const CHALLENGE_BYTES = 32;
/** ES256, EdDSA and RS256, of which each authenticator has one. */
const ALGORITHMS = [-7, -8, -257];

const utf8 = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);
const random = (length: number): Uint8Array<ArrayBuffer> => crypto.getRandomValues(new Uint8Array(length));

function invalid(what: string): KvError {
  return new KvError('KV_INVALID_ARGUMENT', what);
}

function toText(bytes: ArrayBuffer | Uint8Array): string {
  const binary = String.fromCharCode(...(bytes instanceof Uint8Array ? bytes : new Uint8Array(bytes)));
  return btoa(binary).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}

function toBytes(what: string, text: unknown): Uint8Array<ArrayBuffer> {
  if (typeof text !== 'string' || !/^[\w-]+$/.test(text)) throw invalid(`${what} has to be a string in base64url`);
  const binary = atob(text.replaceAll('-', '+').replaceAll('_', '/'));
  return Uint8Array.from(binary, (letter) => letter.charCodeAt(0));
}

function checkText(name: string, text: unknown): void {
  if (text !== undefined && (typeof text !== 'string' || text === ''))
    throw invalid(`${name} has to be a string that is not empty`);
}

function toDescriptors(name: string, ids: readonly string[] = []): PublicKeyCredentialDescriptor[] {
  if (!Array.isArray(ids)) throw invalid(`${name} has to be an array of ids`);
  return ids.map((id) => ({ type: 'public-key', id: toBytes(`an id in ${name}`, id) }));
}

/** @throws KvError KV_UNSUPPORTED where no passkey could have a secret. */
async function checkSupport(): Promise<void> {
  if (typeof globalThis.navigator?.credentials?.create !== 'function' || typeof PublicKeyCredential !== 'function') {
    throw new KvError(
      'KV_UNSUPPORTED',
      'passkeys exist in browsers only, on pages served over HTTPS or from localhost; use a passphrase',
    );
  }
  const capabilities = await PublicKeyCredential.getClientCapabilities?.().catch(() => undefined);
  if (capabilities?.['extension:prf'] === false) throw noSecret('this browser has no PRF extension');
}

function noSecret(what: string): KvError {
  return new KvError('KV_UNSUPPORTED', `${what}, so a passkey gives no key; use another one or a passphrase`);
}

function toKvError(error: unknown, action: string): KvError {
  const message = `${action}: ${error instanceof Error ? error.message : String(error)}`;
  switch ((error as { name?: unknown } | null)?.name) {
    case 'NotAllowedError':
      // Browsers do not tell these apart, so that a page cannot find out which passkeys a user has.
      return new KvError(
        'KV_NOT_ALLOWED',
        `${action}: the user declined or did not answer in time, the page may not ask now, or there is no such passkey here; let the user try again`,
        { cause: error, retryable: true },
      );
    case 'InvalidStateError':
      return new KvError('KV_EXISTS', `${action}: the authenticator has one of the passkeys in excludeIds already`, {
        cause: error,
      });
    case 'SecurityError':
    case 'TypeError':
      return new KvError('KV_INVALID_ARGUMENT', message, { cause: error });
    case 'NotSupportedError':
    case 'ConstraintError':
      return new KvError('KV_UNSUPPORTED', message, { cause: error });
    default:
      return new KvError('KV_IO', message, { cause: error });
  }
}

async function ask(action: string, asked: () => Promise<Credential | null>, signal: AbortSignal | undefined) {
  try {
    return (await asked()) as PublicKeyCredential;
  } catch (error) {
    checkSignal(signal);
    throw toKvError(error, action);
  }
}

/** A secret key, or undefined if the authenticator gave none. */
async function toPasskey(credential: PublicKeyCredential): Promise<Passkey | undefined> {
  const secret = credential.getClientExtensionResults().prf?.results?.first;
  if (secret === undefined) return undefined;
  // HKDF separates the key of a database from what seals it; `open` has a purpose of its own.
  const key = await crypto.subtle.importKey('raw', secret, 'HKDF', false, ['deriveBits']);
  return { id: toText(credential.rawId), key };
}

const prf = (): AuthenticationExtensionsClientInputs => ({ prf: { eval: { first: utf8(PRF_INPUT) } } });

/**
 * Creates a passkey, for which the browser asks the user, and derives its secret. Some authenticators give it
 * only when a passkey is used; then the user is asked a second time. An existing passkey is never replaced. Call it in
 * an event handler of the user's click, which some browsers require.
 *
 * @throws KvError KV_UNSUPPORTED if the browser or the authenticator has no PRF extension: then no passkey is
 * kept, as far as the browser can remove it; KV_NOT_ALLOWED, which may be tried again, if the user declined or did not
 * answer; KV_EXISTS if the authenticator has a passkey of `excludeIds`; KV_INVALID_ARGUMENT for wrong options or a
 * domain that is not the page's.
 */
export async function createPasskey(options: CreatePasskeyOptions): Promise<Passkey> {
  checkNames('createPasskey', options, CREATE);
  const { name, displayName, rpId, rpName, excludeIds, attachment, timeout, signal } = options ?? {};
  if (name === undefined) throw invalid('createPasskey needs a name');
  for (const [option, text] of Object.entries({ name, displayName, rpId, rpName })) checkText(option, text);
  if (attachment !== undefined) checkOneOf('attachment', attachment, ['platform', 'cross-platform']);
  if (timeout !== undefined) checkLimit('timeout', timeout);
  const excludeCredentials = toDescriptors('excludeIds', excludeIds);
  checkSignal(signal);
  await checkSupport();
  const publicKey: PublicKeyCredentialCreationOptions = {
    challenge: random(CHALLENGE_BYTES),
    rp: { name: rpName ?? rpId ?? location.hostname, ...(rpId !== undefined && { id: rpId }) },
    // An authenticator replaces the passkey of the same user, and with it the key of a database.
    user: { id: random(KEY_BYTES), name, displayName: displayName ?? name },
    pubKeyCredParams: ALGORITHMS.map((alg) => ({ type: 'public-key', alg })),
    // With and without verification, a passkey has different secrets.
    authenticatorSelection: {
      residentKey: 'required',
      requireResidentKey: true,
      userVerification: 'required',
      ...(attachment !== undefined && { authenticatorAttachment: attachment }),
    },
    excludeCredentials,
    extensions: prf(),
    ...(timeout !== undefined && { timeout }),
  };
  const create = (): Promise<Credential | null> =>
    navigator.credentials.create({ publicKey, ...(signal !== undefined && { signal }) });
  const credential = await ask('create a passkey', create, signal);
  const made = await toPasskey(credential);
  if (made !== undefined) return made;
  const id = toText(credential.rawId);
  if (credential.getClientExtensionResults().prf?.enabled !== true) {
    await forget(rpId ?? location.hostname, id);
    throw noSecret('the authenticator has no PRF extension');
  }
  return getPasskey({ ids: [id], rpId, timeout, signal });
}

/** Has the browser remove a passkey that is of no use, if it can. */
async function forget(rpId: string, credentialId: string): Promise<void> {
  await PublicKeyCredential.signalUnknownCredential?.({ rpId, credentialId }).catch(() => undefined);
}

/**
 * Has the user unlock a passkey, and derives its secret: the same as when it was created, on each device that has the
 * passkey.
 *
 * @throws KvError KV_NOT_ALLOWED, which may be tried again, if the user declined or did not answer, or there is no
 * such passkey here; KV_UNSUPPORTED if the browser, or this passkey, has no PRF extension; KV_INVALID_ARGUMENT for wrong
 * options or a domain that is not the page's.
 */
export async function getPasskey(options: GetPasskeyOptions = {}): Promise<Passkey> {
  checkNames('getPasskey', options, GET);
  const { ids, rpId, timeout, signal } = options;
  checkText('rpId', rpId);
  if (timeout !== undefined) checkLimit('timeout', timeout);
  const allowCredentials = toDescriptors('ids', ids);
  checkSignal(signal);
  await checkSupport();
  const publicKey: PublicKeyCredentialRequestOptions = {
    challenge: random(CHALLENGE_BYTES),
    allowCredentials,
    userVerification: 'required',
    extensions: prf(),
    ...(rpId !== undefined && { rpId }),
    ...(timeout !== undefined && { timeout }),
  };
  const get = (): Promise<Credential | null> =>
    navigator.credentials.get({ publicKey, ...(signal !== undefined && { signal }) });
  const found = await toPasskey(await ask('use a passkey', get, signal));
  if (found === undefined) throw noSecret('the passkey has no PRF extension');
  return found;
}

function checkPasskey(passkey: Passkey): { readonly id: string; readonly key: CryptoKey } {
  if (typeof passkey?.id === 'string' && Object.prototype.toString.call(passkey.key) === '[object CryptoKey]')
    return passkey as { readonly id: string; readonly key: CryptoKey };
  throw invalid('the passkey has to be a result of createPasskey or getPasskey');
}

type Seal = [CryptoKey, (nonce: Uint8Array<ArrayBuffer>) => AesGcmParams];

/** What seals keys for a passkey, and the id that it is bound to. */
async function sealOf(passkey: Passkey): Promise<Seal> {
  const { id, key } = checkPasskey(passkey);
  const algorithm = { name: 'HKDF', hash: 'SHA-256', salt: new Uint8Array(KEY_BYTES), info: utf8(SEAL_PURPOSE) };
  const bits = await crypto.subtle.deriveBits(algorithm, key, 8 * KEY_BYTES);
  const sealing = await crypto.subtle.importKey('raw', bits, 'AES-GCM', false, ['encrypt', 'decrypt']);
  return [sealing, (iv) => ({ name: 'AES-GCM', iv, additionalData: utf8(id) })];
}

/**
 * Encrypts the key of a database for a passkey, so that any of several passkeys opens the database: seal the same
 * key for each, and keep the results where a page can read them before the database is open.
 *
 * @param key 32 random bytes.
 * @throws KvError KV_INVALID_ARGUMENT for another key, or what is no passkey.
 */
export async function sealKey(key: Uint8Array, passkey: Passkey): Promise<SealedKey> {
  if (!(ArrayBuffer.isView(key) && key.byteLength === KEY_BYTES)) throw invalid('the key has to be 32 bytes');
  const [sealing, algorithm] = await sealOf(passkey);
  const nonce = random(NONCE_BYTES);
  const copy = new Uint8Array(key);
  const sealed = new Uint8Array(await crypto.subtle.encrypt(algorithm(nonce), sealing, copy));
  copy.fill(0);
  const whole = new Uint8Array(NONCE_BYTES + sealed.length);
  whole.set(nonce);
  whole.set(sealed, NONCE_BYTES);
  return { version: 1, passkey: passkey.id, sealed: toText(whole) };
}

/**
 * Decrypts the key of a database: 32 bytes for `encryption: { key }`. If several keys are sealed for this passkey, it is
 * the first that can be decrypted.
 *
 * @param sealed The results of `sealKey` for all passkeys of the database.
 * @throws KvError KV_NOT_FOUND if none of them is for this passkey; KV_WRONG_KEY if the one that is has been damaged
 * or sealed with another secret; KV_VERSION_UNSUPPORTED for a later format; KV_INVALID_ARGUMENT.
 */
export async function unsealKey(sealed: readonly SealedKey[], passkey: Passkey): Promise<Uint8Array<ArrayBuffer>> {
  const { id } = checkPasskey(passkey);
  if (!Array.isArray(sealed)) throw invalid('the sealed keys have to be an array');
  const ours = (sealed as readonly Partial<SealedKey>[]).filter((each) => each?.passkey === id);
  if (ours.length === 0) throw new KvError('KV_NOT_FOUND', `none of the sealed keys is for the passkey ${id}`);
  const seal = await sealOf(passkey);
  let failure: unknown;
  // One that is damaged does not lock out a passkey that has another.
  for (const each of ours) {
    try {
      return await unseal(each, id, seal);
    } catch (error) {
      failure ??= error;
    }
  }
  throw failure;
}

async function unseal(
  { version, sealed }: Partial<SealedKey>,
  id: string,
  [sealing, algorithm]: Seal,
): Promise<Uint8Array<ArrayBuffer>> {
  if (version !== 1)
    throw new KvError('KV_VERSION_UNSUPPORTED', `a sealed key has the version ${String(version)} instead of 1`);
  const whole = toBytes('a sealed key', sealed);
  try {
    const nonce = whole.slice(0, NONCE_BYTES);
    const key = await crypto.subtle.decrypt(algorithm(nonce), sealing, whole.slice(NONCE_BYTES));
    if (key.byteLength === KEY_BYTES) return new Uint8Array(key);
  } catch (cause) {
    throw new KvError('KV_WRONG_KEY', `the passkey ${id} does not open its sealed key`, { cause });
  }
  throw new KvError('KV_WRONG_KEY', `the sealed key of the passkey ${id} has not the length of a key`);
}
