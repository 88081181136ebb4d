// Keys and values as JSON. What JSON cannot say is an object with a single property whose name
// begins with "$"; a property of that kind gets one more "$". README.md has the list.
import { Buffer } from 'node:buffer';
import { KvError } from 'mangrove-kv';

/** What `JSON.parse` returns. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };
type JsonObject = { readonly [name: string]: Json };

/** Deepest nesting of JSON. A value may be nested 1,000 deep, and its JSON form several times that. */
const MAX_JSON_DEPTH = 4096;
/** Deepest nesting of a value. */
const MAX_DEPTH = 1000;
/** Longest bigint in decimal digits; reading and writing them takes quadratic time. */
const MAX_DECIMAL_DIGITS = 2000;
const MAX_DECIMAL_BITS = 6000;
/** An array with more holes than this is shown by its properties. */
const MAX_HOLES = 1 << 24;
const MAX_LENGTH = 0xffff_ffff;
/** `String.fromCharCode` takes so many at a time. */
const UNITS_AT_ONCE = 4096;

const ERRORS = { Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };
const BOXES: { readonly [name: string]: string } = {
  Number: 'number',
  String: 'string',
  Boolean: 'boolean',
  BigInt: 'bigint',
};
const VIEWS = [
  'Uint8Array',
  'Uint8ClampedArray',
  'Int8Array',
  'Uint16Array',
  'Int16Array',
  'Uint32Array',
  'Int32Array',
  'BigUint64Array',
  'BigInt64Array',
  'Float16Array',
  'Float32Array',
  'Float64Array',
  'DataView',
];
const TIME = /^([+-]\d{6}|\d{4})-(\d\d)-(\d\d)(?:T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?(?:Z|([+-])(\d\d):(\d\d)))?$/;

type View = new (buffer: ArrayBuffer, start?: number, count?: number) => ArrayBufferView;

const invalid = (message: string): KvError => new KvError('KV_INVALID_ARGUMENT', message);
const badTag = (name: string, wanted: string): KvError => invalid(`{"$${name}":…} has to hold ${wanted}`);
const isWellFormed = (text: string): boolean => !/\p{Surrogate}/u.test(text);
const isWhole = (json: Json | undefined): json is number =>
  typeof json === 'number' && Number.isSafeInteger(json) && json >= 0 && !Object.is(json, -0);
const isObject = (json: Json): json is JsonObject => typeof json === 'object' && json !== null && !Array.isArray(json);

function checkDepth(text: string): void {
  let [depth, isInString] = [0, false];
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (isInString) {
      if (character === '\\') at++;
      else if (character === '"') isInString = false;
    } else if (character === '"') {
      isInString = true;
    } else if (character === '[' || character === '{') {
      if (++depth > MAX_JSON_DEPTH) throw invalid(`JSON nested more than ${MAX_JSON_DEPTH} deep`);
    } else if (character === ']' || character === '}') {
      depth--;
    }
  }
}

/** Parses JSON; refuses input nested too deep without recursing into it. */
export function parseJson(text: string): Json {
  checkDepth(text);
  try {
    return JSON.parse(text) as Json;
  } catch (error) {
    throw invalid(`not JSON (${(error as Error).message}); a string is written as '"text"'`);
  }
}

/** The tag and the payload of a form, if that is what an object is. */
function tagOf(json: JsonObject): [name: string, payload: Json] | undefined {
  const names = Object.keys(json);
  const [name = ''] = names;
  return names.length === 1 && /^\$(?!\$)/.test(name) ? [name.slice(1), json[name] as Json] : undefined;
}

function fromBase64(name: string, payload: Json | undefined): Uint8Array<ArrayBuffer> {
  const bytes = typeof payload === 'string' ? Buffer.from(payload, 'base64') : undefined;
  if (bytes === undefined || bytes.toString('base64') !== payload) throw badTag(name, 'a string in base64');
  return new Uint8Array(bytes);
}

const toBase64 = (bytes: Uint8Array): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64');

