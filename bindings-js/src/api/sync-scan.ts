// A synchronous iterator: a scan of the engine, which runs in this thread, read in chunks.
import { Chunk, ChunkSize } from '../wire/chunk.ts';
import type { DecodeItem } from '../wire/chunk.ts';
import type { Connection } from '../wire/connection.ts';
import { Handle } from '../wire/handle.ts';
import { ASK } from '../wire/target.ts';
import { Op } from '../wire/opcodes.ts';
import type { ReplyReader, RequestWriter } from '../wire/protocol.ts';

export interface ScanRequest<T> {
  readonly connection: Connection;
  /** Opens the scan. Default: `Op.scanOpen`. */
  readonly op?: number;
  /** Writes the fields between the scan's id and the limits of the chunk. */
  readonly write: (writer: RequestWriter) => unknown;
  readonly limit: number;
  readonly decode: DecodeItem<T>;
  /** Decoding runs none of the caller's code. */
  readonly isFast: boolean;
}

export class SyncScan<T> implements IterableIterator<T> {
  declare [Symbol.iterator]: () => this;
  readonly #request: ScanRequest<T>;
  readonly #scan: Handle;
  readonly #size: ChunkSize;
  #chunk: Chunk<T> | undefined;
  #isOpen = false;

  /** Opens the scan, so it reads the state as of now, not as of the first `next`. */
  constructor(request: ScanRequest<T>) {
    this.#request = request;
    this.#scan = new Handle(request.connection, Op.scanClose, 'iterator');
    this.#size = new ChunkSize(request.limit);
    if (request.limit === 0) return;
    this.#read((writer) => request.write(writer.u8(request.op ?? Op.scanOpen).uv(this.#scan.id)));
    if (this.#isOpen) this.#scan.own(this);
  }

  /** Before the first `next`: whether the scan has no items. */
  get isEmpty(): boolean {
    return !this.#isOpen && !this.#chunk?.left;
  }

  next(): IteratorResult<T, undefined> {
    let chunk = this.#chunk;
    while (chunk === undefined || chunk.left === 0) {
      if (!this.#isOpen) return { done: true, value: undefined };
      chunk = this.#read((writer) => writer.u8(Op.scanNext).uv(this.#scan.id));
      if (!this.#isOpen) this.#scan.release();
    }
    try {
      return { done: false, value: chunk.take() };
    } catch (error) {
      this.return();
      throw error;
    }
  }

  return(): IteratorResult<T, undefined> {
    this.#chunk = undefined;
    this.#isOpen = false;
    this.#scan.close();
    return { done: true, value: undefined };
  }

  #read(write: (writer: RequestWriter) => unknown): Chunk<T> {
    const { connection, decode, isFast } = this.#request;
    const writeAll = (writer: RequestWriter): void => {
      write(writer);
      writer.uv(this.#size.next()).uv(this.#size.bytes);
    };
    // The engine closes a scan that fails.
    this.#isOpen = false;
    let chunk = isFast ? connection.requestNow(writeAll, (reader) => Chunk.decoded(reader, decode)) : ASK;
    if (chunk === ASK) chunk = connection.requestSync(writeAll, (reader: ReplyReader) => Chunk.kept(reader, decode));
    this.#isOpen = !chunk.isLast;
    this.#chunk = chunk;
    return chunk;
  }
}

// Inherits `[Symbol.iterator]` and, where the runtime has them, the iterator helpers.
Object.setPrototypeOf(SyncScan.prototype, Object.getPrototypeOf(Object.getPrototypeOf([][Symbol.iterator]())) as object);
