// What keys are, and their order-preserving encoding: comparing the bytes compares the keys.
// `docs/FORMAT.md` has the table.
import { KvError } from '../base/errors.ts';
import { ByteWriter, putAscii, readAscii } from './bytes.ts';
import type { FastCodec } from './fast.ts';
import { Refusal, describe, within } from './refusal.ts';

/**
 * Keys that the default key codec accepts, in this order: null < false < true < number < bigint <
 * Date < string < binary < array.
 */
export type Key = null | boolean | number | bigint | string | Date | Uint8Array | ArrayBuffer | readonly Key[];

/**
 * Sorts after every key. Allowed only in bounds: `{ gt: ['ada', MAX_KEY] }` skips all of ada's
 * keys.
 */
export const MAX_KEY: unique symbol = Symbol.for('mangrove-kv.MAX_KEY');

/**
 * A key or, for tuple keys, also any leading part of one: `['ada']` for
 * `[user: string, id: number]`.
 */
export type KeyPrefix<K> = K | (K extends readonly [...infer Head, unknown] ? KeyPrefix<Head> : never);

/**
 * A key, a leading part of a tuple key, or either with {@link MAX_KEY}, which means "after all of
 * these".
 */
export type Bound<K> =
  | K
  | (K extends readonly [...infer Head, unknown] ? readonly [...Head, typeof MAX_KEY] | Bound<Head> : typeof MAX_KEY);

export const TAG_MAX = 0xfe;
const TAG_NULL = 0x05;
const TAG_FALSE = 0x08;
const TAG_TRUE = 0x09;
const TAG_NUMBER = 0x10;
const TAG_BIGINT = 0x18;
const TAG_DATE = 0x20;
const TAG_STRING = 0x30;
const TAG_BINARY = 0x40;
const TAG_ARRAY = 0x50;

const MAX_DEPTH = 64;
/** No database allows longer keys; the engine checks the limit of the actual database. */
const MAX_BYTES = 65_536;

/** `takes` says which keys the codec accepts. */
export function refusedKey(what: string, takes: string, cause?: unknown): KvError {
  return new KvError('KV_INVALID_KEY', `${what}; ${takes}`, cause === undefined ? {} : { cause });
}

function corrupt(): KvError {
  return new KvError('KV_CORRUPT', 'a stored key is malformed; was the collection written with another key codec?');
}

/** Refuses a huge key before it takes up a huge buffer. */
export function checkLength(bytes: number): void {
  if (bytes > MAX_BYTES) {
    throw new KvError('KV_KEY_TOO_LARGE', `the key has more than ${MAX_BYTES} bytes; keep long data in the value`);
  }
}

/** Eight bytes for conversion to and from a number. */
const double = new ByteWriter(8);

/**
 * Writes a double so that its bytes sort like the numbers: sign bit inverted, or all bits if it was
 * set.
 */
export function putOrderedDouble(out: ByteWriter, value: number): void {
  // -0 and 0 are one key, as in Map.
  out.f64(value === 0 ? 0 : value);
  const at = out.length - 8;
  if (out.bytes[at]! & 0x80) {
    for (let index = at; index < out.length; index++) out.bytes[index]! ^= 0xff;
  } else {
    out.bytes[at]! ^= 0x80;
  }
}

export function readOrderedDouble(bytes: Uint8Array, at: number): number {
  const flip = bytes[at]! & 0x80 ? 0 : 0xff;
  for (let index = 0; index < 8; index++) double.bytes[index] = bytes[at + index]! ^ flip;
  double.bytes[0]! ^= flip === 0 ? 0x80 : 0;
  return double.view.getFloat64(0);
}

/**
 * Writes each UTF-16 code unit as UTF-8 would encode that number: lossless for lone surrogates, and
 * ordered like JavaScript's `<`.
 */