function fromBigint(payload: Json): bigint {
  const [, minus, digits = ''] = typeof payload === 'string' ? (/^(-?)(\d+|0x[\da-f]+)$/i.exec(payload) ?? []) : [];
  if (digits === '' || (!digits.startsWith('0x') && digits.length > MAX_DECIMAL_DIGITS)) {
    throw badTag('bigint', 'a string: a decimal integer of at most 2000 digits, or a hexadecimal one as "0x…"');
  }
  return minus === '-' ? -BigInt(digits) : BigInt(digits);
}

/** Milliseconds since 1970 of a time in ISO 8601; NaN if it is none. */
function toTime(text: string): number {
  const [
    matched,
    year = '',
    month,
    day,
    hour = 0,
    minute = 0,
    second = 0,
    fraction = '',
    sign,
    zoneHour = 0,
    zoneMinute = 0,
  ] = TIME.exec(text) ?? [];
  const date = new Date(0);
  date.setUTCFullYear(Number(year), Number(month) - 1, Number(day));
  const isDay = date.getUTCMonth() + 1 === Number(month) && date.getUTCDate() === Number(day);
  const isTime =
    Number(hour) < 24 && [minute, second, zoneMinute].every((part) => Number(part) < 60) && Number(zoneHour) < 24;
  if (matched === undefined || year === '-000000' || !isTime) return NaN;
  // The furthest times of a Date are within a day, and the day itself may be out of its range.
  const midnight = isDay ? date.getTime() : NaN;
  const offset = (Number(zoneHour) * 60 + Number(zoneMinute)) * (sign === '-' ? -1 : 1);
  const milliseconds = Number(fraction.slice(0, 3).padEnd(3, '0'));
  return new Date(
    midnight + ((Number(hour) * 60 + Number(minute) - offset) * 60 + Number(second)) * 1000 + milliseconds,
  ).getTime();
}

function fromDate(payload: Json): Date {
  if (payload === null) return new Date(NaN);
  const time =
    typeof payload === 'string'
      ? toTime(payload)
      : typeof payload === 'number' && Number.isInteger(payload)
        ? new Date(payload).getTime()
        : NaN;
  if (Number.isNaN(time))
    throw badTag('date', 'a time in ISO 8601 with its zone, milliseconds since 1970, or null for an invalid date');
  return new Date(time);
}

function fromNumber(payload: Json): number {
  if (payload !== 'NaN' && payload !== 'Infinity' && payload !== '-Infinity')
    throw badTag('number', '"NaN", "Infinity" or "-Infinity"');
  return Number(payload);
}

function fromUnits(payload: Json): string {
  const isUnit = (unit: Json): unit is number => isWhole(unit) && unit <= 0xffff;
  if (!Array.isArray(payload) || !payload.every(isUnit)) throw badTag('utf16', 'an array of integers from 0 to 65535');
  let text = '';
  for (let at = 0; at < payload.length; at += UNITS_AT_ONCE)
    text += String.fromCharCode(...(payload.slice(at, at + UNITS_AT_ONCE) as number[]));
  return text;
}

/** Defines what an assignment might not: a property of `Object.prototype` may be a setter. */
function define(into: object, name: string, value: unknown, enumerable = true): void {
  Object.defineProperty(into, name, { value, enumerable, writable: true, configurable: true });
}

/** Builds a value from its form. */
class Builder {
  /** Objects in the order in which they begin, by which `$ref` and `$buffer` name them. */
  readonly #objects: unknown[] = [];
  #depth = 0;

  value(json: Json): unknown {
    switch (typeof json) {
      case 'number':
        if (!Number.isFinite(json)) throw invalid('not JSON (a number is out of range)');
        return json;
      case 'object':
        return json === null ? null : this.#nested(json);
      default:
        return json;
    }
  }

