// Values of codec `structured` between bytes and JSON, without objects in between: each byte, reference and property comes back as it was.
import { KvError } from '../errors.ts';
import { DateForm, badTag, describe, escapeName, formOf, isWellFormed, readBase64, showBigint, showBytes, showDate, showNumber, showText, tag, toBase64, unescapeName } from './form.ts';
import type { Scalar } from './form.ts';
import { invalid } from './failure.ts';
import type { Json } from './json.ts';

const TAG_DATE = 1;
const TAG_POSITIVE_BIGINT = 2;
const TAG_NEGATIVE_BIGINT = 3;
/** `[class name, ...arguments]` */
const TAG_OBJECT = 27;
const TAG_SET = 258;
const TAG_MAP = 259;
/** A string with lone surrogates, as WTF-8 bytes. */
const TAG_WTF8 = 273;
/** `[source, flags]` */
const TAG_REGEXP = 21066;
/** An object that occurred before, by its ordinal. */
const TAG_REFERENCE = 0x4d47_5652;
/** Simple value for a missing element of a sparse array. */
const HOLE = 16;
const MAX_DEPTH = 1000;
const ERROR_NAMES = ['Error', 'EvalError', 'RangeError', 'ReferenceError', 'SyntaxError', 'TypeError', 'URIError'];
const NAMED_BUFFERS = ['ArrayBuffer', 'DataView'];
const MAX_LENGTH = 0xffff_ffff;
/** `Uint8Array` is a plain byte string. */
const TYPED_ARRAYS: readonly (readonly [name: string, tag: number, size: number])[] = [
  ['Uint8ClampedArray', 68, 1], ['Uint16Array', 69, 2], ['Uint32Array', 70, 4], ['BigUint64Array', 71, 8], ['Int8Array', 72, 1], ['Int16Array', 77, 2],
  ['Int32Array', 78, 4], ['BigInt64Array', 79, 8], ['Float16Array', 84, 2], ['Float32Array', 85, 4], ['Float64Array', 86, 8],
];

const INT = 0;
const NEGATIVE = 1;
const BYTES = 2;
const TEXT = 3;
const ARRAY = 4;
const MAP = 5;
const TAG = 6;
const SIMPLE = 7;

const utf8Encoder = new TextEncoder();
const utf8Decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Bytes of an element of a view; undefined if the name is of none. */
function elementSize(name: string): number | undefined {
  if (name === 'Uint8Array' || name === 'DataView') return 1;
  return TYPED_ARRAYS.find(([known]) => known === name)?.[2];
}

/** Whether a buffer of so many bytes has such a view. */
function fits(bytes: number, size: number, start: number, length: number): boolean {
  return start % size === 0 && length % size === 0 && start + length <= bytes;
}

function isTime(ms: number): boolean {
  return Number.isInteger(ms) && Math.abs(ms) <= 8.64e15;
}

function toWtf8(text: string): Uint8Array {
  const bytes: number[] = [];
  for (const character of text) {
    const code = character.codePointAt(0) as number;
    if (code < 0xd800 || code > 0xdfff) bytes.push(...utf8Encoder.encode(character));
    else bytes.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f));
  }
  return Uint8Array.from(bytes);
}

/** Writes what a JSON form stands for. */
class Writer {
  #bytes = new Uint8Array(256);
  #length = 0;
  #depth = 0;
  #objects = 0;
  /** Bytes of the buffers of objects before. */
  readonly #buffers = new Map<number, number>();

  result(): Uint8Array {
    return this.#bytes.slice(0, this.#length);
  }

  #room(count: number): DataView {
    if (this.#length + count > this.#bytes.length) {
      const grown = new Uint8Array(Math.max(this.#bytes.length * 2, this.#length + count));
      grown.set(this.#bytes);
      this.#bytes = grown;
    }
    return new DataView(this.#bytes.buffer);
  }

  #head(major: number, count: number): void {
    const view = this.#room(9);
    const at = this.#length;
    const first = major << 5;
    if (count < 24) {
      view.setUint8(at, first | count);
      this.#length += 1;
    } else if (count <= 0xff) {
      view.setUint16(at, ((first | 24) << 8) | count);
      this.#length += 2;
    } else if (count <= 0xffff) {
      view.setUint8(at, first | 25);
      view.setUint16(at + 1, count);
      this.#length += 3;
    } else if (count <= 0xffff_ffff) {
      view.setUint8(at, first | 26);
      view.setUint32(at + 1, count);
      this.#length += 5;
    } else {
      view.setUint8(at, first | 27);
      view.setBigUint64(at + 1, BigInt(count));
      this.#length += 9;
    }
  }

  #raw(bytes: Uint8Array): void {
    this.#room(bytes.length);
    this.#bytes.set(bytes, this.#length);
    this.#length += bytes.length;
  }

  #byteString(bytes: Uint8Array): void {
    this.#head(BYTES, bytes.length);
    this.#raw(bytes);
  }

