import { TextEncoder } from '../base/platform.ts';
import { KvError } from '../base/errors.ts';
import { ByteWriter, putAscii, putUtf8, utf8Length } from './bytes.ts';
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
import { findShared } from './cbor-views.ts';
import type { SharedBytes, StoredView } from './cbor-views.ts';
import { Refusal, classNameOf, within } from './refusal.ts';

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

/**
 * Calls a built-in class's own method, which checks what the object really is: any object may call
 * itself a Map.
 */
function byBrand<T>(method: (this: never) => T, value: object): T {
  try {
    return method.call(value as never);
  } catch (error) {
    throw new Refusal(`an object that calls itself ${tagOf(value)} but is not one`, error);
  }
}

function bytesOf(buffer: ArrayBuffer, offset?: number, length?: number): Uint8Array {
  try {
    return new Uint8Array(buffer, offset, length);
  } catch (error) {
    throw new Refusal('a detached buffer', error);
  }
}

function isWellFormed(text: string): boolean {
  return !/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/.test(text);
}

/** UTF-8, but lone surrogates are encoded like any other code point. */
function wtf8(text: string): Uint8Array {
  const bytes: number[] = [];
  for (const character of text) {
    const code = character.codePointAt(0)!;
    if (code >= 0xd800 && code <= 0xdfff)
      bytes.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f));
    else bytes.push(...textEncoder.encode(character));
  }
  return Uint8Array.from(bytes);
}

function viewName(view: ArrayBufferView): string {
  return typedArrayName.call(view) ?? 'DataView';
}

/** Whether a property of an array is one of its elements. */
function isIndex(name: string): boolean {
  const index = Number(name);
  return index >>> 0 === index && index !== 0xffff_ffff && String(index) === name;
}

/** Up to this many objects are searched linearly. */
const FEW_OBJECTS = 8;
/** An array with more holes than this is stored by its properties. */
const MAX_HOLES = 1 << 24;

class CborEncoder {
  private readonly out = new ByteWriter(4096);
  /**
   * Objects in the order in which they begin. The map of their ordinals is created only when there
   * are many, so that small values need none.
   */
  private readonly seen: object[] = [];
  private places: Map<object, number> | undefined;
  private readonly views: StoredView[] = [];
  private depth = 0;
  private isStrict = false;

  encode(value: unknown, isStrict: boolean): Uint8Array {
    this.out.length = 0;
    this.depth = 0;
    this.isStrict = isStrict;
    try {
      this.value(value);
      if (this.views.length > 1) this.share();
      return this.out.copy();
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const what = error.where === '' ? error.what : `${error.what} at ${error.where}`;
      const { cause } = error;
      throw new KvError(
        'KV_INVALID_VALUE',
        `${what} cannot be stored${isStrict ? ' with strict values' : ''}; keep plain data, or use a value codec of your own, or blob() for Blobs`,
        cause === undefined ? {} : { cause },
      );
    } finally {
      // Retain neither a large buffer nor the objects.
      this.seen.length = 0;
      this.places = undefined;
      this.views.length = 0;
      if (this.out.bytes.length > 1 << 20) {
        this.out.bytes = new Uint8Array(4096);
        this.out.view = new DataView(this.out.bytes.buffer);
      }
    }
  }

  private head(major: number, value: number): void {
    const { out } = this;
    out.reserve(9);
    const { bytes, length } = out;
    const type = major << 5;
    if (value < 24) {
      bytes[length] = type | value;
      out.length = length + 1;
    } else if (value < 0x100) {
      bytes[length] = type | 24;
      bytes[length + 1] = value;
      out.length = length + 2;
    } else if (value < 0x1_0000) {
      bytes[length] = type | 25;
      bytes[length + 1] = value >> 8;
      bytes[length + 2] = value;
      out.length = length + 3;
    } else if (value < 0x1_0000_0000) {
      bytes[length] = type | 26;
      out.length = length + 1;
      out.u32(value);
    } else {
      bytes[length] = type | 27;
      out.length = length + 1;
      out.u32(Math.floor(value / 0x1_0000_0000));
      out.u32(value >>> 0);
    }
  }

