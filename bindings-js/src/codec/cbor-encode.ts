import { KvError } from '../errors.ts';
import { ByteWriter } from './byte-writer.ts';
import { putAscii } from './fast.ts';
import {
  ERROR_NAMES, FALSE, FLOAT32, FLOAT64, HOLE, MAX_DEPTH, NULL, TAG_DATE, TAG_MAP, TAG_NEGATIVE_BIGINT, TAG_OBJECT,
  TAG_POSITIVE_BIGINT, TAG_REFERENCE, TAG_REGEXP, TAG_SET, TAG_WTF8, TRUE, TYPED_ARRAY_TAGS, UNDEFINED,
} from './cbor-tags.ts';

const textEncoder = new TextEncoder();
const { toString } = Object.prototype;
const tagOf = (value: object): string => toString.call(value).slice(8, -1);

type Getter = (this: unknown) => string;
const getterOf = (prototype: object, property: string | symbol): Getter =>
  Object.getOwnPropertyDescriptor(prototype, property)?.get as Getter;
const sourceOf = getterOf(RegExp.prototype, 'source');
/** Name of a typed array's class; undefined for any other view. */
const typedArrayName = getterOf(Object.getPrototypeOf(Uint8Array.prototype) as object, Symbol.toStringTag);
const bufferLength = getterOf(ArrayBuffer.prototype, 'byteLength') as unknown as (this: never) => number;
const BOXES = { Number, String, Boolean, BigInt };

/** Anything may call itself a Map; what a Map's own method says is true. */
function byBrand<T>(method: (this: never) => T, value: object): T {
  try {
    return method.call(value as never);
  } catch (error) {
    throw refuse(`an object that calls itself ${tagOf(value)} and is none`, error);
  }
}

function bytesOf(buffer: ArrayBuffer, offset?: number, length?: number): Uint8Array {
  try {
    return new Uint8Array(buffer, offset, length);
  } catch (error) {
    throw refuse('a buffer that was given away', error);
  }
}

function refuse(what: string, cause?: unknown): KvError {
  return new KvError('KV_INVALID_VALUE', `${what} cannot be stored; keep plain data, or use a value codec of your own`, { cause });
}

function isWellFormed(text: string): boolean {
  return !/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/.test(text);
}

/** UTF-8, but lone surrogates are written like any other code point. */
function wtf8(text: string): Uint8Array {
  const bytes: number[] = [];
  for (const character of text) {
    const code = character.codePointAt(0)!;
    if (code >= 0xd800 && code <= 0xdfff) bytes.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f));
    else bytes.push(...textEncoder.encode(character));
  }
  return Uint8Array.from(bytes);
}

/** So many are looked through one by one. */
const FEW_OBJECTS = 8;

export class CborEncoder {
  private readonly out = new ByteWriter(4096);
  /** Objects in the order in which they begin; of many also their places, so that small values need no map. */
  private readonly seen: object[] = [];
  private places: Map<object, number> | undefined;
  private depth = 0;

  encode(value: unknown): Uint8Array {
    this.out.length = 0;
    this.depth = 0;
    try {
      this.value(value);
      return this.out.copy();
    } finally {
      // Neither keep a large buffer for ever nor the objects alive.
      this.seen.length = 0;
      this.places = undefined;
      if (this.out.bytes.length > 1 << 20) {
        this.out.bytes = new Uint8Array(4096);
        this.out.view = new DataView(this.out.bytes.buffer);
      }
    }
  }

  private head(major: number, value: number): void {
    const { out } = this;
    const type = major << 5;
    if (value < 24) {
      out.byte(type | value);
    } else if (value < 0x100) {
      out.byte(type | 24);
      out.byte(value);
    } else if (value < 0x1_0000) {
      out.byte(type | 25);
      out.byte(value >> 8);
      out.byte(value & 0xff);
    } else if (value < 0x1_0000_0000) {
      out.byte(type | 26);
      out.u32(value);
    } else {
      out.byte(type | 27);
      out.u32(Math.floor(value / 0x1_0000_0000));
      out.u32(value >>> 0);
    }
  }

  private value(value: unknown): void {
    switch (typeof value) {
      case 'string': return this.string(value);
      case 'number': return this.number(value);
      case 'boolean': return this.out.byte(value ? TRUE : FALSE);
      case 'undefined': return this.out.byte(UNDEFINED);
      case 'bigint': return this.bigint(value);
      case 'object': return value === null ? this.out.byte(NULL) : this.reference(value);
      default: throw refuse(`a ${typeof value}`);
    }
  }

  private number(value: number): void {
    if (Number.isSafeInteger(value) && !Object.is(value, -0)) {
      if (value >= 0) this.head(0, value);
      else this.head(1, -1 - value);
    } else if (Object.is(Math.fround(value), value)) {
      this.out.byte(FLOAT32);
      this.out.reserve(4);
      this.out.view.setFloat32(this.out.length, value);
      this.out.length += 4;
    } else {
      this.out.byte(FLOAT64);
      this.out.f64(value);
    }
  }

  private string(text: string): void {
    const { out } = this;
    const { length } = text;
    if (length <= 48) {
      const start = out.length;
      out.reserve(length + 2);
      this.head(3, length);
      const end = putAscii(text, out.bytes, out.length, out.bytes.length);
      if (end >= 0) {
        out.length = end;
        return;
      }
      out.length = start;
    }
    this.longString(text);
  }

  private longString(text: string): void {
    if (!isWellFormed(text)) {
      this.head(6, TAG_WTF8);
      this.bytes(wtf8(text));
      return;
    }
    const { out } = this;
    // The length is only known afterwards, so the text is written behind the longest head and moved.
    out.reserve(text.length * 3 + 9);
    const from = out.length + 9;
    const { written } = textEncoder.encodeInto(text, out.bytes.subarray(from));
    this.head(3, written);
    out.bytes.copyWithin(out.length, from, from + written);
    out.length += written;
  }