  #begin<T>(object: T): T {
    this.#objects.push(object);
    return object;
  }

  #nested(json: readonly Json[] | JsonObject): unknown {
    if (++this.#depth > MAX_DEPTH) {
      // A hole, a reference or a primitive is no level.
      const tag = isObject(json) ? tagOf(json)?.[0] : undefined;
      if (!['bigint', 'number', 'utf16', 'undefined', 'ref', 'hole'].includes(tag ?? ''))
        throw new KvError('KV_INVALID_VALUE', `a value nested more than ${MAX_DEPTH} deep cannot be stored`);
    }
    const value = isObject(json) ? this.#object(json) : this.#elements(this.#begin([]), json);
    this.#depth--;
    return value;
  }

  #object(json: JsonObject): unknown {
    const tag = tagOf(json);
    return tag === undefined ? this.#properties(this.#begin({}), json) : this.#tagged(...tag);
  }

  #tagged(name: string, payload: Json): unknown {
    switch (name) {
      case 'bytes':
        return this.#begin(fromBase64(name, payload));
      case 'bigint':
        return fromBigint(payload);
      case 'date':
        return this.#begin(fromDate(payload));
      case 'number':
        return fromNumber(payload);
      case 'utf16':
        return fromUnits(payload);
      case 'undefined':
        if (payload !== true) throw badTag(name, 'true');
        return undefined;
      case 'hole':
        throw new KvError('KV_INVALID_VALUE', '{"$hole":true} can only be an element of an array');
      case 'ref':
        if (!isWhole(payload) || payload >= this.#objects.length)
          throw badTag(name, 'the ordinal of an object that began before');
        return this.#objects[payload];
      case 'map':
        return this.#map(payload);
      case 'set':
        return this.#set(payload);
      case 'regexp':
        return this.#regExp(payload);
      case 'object':
        return this.#pairs(this.#begin({}), payload);
      case 'array':
        return this.#array(payload);
      case 'buffer':
        return this.#buffer(payload);
      case 'boxed':
        return this.#boxed(payload);
      case 'error':
        return this.#error(payload);
      default:
        throw invalid(`$${name} stands for nothing; a property of that name is written $$${name}`);
    }
  }

  #elements(into: unknown[], elements: readonly Json[]): unknown[] {
    for (const [at, element] of elements.entries()) {
      const hole =
        typeof element === 'object' && element !== null && isObject(element) && Object.keys(element).join() === '$hole'
          ? element['$hole']
          : undefined;
      if (hole === undefined) into[at] = this.value(element);
      else if (hole !== true) throw badTag('hole', 'true');
      else into.length = at + 1;
    }
    return into;
  }

  #properties<T extends object>(into: T, properties: JsonObject): T {
    for (const [shown, value] of Object.entries(properties)) {
      if (/^\$(?!\$)/.test(shown))
        throw invalid(
          `the property ${shown} has to be alone in its object, or be written as $${shown} if that is its name`,
        );
      if (!isWellFormed(shown))
        throw invalid('the name of a property is not valid Unicode; {"$object":[[name,value],…]} takes it');
      define(into, shown.startsWith('$') ? shown.slice(1) : shown, this.value(value));
    }
    return into;
  }

  /** A string, or a form of one. */
  #text(name: string, json: Json | undefined): string {
    const text = json === undefined ? undefined : this.value(json);
    if (typeof text !== 'string') throw badTag(name, 'a string');
    return text;
  }

  #list(name: string, payload: Json): readonly Json[] {
    if (!Array.isArray(payload)) throw badTag(name, 'an array');
    return payload as readonly Json[];
  }

  *#eachPair(name: string, payload: Json): Generator<[Json, Json]> {
    for (const pair of this.#list(name, payload)) {
      if (!Array.isArray(pair) || pair.length !== 2) throw badTag(name, 'an array of pairs');
      yield pair as unknown as [Json, Json];
    }
  }

  #map(payload: Json): Map<unknown, unknown> {
    const map = this.#begin(new Map<unknown, unknown>());
    for (const [key, value] of this.#eachPair('map', payload)) {
      const decoded = this.value(key);
      map.set(decoded, this.value(value));
    }
    return map;
  }

  #set(payload: Json): Set<unknown> {
    const set = this.#begin(new Set<unknown>());
    for (const element of this.#list('set', payload)) set.add(this.value(element));
    return set;
  }

  #pairs<T extends object>(into: T, payload: Json): T {
    for (const [name, value] of this.#eachPair('object', payload))
      define(into, this.#text('object', name), this.value(value));
    return into;
  }

  #regExp(payload: Json): RegExp {
    const parts = this.#list('regexp', payload);
    if (parts.length !== 2) throw badTag('regexp', '[source, flags]');
    const [source, flags] = parts.map((part) => this.#text('regexp', part));
    try {
      return this.#begin(new RegExp(source as string, flags));
    } catch {
      throw badTag('regexp', 'a regular expression that this runtime knows');
    }
  }

  #array(payload: Json): unknown[] {
    const [elements, properties, ...more] = this.#list('array', payload);
    const array = this.#begin<unknown[]>([]);
    if (Array.isArray(elements)) this.#elements(array, elements as readonly Json[]);
    else if (isWhole(elements) && elements <= MAX_LENGTH) array.length = elements;
    else throw badTag('array', '[elements or length, properties]');
    if (properties === undefined || !isObject(properties) || more.length > 0)
      throw badTag('array', '[elements or length, properties]');
    const tag = tagOf(properties);
    const isLength =
      tag === undefined
        ? Object.hasOwn(properties, 'length')
        : Array.isArray(tag[1]) && tag[1].some((pair: Json) => Array.isArray(pair) && pair[0] === 'length');
    if (isLength || (tag !== undefined && tag[0] !== 'object'))
      throw badTag('array', 'properties, of which none is length');
    return tag === undefined ? this.#properties(array, properties) : this.#pairs(array, tag[1]);
  }

  /** Bytes of its own, or the buffer of an object that began before. */
  #content(payload: Json | undefined): ArrayBuffer {
    if (typeof payload !== 'number') return fromBase64('buffer', payload).buffer;
    const object = isWhole(payload) ? this.#objects[payload] : undefined;
    if (object instanceof ArrayBuffer) return object;
    if (!ArrayBuffer.isView(object))
      throw badTag('buffer', 'base64, or the ordinal of a buffer or view that began before');
    return object.buffer as ArrayBuffer;
  }

  #buffer(payload: Json): ArrayBuffer | ArrayBufferView {
    const [name, content, start, length, ...more] = this.#list('buffer', payload);
    if (name === 'ArrayBuffer' && content !== undefined && start === undefined)
      return this.#begin(this.#content(content));
    const isPart = start !== undefined;
    if (
      typeof name !== 'string' ||
      !VIEWS.includes(name) ||
      content === undefined ||
      more.length > 0 ||
      (isPart ? !isWhole(start) || !isWhole(length) : name === 'Uint8Array')
    ) {
      throw badTag(
        'buffer',
        '[class name of a view other than Uint8Array, base64] or [class name of a view, base64 or ordinal, first byte, bytes]',
      );
    }
    const Class = (
      globalThis as unknown as { readonly [name: string]: (View & { readonly BYTES_PER_ELEMENT?: number }) | undefined }
    )[name];
    if (Class === undefined) throw badTag('buffer', `a class that this runtime has, unlike ${name}`);
    const buffer = isPart ? this.#content(content) : fromBase64('buffer', content).buffer;
    const size = Class.BYTES_PER_ELEMENT ?? 1;
    try {
      if (!isPart) return this.#begin(new Class(buffer));
      if ((length as number) % size === 0)
        return this.#begin(new Class(buffer, start as number, (length as number) / size));
    } catch {
      // Beyond the end of the buffer, misaligned, or no whole elements.
    }
    throw badTag('buffer', isPart ? 'a view within its buffer' : 'whole elements');
  }

  #boxed(payload: Json): object {
    const [name, content, ...more] = this.#list('boxed', payload);
    const value =
      content === undefined || (typeof content === 'object' && Array.isArray(content))
        ? undefined
        : this.#unboxed(content);
    if (typeof name !== 'string' || more.length > 0 || BOXES[name] === undefined || typeof value !== BOXES[name])
      throw badTag('boxed', '[class name, primitive of that class]');
    return this.#begin(Object(value) as object);
  }

  #unboxed(content: Json): unknown {
    return typeof content !== 'object' ||
      content === null ||
      ['bigint', 'number', 'utf16'].includes(tagOf(content as JsonObject)?.[0] ?? '')
      ? this.value(content)
      : undefined;
  }

  #error(payload: Json): Error {
    const bad = (): KvError => badTag('error', '{"name":…} with message, stack and cause as far as there are any');
    if (!isObject(payload)) throw bad();
    const { name, message, stack, cause, ...more } = payload;
    if (typeof name !== 'string' || !Object.hasOwn(ERRORS, name) || Object.keys(more).length > 0) throw bad();
    const error = this.#begin(new ERRORS[name as keyof typeof ERRORS]());
    if (message !== undefined) define(error, 'message', this.#text('error', message), false);
    define(error, 'stack', stack === undefined ? undefined : this.#text('error', stack), false);
    if (cause !== undefined) define(error, 'cause', this.value(cause), false);
    return error;
  }
}