export function putString(out: ByteWriter, text: string, escape = false): void {
  checkLength(text.length);
  out.reserve(text.length * 3);
  const { bytes } = out;
  let at = out.length;
  for (let index = 0; index < text.length; index++) {
    const unit = text.charCodeAt(index);
    if (unit < 0x80) {
      bytes[at++] = unit;
      if (unit === 0 && escape) bytes[at++] = 0xff;
    } else if (unit < 0x800) {
      bytes[at++] = 0xc0 | (unit >> 6);
      bytes[at++] = 0x80 | (unit & 0x3f);
    } else {
      bytes[at++] = 0xe0 | (unit >> 12);
      bytes[at++] = 0x80 | ((unit >> 6) & 0x3f);
      bytes[at++] = 0x80 | (unit & 0x3f);
    }
  }
  out.length = at;
}

export function readString(bytes: Uint8Array, from: number, to: number): string {
  const ascii = readAscii(bytes, from, to);
  if (ascii !== undefined) return ascii;
  let text = '';
  for (let at = from; at < to; ) {
    const first = bytes[at++]!;
    if (first < 0x80) {
      text += String.fromCharCode(first);
      continue;
    }
    const second = bytes[at++]!;
    if (first < 0xc0 || first > 0xef || at > to) throw corrupt();
    if (first < 0xe0) {
      text += String.fromCharCode(((first & 0x1f) << 6) | (second & 0x3f));
      continue;
    }
    const third = bytes[at++]!;
    if (at > to) throw corrupt();
    text += String.fromCharCode(((first & 0x0f) << 12) | ((second & 0x3f) << 6) | (third & 0x3f));
  }
  return text;
}

function putBigint(out: ByteWriter, value: bigint): void {
  const isNegative = value < 0n;
  let digits = (isNegative ? -value : value).toString(16);
  if (value === 0n) digits = '';
  if (digits.length % 2 === 1) digits = `0${digits}`;
  const count = digits.length / 2;
  const flip = isNegative ? 0xff : 0;
  if (count <= 126) {
    out.byte(isNegative ? 0x80 - count : 0x80 + count);
  } else {
    out.byte(isNegative ? 0x01 : 0xff);
    out.u32(isNegative ? ~count >>> 0 : count);
  }
  checkLength(count);
  for (let index = 0; index < digits.length; index += 2)
    out.byte(Number.parseInt(digits.slice(index, index + 2), 16) ^ flip);
}

function putBinary(out: ByteWriter, bytes: Uint8Array, escape: boolean): void {
  checkLength(bytes.length);
  if (!escape) {
    out.raw(bytes);
    return;
  }
  for (const byte of bytes) {
    out.byte(byte);
    if (byte === 0) out.byte(0xff);
  }
}

/** The bytes of a buffer or view; undefined for anything else. */
export function toBytes(value: unknown): Uint8Array | undefined {
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  // Includes an ArrayBuffer of another realm.
  if (Object.prototype.toString.call(value) === '[object ArrayBuffer]') return new Uint8Array(value as ArrayBuffer);
  return undefined;
}

function putElements(out: ByteWriter, elements: readonly unknown[], depth: number, max: symbol | undefined): void {
  if (depth >= MAX_DEPTH) throw new Refusal(`an array nested more than ${MAX_DEPTH} deep, or one that contains itself`);
  const { length } = elements;
  let index = 0;
  try {
    for (; index < length; index++) {
      if (!(index in elements)) throw new Refusal('a hole');
      const element = elements[index];
      if (max !== undefined && element === max && index === length - 1) out.byte(TAG_MAX);
      else putKey(out, element, depth + 1, max);
    }
  } catch (error) {
    throw within(`[${index}]`, error);
  }
  // A getter changed the array: a later lookup with it would encode a different key.
  if (elements.length !== length) throw new Refusal('an array that changed while it was encoded');
}

/**
 * Appends a key. At depth 0, strings, binaries and arrays run to the end; inside an array they are
 * terminated.
 */
function putKey(out: ByteWriter, key: unknown, depth: number, max: symbol | undefined): void {
  const isNested = depth > 0;
  checkLength(out.length);
  switch (typeof key) {
    case 'string':
      out.byte(TAG_STRING);
      putString(out, key, isNested);
      if (isNested) out.byte(0);
      return;
    case 'number':
      if (Number.isNaN(key)) throw new Refusal('NaN');
      out.byte(TAG_NUMBER);
      putOrderedDouble(out, key);
      return;
    case 'bigint':
      out.byte(TAG_BIGINT);
      putBigint(out, key);
      return;
    case 'boolean':
      out.byte(key ? TAG_TRUE : TAG_FALSE);
      return;
    case 'object':
      putObject(out, key, depth, max);
      return;
    default:
      throw new Refusal(key === Symbol.for('mangrove-kv.MAX_KEY') ? 'MAX_KEY' : describe(key));
  }
}

