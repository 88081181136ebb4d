// The engine's binary protocol: requests out, replies in. `u8` is a byte, `uv` an unsigned LEB128,
// `bytes` a `uv` length and that many bytes, `str` the `bytes` of UTF-8 text.
import { TextDecoder, TextEncoder } from '../base/platform.ts';
import { KvError } from '../base/errors.ts';
import type { FastCodec } from '../codec/fast.ts';
import type { KvErrorCode } from '../base/errors.ts';
import { fromPlain } from '../base/plain-error.ts';
import type { PlainError } from '../base/plain-error.ts';
import { decodePart } from './codecs.ts';
import type { Decoder } from './codecs.ts';
import { ErrorFlag, RangeFlag } from './opcodes.ts';

/** A range of encoded keys. */
export interface ByteRange {
  readonly lower?: Uint8Array | undefined;
  readonly lowerExclusive?: boolean;
  readonly upper?: Uint8Array | undefined;
  readonly upperExclusive?: boolean;
}

/** Placeholder in an error's message for a key that follows the message. */
const KEY_PLACE = '\0';

const MIN_CAPACITY = 1024;
/** A larger buffer is not reused for the next message. */
const MAX_KEPT_CAPACITY = 4 << 20;
/** The engine's memory ends at 4 GiB and holds several copies of a request. */
const MAX_REQUEST_BYTES = 512 << 20;
const textEncoder = new TextEncoder();
const textDecoder = new TextDecoder();

/** Bytes reserved before a fast codec encodes; it may use all spare capacity. */
const ENCODED_ROOM = 512;
/** Largest number that two bytes of LEB128 hold. */
const MAX_TWO_BYTES = (1 << 14) - 1;

/** Collects the requests of one message. */
export class RequestWriter {
  #bytes = new Uint8Array(MIN_CAPACITY);
  #length = 0;
  /** Where the last request begins. */
  #start = 0;

  get length(): number {
    return this.#length;
  }

  /** A view of what was written; holds until the next write. */
  view(): Uint8Array<ArrayBuffer> {
    return this.#bytes.subarray(0, this.#length);
  }

