// Reading and writing the bytes of records and rows.
import { TextDecoder, TextEncoder } from 'mangrove-kv/internal';
import { KvError } from 'mangrove-kv';

const utf8Encoder = new TextEncoder();
const utf8Decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

interface Buffer {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly view: DataView;
}

const bufferOf = (length: number): Buffer => {
  const bytes = new Uint8Array(length);
  return { bytes, view: new DataView(bytes.buffer) };
};

/** Buffer of a sink that is done, for the next one: rows and stamps are small and many. */
let spare: Buffer | undefined;
const MAX_SPARE = 1 << 16;

/** Not to be used after `done`. */
export class ByteSink {
  #buffer = spare ?? bufferOf(256);
  #length = 0;

  constructor() {
    spare = undefined;
  }

  get length(): number {
    return this.#length;
  }

  u8(value: number): this {
    this.#room(1);
    this.#buffer.bytes[this.#length++] = value;
    return this;
  }

  u64(value: bigint): this {
    this.#room(8);
    this.#buffer.view.setBigUint64(this.#length, value);
    this.#length += 8;
    return this;
  }

  /** LEB128 of a whole number up to 2^53 - 1. */
  uv(value: number): this {
    let rest = value;
    for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) this.u8((rest % 0x80) | 0x80);
    return this.u8(rest);
  }

  raw(bytes: Uint8Array): this {
    this.#room(bytes.length);
    this.#buffer.bytes.set(bytes, this.#length);
    this.#length += bytes.length;
    return this;
  }

  bytes(bytes: Uint8Array): this {
    return this.uv(bytes.length).raw(bytes);
  }

  text(text: string): this {
    return this.bytes(utf8Encoder.encode(text));
  }

  /** What there is so far, until the next call. */
  view(): Uint8Array {
    return this.#buffer.bytes.subarray(0, this.#length);
  }

  done(): Uint8Array<ArrayBuffer> {
    this.#release();
    return this.#buffer.bytes.slice(0, this.#length);
  }

  /** CRC-32C of what there is; the sink is done. */
  checksum(): number {
    this.#release();
    return crc32c(this.view());
  }

  #release(): void {
    if (this.#buffer.bytes.length <= MAX_SPARE) spare = this.#buffer;
  }

  #room(more: number): void {
    if (this.#length + more <= this.#buffer.bytes.length) return;
    const larger = bufferOf(Math.max(this.#buffer.bytes.length * 2, this.#length + more));
    larger.bytes.set(this.#buffer.bytes);
    this.#buffer = larger;
  }
}

/** Reads what a `ByteSink` wrote; what ends early is KV_CORRUPT. */
export class ByteSource {
  readonly #bytes: Uint8Array;
  #view: DataView | undefined;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get left(): number {
    return this.#bytes.length - this.#at;
  }

  u8(): number {
    this.#need(1);
    return this.#bytes[this.#at++] as number;
  }

  u64(): bigint {
    this.#need(8);
    this.#view ??= new DataView(this.#bytes.buffer, this.#bytes.byteOffset, this.#bytes.length);
    this.#at += 8;
    return this.#view.getBigUint64(this.#at - 8);
  }

  uv(): number {
    let value = 0;
    for (let scale = 1; ; scale *= 0x80) {
      const byte = this.u8();
      value += (byte & 0x7f) * scale;
      if (!Number.isSafeInteger(value))
        throw new KvError('KV_CORRUPT', 'a number in a replication record is out of range');
      if (byte < 0x80) return value;
    }
  }

  /** A view. */
  raw(length: number): Uint8Array {
    this.#need(length);
    this.#at += length;
    return this.#bytes.subarray(this.#at - length, this.#at);
  }

  #need(length: number): void {
    if (length > this.left) throw new KvError('KV_CORRUPT', 'a replication record ends early');
  }

  /** A copy. */
  bytes(): Uint8Array<ArrayBuffer> {
    return this.raw(this.uv()).slice();
  }

  text(): string {
    const length = this.uv();
    try {
      return utf8Decoder.decode(this.raw(length));
    } catch (cause) {
      throw new KvError('KV_CORRUPT', 'a name in a replication record is not UTF-8', { cause });
    }
  }

  /** Everything that is left, as a view. */
  rest(): Uint8Array {
    return this.raw(this.left);
  }
}

export function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const length = Math.min(a.length, b.length);
  for (let at = 0; at < length; at++) if (a[at] !== b[at]) return (a[at] as number) - (b[at] as number);
  return a.length - b.length;
}

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, index) => {
  let crc = index;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
  return crc;
});

/** CRC-32C of bytes, or of what has the checksum `before` and these bytes after it. */
export function crc32c(bytes: Uint8Array, before = 0): number {
  let crc = ~before;
  for (let at = 0; at < bytes.length; at++)
    crc = (crc >>> 8) ^ (CRC_TABLE[(crc ^ (bytes[at] as number)) & 0xff] as number);
  return (crc ^ 0xffff_ffff) >>> 0;
}

/** The parts after one another, in bytes of their own. */
export function concat(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

export const toHex = (id: bigint): string => id.toString(16).padStart(16, '0');
export const fromHex = (text: string): bigint => BigInt(`0x${text}`);

export const toHexBytes = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
export const fromHexBytes = (text: string): Uint8Array<ArrayBuffer> =>
  Uint8Array.from({ length: text.length / 2 }, (_, at) => Number.parseInt(text.slice(2 * at, 2 * at + 2), 16));
