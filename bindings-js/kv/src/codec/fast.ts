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
export function withFast<T, C extends { encode(value: T): Uint8Array; decode(bytes: Uint8Array): T }>(
  codec: C,
  fast: FastCodec<T>,
): C {
  fastCodecs.set(codec, fast);
  return codec;
}

export function fastOf<T>(codec: {
  encode(value: T): Uint8Array;
  decode(bytes: Uint8Array): T;
}): FastCodec<T> | undefined {
  return fastCodecs.get(codec) as FastCodec<T> | undefined;
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
