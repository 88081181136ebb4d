// The bytes of a value that is written in parts, gathered into parts of one length.
import { isBytes } from '../codec/bytes.ts';
import { KvError } from '../base/errors.ts';

/** Where bytes come from: `undefined` at the end. */
interface Bytes {
  next(): Promise<Uint8Array | undefined>;
  /** Says that no more is read. */
  end(reason: unknown): void;
}

function ofBlob(blob: Blob, step: number): Bytes {
  let at = 0;
  return {
    async next() {
      if (at >= blob.size) return undefined;
      const part = blob.slice(at, at + step);
      at += step;
      return new Uint8Array(await part.arrayBuffer());
    },
    end() {},
  };
}

function ofReader(reader: ReadableStreamDefaultReader<Uint8Array>): Bytes {
  return {
    next: async () => (await reader.read()).value,
    end: (reason) => void reader.cancel(reason).catch(() => {}),
  };
}

function ofIterator(iterator: AsyncIterator<Uint8Array>): Bytes {
  return {
    async next() {
      const { done, value } = await iterator.next();
      return done === true ? undefined : value;
    },
    // A generator that is still running ends when it yields next.
    end: () => void iterator.return?.().catch(() => {}),
  };
}

function toBytes(stream: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>): Bytes {
  const given = stream as Partial<ReadableStream<Uint8Array> & AsyncIterable<Uint8Array>> | null | undefined;
  if (typeof given?.getReader === 'function') return ofReader(given.getReader());
  if (typeof given?.[Symbol.asyncIterator] === 'function') return ofIterator(given[Symbol.asyncIterator]!());
  throw new KvError('KV_INVALID_ARGUMENT', 'setStream takes a ReadableStream or an async iterable of Uint8Arrays');
}

/** Parts of `step` bytes, the last one shorter; it begins with a head. */
export class PartSource {
  readonly #bytes: Bytes;
  readonly #step: number;
  /** Read and in no part yet. */
  #waiting: Uint8Array[];
  #length: number;
  #isAtEnd = false;

  constructor(head: Uint8Array, bytes: Bytes, step: number) {
    this.#bytes = bytes;
    this.#step = step;
    this.#waiting = [head];
    this.#length = head.length;
  }

  static ofBlob(head: Uint8Array, blob: Blob, step: number): PartSource {
    return new PartSource(head, ofBlob(blob, step), step);
  }

  static ofStream(
    head: Uint8Array,
    stream: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>,
    step: number,
  ): PartSource {
    return new PartSource(head, toBytes(stream), step);
  }

  /** The next part; empty at the end. */
  async next(): Promise<Uint8Array<ArrayBuffer>> {
    await this.#gather(this.#step);
    return this.#take(Math.min(this.#step, this.#length));
  }

  /** All that is left, after a part that was taken. */
  async rest(part: Uint8Array): Promise<Uint8Array<ArrayBuffer>> {
    await this.#gather(Infinity);
    this.#waiting.unshift(part);
    this.#length += part.length;
    return this.#take(this.#length);
  }

  end(reason: unknown): void {
    if (!this.#isAtEnd) this.#bytes.end(reason);
  }

  async #gather(length: number): Promise<void> {
    while (this.#length < length && !this.#isAtEnd) {
      const bytes = await this.#bytes.next();
      if (bytes === undefined) {
        this.#isAtEnd = true;
      } else if (isBytes(bytes)) {
        this.#waiting.push(bytes);
        this.#length += bytes.length;
      } else {
        throw new KvError('KV_INVALID_VALUE', 'the stream has to consist of Uint8Arrays');
      }
    }
  }

  #take(length: number): Uint8Array<ArrayBuffer> {
    const taken = new Uint8Array(length);
    let at = 0;
    while (at < length) {
      const bytes = this.#waiting.shift()!;
      const part = bytes.subarray(0, length - at);
      taken.set(part, at);
      at += part.length;
      if (part.length < bytes.length) this.#waiting.unshift(bytes.subarray(part.length));
    }
    this.#length -= length;
    return taken;
  }
}
