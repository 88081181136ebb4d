import { TextDecoder } from '../base/platform.ts';
import { KvError } from '../base/errors.ts';
import { readUtf8 } from './bytes.ts';
import {
  ERROR_NAMES,
  FALSE,
  FLOAT32,
  FLOAT64,
  HOLE,
  MAX_DEPTH,
  NULL,
  TAG_DATE,
  TAG_MAP,
  TAG_NEGATIVE_BIGINT,
  TAG_OBJECT,
  TAG_POSITIVE_BIGINT,
  TAG_REFERENCE,
  TAG_REGEXP,
  TAG_SET,
  TAG_WTF8,
  TRUE,
  TYPED_ARRAY_TAGS,
  UNDEFINED,
} from './cbor-tags.ts';

const textDecoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

type TypedArrayClass = new (buffer: ArrayBuffer) => ArrayBufferView;
type SharingView = (new (
  buffer: ArrayBufferLike,
  start: number,
  count: number,
) => ArrayBufferView) & { readonly BYTES_PER_ELEMENT?: number };

const { prototype } = Object;

/** Defines a property with a descriptor that inherits nothing from `Object.prototype` either. */
function define(into: object, key: string, value: unknown, enumerable = true): void {
  Object.defineProperty(into, key, {
    __proto__: null,
    value,
    writable: true,
    enumerable,
    configurable: true,
  } as PropertyDescriptor);
}

function corrupt(): KvError {
  return new KvError('KV_CORRUPT', 'a stored value is malformed; was the collection written with another value codec?');
}

function typedArrayClass(tag: number): TypedArrayClass | undefined {
  const name = Object.keys(TYPED_ARRAY_TAGS).find((candidate) => TYPED_ARRAY_TAGS[candidate] === tag);
  return name === undefined
    ? undefined
    : ((globalThis as Record<string, unknown>)[name] as TypedArrayClass | undefined);
}

/** Decodes code points encoded as in UTF-8, including lone surrogates. */
function readWtf8(bytes: Uint8Array): string {
  let text = '';
  for (let at = 0; at < bytes.length; ) {
    const first = bytes[at++]!;
    const more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    let code = more === 0 ? first : first & (0x3f >> more);
    for (let count = 0; count < more; count++) {
      const next = bytes[at++];
      if (next === undefined) throw corrupt();
      code = (code << 6) | (next & 0x3f);
    }
    if (code > 0x10_ffff) throw corrupt();
    text += String.fromCodePoint(code);
  }
  return text;
}

const NO_BYTES = new Uint8Array(0);
const scratchBytes = new Uint8Array(8);
const scratch = new DataView(scratchBytes.buffer);

/** A property name seen before. */
interface Name {
  readonly bytes: Uint8Array;
  readonly text: string;
  /** The decoding in which it was last found not to be on `Object.prototype`. */
  run: number;
}

/**
 * Property names seen before, indexed by length and three of their characters: records of one kind
 * have the same names, so each string is created once.
 */
const names: (Name | undefined)[] = new Array<undefined>(256).fill(undefined);
/** Number of decodings so far. */
let run = 0;
/** Length of the longest text whose head is one byte. */
const SHORT_TEXT = 23;

/**
 * The JavaScript engine's internalized copy of a string, with which properties are found faster.
 */
function internalized(text: string): string {
  return Object.keys({ [text]: 0 })[0] as string;
}

/** Runs no foreign code and so is never reentered: one instance is enough. */
class CborDecoder {
  private bytes: Uint8Array = NO_BYTES;
  private end = 0;
  private at = 0;
  private depth = 0;
  /** Whether `Object.prototype` has a property with the name read last. */
  private isInherited = false;
  /** Objects in the order in which they begin. */
  private readonly objects: unknown[] = [];

  /** Decodes part of a buffer; the result shares no memory with it. */
  decode(bytes: Uint8Array, from: number, to: number): unknown {
    this.bytes = bytes;
    this.at = from;
    this.end = to;
    run++;
    try {
      const value = this.value();
      if (this.at !== this.end) throw corrupt();
      return value;
    } finally {
      this.bytes = NO_BYTES;
      this.depth = 0;
      this.objects.length = 0;
    }
  }

