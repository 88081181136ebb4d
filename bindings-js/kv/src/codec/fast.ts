// What the package's own codecs offer in addition to their public methods: encoding into a buffer
// and decoding part of one.

/**
 * Fast paths of one codec. Neither runs foreign code, so the buffers cannot change during a call.
 */
export interface FastCodec<T> {
  /**
   * Encodes into `out` from `at` up to `end` at most; returns the end of the output, or -1 if only
   * `encode` can encode the value.
   */
  put(value: T, out: Uint8Array, at: number, end: number): number;
  /** Same as `decode`, for part of a buffer; the result shares no memory with `bytes`. */
  read(bytes: Uint8Array, from: number, to: number): T;
}

/** Keyed by the codec itself: a codec derived from another has methods of its own. */
const fastCodecs = new WeakMap<object, unknown>();

/** Registers the codec's fast paths; returns the codec. */
export function withFast<T, C extends { encode(value: T): Uint8Array; decode(bytes: Uint8Array): T }>(codec: C, fast: FastCodec<T>): C {
  fastCodecs.set(codec, fast);
  return codec;
}

export function fastOf<T>(codec: { encode(value: T): Uint8Array; decode(bytes: Uint8Array): T }): FastCodec<T> | undefined {
  return fastCodecs.get(codec) as FastCodec<T> | undefined;
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
    const a = bytes[at]!, b = bytes[at + 1]!, c = bytes[at + 2]!, d = bytes[at + 3]!;
    const e = bytes[at + 4]!, f = bytes[at + 5]!, g = bytes[at + 6]!, h = bytes[at + 7]!;
    if ((a | b | c | d | e | f | g | h) >= 0x80) return undefined;
    text += fromCharCode(a, b, c, d, e, f, g, h);
  }
  // Each concatenation creates a string: the fewer the better.
  if (at + 4 <= to) {
    const a = bytes[at]!, b = bytes[at + 1]!, c = bytes[at + 2]!, d = bytes[at + 3]!;
    if ((a | b | c | d) >= 0x80) return undefined;
    text += fromCharCode(a, b, c, d);
    at += 4;
  }
  const left = to - at;
  if (left === 0) return text;
  const a = bytes[at]!, b = left > 1 ? bytes[at + 1]! : 0, c = left > 2 ? bytes[at + 2]! : 0;
  if ((a | b | c) >= 0x80) return undefined;
  return text + (left === 1 ? fromCharCode(a) : left === 2 ? fromCharCode(a, b) : fromCharCode(a, b, c));
}

/** Bytes, unchanged. */
export const bytesFast: FastCodec<Uint8Array> = {
  put(value, out, at, end) {
    // Arrays and buffers of another realm take the slow path.
    if (!(value instanceof Uint8Array) || at + value.length > end) return -1;
    out.set(value, at);
    return at + value.length;
  },
  read: (bytes, from, to) => bytes.slice(from, to),
};