/** Calls the built-in method: any object may call itself a Date and report any time. */
function timeOf(date: object): number {
  try {
    return Date.prototype.getTime.call(date);
  } catch (error) {
    throw new Refusal('an object that calls itself Date but is not one', error);
  }
}

function putObject(out: ByteWriter, key: object | null, depth: number, max: symbol | undefined): void {
  const isNested = depth > 0;
  if (key === null) {
    out.byte(TAG_NULL);
  } else if (Array.isArray(key)) {
    out.byte(TAG_ARRAY);
    putElements(out, key, depth, max);
    if (isNested && !(max !== undefined && key.at(-1) === max)) out.byte(0);
  } else if (Object.prototype.toString.call(key) === '[object Date]') {
    const time = timeOf(key);
    if (Number.isNaN(time)) throw new Refusal('an invalid Date');
    out.byte(TAG_DATE);
    putOrderedDouble(out, time);
  } else {
    const bytes = toBytes(key);
    if (bytes === undefined) throw new Refusal(describe(key));
    out.byte(TAG_BINARY);
    putBinary(out, bytes, isNested);
    if (isNested) out.byte(0);
  }
}

const scratch = new ByteWriter(1024);
/** Whether a key is being encoded; a getter in an array may encode another one meanwhile. */
let isEncoding = false;

/** An empty writer, valid until the next call. */
export function emptyWriter(): ByteWriter {
  if (isEncoding) return new ByteWriter(64);
  scratch.length = 0;
  return scratch;
}

const TAKES = 'keys are null, booleans, numbers, bigints, strings, Dates, binaries and arrays of these';

export function encodeAny(key: Key): Uint8Array {
  return encodeUpTo(key, undefined);
}

/** Encodes a key or a bound; `max` is the symbol that means "after everything". */
export function encodeUpTo(key: Bound<Key>, max: symbol | undefined): Uint8Array {
  const out = emptyWriter();
  const isOutermost = !isEncoding;
  isEncoding = true;
  try {
    if (max !== undefined && (key as unknown) === max) out.byte(TAG_MAX);
    else putKey(out, key, 0, max);
    checkLength(out.length);
    return out.copy();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    const { what, where, cause } = error;
    throw refusedKey(where === '' ? `${what} cannot be a key` : `element ${where} of the key is ${what}`, TAKES, cause);
  } finally {
    if (isOutermost) isEncoding = false;
  }
}

/**
 * Short ASCII strings that were elements of keys. Neighbouring keys share most of their elements,
 * and a string that is not created need not be collected.
 */
const known = new Array<string>(512).fill('');
const MAX_KNOWN = 24;

function readElement(bytes: Uint8Array, from: number, to: number): string {
  const length = to - from;
  if (length === 0 || length > MAX_KNOWN) return readString(bytes, from, to);
  const place =
    (length * 31 + bytes[from]! * 7 + bytes[to - 1]! * 3 + bytes[from + (length >> 1)]!) & (known.length - 1);
  const text = known[place]!;
  if (text.length === length) {
    let same = 0;
    while (same < length && text.charCodeAt(same) === bytes[from + same]) same++;
    if (same === length) return text;
  }
  const made = readString(bytes, from, to);
  // A string that is not ASCII is shorter than its bytes.
  if (made.length === length) known[place] = made;
  return made;
}

const NO_BYTES = new Uint8Array(0);

/**
 * Reads keys from parts of buffers. Runs no foreign code and so is never reentered: one instance is
 * enough.
 */
class KeyReader {
  private bytes: Uint8Array = NO_BYTES;
  private at = 0;
  private end = 0;

  read(bytes: Uint8Array, from: number, to: number): Key {
    this.bytes = bytes;
    this.at = from;
    this.end = to;
    try {
      const key = this.key(0);
      if (this.at !== to) throw corrupt();
      return key;
    } finally {
      this.bytes = NO_BYTES;
    }
  }

