// A chunk of a scan: the items of one reply.
import { ScanFlag } from './opcodes.ts';
import type { ReplyReader } from './protocol.ts';

/** Reads the fields of one item and decodes it. */
export type DecodeItem<T> = (reader: ReplyReader) => T;

/** Which parts of an entry a scan returns, as `ScanFlag` bits. */
export const Content = {
  keys: ScanFlag.keys,
  values: ScanFlag.values,
  entries: ScanFlag.keys | ScanFlag.values,
  meta: ScanFlag.keys | ScanFlag.values | ScanFlag.meta,
} as const;

/** Limits of a chunk that is decoded at once. */
const FIRST_ITEMS = 32;
const MAX_ITEMS = 2048;
const BYTES = 64 << 10;
/** A scan with a limit up to this requests all its items in the first chunk. */
const MAX_SHORT_SCAN = 256;

export class Chunk<T> {
  /** Items not taken yet. */
  left: number;
  readonly isLast: boolean;
  readonly #reader: ReplyReader;
  readonly #decode: DecodeItem<T>;
  #items: T[] | undefined;
  #at = 0;

  private constructor(reader: ReplyReader, decode: DecodeItem<T>, keeps: boolean) {
    this.isLast = reader.u8() !== 0;
    this.left = reader.uv();
    const length = reader.uv();
    this.#reader = keeps ? reader.fork(length) : reader;
    this.#decode = decode;
  }

  /** Decodes each item when it is taken. The reply's buffer must not change until then. */
  static kept<T>(reader: ReplyReader, decode: DecodeItem<T>): Chunk<T> {
    return new Chunk(reader, decode, true);
  }

  /**
   * Decodes all items now, up to the first that fails; `take` throws that failure in its place.
   * `decode` must not run the caller's code.
   */
  static decoded<T>(reader: ReplyReader, decode: DecodeItem<T>): Chunk<T> {
    const chunk = new Chunk(reader, decode, false);
    const items: T[] = [];
    try {
      while (items.length < chunk.left) items.push(decode(reader));
    } catch (error) {
      chunk.#failure = { error };
    }
    chunk.#items = items;
    return chunk;
  }

  #failure: { readonly error: unknown } | undefined;

  take(): T {
    const items = this.#items;
    if (items === undefined) {
      const item = this.#decode(this.#reader);
      this.left--;
      return item;
    }
    if (this.#at === items.length) throw this.#failure?.error;
    this.left--;
    return items[this.#at++] as T;
  }
}

/**
 * Limits for successive chunks of one scan that are decoded at once. The item limit quadruples: a
 * scan that continues is likely to be read to its end.
 */
export class ChunkSize {
  readonly bytes = BYTES;
  #items: number;

  constructor(limit: number) {
    this.#items = limit <= MAX_SHORT_SCAN ? limit : FIRST_ITEMS;
  }

  next(): number {
    const items = this.#items;
    this.#items = Math.min(items * 4, MAX_ITEMS);
    return items;
  }
}