  #byte(byte: number): void {
    this.#room(1).setUint8(this.#length++, byte);
  }

  /** Everything that is an object in JavaScript is counted as it begins. */
  #begin(): void {
    this.#objects++;
    if (this.#depth >= MAX_DEPTH) throw new KvError('KV_INVALID_VALUE', `a value nested more than ${MAX_DEPTH} deep cannot be stored`);
  }

  value(json: Json): void {
    const form = formOf(json);
    if (form.kind === 'scalar') return this.#scalar(form.value);
    if (form.kind === 'array') {
      this.#begin();
      return this.#array(form.elements);
    }
    if (form.kind === 'object') {
      this.#begin();
      this.#depth++;
      this.#properties(form.properties);
      this.#depth--;
      return;
    }
    const { name, payload } = form;
    if (name === 'hole') throw new KvError('KV_INVALID_VALUE', '{"$hole":true} can only be an element of an array');
    if (name === 'ref') return this.#reference(payload);
    if (name === 'undefined') {
      if (payload !== true) throw badTag(name, 'true');
      return this.#byte(0xf7);
    }
    this.#begin();
    this.#depth++;
    this.#tagged(name, payload);
    this.#depth--;
  }

  #scalar(value: Scalar): void {
    if (value === null) this.#byte(0xf6);
    else if (typeof value === 'boolean') this.#byte(value ? 0xf5 : 0xf4);
    else if (typeof value === 'number') this.#number(value);
    else if (typeof value === 'bigint') this.#bigint(value);
    else if (typeof value === 'string') this.#text(value);
    else {
      this.#begin();
      if (value instanceof DateForm) return this.#date(value.ms);
      this.#buffers.set(this.#objects - 1, value.length);
      this.#byteString(value);
    }
  }

  #number(number: number): void {
    if (Number.isSafeInteger(number) && !Object.is(number, -0)) {
      if (number >= 0) this.#head(INT, number);
      else this.#head(NEGATIVE, -1 - number);
    } else if (Object.is(Math.fround(number), number)) {
      this.#room(5).setUint8(this.#length, 0xfa);
      this.#room(5).setFloat32(this.#length + 1, number);
      this.#length += 5;
    } else {
      this.#room(9).setUint8(this.#length, 0xfb);
      this.#room(9).setFloat64(this.#length + 1, number);
      this.#length += 9;
    }
  }

  #bigint(number: bigint): void {
    const magnitude = number < 0n ? -1n - number : number;
    const hex = magnitude === 0n ? '' : magnitude.toString(16);
    const even = hex.length % 2 === 0 ? hex : `0${hex}`;
    this.#head(TAG, number < 0n ? TAG_NEGATIVE_BIGINT : TAG_POSITIVE_BIGINT);
    this.#byteString(Uint8Array.from({ length: even.length / 2 }, (_, index) => Number.parseInt(even.slice(index * 2, index * 2 + 2), 16)));
  }

  #text(text: string): void {
    if (isWellFormed(text)) {
      const bytes = utf8Encoder.encode(text);
      this.#head(TEXT, bytes.length);
      this.#raw(bytes);
    } else {
      this.#head(TAG, TAG_WTF8);
      this.#byteString(toWtf8(text));
    }
  }

  /** CBOR counts seconds, which cannot hold every millisecond far from 1970; those dates are written as milliseconds. */
  #date(ms: number): void {
    const seconds = ms / 1000;
    if (Number.isNaN(ms) || (isTime(ms) && Math.round(seconds * 1000) === ms)) {
      this.#head(TAG, TAG_DATE);
      this.#number(seconds);
    } else {
      this.#named('Date', 1);
      this.#number(ms);
    }
  }

  /** Head of `[class name, ...arguments]`. */
  #named(name: string, count: number): void {
    this.#head(TAG, TAG_OBJECT);
    this.#head(ARRAY, count + 1);
    this.#text(name);
  }

  #array(elements: Json[]): void {
    this.#depth++;
    this.#head(ARRAY, elements.length);
    for (const element of elements) {
      const form = formOf(element);
      if (form.kind !== 'tagged' || form.name !== 'hole') this.value(element);
      else if (form.payload === true) this.#byte((SIMPLE << 5) | HOLE);
      else throw badTag('hole', 'true');
    }
    this.#depth--;
  }

  #reference(payload: Json): void {
    if (typeof payload !== 'number' || !Number.isInteger(payload) || payload < 0 || payload >= this.#objects) {
      throw badTag('ref', 'the ordinal of an object that began before');
    }
    this.#head(TAG, TAG_REFERENCE);
    this.#head(INT, payload);
  }

  #list(name: string, payload: Json): Json[] {
    if (Array.isArray(payload)) return payload;
    throw badTag(name, 'an array');
  }

  #pairs(name: string, payload: Json): [Json, Json][] {
    const pairs = this.#list(name, payload);
    if (pairs.every((pair) => Array.isArray(pair) && pair.length === 2)) return pairs as [Json, Json][];
    throw badTag(name, 'an array of pairs');
  }

  #textOf(name: string, json: Json): void {
    const form = formOf(json);
    if (form.kind !== 'scalar' || typeof form.value !== 'string') throw badTag(name, `a string where it holds ${describe(form)}`);
    this.#text(form.value);
  }

  /** What only values can be. */
  #tagged(name: string, payload: Json): void {
    switch (name) {
      case 'map': {
        const pairs = this.#pairs(name, payload);
        this.#head(TAG, TAG_MAP);
        this.#head(MAP, pairs.length);
        for (const part of pairs.flat()) this.value(part);
        return;
      }
      case 'set': {
        const elements = this.#list(name, payload);
        this.#head(TAG, TAG_SET);
        this.#head(ARRAY, elements.length);
        for (const element of elements) this.value(element);
        return;
      }
      case 'object': return this.#namedPairs(name, payload);
      case 'array': return this.#arrayWithProperties(payload);
      case 'regexp': {
        if (!Array.isArray(payload) || payload.length !== 2) throw badTag(name, '[source, flags]');
        this.#head(TAG, TAG_REGEXP);
        this.#head(ARRAY, 2);
        for (const part of payload) this.#textOf(name, part);
        return;
      }
      case 'buffer': return this.#buffer(payload);
      case 'boxed': return this.#boxed(payload);
      case 'error': return this.#error(payload);
      default: throw invalid(`$${name} stands for nothing; a property of that name is written $$${name}`);
    }
  }

  #properties(properties: ReadonlyMap<string, Json>): void {
    this.#head(MAP, properties.size);
    for (const [name, value] of properties) {
      this.#text(unescapeName(name));
      this.value(value);
    }
  }

  #namedPairs(name: string, payload: Json): void {
    const pairs = this.#pairs(name, payload);
    this.#head(MAP, pairs.length);
    for (const [key, value] of pairs) {
      this.#textOf(name, key);
      this.value(value);
    }
  }

  #arrayWithProperties(payload: Json): void {
    const [elements, properties] = Array.isArray(payload) && payload.length === 2 ? payload : [];
    const form = properties === undefined ? undefined : formOf(properties);
    const isLength = typeof elements === 'number' && Number.isInteger(elements) && elements >= 0 && elements <= MAX_LENGTH && !Object.is(elements, -0);
    if (!isLength && !Array.isArray(elements)) throw badTag('array', '[elements or length, properties]');
    this.#named('Array', 2);
    // The elements are as deep as those of any array.
    this.#depth--;
    if (isLength) this.#head(INT, elements);
    else this.#array(elements as Json[]);
    this.#depth++;
    if (form?.kind === 'object' && !form.properties.has('length')) return this.#properties(form.properties);
    const isPairs = form?.kind === 'tagged' && form.name === 'object' && !(Array.isArray(form.payload) && form.payload.some((pair) => Array.isArray(pair) && pair[0] === 'length'));
    if (!isPairs) throw badTag('array', 'properties, of which none is length');
    this.#namedPairs('object', form.payload);
  }

  /** The bytes of a view or buffer: its own, or those of an object before. Gives how many there are. */
  #content(content: Json | undefined): number {
    if (typeof content !== 'number') {
      const bytes = readBase64('buffer', content as Json);
      this.#byteString(bytes);
      return bytes.length;
    }
    const length = this.#buffers.get(content);
    if (length === undefined || Object.is(content, -0)) throw badTag('buffer', 'base64, or the ordinal of a buffer or view that began before');
    this.#head(INT, content);
    return length;
  }

  #part(name: string, content: Json | undefined, start: Json | undefined, length: Json | undefined): void {
    const size = elementSize(name);
    const isCount = (count: Json | undefined): count is number => typeof count === 'number' && Number.isSafeInteger(count) && count >= 0 && !Object.is(count, -0);
    if (size === undefined || !isCount(start) || !isCount(length)) throw badTag('buffer', '[class name of a view, base64 or ordinal, first byte, bytes]');
    const ordinal = this.#objects - 1;
    this.#named(name, 3);
    const bytes = this.#content(content);
    if (!fits(bytes, size, start, length)) throw badTag('buffer', 'a view within its buffer');
    this.#buffers.set(ordinal, bytes);
    this.#head(INT, start);
    this.#head(INT, length);
  }

  #buffer(payload: Json): void {
    const [name, content, ...part] = Array.isArray(payload) && [2, 4].includes(payload.length) ? payload : [];
    if (typeof name !== 'string') throw badTag('buffer', '[class name, base64]');
    if (part.length > 0) return this.#part(name, content, part[0], part[1]);
    if (name === 'ArrayBuffer') {
      const ordinal = this.#objects - 1;
      this.#named(name, 1);
      this.#buffers.set(ordinal, this.#content(content));
      return;
    }
    const bytes = readBase64('buffer', content as Json);
    this.#buffers.set(this.#objects - 1, bytes.length);
    const [, number, size] = TYPED_ARRAYS.find(([known]) => known === name) ?? [];
    if (number !== undefined) {
      if (bytes.length % (size as number) !== 0) throw badTag('buffer', 'whole elements');
      this.#head(TAG, number);
    } else if (NAMED_BUFFERS.includes(name)) {
      this.#named(name, 1);
    } else {
      throw badTag('buffer', 'the class of a typed array other than Uint8Array, "ArrayBuffer" or "DataView"');
    }
    this.#byteString(bytes);
  }

  #boxed(payload: Json): void {
    const [name, value] = Array.isArray(payload) && payload.length === 2 ? payload : [];
    const types: Readonly<Record<string, string>> = { Number: 'number', String: 'string', Boolean: 'boolean', BigInt: 'bigint' };
    const form = value === undefined ? undefined : formOf(value);
    const type = form?.kind === 'scalar' ? typeof form.value : '';
    if (typeof name !== 'string' || !Object.hasOwn(types, name) || types[name] !== type) throw badTag('boxed', '[class name, primitive of that class]');
    this.#named(name, 1);
    this.value(value as Json);
  }

  #error(payload: Json): void {
    const bad = (): Error => badTag('error', '{"name":…} with message, stack and cause as far as there are any');
    if (!(payload instanceof Map)) throw bad();
    const name = payload.get('name');
    const isKnown = [...payload.keys()].every((key) => ['name', 'message', 'stack', 'cause'].includes(key));
    if (typeof name !== 'string' || !ERROR_NAMES.includes(name) || !isKnown) throw bad();
    const cause = payload.get('cause');
    this.#named(name, cause === undefined ? 2 : 3);
    for (const part of [payload.get('message'), payload.get('stack')]) {
      if (part === undefined) this.#byte(0xf7);
      else this.value(part);
    }
    if (cause !== undefined) this.value(cause);
  }
}

