// Bytes: what they are, a buffer that grows, and short strings in them.

/** Whether both are equal bytes, both null, or both undefined. */
export function isSame(a: Uint8Array | null | undefined, b: Uint8Array | null | undefined): boolean {
  return a === b || (a?.length === b?.length && a?.every((byte, index) => byte === b?.[index]) === true);
}

/** Whether it is a Uint8Array, of whichever realm: test environments such as Jest and jsdom have one of their own. */
export function isBytes(value: unknown): value is Uint8Array {
  return (
    value instanceof Uint8Array ||
    (ArrayBuffer.isView(value) && (value as Partial<Uint8Array>)[Symbol.toStringTag] === 'Uint8Array')
  );
}

/**
 * A growing buffer. Encoders reuse one and copy the result out, so a call allocates only what it
 * returns.
 */
export class ByteWriter {
  bytes: Uint8Array;
  view: DataView;
  length = 0;

  constructor(capacity: number) {
    this.bytes = new Uint8Array(capacity);
    this.view = new DataView(this.bytes.buffer);
  }

  /** Makes room for `count` more bytes. */
  reserve(count: number): void {
    if (this.length + count <= this.bytes.length) return;
    const grown = new Uint8Array(Math.max(this.bytes.length * 2, this.length + count));
    grown.set(this.bytes.subarray(0, this.length));
    this.bytes = grown;
    this.view = new DataView(grown.buffer);
  }

  byte(value: number): void {
    this.reserve(1);
    this.bytes[this.length++] = value;
  }

  u32(value: number): void {
    this.reserve(4);
    this.view.setUint32(this.length, value);
    this.length += 4;
  }

  f64(value: number): void {
    this.reserve(8);
    this.view.setFloat64(this.length, value);
    this.length += 8;
  }

  raw(bytes: Uint8Array): void {
    this.reserve(bytes.length);
    this.bytes.set(bytes, this.length);
    this.length += bytes.length;
  }

  /** Returns a copy of what was written. */
  copy(): Uint8Array {
    return this.bytes.slice(0, this.length);
  }
}

/** Up to this length a loop is faster than the platform's encoder and decoder. */
export const SHORT = 64;

/**
 * Writes a short ASCII string; returns the end of the output, or -1 if the text is anything else or
 * does not fit.
 */
export function putAscii(text: string, out: Uint8Array, at: number, end: number): number {
  const { length } = text;
  if (length > SHORT || at + length > end) return -1;
  for (let index = 0; index < length; index++) {
    const unit = text.charCodeAt(index);
    if (unit >= 0x80) return -1;
    out[at + index] = unit;
  }
  return at + length;
}

const { fromCharCode } = String;

/** Reads a short ASCII string; undefined if the bytes are anything else. */
export function readAscii(bytes: Uint8Array, from: number, to: number): string | undefined {
  if (to - from > SHORT) return undefined;
  let text = '';
  let at = from;
  for (; at + 8 <= to; at += 8) {
    const a = bytes[at]!,
      b = bytes[at + 1]!,
      c = bytes[at + 2]!,
      d = bytes[at + 3]!;
    const e = bytes[at + 4]!,
      f = bytes[at + 5]!,
      g = bytes[at + 6]!,
      h = bytes[at + 7]!;
    if ((a | b | c | d | e | f | g | h) >= 0x80) return undefined;
    text += fromCharCode(a, b, c, d, e, f, g, h);
  }
  // Each concatenation creates a string: the fewer the better.
  if (at + 4 <= to) {
    const a = bytes[at]!,
      b = bytes[at + 1]!,
      c = bytes[at + 2]!,
      d = bytes[at + 3]!;
    if ((a | b | c | d) >= 0x80) return undefined;
    text += fromCharCode(a, b, c, d);
    at += 4;
  }
  const left = to - at;
  if (left === 0) return text;
  const a = bytes[at]!,
    b = left > 1 ? bytes[at + 1]! : 0,
    c = left > 2 ? bytes[at + 2]! : 0;
  if ((a | b | c) >= 0x80) return undefined;
  return text + (left === 1 ? fromCharCode(a) : left === 2 ? fromCharCode(a, b) : fromCharCode(a, b, c));
}

