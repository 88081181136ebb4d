// Messages as bytes of a stream: the length of what follows, the length of the JSON, the JSON, and the
// byte arrays that it refers to.
import { Buffer } from 'node:buffer';
import { KvError } from '../base/errors.ts';

/** A longer frame is refused. The longest is a request with one value of the longest kind. */
export const MAX_FRAME_BYTES = 1 << 30;
/** The first frame of a stream introduces a process that nobody knows yet. */
export const MAX_FIRST_FRAME_BYTES = 4 << 10;

const HEAD_BYTES = 8;
/** Property by which the JSON refers to a byte array, with its length as the value. */
const BYTES = '$bytes';

type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };

/** Returns the pieces of a frame. */
export function encodeFrame(message: object): Uint8Array[] {
  const arrays: Uint8Array[] = [];
  const json = JSON.stringify(message, (_, value: unknown) => {
    if (!(value instanceof Uint8Array)) return value;
    arrays.push(value);
    return { [BYTES]: value.length };
  });
  const text = Buffer.from(json);
  const head = Buffer.allocUnsafe(HEAD_BYTES + text.length);
  const bytes = arrays.reduce((sum, { length }) => sum + length, 0);
  head.writeUInt32LE(4 + text.length + bytes, 0);
  head.writeUInt32LE(text.length, 4);
  head.set(text, HEAD_BYTES);
  return [head, ...arrays];
}

function malformed(what: string): KvError {
  return new KvError('KV_INVALID_ARGUMENT', `a message of another process is malformed: ${what}`);
}

/** Decodes what follows the length of a frame. */
function decodeFrame(frame: Buffer): unknown {
  const length = frame.length < 4 ? Infinity : frame.readUInt32LE(0);
  if (length > frame.length - 4) throw malformed('its JSON is longer than the frame');
  let at = 4 + length;
  const revive = (value: Json): unknown => {
    if (value === null || typeof value !== 'object') return value;
    if (Array.isArray(value)) return value.map(revive);
    const { [BYTES]: count } = value as { readonly [BYTES]?: Json };
    if (count === undefined) return Object.fromEntries(Object.entries(value).map(([name, of]) => [name, revive(of)]));
    if (!Number.isInteger(count) || (count as number) < 0 || at + (count as number) > frame.length)
      throw malformed('a byte array is longer than the frame');
    // A copy, as the buffer holds other frames, too.
    const bytes = new Uint8Array(frame.subarray(at, at + (count as number)));
    at += bytes.length;
    return bytes;
  };
  let message: unknown;
  try {
    message = revive(JSON.parse(frame.toString('utf8', 4, at)) as Json);
  } catch (error) {
    // Not JSON, or nested deeper than the stack.
    throw error instanceof KvError ? error : malformed('it is not JSON of a message');
  }
  if (at !== frame.length) throw malformed('it is longer than its parts');
  return message;
}

/** Cuts a stream into frames. */
export class FrameReader {
  readonly #chunks: Buffer[] = [];
  #bytes = 0;
  /** Length of the next frame, once it is there. */
  #length: number | undefined;
  maxBytes = MAX_FIRST_FRAME_BYTES;

  /**
   * Takes bytes of the stream; returns the messages that they complete.
   *
   * @throws KvError KV_INVALID_ARGUMENT if the stream is malformed. It cannot be continued.
   */
  *read(chunk: Buffer): Generator<unknown, void> {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    for (;;) {
      this.#length ??= this.#bytes < 4 ? undefined : this.#take(4).readUInt32LE(0);
      if (this.#length === undefined) return;
      if (this.#length > this.maxBytes) throw malformed(`it has ${this.#length} bytes`);
      if (this.#bytes < this.#length) return;
      const frame = this.#take(this.#length);
      this.#length = undefined;
      yield decodeFrame(frame);
    }
  }

  #take(length: number): Buffer {
    let first = this.#chunks[0] ?? Buffer.alloc(0);
    // Once for each frame, however many chunks it came in.
    if (first.length < length) {
      first = Buffer.concat(this.#chunks.splice(0));
      this.#chunks.push(first);
    }
    this.#chunks[0] = first.subarray(length);
    if (this.#chunks[0].length === 0) this.#chunks.shift();
    this.#bytes -= length;
    return first.subarray(0, length);
  }
}
