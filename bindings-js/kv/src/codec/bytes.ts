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