  private value(value: unknown): void {
    switch (typeof value) {
      case 'string':
        return this.string(value);
      case 'number':
        return this.number(value);
      case 'boolean':
        return this.out.byte(value ? TRUE : FALSE);
      case 'undefined':
        return this.out.byte(UNDEFINED);
      case 'bigint':
        return this.bigint(value);
      case 'object':
        return value === null ? this.out.byte(NULL) : this.reference(value);
      default:
        throw new Refusal(`a ${typeof value}`);
    }
  }

  private number(value: number): void {
    if (Number.isSafeInteger(value) && !Object.is(value, -0)) {
      if (value >= 0) this.head(0, value);
      else this.head(1, -1 - value);
      return;
    }
    const { out } = this;
    out.reserve(9);
    const { bytes, view, length } = out;
    if (Object.is(Math.fround(value), value)) {
      bytes[length] = FLOAT32;
      view.setFloat32(length + 1, value);
      out.length = length + 5;
    } else {
      bytes[length] = FLOAT64;
      view.setFloat64(length + 1, value);
      out.length = length + 9;
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
      const size = utf8Length(text);
      if (size >= 0) {
        out.reserve(size + 2);
        this.head(3, size);
        out.length = putUtf8(text, out.bytes, out.length);
        return;
      }
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
    // The length is known only after encoding, so the text is written after space for the longest
    // head and then moved.
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
    for (let index = 0; index < digits.length; index += 2)
      this.out.byte(Number.parseInt(digits.slice(index, index + 2), 16));
  }

  /** Writes an object once, and its ordinal from then on. */
  private reference(value: object): void {
    const ordinal = this.ordinalOf(value);
    if (ordinal >= 0) {
      this.head(6, TAG_REFERENCE);
      this.head(0, ordinal);
      return;
    }
    this.places?.set(value, this.seen.length);
    this.seen.push(value);
    if (++this.depth > MAX_DEPTH) throw new Refusal(`a value nested more than ${MAX_DEPTH} deep`);
    if (this.isStrict) this.checkClass(value);
    if (Array.isArray(value)) this.array(value);
    else this.object(value);
    this.depth--;
  }

  /** Compares names, because another realm has classes of its own. */
  private checkClass(value: object): void {
    if (Object.getPrototypeOf(value) === null) return;
    const made = classNameOf(value);
    const kept = ArrayBuffer.isView(value) ? viewName(value) : Array.isArray(value) ? 'Array' : tagOf(value);
    if (made === kept || (kept === 'Error' && ERROR_NAMES.includes(made))) return;
    throw new Refusal(made === '' ? 'an object with a prototype of its own' : `an instance of ${made}`);
  }

  /** Negative if the object was not seen yet. */
  private ordinalOf(value: object): number {
    const { seen } = this;
    if (seen.length <= FEW_OBJECTS) return seen.indexOf(value);
    this.places ??= new Map(seen.map((object, place) => [object, place]));
    return this.places.get(value) ?? -1;
  }

  private array(value: readonly unknown[]): void {
    const { length } = value;
    if (!(Number.isInteger(length) && length >= 0 && length <= 0xffff_ffff))
      throw new Refusal('an array with an invalid length');
    const { out, seen, views } = this;
    const before = [out.length, seen.length, views.length] as const;
    // Listing the names of the elements takes several times as long.
    if (Object.values(value).length === length && this.elements(value, length, true)) return;
    // With as many holes as named properties, the count above matches: undo what was written.
    [out.length, seen.length, views.length] = before;
    this.places = undefined;
    const names = Object.keys(value);
    let count = names.length;
    while (count > 0 && !isIndex(names[count - 1]!)) count--;
    const isSparse = length - count > MAX_HOLES;
    if (count === names.length && !isSparse) {
      this.elements(value, length, false);
      return;
    }
    this.named('Array', 2);
    if (isSparse) this.head(0, length);
    else this.elements(value, length, false);
    this.properties(value as unknown as Record<string, unknown>, isSparse ? names : names.slice(count));
  }

  /** Writes the elements. With `isDense` it stops at the first hole and returns false. */
  private elements(value: readonly unknown[], length: number, isDense: boolean): boolean {
    // A getter among the elements may change the array; the length that was written stays valid.
    this.head(4, length);
    let index = 0;
    try {
      for (; index < length; index++) {
        const element = value[index];
        if (element !== undefined || index in value) this.value(element);
        else if (isDense) return false;
        else this.out.byte(HOLE);
      }
    } catch (error) {
      throw within(`[${index}]`, error);
    }
    return true;
  }

  private object(value: object): void {
    if (ArrayBuffer.isView(value)) return this.view(value);
    const tag = toString.call(value);
    // The common case is decided without extracting the tag.
    if (tag === '[object Object]') return this.properties(value as Record<string, unknown>, Object.keys(value));
    switch (tag.slice(8, -1)) {
      case 'Date':
        return this.date(byBrand(Date.prototype.getTime, value));
      case 'Map':
        return this.map([...byBrand(Map.prototype.entries, value)]);
      case 'Set':
        return this.set([...byBrand(Set.prototype.values, value)]);
      case 'RegExp':
        // A copy has the flags with which the original was created, whatever its `flags` property
        // says.
        return this.regExp(byBrand(sourceOf, value), new RegExp(value as RegExp).flags);
      case 'Error':
        return this.error(value as Error);
      case 'ArrayBuffer':
        byBrand(bufferLength, value);
        return this.buffer('ArrayBuffer', bytesOf(value as ArrayBuffer));
      case 'Number':
      case 'String':
      case 'Boolean':
      case 'BigInt': {
        const name = tagOf(value) as keyof typeof BOXES;
        const content = byBrand(BOXES[name].prototype.valueOf as (this: never) => unknown, value);
        this.named(name, 1);
        return this.value(content);
      }
      default:
        throw new Refusal(`an object of class ${tagOf(value)}`);
    }
  }

  private regExp(source: string, flags: string): void {
    this.head(6, TAG_REGEXP);
    this.head(4, 2);
    this.string(source);
    this.string(flags);
  }

  /**
   * CBOR counts seconds, which cannot represent every millisecond far from 1970; such dates are
   * written in milliseconds.
   */
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

  private properties(value: Record<string, unknown>, names: readonly string[]): void {
    this.head(5, names.length);
    let name = '';
    try {
      for (name of names) {
        this.string(name);
        this.value(value[name]);
      }
    } catch (error) {
      throw within(
        isIndex(name)
          ? `[${name}]`
          : /^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(name)
            ? `.${name}`
            : `[${JSON.stringify(name)}]`,
        error,
      );
    }
  }

  private map(entries: readonly (readonly [unknown, unknown])[]): void {
    this.head(6, TAG_MAP);
    this.head(5, entries.length);
    let at = 0;
    try {
      for (; at < 2 * entries.length; at++) this.value(entries[at >> 1]![at & 1]);
    } catch (error) {
      throw within(`.entries()[${at >> 1}][${at & 1}]`, error);
    }
  }

  private set(elements: readonly unknown[]): void {
    this.head(6, TAG_SET);
    try {
      this.elements(elements, elements.length, false);
    } catch (error) {
      throw within('.values()', error);
    }
  }

  /** Writes the head of `[class name, ...arguments]`. */
  private named(name: string, argumentCount: number): void {
    this.head(6, TAG_OBJECT);
    this.head(4, argumentCount + 1);
    this.string(name);
  }

  private error(value: Error): void {
    // Each property is read once, because a getter may return something else the next time.
    const { name, stack } = value;
    const hasCause = Object.hasOwn(value, 'cause');
    this.named(ERROR_NAMES.includes(name) ? name : 'Error', hasCause ? 3 : 2);
    this.value(Object.hasOwn(value, 'message') ? String(value.message) : undefined);
    this.value(typeof stack === 'string' ? stack : undefined);
    if (!hasCause) return;
    try {
      this.value(value.cause);
    } catch (error) {
      throw within('.cause', error);
    }
  }

  private view(value: ArrayBufferView): void {
    if (tagOf(value.buffer) !== 'ArrayBuffer') throw new Refusal('a view of shared memory');
    this.buffer(viewName(value), bytesOf(value.buffer as ArrayBuffer, value.byteOffset, value.byteLength));
  }

  /** Writes the bytes of a single view or buffer. */
  private buffer(name: string, bytes: Uint8Array): void {
    const { out } = this;
    const from = out.length;
    const tag = TYPED_ARRAY_TAGS[name];
    if (tag !== undefined) this.head(6, tag);
    else if (name === 'DataView' || name === 'ArrayBuffer') this.named(name, 1);
    else if (name !== 'Uint8Array') throw new Refusal(`an object of class ${name}`);
    this.bytes(bytes);
    const { buffer, byteOffset: start } = bytes;
    this.views.push({
      name,
      buffer,
      start,
      end: start + bytes.length,
      ordinal: this.seen.length - 1,
      from,
      to: out.length,
    });
  }

  /**
   * Rewrites views that share bytes: the first stores all of them, the others refer to parts of it.
   */
  private share(): void {
    const { out, views } = this;
    const shared = findShared(views);
    if (shared.size === 0) return;
    const before = out.copy();
    let copied = 0;
    out.length = 0;
    for (const view of views) {
      const bytes = shared.get(view);
      if (bytes === undefined) continue;
      out.raw(before.subarray(copied, view.from));
      copied = view.to;
      const [first] = bytes.views as [StoredView];
      const isView = view.name !== 'ArrayBuffer';
      this.named(view.name, isView ? 3 : 1);
      if (view === first) this.bytes(together(bytes, before));
      else this.head(0, first.ordinal);
      if (isView) {
        this.head(0, view.start - bytes.start);
        this.head(0, view.end - view.start);
      }
    }
    out.raw(before.subarray(copied));
  }
}

/** Assembles the bytes of all views from the items that were written for each alone. */
function together({ views, start, end }: SharedBytes, items: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(end - start);
  for (const view of views) bytes.set(items.subarray(view.to - (view.end - view.start), view.to), view.start - start);
  return bytes;
}

const encoder = new CborEncoder();
/** Whether a value is being encoded; one of its getters may encode another value. */
let isEncoding = false;

function encode(value: unknown, isStrict: boolean): Uint8Array {
  if (value === undefined) {
    throw new KvError('KV_INVALID_VALUE', 'undefined cannot be stored, because it means no entry; null can');
  }
  if (isEncoding) return new CborEncoder().encode(value, isStrict);
  isEncoding = true;
  try {
    return encoder.encode(value, isStrict);
  } finally {
    isEncoding = false;
  }
}

export function encodeStructured(value: unknown): Uint8Array {
  return encode(value, false);
}

/** Refuses class instances, because their methods are not stored. */
export function encodeStrict(value: unknown): Uint8Array {
  return encode(value, true);
}

/** A CBOR head of one byte holds a number below this. */
const SMALL = 24;

/**
 * Fast path for non-negative integers and short ASCII strings, with the same output as the encoder.
 */
export function putStructured(value: unknown, out: Uint8Array, at: number, end: number): number {
  if (typeof value === 'number') {
    if (value >>> 0 !== value || Object.is(value, -0) || at + 5 > end) return -1;
    if (value < SMALL) {
      out[at] = value;
      return at + 1;
    }
    const size = value < 0x100 ? 1 : value < 0x1_0000 ? 2 : 4;
    out[at] = size === 4 ? 26 : 23 + size;
    for (let index = size, rest = value; index > 0; index--, rest >>>= 8) out[at + index] = rest;
    return at + 1 + size;
  }
  if (typeof value !== 'string' || at === end || value.length >= SMALL) return -1;
  out[at] = 0x60 | value.length;
  return putAscii(value, out, at + 1, end);
}
