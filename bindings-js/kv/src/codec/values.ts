// Value codecs: how a value becomes bytes and, afresh for each read, a value again.
import { TextDecoder, TextEncoder } from '../base/platform.ts';
import { KvError } from '../base/errors.ts';
import { decodeStructured, readStructured } from './cbor-decode.ts';
import { encodeStrict, encodeStructured, putStructured } from './cbor-encode.ts';
import { bytesFast, withFast } from './fast.ts';
import { putAscii, readUtf8 } from './bytes.ts';
import { toBytes } from './key-bytes.ts';

/** Turns values into bytes and back. */
export interface ValueCodec<V> {
  /** Stored with the collection; opening the collection with another id is refused. */
  readonly id: string;
  /** Returns the value's bytes. Never called with `undefined`. */
  encode(value: V): Uint8Array;
  /**
   * Returns a new value on each call. The bytes may be part of a larger buffer: copy what is kept.
   */
  decode(bytes: Uint8Array): V;
  /** @internal It is the codec of `mangrove-kv/blob`. */
  readonly isBlob?: boolean | undefined;
  /** @internal Reads a short Blob, for calls that write several values at once. */
  readonly whole?: ((value: V) => Promise<V>) | undefined;
}

const utf8Encoder = new TextEncoder();
const utf8Decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function invalidValue(codec: string, value: unknown): KvError {
  return new KvError('KV_INVALID_VALUE', `a ${typeof value} cannot be stored with value codec ${codec}`);
}

/** Codecs for values. */
export const valueCodecs = {
  /**
   * Default: whatever structured clone preserves, as a CBOR profile.
   *
   * - Restored as they were: plain data, Date, Map, Set, RegExp, typed arrays, ArrayBuffer, Error,
   *   bigint, -0, NaN, holes, named properties of arrays, cycles, shared references and shared
   *   bytes.
   * - Refused: functions, symbols and platform objects.
   * - A class instance is restored as a plain object, or as an instance of the built-in class that
   *   it extends. With `strict` (default: false) it is refused with KV_INVALID_VALUE; the stored
   *   bytes are the same.
   */
  structured<V = unknown>({ strict = false }: { readonly strict?: boolean | undefined } = {}): ValueCodec<V> {
    return withFast<V, ValueCodec<V>>(
      {
        id: 'structured',
        encode: strict ? encodeStrict : encodeStructured,
        decode: decodeStructured as (bytes: Uint8Array) => V,
      },
      {
        put: putStructured,
        read: readStructured as (bytes: Uint8Array, from: number, to: number) => V,
      },
    );
  },

  /** JSON text, with JSON's losses. */
  json<V = unknown>(): ValueCodec<V> {
    return {
      id: 'json',
      encode(value) {
        const text = JSON.stringify(value) as string | undefined;
        if (text === undefined) throw invalidValue('json', value);
        return utf8Encoder.encode(text);
      },
      decode: (bytes) => JSON.parse(utf8Decoder.decode(bytes)) as V,
    };
  },

  /** Strings as UTF-8; lone surrogates become U+FFFD. */
  string: withFast<string, ValueCodec<string>>(
    {
      id: 'string',
      encode(value) {
        if (typeof value !== 'string') throw invalidValue('string', value);
        return utf8Encoder.encode(value);
      },
      decode: (bytes) => utf8Decoder.decode(bytes),
    },
    {
      put(value, out, at, end) {
        if (typeof value !== 'string') return -1;
        const short = putAscii(value, out, at, end);
        // A UTF-16 code unit takes at most three bytes.
        if (short >= 0 || value.length * 3 > end - at) return short;
        return at + utf8Encoder.encodeInto(value, out.subarray(at, end)).written;
      },
      read: (bytes, from, to) => readUtf8(bytes, from, to) ?? utf8Decoder.decode(bytes.subarray(from, to)),
    },
  ),

  /** Bytes, unchanged; reads return a copy. */
  bytes: withFast<Uint8Array, ValueCodec<Uint8Array>>(
    {
      id: 'bytes',
      encode(value) {
        const bytes = toBytes(value);
        if (bytes === undefined) throw invalidValue('bytes', value);
        return bytes.slice();
      },
      decode: (bytes) => bytes.slice(),
    },
    bytesFast,
  ),
};