  private bytes(bytes: Uint8Array): void {
    this.head(2, bytes.length);
    this.out.raw(bytes);
  }

  private bigint(value: bigint): void {
    this.head(6, value < 0n ? TAG_NEGATIVE_BIGINT : TAG_POSITIVE_BIGINT);
    const magnitude = value < 0n ? -1n - value : value;
    let digits = magnitude === 0n ? '' : magnitude.toString(16);
    if (digits.length % 2 === 1) digits = `0${digits}`;
    this.head(2, digits.length / 2);
    for (let index = 0; index < digits.length; index += 2) this.out.byte(Number.parseInt(digits.slice(index, index + 2), 16));
  }

  /** An object is written once; from then on by its ordinal. */
  private reference(value: object): void {
    const ordinal = this.ordinalOf(value);
    if (ordinal >= 0) {
      this.head(6, TAG_REFERENCE);
      this.head(0, ordinal);
      return;
    }
    this.places?.set(value, this.seen.length);
    this.seen.push(value);
    if (++this.depth > MAX_DEPTH) throw refuse(`a value nested more than ${MAX_DEPTH} deep`);
    if (Array.isArray(value)) this.array(value);
    else this.object(value);
    this.depth--;
  }

  /** Below 0 if the object was not met yet. */
  private ordinalOf(value: object): number {
    const { seen } = this;
    if (seen.length <= FEW_OBJECTS) return seen.indexOf(value);
    this.places ??= new Map(seen.map((object, place) => [object, place]));
    return this.places.get(value) ?? -1;
  }

  private array(value: readonly unknown[]): void {
    // A getter among the elements may change the array; the length that is written stays true.
    const { length } = value;
    this.head(4, length);
    for (let index = 0; index < length; index++) {
      const element = value[index];
      if (element === undefined && !(index in value)) this.out.byte(HOLE);
      else this.value(element);
    }
  }

  private object(value: object): void {
    if (ArrayBuffer.isView(value)) return this.view(value);
    const tag = toString.call(value);
    // The common case needs no part of it.
    if (tag === '[object Object]') return this.properties(value as Record<string, unknown>);
    switch (tag.slice(8, -1)) {
      case 'Date': return this.date(byBrand(Date.prototype.getTime, value));
      case 'Map': return this.map([...byBrand(Map.prototype.entries, value)]);
      case 'Set':
        this.head(6, TAG_SET);
        return this.array([...byBrand(Set.prototype.values, value)]);
      case 'RegExp': return this.regExp(byBrand(sourceOf, value), (value as RegExp).flags);
      case 'Error': return this.error(value as Error);
      case 'ArrayBuffer':
        byBrand(bufferLength, value);
        this.named('ArrayBuffer', 1);
        return this.bytes(bytesOf(value as ArrayBuffer));
      case 'Number':
      case 'String':
      case 'Boolean':
      case 'BigInt': {
        const name = tagOf(value) as keyof typeof BOXES;
        const content = byBrand(BOXES[name].prototype.valueOf as (this: never) => unknown, value);
        this.named(name, 1);
        return this.value(content);
      }
      default: throw refuse(`an object of class ${tagOf(value)}`);
    }
  }

  private regExp(source: string, flags: string): void {
    this.head(6, TAG_REGEXP);
    this.head(4, 2);
    this.string(source);
    this.string(flags);
  }

  /** CBOR counts seconds, which cannot hold every millisecond far from 1970; those dates are written as milliseconds. */
  private date(time: number): void {
    const seconds = time / 1000;
    if (Number.isNaN(time) || Math.round(seconds * 1000) === time) {
      this.head(6, TAG_DATE);
      this.number(seconds);
    } else {
      this.named('Date', 1);
      this.number(time);
    }
  }

  private properties(value: Record<string, unknown>): void {
    const keys = Object.keys(value);
    this.head(5, keys.length);
    for (const key of keys) {
      this.string(key);
      this.value(value[key]);
    }
  }

  private map(entries: readonly (readonly [unknown, unknown])[]): void {
    this.head(6, TAG_MAP);
    this.head(5, entries.length);
    for (const [key, element] of entries) {
      this.value(key);
      this.value(element);
    }
  }

  /** Head of `[class name, ...arguments]`. */
  private named(name: string, argumentCount: number): void {
    this.head(6, TAG_OBJECT);
    this.head(4, argumentCount + 1);
    this.string(name);
  }

  private error(value: Error): void {
    const name = ERROR_NAMES.includes(value.name) ? value.name : 'Error';
    const hasCause = Object.hasOwn(value, 'cause');
    this.named(name, hasCause ? 3 : 2);
    this.value(Object.hasOwn(value, 'message') ? String(value.message) : undefined);
    this.value(typeof value.stack === 'string' ? value.stack : undefined);
    if (hasCause) this.value(value.cause);
  }

  private view(value: ArrayBufferView): void {
    if (tagOf(value.buffer) !== 'ArrayBuffer') throw refuse('a view of shared memory');
    const name = typedArrayName.call(value) ?? 'DataView';
    const bytes = bytesOf(value.buffer as ArrayBuffer, value.byteOffset, value.byteLength);
    const tag = TYPED_ARRAY_TAGS[name];
    if (tag !== undefined) this.head(6, tag);
    else if (name === 'DataView') this.named(name, 1);
    else if (name !== 'Uint8Array') throw refuse(`an object of class ${name}`);
    this.bytes(bytes);
  }
}