  private byte(): number {
    if (this.at >= this.end) throw corrupt();
    return this.bytes[this.at++]!;
  }

  private key(depth: number): Key {
    const tag = this.byte();
    switch (tag) {
      case TAG_NULL:
        return null;
      case TAG_FALSE:
        return false;
      case TAG_TRUE:
        return true;
      case TAG_NUMBER:
        return this.double();
      case TAG_DATE:
        return new Date(this.double());
      case TAG_BIGINT:
        return this.bigint();
      case TAG_STRING:
        return this.content(depth, depth === 0 ? readString : readElement);
      case TAG_BINARY:
        return this.content(depth, copyOf);
      case TAG_ARRAY:
        return this.array(depth);
      default:
        throw corrupt();
    }
  }

  private double(): number {
    const { at } = this;
    this.at += 8;
    if (this.at > this.end) throw corrupt();
    return readOrderedDouble(this.bytes, at);
  }

  private bigint(): bigint {
    const first = this.byte();
    if (first === 0x80) return 0n;
    const isNegative = first < 0x80;
    let count = isNegative ? 0x80 - first : first - 0x80;
    if (first === 0xff || first === 0x01) {
      count = 0;
      for (let index = 0; index < 4; index++) count = count * 256 + (this.byte() ^ (isNegative ? 0xff : 0));
    }
    if (count > this.end - this.at) throw corrupt();
    let digits = '0x';
    for (let index = 0; index < count; index++) {
      digits += (this.byte() ^ (isNegative ? 0xff : 0)).toString(16).padStart(2, '0');
    }
    return isNegative ? -BigInt(digits) : BigInt(digits);
  }

  /**
   * Reads the content of a string or binary: at depth 0 everything that is left, otherwise the
   * bytes up to a terminating zero, in which zeros are escaped.
   */
  private content<T>(depth: number, read: (bytes: Uint8Array, from: number, to: number) => T): T {
    const { bytes, at: from, end } = this;
    if (depth === 0) {
      this.at = end;
      return read(bytes, from, end);
    }
    let at = from;
    let escapes = 0;
    for (; ; at++) {
      if (at >= end) throw corrupt();
      if (bytes[at] !== 0) continue;
      if (at + 1 === end || bytes[at + 1] !== 0xff) break;
      at++;
      escapes++;
    }
    this.at = at + 1;
    if (escapes === 0) return read(bytes, from, at);
    const plain = new Uint8Array(at - from - escapes);
    for (let index = 0, next = from; next < at; next++) {
      plain[index++] = bytes[next]!;
      if (bytes[next] === 0) next++;
    }
    return read(plain, 0, plain.length);
  }

  private array(depth: number): Key[] {
    if (depth >= MAX_DEPTH) throw corrupt();
    const elements: Key[] = [];
    for (;;) {
      if (depth === 0 && this.at === this.end) return elements;
      if (depth > 0 && this.at < this.end && this.bytes[this.at] === 0) {
        this.at++;
        return elements;
      }
      elements.push(this.key(depth + 1));
    }
  }
}

const reader = new KeyReader();
const copyOf = (bytes: Uint8Array, from: number, to: number): Uint8Array => bytes.slice(from, to);

export function decodeAny(bytes: Uint8Array): Key {
  return reader.read(bytes, 0, bytes.length);
}

/** Fast path for ASCII strings and numbers; all other keys take the slow path. */
export const anyFast: FastCodec<Key> = {
  put(key, out, at, end) {
    if (typeof key === 'string') {
      if (at === end) return -1;
      out[at] = TAG_STRING;
      return putAscii(key, out, at + 1, end);
    }
    if (typeof key !== 'number' || Number.isNaN(key) || at + 9 > end) return -1;
    out[at] = TAG_NUMBER;
    double.length = 0;
    putOrderedDouble(double, key);
    for (let index = 0; index < 8; index++) out[at + 1 + index] = double.bytes[index]!;
    return at + 9;
  },
  read(bytes, from, to) {
    if (from < to && bytes[from] === TAG_STRING) return readString(bytes, from + 1, to);
    if (to - from === 9 && bytes[from] === TAG_NUMBER) return readOrderedDouble(bytes, from + 1);
    return reader.read(bytes, from, to);
  },
};
