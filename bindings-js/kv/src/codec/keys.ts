// Key codecs, and keys as text. The engine sees only the bytes of a key, and their order is the order
// of the collection.
import { TextDecoder, TextEncoder } from '../base/platform.ts';
import { KvError } from '../base/errors.ts';
export { MAX_KEY } from './key-bytes.ts';
export type { Bound, Key, KeyPrefix } from './key-bytes.ts';
import { bytesFast, withFast } from './fast.ts';
import { isBytes, putAscii, readUtf8 } from './bytes.ts';
import type { FastCodec } from './fast.ts';
import {
  MAX_KEY,
  TAG_MAX,
  anyFast,
  checkLength,
  decodeAny,
  emptyWriter,
  encodeAny,
  encodeUpTo,
  putString,
  readString,
  refusedKey,
  toBytes,
} from './key-bytes.ts';
import type { Bound, Key, KeyPrefix } from './key-bytes.ts';
import { describe } from './refusal.ts';

/** Turns keys into bytes whose order is the order of the keys. */
export interface KeyCodec<K> {
  /** Stored with the collection; opening the collection with another id is refused. */
  readonly id: string;
  /**
   * Returns the key's bytes, at most 4,096. Compared byte by byte, they must sort like the keys.
   */
  encode(key: K): Uint8Array;
  /** Returns the key that `encode` turned into these bytes. */
  decode(bytes: Uint8Array): K;
}

const utf8Encoder = new TextEncoder();
const utf8Decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function corruptKey(codec: string): KvError {
  return new KvError('KV_CORRUPT', `a stored key does not belong to codec ${codec}`);
}

function isWellFormed(text: string): boolean {
  // Finds a surrogate without its partner.
  return !/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/.test(text);
}

/** `takes` says which keys the codec accepts. */
function refuse(id: string, takes: string, key: unknown): KvError {
  const what = ['number', 'bigint'].includes(typeof key) ? String(key) : describe(key);
  return refusedKey(`${what} cannot be a key`, `codec ${id} takes ${takes}`);
}

function checkText(id: string, key: unknown): string {
  if (typeof key !== 'string') throw refuse(id, 'strings', key);
  return key;
}

/** Writes ASCII text, which both string codecs encode the same way. */
function putText(key: string, out: Uint8Array, at: number, end: number): number {
  return typeof key === 'string' ? putAscii(key, out, at, end) : -1;
}

const TWO_32 = 0x1_0000_0000;
const SIGN = 0x8000_0000;

function putU32(value: number, out: Uint8Array, at: number): void {
  out[at] = value >>> 24;
  out[at + 1] = value >>> 16;
  out[at + 2] = value >>> 8;
  out[at + 3] = value;
}

