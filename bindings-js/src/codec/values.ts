// Value codecs: how a value becomes bytes and, fresh each time, a value again.
import { KvError } from '../errors.ts';
import { CborDecoder } from './cbor-decode.ts';
import { CborEncoder } from './cbor-encode.ts';
import { toBytes } from './key-bytes.ts';

/** Turns values into bytes and back. */
export interface ValueCodec<V> {
  /** Stored with the collection; opening it with another id is refused. */
  readonly id: string;
  /** Never called with `undefined`. */
  encode(value: V): Uint8Array;
  /** A value of its own with each call. The bytes may be part of a larger buffer: copy what is kept. */
  decode(bytes: Uint8Array): V;
}

const utf8Encoder = new TextEncoder();
const utf8Decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const cborEncoder = new CborEncoder();
/** A getter of the value may encode another value. */
let isEncoding = false;

function encodeStructured(value: unknown): Uint8Array {
  if (value === undefined) {
    throw new KvError('KV_INVALID_VALUE', 'undefined cannot be stored, as it stands for no entry; null can');
  }
  if (isEncoding) return new CborEncoder().encode(value);
  isEncoding = true;
  try {
    return cborEncoder.encode(value);
  } finally {
    isEncoding = false;
  }
}

function invalidValue(codec: string, value: unknown): KvError {
  return new KvError('KV_INVALID_VALUE', `a ${typeof value} cannot be stored with value codec ${codec}`);
}

/** Codecs for values. */
export const valueCodecs = {
  /**
   * Default: what structured clone keeps, as a CBOR profile. Plain data, Date, Map, Set, RegExp, typed arrays, ArrayBuffer, Error,
   * bigint, -0, NaN, holes, cycles and shared references come back as they were; functions, symbols and platform objects are refused.
   */
  structured<V = unknown>(): ValueCodec<V> {
    return {
      id: 'structured',
      encode: encodeStructured,
      decode: (bytes) => new CborDecoder(bytes).decode() as V,
    };
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
  string: {
    id: 'string',
    encode(value) {
      if (typeof value !== 'string') throw invalidValue('string', value);
      return utf8Encoder.encode(value);
    },
    decode: (bytes) => utf8Decoder.decode(bytes),
  } as ValueCodec<string>,

  /** Bytes as they are; what comes back is a copy. */
  bytes: {
    id: 'bytes',
    encode(value) {
      const bytes = toBytes(value);
      if (bytes === undefined) throw invalidValue('bytes', value);
      return bytes.slice();
    },
    decode: (bytes) => bytes.slice(),
  } as ValueCodec<Uint8Array>,
};