export function encodeStructured(json: Json): Uint8Array {
  const form = formOf(json);
  if (form.kind === 'tagged' && form.name === 'undefined') {
    throw new KvError('KV_INVALID_VALUE', 'undefined cannot be stored, as it stands for no entry; null can');
  }
  const writer = new Writer();
  writer.value(json);
  return writer.result();
}

class Malformed extends Error {}

function malformed(): never {
  throw new Malformed();
}

class Reader {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  #at = 0;
  #depth = 0;
  #objects = 0;
  /** Bytes of the buffers of objects before. */
  readonly #buffers = new Map<number, number>();

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  #peek(): number {
    return this.#bytes[this.#at] ?? malformed();
  }

  #take(count: number): number {
    const at = this.#at;
    if (count > this.#bytes.length - at) malformed();
    this.#at += count;
    return at;
  }

  /** The argument of a head of this major type. */
  #head(major: number): number {
    const first = this.#peek();
    if (first >> 5 !== major) malformed();
    this.#at++;
    const short = first & 31;
    if (short < 24) return short;
    if (short === 24) return this.#view.getUint8(this.#take(1));
    if (short === 25) return this.#view.getUint16(this.#take(2));
    if (short === 26) return this.#view.getUint32(this.#take(4));
    if (short !== 27) malformed();
    return Number(this.#view.getBigUint64(this.#take(8)));
  }

  /** A number of items that the rest can hold with at least `size` bytes each. */
  #count(major: number, size: number): number {
    const count = this.#head(major);
    return count * size <= this.#bytes.length - this.#at ? count : malformed();
  }

  #byteString(): Uint8Array {
    const length = this.#head(BYTES);
    const at = this.#take(length);
    return this.#bytes.subarray(at, at + length);
  }

  value(): Json {
    const first = this.#peek();
    const major = first >> 5;
    // A tag and what it holds are two levels here and one for the writer.
    if (this.#depth > 2 * MAX_DEPTH) malformed();
    switch (major) {
      case BYTES: {
        const bytes = this.#byteString();
        this.#buffers.set(this.#objects++, bytes.length);
        return showBytes(bytes);
      }
      case TEXT: return this.#utf8();
      case ARRAY:
        this.#objects++;
        return this.#array();
      case MAP:
        this.#objects++;
        return this.#properties();
      case TAG: {
        this.#depth++;
        const value = this.#tagged(this.#head(TAG));
        this.#depth--;
        return value;
      }
      default:
    }
    const words: Readonly<Record<number, Json>> = { 0xf4: false, 0xf5: true, 0xf6: null, 0xf7: tag('undefined', true) };
    if (Object.hasOwn(words, first)) {
      this.#at++;
      return words[first] as Json;
    }
    return showNumber(this.#number());
  }

  #number(): number {
    const first = this.#peek();
    if (first === 0xfa || first === 0xfb) {
      this.#at++;
      return first === 0xfa ? this.#view.getFloat32(this.#take(4)) : this.#view.getFloat64(this.#take(8));
    }
    const isNegative = first >> 5 === NEGATIVE;
    const number = this.#head(isNegative ? NEGATIVE : INT);
    if (number > Number.MAX_SAFE_INTEGER) malformed();
    return isNegative ? -1 - number : number;
  }

  #utf8(): string {
    const length = this.#head(TEXT);
    const at = this.#take(length);
    try {
      return utf8Decoder.decode(this.#bytes.subarray(at, at + length));
    } catch {
      return malformed();
    }
  }

  #text(): string {
    if (this.#peek() >> 5 !== TAG) return this.#utf8();
    if (this.#head(TAG) !== TAG_WTF8) malformed();
    return fromWtf8(this.#byteString());
  }

  #array(): Json {
    const elements: Json[] = [];
    this.#depth++;
    for (let left = this.#count(ARRAY, 1); left > 0; left--) {
      if (this.#peek() !== ((SIMPLE << 5) | HOLE)) {
        elements.push(this.value());
      } else {
        this.#at++;
        elements.push(tag('hole', true));
      }
    }
    this.#depth--;
    return elements;
  }

  #properties(refused: readonly string[] = []): Json {
    const pairs: [string, Json][] = [];
    this.#depth++;
    for (let left = this.#count(MAP, 2); left > 0; left--) pairs.push([this.#text(), this.value()]);
    this.#depth--;
    if (pairs.some(([name]) => refused.includes(name))) malformed();
    if (pairs.every(([name]) => isWellFormed(name))) return new Map(pairs.map(([name, value]) => [escapeName(name), value]));
    return tag('object', pairs.map(([name, value]) => [showText(name), value]));
  }

  #tagged(number: number): Json {
    switch (number) {
      case TAG_REFERENCE: {
        const ordinal = this.#head(INT);
        return ordinal < this.#objects ? tag('ref', ordinal) : malformed();
      }
      case TAG_POSITIVE_BIGINT: return showBigint(this.#magnitude());
      case TAG_NEGATIVE_BIGINT: return showBigint(-1n - this.#magnitude());
      case TAG_WTF8: return showText(fromWtf8(this.#byteString()));
      case TAG_DATE: return this.#date(1000);
      case TAG_MAP: {
        this.#objects++;
        const pairs: Json[] = [];
        for (let left = this.#count(MAP, 2); left > 0; left--) pairs.push([this.value(), this.value()]);
        return tag('map', pairs);
      }
      case TAG_SET: {
        this.#objects++;
        const elements: Json[] = [];
        for (let left = this.#count(ARRAY, 1); left > 0; left--) elements.push(this.value());
        return tag('set', elements);
      }
      case TAG_REGEXP: {
        if (this.#count(ARRAY, 1) !== 2) malformed();
        const parts = [showText(this.#text()), showText(this.#text())];
        this.#objects++;
        return tag('regexp', parts);
      }
      case TAG_OBJECT: return this.#named();
      default: {
        const [name, , size] = TYPED_ARRAYS.find(([, known]) => known === number) ?? malformed();
        return this.#buffer(name, size);
      }
    }
  }

  #magnitude(): bigint {
    const bytes = this.#byteString();
    return bytes.length === 0 ? 0n : BigInt(`0x${[...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('')}`);
  }

  #date(unit: number): Json {
    const time = this.#number();
    this.#objects++;
    return showDate(Math.round(time * unit));
  }

  #buffer(name: string, size: number): Json {
    const bytes = this.#byteString();
    this.#buffers.set(this.#objects++, bytes.length);
    return bytes.length % size === 0 ? tag('buffer', [name, toBase64(bytes)]) : malformed();
  }

  /** Bytes, or the ordinal of an object that has them, and how many there are. */
  #content(): [shown: Json, length: number] {
    if (this.#peek() >> 5 === BYTES) {
      const bytes = this.#byteString();
      return [toBase64(bytes), bytes.length];
    }
    const ordinal = this.#head(INT);
    return [ordinal, this.#buffers.get(ordinal) ?? malformed()];
  }

  /** A view of a part of a buffer. */
  #part(name: string): Json {
    const size = elementSize(name) ?? malformed();
    const [content, bytes] = this.#content();
    const [start, length] = [this.#head(INT), this.#head(INT)];
    if (!fits(bytes, size, start, length)) malformed();
    this.#buffers.set(this.#objects++, bytes);
    return tag('buffer', [name, content, start, length]);
  }

  /** An array with other properties than its elements, or with hardly any. */
  #arrayWithProperties(): Json {
    this.#objects++;
    const isLength = this.#peek() >> 5 === INT;
    const elements = isLength ? this.#head(INT) : this.#array();
    if (isLength && (elements as number) > MAX_LENGTH) malformed();
    return tag('array', [elements, this.#properties(['length'])]);
  }

  /** An object with the name of its class. */
  #named(): Json {
    const count = this.#count(ARRAY, 1);
    const name = this.#text();
    if (ERROR_NAMES.includes(name)) return this.#error(name, count - 1);
    if (name === 'Array') return count === 3 ? this.#arrayWithProperties() : malformed();
    if (count === 4) return this.#part(name);
    if (count !== 2) malformed();
    if (name === 'ArrayBuffer') {
      const [content, length] = this.#content();
      this.#buffers.set(this.#objects++, length);
      return tag('buffer', [name, content]);
    }
    if (NAMED_BUFFERS.includes(name)) return this.#buffer(name, 1);
    if (name === 'Date') return this.#date(1);
    if (!['Number', 'String', 'Boolean', 'BigInt'].includes(name)) malformed();
    this.#objects++;
    return tag('boxed', [name, this.value()]);
  }

  #error(name: string, count: number): Json {
    if (count < 2 || count > 3) malformed();
    this.#objects++;
    const error = new Map<string, Json>([['name', name]]);
    for (const part of ['message', 'stack', 'cause'].slice(0, count)) {
      // Without a message or a stack there is `undefined` in its place, while a cause may be just that.
      if (part !== 'cause' && this.#peek() === 0xf7) this.#at++;
      else error.set(part, this.value());
    }
    return tag('error', error);
  }
}

function fromWtf8(bytes: Uint8Array): string {
  let text = '';
  for (let at = 0; at < bytes.length;) {
    const first = bytes[at] as number;
    const more = first < 0x80 ? 0 : first < 0xc0 ? malformed() : first < 0xe0 ? 1 : first < 0xf0 ? 2 : first < 0xf8 ? 3 : malformed();
    let code = more === 0 ? first : first & (0x3f >> more);
    for (let index = 1; index <= more; index++) {
      const byte = bytes[at + index] ?? malformed();
      if ((byte & 0xc0) !== 0x80) malformed();
      code = code * 64 + (byte & 0x3f);
    }
    if (code > 0x10_ffff) malformed();
    text += String.fromCodePoint(code);
    at += more + 1;
  }
  return text;
}

export function decodeStructured(bytes: Uint8Array): Json {
  try {
    const reader = new Reader(bytes);
    const value = reader.value();
    if (reader.isAtEnd) return value;
  } catch (error) {
    if (!(error instanceof Malformed)) throw error;
  }
  throw new KvError('KV_CORRUPT', 'a stored value is not one of codec structured');
}