function readU32(bytes: Uint8Array, at: number): number {
  return ((bytes[at]! << 24) | (bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!) >>> 0;
}

/** Makes a fixed-length codec from its fast paths. */
function fixed<K>(id: string, length: number, what: string, { put, read }: FastCodec<K>): KeyCodec<K> {
  const check = (from: number, to: number): void => {
    if (to - from !== length) throw corruptKey(id);
  };
  return withFast<K, KeyCodec<K>>(
    {
      id,
      encode(key) {
        const bytes = new Uint8Array(length);
        if (put(key, bytes, 0, length) < 0) throw refuse(id, what, key);
        return bytes;
      },
      decode(bytes) {
        check(0, bytes.length);
        return read(bytes, 0, length);
      },
    },
    {
      put,
      read(bytes, from, to) {
        check(from, to);
        return read(bytes, from, to);
      },
    },
  );
}

/**
 * Codecs for keys. Only `any` and `tuple` keep types apart; the others store one kind without a
 * tag.
 */
export const keyCodecs = {
  /** Default: every {@link Key}, self-describing, in the order of JavaScript and IndexedDB. */
  any: withFast<Key, KeyCodec<Key>>({ id: 'any', encode: encodeAny, decode: decodeAny }, anyFast),

  /** Strings in UTF-16 code unit order, like JavaScript's `<`; accepts every string. */
  string: withFast<string, KeyCodec<string>>(
    {
      id: 'string',
      encode(key) {
        const out = emptyWriter();
        putString(out, checkText('string', key));
        checkLength(out.length);
        return out.copy();
      },
      decode: (bytes) => readString(bytes, 0, bytes.length),
    },
    { put: putText, read: readString },
  ),

  /**
   * Strings as plain UTF-8, in code point order, as other databases store them; refuses lone
   * surrogates.
   */
  utf8: withFast<string, KeyCodec<string>>(
    {
      id: 'utf8',
      encode(key) {
        if (!isWellFormed(checkText('utf8', key)))
          throw refusedKey('a string with lone surrogates cannot be a key of codec utf8', 'codec string takes them');
        return utf8Encoder.encode(key);
      },
      decode: (bytes) => utf8Decoder.decode(bytes),
    },
    {
      put: putText,
      read: (bytes, from, to) => readUtf8(bytes, from, to) ?? utf8Decoder.decode(bytes.subarray(from, to)),
    },
  ),

  /** Bytes, unchanged. */
  bytes: withFast<Uint8Array, KeyCodec<Uint8Array>>(
    {
      id: 'bytes',
      encode(key) {
        const bytes = toBytes(key);
        if (bytes === undefined) throw refuse('bytes', 'binaries', key);
        return bytes.slice();
      },
      decode: (bytes) => bytes.slice(),
    },
    bytesFast,
  ),

  /** Integers from 0 to 2^32 - 1, in 4 bytes. */
  uint32: fixed<number>('uint32', 4, 'integers from 0 to 2^32 - 1', {
    put(key, out, at, end) {
      if (typeof key !== 'number' || key >>> 0 !== key || at + 4 > end) return -1;
      putU32(key, out, at);
      return at + 4;
    },
    read: readU32,
  }),

  /** Safe integers, in 8 bytes. */
  int53: fixed<number>('int53', 8, 'safe integers', {
    put(key, out, at, end) {
      if (!Number.isSafeInteger(key) || at + 8 > end) return -1;
      const high = Math.floor(key / TWO_32);
      putU32(high ^ SIGN, out, at);
      putU32(key - high * TWO_32, out, at + 4);
      return at + 8;
    },
    read(bytes, from) {
      const key = (readU32(bytes, from) ^ SIGN) * TWO_32 + readU32(bytes, from + 4);
      if (!Number.isSafeInteger(key)) throw corruptKey('int53');
      return key;
    },
  }),

  /** Bigints from 0 to 2^64 - 1, in 8 bytes. */
  uint64: fixed<bigint>('uint64', 8, 'bigints from 0 to 2^64 - 1', {
    put(key, out, at, end) {
      if (typeof key !== 'bigint' || BigInt.asUintN(64, key) !== key || at + 8 > end) return -1;
      putU32(Number(key >> 32n), out, at);
      putU32(Number(key & 0xffff_ffffn), out, at + 4);
      return at + 8;
    },
    read: (bytes, from) => (BigInt(readU32(bytes, from)) << 32n) | BigInt(readU32(bytes, from + 4)),
  }),

  /** Arrays of keys, with the types of their elements. */
  tuple<T extends readonly Key[]>(): KeyCodec<T> {
    const check = (key: Key): T => {
      if (!Array.isArray(key)) throw corruptKey('tuple');
      return key as readonly Key[] as T;
    };
    return withFast<T, KeyCodec<T>>(
      {
        id: 'tuple',
        encode(key) {
          if (!Array.isArray(key)) throw refuse('tuple', 'arrays', key);
          return encodeAny(key);
        },
        decode: (bytes) => check(decodeAny(bytes)),
      },
      {
        put: () => -1,
        read: (bytes, from, to) => check(anyFast.read(bytes, from, to)),
      },
    );
  },
};

/**
 * Sorts after all keys of a codec without tags: longer than any key, and not less than any other
 * bytes of its length.
 */
let afterAll: Uint8Array | undefined;

/** Keys of a codec that passes on encoded ones are bytes, whatever its id. */
function isTagged(codec: { readonly id: string; readonly isRaw?: true }): boolean {
  return !codec.isRaw && (codec.id === 'any' || codec.id === 'tuple');
}

/** Encodes a bound. */
export function encodeBound<K>(codec: KeyCodec<K>, bound: Bound<K>): Uint8Array {
  if (isTagged(codec)) return encodeUpTo(bound as Bound<Key>, MAX_KEY);
  if ((bound as unknown) !== MAX_KEY) return codec.encode(bound as K);
  afterAll ??= new Uint8Array(65_537).fill(TAG_MAX + 1);
  return afterAll;
}

/** The first bytes after all that start with `bytes`; undefined if nothing can follow. */
export function successor(bytes: Uint8Array): Uint8Array | undefined {
  for (let index = bytes.length - 1; index >= 0; index--) {
    if (bytes[index] === 0xff) continue;
    const next = bytes.slice(0, index + 1);
    next[index]!++;
    return next;
  }
  return undefined;
}

/**
 * The range of keys that start with a string, with bytes or with the elements of a tuple:
 * `lower <= key < upper`.
 */
export function prefixRange<K>(
  codec: KeyCodec<K>,
  prefix: KeyPrefix<K>,
): { lower: Uint8Array; upper: Uint8Array | undefined } {
  const canBegin = typeof prefix === 'string' || Array.isArray(prefix) || toBytes(prefix) !== undefined;
  if (!canBegin) throw new KvError('KV_INVALID_ARGUMENT', 'a prefix has to be a string, binary or an array');
  if (codec.id === 'tuple' && !Array.isArray(prefix)) {
    throw new KvError('KV_INVALID_ARGUMENT', 'the prefix of keys that are arrays has to be an array');
  }
  const lower = isTagged(codec) ? encodeAny(prefix as Key) : codec.encode(prefix as K);
  if (!isTagged(codec) || !Array.isArray(prefix)) return { lower, upper: successor(lower) };
  // `FF` follows `lower` only where the last element continues with an escaped zero: ['a'] is not a
  // prefix of ['a\0'].
  const upper = new Uint8Array(lower.length + 1);
  upper.set(lower);
  upper[lower.length] = 0xff;
  return { lower, upper };
}

/**
 * Compares two keys under the default key codec: negative, 0 or positive if `a` sorts before, with
 * or after `b`.
 */
export function compareKeys(a: Key, b: Key): number {
  const left = encodeAny(a);
  const right = encodeAny(b);
  const length = Math.min(left.length, right.length);
  for (let index = 0; index < length; index++) {
    const difference = left[index]! - right[index]!;
    if (difference !== 0) return difference;
  }
  return left.length - right.length;
}

export function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join(' ');
}

/** A key as text, much like its JavaScript notation. */
export function keyText(key: unknown): string {
  if (typeof key === 'bigint') return `${key}n`;
  if (key instanceof Date) return Number.isNaN(key.getTime()) ? 'invalid date' : key.toISOString();
  if (isBytes(key)) return toHex(key);
  if (Array.isArray(key)) return `[${key.map(keyText).join(', ')}]`;
  return typeof key === 'string' ? JSON.stringify(key) : String(key);
}