  /** Begins the next message. With `surrender`, the holder of the view owns the buffer. */
  reset(surrender: boolean): void {
    if (surrender || this.#bytes.length > MAX_KEPT_CAPACITY) this.#bytes = new Uint8Array(MIN_CAPACITY);
    this.#length = this.#start = 0;
  }

  /** Begins a request, which the limit applies to; returns its place. */
  begin(): number {
    return (this.#start = this.#length);
  }

  /** Discards what was written beyond `length`. */
  truncate(length: number): void {
    this.#length = length;
  }

  u8(value: number): this {
    this.#reserve(1);
    this.#bytes[this.#length++] = value;
    return this;
  }

  uv(value: number): this {
    if (value < 0x80) return this.u8(value);
    this.#reserve(8);
    let rest = value;
    // Shifts would truncate the number to 32 bits.
    while (rest >= 0x80) {
      this.#bytes[this.#length++] = (rest % 0x80) | 0x80;
      rest = Math.floor(rest / 0x80);
    }
    this.#bytes[this.#length++] = rest;
    return this;
  }

  bytes(bytes: Uint8Array): this {
    return this.uv(bytes.length).raw(bytes);
  }

  /**
   * Writes the value's encoding as `bytes`. Returns false, having written nothing, if there is no
   * fast codec or it cannot encode this value in place.
   */
  encoded<T>(fast: FastCodec<T> | undefined, value: T): boolean {
    if (fast === undefined) return false;
    this.#reserve(ENCODED_ROOM);
    const start = this.#length + 2;
    const end = fast.put(value, this.#bytes, start, Math.min(this.#bytes.length, start + MAX_TWO_BYTES));
    if (end < 0) return false;
    // The length takes two bytes even if one would do: its place was left before encoding.
    this.#bytes[start - 2] = (end - start) | 0x80;
    this.#bytes[start - 1] = (end - start) >> 7;
    this.#length = end;
    return true;
  }

  /** Writes bytes without a length. */
  raw(bytes: Uint8Array): this {
    this.#reserve(bytes.length);
    this.#bytes.set(bytes, this.#length);
    this.#length += bytes.length;
    return this;
  }

  str(text: string): this {
    return this.bytes(textEncoder.encode(text));
  }

  range(range: ByteRange): this {
    const { lower, upper } = range;
    this.u8(
      (lower ? RangeFlag.hasLower : 0) |
        (lower && range.lowerExclusive ? RangeFlag.lowerExclusive : 0) |
        (upper ? RangeFlag.hasUpper : 0) |
        (upper && range.upperExclusive ? RangeFlag.upperExclusive : 0),
    );
    if (lower) this.bytes(lower);
    if (upper) this.bytes(upper);
    return this;
  }

  #reserve(more: number): void {
    const needed = this.#length + more;
    if (needed <= this.#bytes.length) return;
    const most = this.#start + MAX_REQUEST_BYTES;
    if (needed > most) {
      throw new KvError('KV_VALUE_TOO_LARGE', `one call may write at most ${MAX_REQUEST_BYTES >> 20} MiB`);
    }
    const grown = new Uint8Array(Math.min(Math.max(needed, this.#bytes.length * 2), most));
    grown.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = grown;
  }
}

/** Reads the replies of one message. */
export class ReplyReader {
  readonly #bytes: Uint8Array;
  /** Where the next read is. */
  at = 0;
  /** Set when a read went past the message's end; the rest of the message is meaningless then. */
  isBroken = false;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.at >= this.#bytes.length;
  }

  u8(): number {
    if (this.at >= this.#bytes.length) throw this.#broken();
    return this.#bytes[this.at++]!;
  }

  uv(): number {
    const first = this.u8();
    if (first < 0x80) return first;
    let value = first & 0x7f;
    let scale = 0x80;
    for (;;) {
      const byte = this.u8();
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
      scale *= 0x80;
    }
  }

  /**
   * A view of the message. Copy what outlives a reply in the engine's memory
   * (`Connection.requestNow`); other replies have a buffer of their own.
   */
  bytes(): Uint8Array {
    const length = this.uv();
    const end = this.at + length;
    if (end > this.#bytes.length) throw this.#broken();
    const bytes = this.#bytes.subarray(this.at, end);
    this.at = end;
    return bytes;
  }

  /** A reader of the next `length` bytes, which this reader skips. */
  fork(length: number): ReplyReader {
    const start = this.at;
    this.at += length;
    if (this.at > this.#bytes.length) throw this.#broken();
    return new ReplyReader(this.#bytes.subarray(start, this.at));
  }

  /** Reads `bytes` and decodes them by `decodePart`, without an intermediate view. */
  decoded<T>(what: 'key' | 'value', codec: Decoder<T>, fast: FastCodec<T> | undefined): T {
    const length = this.uv();
    const start = this.at;
    const end = start + length;
    if (end > this.#bytes.length) throw this.#broken();
    this.at = end;
    return decodePart(what, codec, fast, this.#bytes, start, end);
  }

  optional(): Uint8Array | undefined {
    return this.u8() === 0 ? undefined : this.bytes();
  }

  str(): string {
    return textDecoder.decode(this.bytes());
  }

  /**
   * Reads the error that takes the place of a result. `keyText` renders a key for its message; an
   * index key has no collection.
   */
  failure(keyText: (collection: string | undefined, key: Uint8Array) => string): PlainError {
    const code = this.str() as KvErrorCode;
    const message = this.str();
    const flags = this.u8();
    const retryable = (flags & ErrorFlag.retryable) !== 0;
    if ((flags & ErrorFlag.hasKeys) === 0) return { code, message, retryable };
    const collection = this.str();
    const texts = this.u8() === 0 ? [] : [keyText(undefined, this.bytes())];
    for (let left = this.uv(); left > 0; left--) texts.push(keyText(collection, this.bytes()));
    return { code, message: message.replaceAll(KEY_PLACE, () => texts.shift() ?? ''), retryable };
  }

  /** As `failure`, for requests whose errors name no key. */
  error(): KvError {
    return fromPlain(this.failure((_, key) => String(key)));
  }

  #broken(): KvError {
    this.isBroken = true;
    return new KvError('KV_IO', 'the reply of the engine is incomplete');
  }
}

/** The body of a request that only the lazy part of the engine's module decodes. */
export function bodyOf(op: number, write: (body: RequestWriter) => unknown): Uint8Array {
  const body = new RequestWriter();
  write(body.u8(op));
  return body.view();
}
