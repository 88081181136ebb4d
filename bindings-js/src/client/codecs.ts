// Calls codecs, which may be the user's own: whatever they throw comes out typed.
import type { FastCodec } from '../codec/fast.ts';
import type { KeyCodec } from '../codec/keys.ts';
import type { ValueCodec } from '../codec/values.ts';
import { KvError } from '../errors.ts';
import type { KvErrorCode } from '../errors.ts';

export function typed(code: KvErrorCode, message: string, cause: unknown): KvError {
  // By name: the class can be there more than once.
  return (cause as Partial<KvError> | undefined)?.name === 'KvError' ? cause as KvError : new KvError(code, message, { cause });
}

export function checkBytes(code: KvErrorCode, codec: { readonly id: string }, bytes: Uint8Array): Uint8Array {
  if (bytes instanceof Uint8Array) return bytes;
  throw new KvError(code, `codec ${codec.id} has to encode to a Uint8Array`);
}

export function encodeKey<K>(codec: KeyCodec<K>, key: K): Uint8Array {
  try {
    return checkBytes('KV_INVALID_KEY', codec, codec.encode(key));
  } catch (error) {
    throw typed('KV_INVALID_KEY', `codec ${codec.id} cannot encode the key`, error);
  }
}

export function encodeValue<V>(codec: ValueCodec<V>, value: V): Uint8Array {
  if (value === undefined) {
    throw new KvError('KV_INVALID_VALUE', 'undefined cannot be stored, as it stands for no entry; null can');
  }
  try {
    return checkBytes('KV_INVALID_VALUE', codec, codec.encode(value));
  } catch (error) {
    throw typed('KV_INVALID_VALUE', `codec ${codec.id} cannot encode the value`, error);
  }
}

export function decodeKey<K>(codec: KeyCodec<K>, bytes: Uint8Array): K {
  return decodePart('key', codec, undefined, bytes, 0, bytes.length);
}

export function decodeValue<V>(codec: ValueCodec<V>, bytes: Uint8Array): V {
  return decodePart('value', codec, undefined, bytes, 0, bytes.length);
}

/** What is needed of a codec to decode. */
export interface Decoder<T> {
  readonly id: string;
  decode(bytes: Uint8Array): T;
}

/** Decodes a part of a buffer that may change later. */
export function decodePart<T>(
  what: 'key' | 'value',
  codec: Decoder<T>,
  fast: FastCodec<T> | undefined,
  bytes: Uint8Array,
  from: number,
  to: number,
): T {
  try {
    // A codec of the caller's may keep what it gets.
    return fast === undefined ? codec.decode(bytes.slice(from, to)) : fast.read(bytes, from, to);
  } catch (error) {
    throw typed('KV_CORRUPT', `codec ${codec.id} cannot decode a stored ${what}`, error);
  }
}

/** Refuses what is no codec before anything is stored with it. */
export function checkCodec<C extends { readonly id: string }>(what: string, codec: C): C {
  const { id, encode, decode } = (codec ?? {}) as C & { encode: unknown; decode: unknown };
  if (typeof id === 'string' && id.length > 0 && typeof encode === 'function' && typeof decode === 'function') return codec;
  throw new KvError('KV_INVALID_ARGUMENT', `${what} has to be a codec: { id, encode, decode }`);
}