  private byte(): number {
    if (this.at >= this.end) throw corrupt();
    return this.bytes[this.at++]!;
  }

  private u32(): number {
    const { bytes, at } = this;
    this.skip(4);
    return ((bytes[at]! << 24) | (bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!) >>> 0;
  }

  private skip(size: number): void {
    if (this.at + size > this.end) throw corrupt();
    this.at += size;
  }

  /** Copies a number of four or eight bytes into the scratch space. */
  private fixed(size: number): DataView {
    const { bytes, at } = this;
    this.skip(size);
    for (let index = 0; index < size; index += 4) {
      scratchBytes[index] = bytes[at + index]!;
      scratchBytes[index + 1] = bytes[at + index + 1]!;
      scratchBytes[index + 2] = bytes[at + index + 2]!;
      scratchBytes[index + 3] = bytes[at + index + 3]!;
    }
    return scratch;
  }

  private argument(info: number): number {
    if (info < 24) return info;
    switch (info) {
      case 24:
        return this.byte();
      case 25:
        return this.byte() * 0x100 + this.byte();
      case 26:
        return this.u32();
      case 27: {
        const value = this.u32() * 0x1_0000_0000 + this.u32();
        if (!Number.isSafeInteger(value)) throw corrupt();
        return value;
      }
      default:
        throw corrupt();
    }
  }

  /**
   * Reads a length; fails unless that many items of at least `size` bytes fit in the remaining
   * bytes.
   */
  private count(info: number, size: number): number {
    const count = this.argument(info);
    if (count * size > this.end - this.at) throw corrupt();
    return count;
  }

  private take(length: number): Uint8Array {
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  private value(): unknown {
    const first = this.byte();
    const info = first & 0x1f;
    switch (first >> 5) {
      case 0:
        return info < 24 ? info : this.argument(info);
      case 1:
        return -1 - this.argument(info);
      case 2:
        return this.begin(this.copy(info));
      case 3:
        return this.string(info);
      case 7:
        return this.simple(first);
      default:
        return this.nested(first >> 5, info);
    }
  }

  private begin<T>(object: T): T {
    this.objects.push(object);
    return object;
  }

  private nested(major: number, info: number): unknown {
    // A tag and its content are two levels here but one for the encoder.
    if (++this.depth > 2 * MAX_DEPTH) throw corrupt();
    const value =
      major === 4
        ? this.array(this.begin([]), info)
        : major === 5
          ? this.properties(this.begin({}), info)
          : this.tagged(this.argument(info));
    this.depth--;
    return value;
  }

  private simple(first: number): unknown {
    switch (first) {
      case FALSE:
        return false;
      case TRUE:
        return true;
      case NULL:
        return null;
      case UNDEFINED:
        return undefined;
      case FLOAT32:
        return this.fixed(4).getFloat32(0);
      case FLOAT64:
        return this.fixed(8).getFloat64(0);
      default:
        throw corrupt();
    }
  }

  private string(info: number): string {
    const length = info < 24 && info <= this.end - this.at ? info : this.count(info, 1);
    const { at } = this;
    const short = readUtf8(this.bytes, at, at + length);
    if (short !== undefined) {
      this.at = at + length;
      return short;
    }
    try {
      return textDecoder.decode(this.take(length));
    } catch {
      throw corrupt();
    }
  }

  private array(into: unknown[], info: number): unknown[] {
    const length = this.count(info, 1);
    for (let index = 0; index < length; index++) {
      if (this.bytes[this.at] === HOLE) {
        this.at++;
        into.length = index + 1;
      } else {
        into[index] = this.value();
      }
    }
    return into;
  }

  private text(): string {
    const value = this.value();
    if (typeof value !== 'string') throw corrupt();
    return value;
  }

  /** Same as `text`, for a string that was probably seen before. */
  private name(): string {
    const { bytes, at } = this;
    const length = bytes[at]! - 0x60;
    const from = at + 1;
    if (!(length > 0 && length <= SHORT_TEXT && from + length <= this.end)) {
      const text = this.text();
      this.isInherited = text in prototype;
      return text;
    }
    const middle = bytes[from + (length >> 1)]!;
    const hash = length * 31 + bytes[from]! * 7 + bytes[from + length - 1]! * 17 + middle * 3;
    const place = hash & (names.length - 1);
    // Two names that share a place do not drive each other out.
    for (let probe = 0; probe < 2; probe++) {
      const known = names[place ^ probe];
      if (known === undefined || known.bytes.length !== length) continue;
      let same = 0;
      while (same < length && known.bytes[same] === bytes[from + same]) same++;
      if (same < length) continue;
      this.at = from + length;
      this.isInherited = known.run !== run && known.text in prototype;
      if (!this.isInherited) known.run = run;
      return known.text;
    }
    const text = internalized(this.text());
    this.isInherited = text in prototype;
    names[place ^ 1] = names[place];
    names[place] = { bytes: bytes.slice(from, from + length), text, run: 0 };
    return text;
  }

  private properties(into: Record<string, unknown>, info: number): Record<string, unknown> {
    const count = this.count(info, 2);
    for (let index = 0; index < count; index++) {
      const key = this.name();
      // An assignment may run a setter or fail on a read-only property; a definition takes ten
      // times as long.
      const { isInherited } = this;
      const value = this.value();
      if (isInherited) define(into, key, value);
      else into[key] = value;
    }
    return into;
  }

  /** Reads the head of an item, which must have the given major type. */
  private expect(major: number): number {
    const first = this.byte();
    if (first >> 5 !== major) throw corrupt();
    return first & 0x1f;
  }

  private content(): Uint8Array<ArrayBuffer> {
    return this.copy(this.expect(2));
  }

  /** Not by `slice`, which returns a view for a `Buffer`. */
  private copy(info: number): Uint8Array<ArrayBuffer> {
    return new Uint8Array(this.take(this.count(info, 1)));
  }

  private tagged(tag: number): unknown {
    switch (tag) {
      case TAG_REFERENCE:
        return this.reference();
      case TAG_POSITIVE_BIGINT:
        return this.bigint();
      case TAG_NEGATIVE_BIGINT:
        return -1n - this.bigint();
      case TAG_WTF8:
        return readWtf8(this.content());
      case TAG_DATE:
        return this.date(1000);
      case TAG_MAP:
        return this.map(this.begin(new Map<unknown, unknown>()));
      case TAG_SET:
        return this.set(this.begin(new Set<unknown>()));
      case TAG_REGEXP:
        return this.regExp();
      case TAG_OBJECT:
        return this.named();
      default:
        return this.typedArray(tag);
    }
  }

  private reference(): unknown {
    const ordinal = this.argument(this.expect(0));
    if (ordinal >= this.objects.length) throw corrupt();
    return this.objects[ordinal];
  }

  private bigint(): bigint {
    const bytes = this.take(this.count(this.expect(2), 1));
    let digits = '0x0';
    for (const byte of bytes) digits += byte.toString(16).padStart(2, '0');
    return BigInt(digits);
  }

  private date(unit: number): Date {
    const time = this.value();
    if (typeof time !== 'number') throw corrupt();
    return this.begin(new Date(Math.round(time * unit)));
  }

  private map(into: Map<unknown, unknown>): Map<unknown, unknown> {
    const count = this.count(this.expect(5), 2);
    for (let index = 0; index < count; index++) {
      const key = this.value();
      into.set(key, this.value());
    }
    return into;
  }

  private set(into: Set<unknown>): Set<unknown> {
    const count = this.count(this.expect(4), 1);
    for (let index = 0; index < count; index++) into.add(this.value());
    return into;
  }

  private regExp(): RegExp {
    if (this.argument(this.expect(4)) !== 2) throw corrupt();
    const source = this.text();
    const flags = this.text();
    try {
      return this.begin(new RegExp(source, flags));
    } catch {
      throw corrupt();
    }
  }

  private typedArray(tag: number): ArrayBufferView {
    const TypedArray = typedArrayClass(tag);
    if (TypedArray === undefined) throw corrupt();
    try {
      return this.begin(new TypedArray(this.content().buffer));
    } catch {
      // The length is not a multiple of the element size.
      throw corrupt();
    }
  }

  private named(): unknown {
    const length = this.argument(this.expect(4));
    const name = this.text();
    if (ERROR_NAMES.includes(name)) return this.error(name, length - 1);
    if (name === 'Array') return this.namedArray(length);
    if (length === 4) return this.sharing(name);
    if (length !== 2) throw corrupt();
    switch (name) {
      case 'ArrayBuffer':
        return this.begin(this.buffer());
      case 'Date':
        return this.date(1);
      case 'DataView':
        return this.begin(new DataView(this.content().buffer));
      case 'Number':
      case 'String':
      case 'Boolean':
      case 'BigInt': {
        const value = this.value();
        if (typeof value !== name.toLowerCase()) throw corrupt();
        return this.begin(Object(value) as object);
      }
      default:
        throw corrupt();
    }
  }

  /** An array with named properties, or with hardly any elements. */
  private namedArray(count: number): unknown[] {
    const into = this.begin<unknown[]>([]);
    const first = this.byte();
    if (count !== 3) throw corrupt();
    if (first >> 5 === 0) {
      const length = this.argument(first & 0x1f);
      if (length > 0xffff_ffff) throw corrupt();
      into.length = length;
    } else if (first >> 5 === 4) {
      this.array(into, first & 0x1f);
    } else {
      throw corrupt();
    }
    for (let left = this.count(this.expect(5), 2); left > 0; left--) {
      const key = this.name();
      if (key === 'length') throw corrupt();
      define(into, key, this.value());
    }
    return into;
  }

  /** Bytes of its own, or the buffer of an earlier object. */
  private buffer(): ArrayBufferLike {
    const first = this.byte();
    if (first >> 5 === 2) return this.copy(first & 0x1f).buffer;
    const object = first >> 5 === 0 ? this.objects[this.argument(first & 0x1f)] : undefined;
    if (object instanceof ArrayBuffer) return object;
    if (!ArrayBuffer.isView(object)) throw corrupt();
    return object.buffer;
  }

  /** A view of a part of a buffer. */
  private sharing(name: string): ArrayBufferView {
    const isKnown = name === 'Uint8Array' || name === 'DataView' || Object.hasOwn(TYPED_ARRAY_TAGS, name);
    const View = isKnown ? ((globalThis as Record<string, unknown>)[name] as SharingView | undefined) : undefined;
    const buffer = this.buffer();
    const start = this.argument(this.expect(0));
    const size = this.argument(this.expect(0));
    const count = size / (View?.BYTES_PER_ELEMENT ?? 1);
    if (View === undefined || !Number.isInteger(count)) throw corrupt();
    try {
      return this.begin(new View(buffer, start, count));
    } catch {
      // Beyond the end of the buffer, or misaligned.
      throw corrupt();
    }
  }

  private error(name: string, count: number): Error {
    if (count !== 2 && count !== 3) throw corrupt();
    const ErrorClass = (globalThis as Record<string, unknown>)[name] as ErrorConstructor;
    const error = this.begin(new ErrorClass());
    const message = this.value();
    if (message !== undefined) define(error, 'message', message, false);
    define(error, 'stack', this.value(), false);
    if (count === 3) define(error, 'cause', this.value(), false);
    return error;
  }
}

const decoder = new CborDecoder();

export function decodeStructured(bytes: Uint8Array): unknown {
  return readStructured(bytes, 0, bytes.length);
}

/** Decodes part of a buffer. Non-negative integers take a short way. */
export function readStructured(bytes: Uint8Array, from: number, to: number): unknown {
  const first = bytes[from]!;
  const size = first < 24 ? 0 : first === 24 ? 1 : first === 25 ? 2 : first === 26 ? 4 : -1;
  if (size < 0 || to - from !== 1 + size) return decoder.decode(bytes, from, to);
  if (size === 0) return first;
  let value = 0;
  for (let at = from + 1; at < to; at++) value = value * 0x100 + bytes[at]!;
  return value;
}