/** The value that JSON stands for. */
export function fromForm(json: Json): unknown {
  return new Builder().value(json);
}

function showText(text: string): string {
  if (isWellFormed(text)) return JSON.stringify(text);
  return `{"$utf16":[${Array.from({ length: text.length }, (_, at) => text.charCodeAt(at)).join()}]}`;
}

function showNumber(number: number): string {
  if (Object.is(number, -0)) return '-0.0';
  return Number.isFinite(number) ? String(number) : `{"$number":"${number}"}`;
}

function showBigint(value: bigint): string {
  const magnitude = value < 0n ? -value : value;
  const digits = magnitude.toString(16);
  const bits = digits.length * 4 - Math.clz32(Number.parseInt(digits[0] as string, 16)) + 28;
  return `{"$bigint":"${bits <= MAX_DECIMAL_BITS ? value : `${value < 0n ? '-' : ''}0x${digits}`}"}`;
}

/** A view or buffer whose form depends on the others that have its bytes. */
interface Shown {
  readonly object: ArrayBuffer | ArrayBufferView;
  readonly ordinal: number;
  /** Index of its form among the pieces. */
  readonly piece: number;
}

const bufferOf = (object: ArrayBuffer | ArrayBufferView): ArrayBufferLike =>
  ArrayBuffer.isView(object) ? object.buffer : object;