/** Code units of the text that is being read. */
const units = new Array<number>(SHORT).fill(0);

function textOf(count: number): string {
  let text = '';
  let at = 0;
  for (; at + 8 <= count; at += 8) {
    text += fromCharCode(
      units[at]!,
      units[at + 1]!,
      units[at + 2]!,
      units[at + 3]!,
      units[at + 4]!,
      units[at + 5]!,
      units[at + 6]!,
      units[at + 7]!,
    );
  }
  if (at + 4 <= count) {
    text += fromCharCode(units[at]!, units[at + 1]!, units[at + 2]!, units[at + 3]!);
    at += 4;
  }
  for (; at < count; at++) text += fromCharCode(units[at]!);
  return text;
}

/** Reads short UTF-8; undefined if it is longer, or if the platform's decoder would refuse it. */
export function readUtf8(bytes: Uint8Array, from: number, to: number): string | undefined {
  const ascii = readAscii(bytes, from, to);
  if (ascii !== undefined || to - from > SHORT) return ascii;
  let count = 0;
  for (let at = from; at < to; ) {
    const first = bytes[at++]!;
    if (first < 0x80) {
      units[count++] = first;
      continue;
    }
    const second = at < to ? bytes[at++]! ^ 0x80 : 0xff;
    if (first < 0xe0) {
      if (first < 0xc2 || second > 0x3f) return undefined;
      units[count++] = ((first & 0x1f) << 6) | second;
      continue;
    }
    const third = at < to ? bytes[at++]! ^ 0x80 : 0xff;
    if ((second | third) > 0x3f) return undefined;
    if (first < 0xf0) {
      const code = ((first & 0x0f) << 12) | (second << 6) | third;
      if (code < 0x800 || (code >= 0xd800 && code <= 0xdfff)) return undefined;
      units[count++] = code;
      continue;
    }
    const fourth = at < to ? bytes[at++]! ^ 0x80 : 0xff;
    const code = ((first & 0x0f) << 18) | (second << 12) | (third << 6) | fourth;
    if (fourth > 0x3f || code < 0x1_0000 || code > 0x10_ffff) return undefined;
    units[count++] = 0xd7c0 + (code >> 10);
    units[count++] = 0xdc00 | (code & 0x3ff);
  }
  return textOf(count);
}

/** The length of a text in UTF-8; -1 if it has lone surrogates. */
export function utf8Length(text: string): number {
  let size = 0;
  for (let index = 0; index < text.length; index++) {
    const unit = text.charCodeAt(index);
    if (unit < 0x80) size++;
    else if (unit < 0x800) size += 2;
    else if (unit < 0xd800 || unit > 0xdfff) size += 3;
    else {
      // Past the end there is NaN, which is no low surrogate either.
      const low = text.charCodeAt(++index);
      if (unit > 0xdbff || !(low >= 0xdc00 && low <= 0xdfff)) return -1;
      size += 4;
    }
  }
  return size;
}

/** Writes a text without lone surrogates, for which there has to be room; returns the end of the output. */
export function putUtf8(text: string, out: Uint8Array, at: number): number {
  for (let index = 0; index < text.length; index++) {
    const unit = text.charCodeAt(index);
    if (unit < 0x80) {
      out[at++] = unit;
    } else if (unit < 0x800) {
      out[at++] = 0xc0 | (unit >> 6);
      out[at++] = 0x80 | (unit & 0x3f);
    } else if (unit < 0xd800 || unit > 0xdfff) {
      out[at++] = 0xe0 | (unit >> 12);
      out[at++] = 0x80 | ((unit >> 6) & 0x3f);
      out[at++] = 0x80 | (unit & 0x3f);
    } else {
      const code = 0x1_0000 + ((unit & 0x3ff) << 10) + (text.charCodeAt(++index) & 0x3ff);
      out[at++] = 0xf0 | (code >> 18);
      out[at++] = 0x80 | ((code >> 12) & 0x3f);
      out[at++] = 0x80 | ((code >> 6) & 0x3f);
      out[at++] = 0x80 | (code & 0x3f);
    }
  }
  return at;
}
