// A synchronous iterator: a scan of the engine, which runs in this thread, read in chunks.
import { Chunk, ChunkSize } from '../wire/chunk.ts';
import { Handle } from '../wire/handle.ts';
import { ASK } from '../wire/lookup.ts';
import { Op } from '../wire/opcodes.ts';
import type { ReplyReader, RequestWriter } from '../wire/protocol.ts';
import { writeScan } from './range.ts';
import type { Scan } from './range.ts';

export class SyncScan<T> implements IterableIterator<T> {
  declare [Symbol.iterator]: () => this;
  readonly #request: Scan<T, never>;
  readonly #scan: Handle;
  readonly #size: ChunkSize;
  #chunk: Chunk<T> | undefined;
  #isOpen = false;

  /** Opens the scan, so it reads the state as of now, not as of the first `next`. */
  constructor(request: Scan<T, never>) {
    this.#request = request;
    const { connection, op, ready, misread } = request;
    const window = request.window();
    this.#scan = new Handle(connection, Op.scanClose, 'iterator');
    this.#size = new ChunkSize(window.limit);
    if (window.limit === 0) return;
    void ready?.();
    const first = this.#read((writer) => writeScan(request, window, writer.u8(op).uv(this.#scan.id), 0));
    if (this.#isOpen) this.#scan.own(this);
    const call = this.#isOpen || first.left > 0 ? undefined : misread();
    if (call !== undefined) connection.requestSync(call.write, call.read);
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
Object.setPrototypeOf(
  SyncScan.prototype,
  Object.getPrototypeOf(Object.getPrototypeOf([][Symbol.iterator]())) as object,
);