const classOf = (value: object): string => Object.prototype.toString.call(value).slice(8, -1);

/** Whether a property of an array is one of its elements. */
function isIndex(name: string): boolean {
  const index = Number(name);
  return index >>> 0 === index && index !== MAX_LENGTH && String(index) === name;
}

/** Writes the form of a value. */
class Writer {
  readonly #pieces: string[] = [];
  readonly #ordinals = new Map<object, number>();
  readonly #shown: Shown[] = [];

  write(value: unknown): string {
    this.#value(value);
    this.#fillBuffers();
    return this.#pieces.join('');
  }

  #put(piece: string): void {
    this.#pieces.push(piece);
  }

  #value(value: unknown): void {
    switch (typeof value) {
      case 'string':
        return this.#put(showText(value));
      case 'number':
        return this.#put(showNumber(value));
      case 'bigint':
        return this.#put(showBigint(value));
      case 'boolean':
        return this.#put(String(value));
      case 'undefined':
        return this.#put('{"$undefined":true}');
      default:
        return value === null ? this.#put('null') : this.#reference(value as object);
    }
  }

  #reference(object: object): void {
    const known = this.#ordinals.get(object);
    if (known !== undefined) return this.#put(`{"$ref":${known}}`);
    this.#ordinals.set(object, this.#ordinals.size);
    if (Array.isArray(object)) this.#array(object);
    else this.#object(object);
  }

  #object(object: object): void {
    if (ArrayBuffer.isView(object)) return this.#view(object);
    switch (classOf(object)) {
      case 'Date': {
        const time = (object as Date).getTime();
        return this.#put(`{"$date":${Number.isNaN(time) ? null : `"${(object as Date).toISOString()}"`}}`);
      }
      case 'Map':
        return this.#list(
          '{"$map":[',
          object as Map<unknown, unknown>,
          ([key, value]) => {
            this.#put('[');
            this.#value(key);
            this.#put(',');
            this.#value(value);
            this.#put(']');
          },
          ']}',
        );
      case 'Set':
        return this.#list('{"$set":[', object as Set<unknown>, (element) => this.#value(element), ']}');
      case 'RegExp':
        return this.#put(`{"$regexp":[${showText((object as RegExp).source)},${showText((object as RegExp).flags)}]}`);
      case 'Error':
        return this.#error(object as Error);
      case 'ArrayBuffer':
        return this.#view(object as ArrayBuffer);
      case 'Number':
      case 'String':
      case 'Boolean':
      case 'BigInt':
        this.#put(`{"$boxed":["${classOf(object)}",`);
        this.#value(object.valueOf());
        return this.#put(']}');
      default:
        return this.#properties(object, Object.keys(object));
    }
  }

  #list<T>(start: string, items: Iterable<T>, write: (item: T) => void, end: string): void {
    let separator = start;
    for (const item of items) {
      this.#put(separator);
      write(item);
      separator = ',';
    }
    this.#put(separator === start ? start + end : end);
  }

  #properties(object: object, names: readonly string[]): void {
    const values = object as { readonly [name: string]: unknown };
    const isText = names.every(isWellFormed);
    this.#list(
      isText ? '{' : '{"$object":[',
      names,
      (name) => {
        this.#put(isText ? `${JSON.stringify(name.startsWith('$') ? `$${name}` : name)}:` : `[${showText(name)},`);
        this.#value(values[name]);
        if (!isText) this.#put(']');
      },
      isText ? '}' : ']}',
    );
  }

  #array(array: readonly unknown[]): void {
    const { length } = array;
    // Listing the names of the elements takes several times as long.
    const isDense = Object.values(array).length === length && !hasHole(array);
    const names = isDense ? [] : Object.keys(array);
    const named = names.filter((name) => !isIndex(name));
    const isSparse = !isDense && length - (names.length - named.length) > MAX_HOLES;
    if (named.length === 0 && !isSparse) return this.#elements(array);
    this.#put('{"$array":[');
    if (isSparse) this.#put(String(length));
    else this.#elements(array);
    this.#put(',');
    this.#properties(array, isSparse ? names : named);
    this.#put(']}');
  }

  #elements(array: readonly unknown[]): void {
    this.#list(
      '[',
      array.keys(),
      (at) => {
        if (at in array) this.#value(array[at]);
        else this.#put('{"$hole":true}');
      },
      ']',
    );
  }

  #error(error: Error): void {
    this.#put(`{"$error":{"name":${showText(error.name)}`);
    for (const part of ['message', 'stack', 'cause'] as const) {
      if (!Object.hasOwn(error, part) || (part !== 'cause' && error[part] === undefined)) continue;
      this.#put(`,"${part}":`);
      this.#value(error[part]);
    }
    this.#put('}}');
  }

  #view(object: ArrayBuffer | ArrayBufferView): void {
    this.#shown.push({ object, ordinal: this.#ordinals.size - 1, piece: this.#pieces.length });
    this.#put('');
  }

  /** The first object that has a buffer holds its bytes, and the others name it. */
  #fillBuffers(): void {
    const first = new Map<ArrayBufferLike, Shown>();
    const shared = new Set<ArrayBufferLike>();
    for (const shown of this.#shown) {
      const buffer = bufferOf(shown.object);
      if (first.has(buffer)) shared.add(buffer);
      else first.set(buffer, shown);
    }
    for (const shown of this.#shown) {
      const { object, ordinal, piece } = shown;
      const buffer = bufferOf(object);
      const holder = first.get(buffer) as Shown;
      const name = classOf(object);
      const content = shared.has(buffer) && holder.ordinal !== ordinal ? holder.ordinal : undefined;
      if (!ArrayBuffer.isView(object)) {
        this.#pieces[piece] = `{"$buffer":["ArrayBuffer",${content ?? `"${toBase64(new Uint8Array(buffer))}"`}]}`;
      } else if (shared.has(buffer)) {
        this.#pieces[piece] =
          `{"$buffer":["${name}",${content ?? `"${toBase64(new Uint8Array(buffer))}"`},${object.byteOffset},${object.byteLength}]}`;
      } else {
        const bytes = toBase64(new Uint8Array(buffer, object.byteOffset, object.byteLength));
        this.#pieces[piece] = name === 'Uint8Array' ? `{"$bytes":"${bytes}"}` : `{"$buffer":["${name}","${bytes}"]}`;
      }
    }
  }
}

function hasHole(array: readonly unknown[]): boolean {
  for (let at = 0; at < array.length; at++) if (array[at] === undefined && !(at in array)) return true;
  return false;
}

/** Encodes a value as tagged JSON. */
export function toForm(value: unknown): string {
  return new Writer().write(value);
}
