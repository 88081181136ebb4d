// Runs codecs, the caller's own included, and turns whatever they throw into a `KvError`.
import { isBytes } from '../codec/bytes.ts';
import type { FastCodec } from '../codec/fast.ts';
import type { KeyCodec } from '../codec/keys.ts';
import type { ValueCodec } from '../codec/values.ts';
import { KvError } from '../base/errors.ts';
import type { KvErrorCode } from '../base/errors.ts';

export function typed(code: KvErrorCode, message: string, cause: unknown): KvError {
  // Not `instanceof`: the class may be loaded more than once.
  return (cause as Partial<KvError> | undefined)?.name === 'KvError'
    ? (cause as KvError)
    : new KvError(code, message, { cause });
}

export function checkBytes(code: KvErrorCode, bytes: Uint8Array): Uint8Array {
  if (isBytes(bytes)) return bytes;
  throw new KvError(code, 'the codec has to encode to a Uint8Array');
}

/**
 * The error for a codec that threw, naming collection and codec. Created here, so that its stack
 * leads to the caller however deep in the codec `cause` was thrown.
 */
function refused({ name }: Named, what: 'key' | 'value', { id }: { readonly id: string }, cause: unknown): KvError {
  const { code, message } = typed(
    what === 'key' ? 'KV_INVALID_KEY' : 'KV_INVALID_VALUE',
    `the codec threw ${String(cause)}`,
    cause,
  );
  return new KvError(
    code,
    `${message} (${name === '' ? 'default collection' : `collection "${name}"`}, ${what} codec ${id})`,
    { cause },
  );
}

/** A collection's name for errors; empty for the default collection. */
interface Named {
  readonly name: string;
}

export function encodeKey<K>(target: Named & { readonly key: KeyCodec<K> }, key: K): Uint8Array {
  try {
    return checkBytes('KV_INVALID_KEY', target.key.encode(key));
  } catch (error) {
    throw refused(target, 'key', target.key, error);
  }
}

/** As `encodeKey`, for what is derived from keys, such as bounds and prefixes. */
export function keyPart<T>(target: Named & { readonly key: { readonly id: string } }, encode: () => T): T {
  try {
    return encode();
  } catch (error) {
    throw refused(target, 'key', target.key, error);
  }
}

export function encodeValue<V>(target: Named & { readonly value: ValueCodec<V> }, value: V): Uint8Array {
  try {
    if (value === undefined)
      throw new KvError('KV_INVALID_VALUE', 'undefined cannot be stored, because it means no entry; null can');
    return checkBytes('KV_INVALID_VALUE', target.value.encode(value));
  } catch (error) {
    throw refused(target, 'value', target.value, error);
  }
}

export function decodeKey<K>(codec: KeyCodec<K>, bytes: Uint8Array): K {
  return decodePart('key', codec, undefined, bytes, 0, bytes.length);
}

export function decodeValue<V>(codec: ValueCodec<V>, bytes: Uint8Array): V {
  return decodePart('value', codec, undefined, bytes, 0, bytes.length);
}

/** The part of a codec that decodes. */
export interface Decoder<T> {
  readonly id: string;
  decode(bytes: Uint8Array): T;
}

/** Decodes part of a buffer that may change later: the result shares no memory with it. */
export function decodePart<T>(
  what: 'key' | 'value',
  codec: Decoder<T>,
  fast: FastCodec<T> | undefined,
  bytes: Uint8Array,
  from: number,
  to: number,
): T {
  try {
    // A codec of the caller's may keep the bytes it is given.
    return fast === undefined ? codec.decode(bytes.slice(from, to)) : fast.read(bytes, from, to);
  } catch (error) {
    throw typed('KV_CORRUPT', `codec ${codec.id} cannot decode a stored ${what}`, error);
  }
}

/** Throws `KV_INVALID_ARGUMENT` for a malformed codec before anything is stored with it. */
export function checkCodec<C extends { readonly id: string }>(what: string, codec: C): C {
  const { id, encode, decode } = (codec ?? {}) as C & { encode: unknown; decode: unknown };
  if (typeof id === 'string' && id.length > 0 && typeof encode === 'function' && typeof decode === 'function')
    return codec;
  throw new KvError('KV_INVALID_ARGUMENT', `${what} has to be a codec: { id, encode, decode }`);
}
