// How a Blob is stored: a head, then the contents.
//
//   u8 1, the layout; uv length; JSON { type, name?, lastModified? } of that length; contents
//
// It is a File if it has a name.
import { TextDecoder, TextEncoder } from '../base/platform.ts';
import { KvError } from '../base/errors.ts';

/** What a Blob is besides its contents. */
export interface BlobHead {
  readonly type: string;
  readonly name?: string | undefined;
  readonly lastModified?: number | undefined;
}

/** A codec's `encode` gets this in place of a Blob, whose bytes cannot be read synchronously. */
export const ENCODED: unique symbol = Symbol.for('mangrove-kv.encoded') as never;

/** A value that is encoded already. */
export interface Encoded {
  readonly [ENCODED]: Uint8Array;
}

const LAYOUT = 1;
/** Values up to this length are stored by one message. */
export const MAX_WHOLE_BYTES = 256 << 10;
/** Longest head, so that one short read finds all of it. */
export const MAX_HEAD_BYTES = 4096;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Whether a value is a Blob or a File, of this realm or another one. */
export function isBlob(value: unknown): value is Blob {
  return /^\[object (?:Blob|File)\]$/.test(Object.prototype.toString.call(value));
}

/** What is stored of a Blob besides its contents. */
export function headOf(value: Blob): BlobHead {
  const { type, name, lastModified } = value as Blob & Partial<File>;
  return name === undefined ? { type } : { type, name, lastModified };
}

export function encodeHead(head: BlobHead): Uint8Array<ArrayBuffer> {
  const text = encoder.encode(JSON.stringify(head));
  // The length takes two bytes even if one would do.
  const bytes = new Uint8Array(3 + text.length);
  if (bytes.length > MAX_HEAD_BYTES) {
    throw new KvError('KV_INVALID_VALUE', `type and name of a Blob may take about ${MAX_HEAD_BYTES} bytes together`);
  }
  bytes.set([LAYOUT, (text.length & 0x7f) | 0x80, text.length >> 7]);
  bytes.set(text, 3);
  return bytes;
}

/** Reads the head at the beginning of a stored value; `length` is where the contents begin. */
export function decodeHead(bytes: Uint8Array): { readonly head: BlobHead; readonly length: number } {
  const length = 3 + ((bytes[1] ?? 0) & 0x7f) + ((bytes[2] ?? 0) << 7);
  try {
    if (bytes[0] !== LAYOUT || length > bytes.length) throw new Error('the head has another layout');
    const head = JSON.parse(decoder.decode(bytes.subarray(3, length))) as BlobHead;
    return { head: { ...head, type: String(head.type) }, length };
  } catch (error) {
    throw new KvError('KV_CORRUPT', 'a stored value is no Blob', { cause: error });
  }
}

/** Makes the Blob or File of a head and the contents. */
export function toBlob({ type, name, lastModified = 0 }: BlobHead, contents: BlobPart[]): Blob {
  return name === undefined ? new Blob(contents, { type }) : new File(contents, name, { type, lastModified });
}
