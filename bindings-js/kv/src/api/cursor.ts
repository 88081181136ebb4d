// The asynchronous iterator over a collection: an engine cursor, read in chunks.
import type { KeyPrefix } from '../codec/keys.ts';
import { Chunk, ChunkSize } from '../wire/chunk.ts';
import { abortable, checkLimit, checkSignal, ignore } from '../base/async.ts';
import { Handle } from '../wire/handle.ts';
import { BaseIterator, DONE } from './iterator.ts';
import type { Step } from './iterator.ts';
import { ASK } from '../wire/lookup.ts';
import { Op, ScanFlag } from '../wire/opcodes.ts';
import type { ReplyReader, RequestWriter } from '../wire/protocol.ts';
import type { Scan, Window } from './range.ts';
import { writeScan } from './range.ts';

const FIRST_CHUNK = { items: 128, bytes: 32 << 10 };
const CHUNK_GROWTH = 4;
/** Small enough that decoding one chunk does not block the event loop for long. */
const MAX_CHUNK = { items: 2048, bytes: 256 << 10 };

export class CursorIterator<T, K> extends BaseIterator<T, K> {
  readonly #request: Scan<T, K>;
  readonly #held: Handle;
  #chunk: Chunk<T> | undefined;
  #ahead: Promise<Chunk<T>> | undefined;
  /** The first chunk, while the engine may not know the scan yet. */
  #opening: Promise<Chunk<T>> | undefined;
  /** Sizes of chunks that are read synchronously; undefined if all are fetched by message. */
  #size: ChunkSize | undefined;
  #chunkItems = FIRST_CHUNK.items;
  #chunkBytes = FIRST_CHUNK.bytes;
  /** Items left within the limit. */
  #left = 0;
  #isEnded = false;
  /** No item was found so far, and `seek` was not called. */
  #isEmpty = true;
  #failure: { readonly error: unknown } | undefined;
  /** The last call in line, which the next one waits for; undefined if none is running. */
  #tail: Promise<unknown> | undefined;

  constructor(request: Scan<T, K>) {
    super(request.signal);
    const { connection, signal } = request;
    this.#request = request;
    this.#held = new Handle(connection, Op.scanClose, 'iterator');
    try {
      checkSignal(signal);
      const window = request.window();
      this.#left = window.limit;
      this.#isEnded = window.limit === 0;
      if (!this.#isEnded) this.#open(window);
    } catch (error) {
      this.#fail(error);
    }
  }

  override next(): Promise<Step<T>> {
    let turn: Promise<void> | undefined;
    if (this.#tail === undefined && this.#hasItem()) {
      turn = this.#held.connection.due();
      if (turn === undefined) {
        try {
          return Promise.resolve({ done: false, value: this.#take() });
        } catch (error) {
          return Promise.reject(error);
        }
      }
    }
    return this.#inLine(async () => {
      await turn;
      return (await this.#advance()) ? { done: false, value: this.#take() } : DONE;
    });
  }

  override nextMany(max: number): Promise<T[]> {
    return this.#inLine(async () => {
      checkLimit('max', max);
      const items: T[] = [];
      while (items.length < max) {
        const turn = this.#held.connection.due(items.length > 0);
        if (turn !== undefined) await turn;
        if (!(await this.#advance())) break;
        while (items.length < max && this.#hasItem()) items.push(this.#take());
      }
      return items;
    });
  }

  override toArray(): Promise<T[]> {
    return this.nextMany(Infinity);
  }

  override return(): Promise<Step<T>> {
    this.#end();
    return Promise.resolve(DONE);
  }

  override seek(key: KeyPrefix<K>): void {
    const bytes = this.#request.encodeSeek(key);
    if (this.#isEnded || this.#failure !== undefined) return;
    if (this.#left === 0) return this.#end();
    const { connection, id } = this.#held;
    const limit = this.#left === Infinity ? 0 : this.#left;
    const fetch = (): Promise<Chunk<T>> => {
      connection.post((writer) => writer.u8(Op.scanSeek).uv(id).bytes(bytes).uv(limit), ignore);
      return this.#fetch();
    };
    this.#chunk = undefined;
    this.#isEmpty = false;
    this.#opening = this.#opening && this.#chunkOf(this.#opening.then(fetch));
    this.#ahead = this.#opening ?? fetch();
  }

  /** Whether an item is available without asking the engine. */
  #hasItem(): boolean {
    return (
      this.#chunk !== undefined &&
      this.#chunk.left > 0 &&
      !this.#isEnded &&
      this.#failure === undefined &&
      this.#held.connection.status === 'open'
    );
  }

  #take(): T {
    try {
      const item = (this.#chunk as Chunk<T>).take();
      this.#left--;
      return item;
    } catch (error) {
      this.#end();
      throw error;
    }
  }

  /** Waits until `#take` has an item; false at the end. */
  async #advance(): Promise<boolean> {
    for (;;) {
      const failure = this.#failure;
      if (failure !== undefined) {
        this.#failure = undefined;
        this.#end();
        throw failure.error;
      }
      if (this.#isEnded) return false;
      if (this.#held.connection.status !== 'open') {
        this.#fail(this.#held.connection.closedError());
      } else if (this.#hasItem()) {
        return true;
      } else if (this.#chunk?.isLast) {
        const { connection, misread } = this.#request;
        const call = this.#isEmpty ? misread() : undefined;
        this.#end();
        if (call !== undefined) await connection.request(call.write, call.read);
      } else {
        await this.#nextChunk();
      }
    }
  }

  async #nextChunk(): Promise<void> {
    if (this.#ahead === undefined) {
      try {
        if (this.#readNow((writer) => writer.u8(Op.scanNext).uv(this.#held.id))) return;
      } catch (error) {
        this.#fail(error);
        return;
      }
    }
    const ahead = this.#ahead ?? this.#fetch();
    this.#ahead = ahead;
    try {
      const chunk = await abortable(ahead, this.#request.signal);
      // A seek, a failure or the end has superseded this chunk.
      if (this.#ahead !== ahead) return;
      this.#use(chunk);
      this.#ahead = chunk.isLast ? undefined : this.#fetch();
    } catch (error) {
      if (this.#ahead === ahead) this.#fail(error);
    }
  }

  #inLine<R>(work: () => Promise<R>): Promise<R> {
    const before = this.#tail;
    const run = async (): Promise<R> => {
      if (before !== undefined) await before;
      try {
        return await work();
      } finally {
        // Before the caller's promise settles, so that its next call need not wait in line.
        if (this.#tail === tail) this.#tail = undefined;
      }
    };
    const result = run();
    const tail = result.catch(ignore);
    this.#tail = tail;
    return result;
  }

  /**
   * Opens at once rather than at the first `next`: an iterator reads the state at its creation.
   */
  #open(window: Window): void {
    const { connection, op, ready, signal, isFast } = this.#request;
    const write = (writer: RequestWriter): void => {
      writeScan(this.#request, window, writer.u8(op).uv(this.#held.id), ScanFlag.keep);
    };
    // With a signal, chunks are fetched by message: a synchronous read could not be aborted.
    if (isFast && signal === undefined) this.#size = new ChunkSize(window.limit);
    const writeFirst = (writer: RequestWriter): void => {
      write(writer);
      writer.uv(FIRST_CHUNK.items).uv(FIRST_CHUNK.bytes);
    };
    if (op !== Op.scanOpen) {
      const first = this.#chunkOf(
        Promise.resolve(ready?.()).then(() => connection.requestLoading(writeFirst, this.#readChunk())),
      );
      this.#ahead = this.#opening = first;
      first
        .finally(() => {
          if (this.#opening === first) this.#opening = undefined;
        })
        .catch(ignore);
    } else if (!this.#readNow(write)) {
      this.#ahead = this.#chunkOf(connection.request(writeFirst, this.#readChunk()));
    }
    this.#held.own(this, signal, CursorIterator.#abort);
  }

  #fetch(): Promise<Chunk<T>> {
    this.#chunkItems = Math.min(this.#chunkItems * CHUNK_GROWTH, MAX_CHUNK.items);
    this.#chunkBytes = Math.min(this.#chunkBytes * CHUNK_GROWTH, MAX_CHUNK.bytes);
    const { connection, id } = this.#held;
    return this.#chunkOf(
      connection.request(
        (writer) => writer.u8(Op.scanNext).uv(id).uv(this.#chunkItems).uv(this.#chunkBytes),
        this.#readChunk(),
      ),
    );
  }

  #readChunk(): (reader: ReplyReader) => Chunk<T> {
    return (reader) => Chunk.kept(reader, this.#request.decode);
  }

  /** Reads a chunk synchronously, if the engine runs in this thread and no request is pending. */
  #readNow(write: (writer: RequestWriter) => unknown): boolean {
    const { connection, decode } = this.#request;
    const size = this.#size;
    if (size === undefined) return false;
    const chunk = connection.requestNow(
      (writer) => {
        write(writer);
        writer.uv(size.next()).uv(size.bytes);
      },
      (reader) => Chunk.decoded(reader, decode),
    );
    if (chunk === ASK) return false;
    this.#use(chunk);
    return true;
  }

  #use(chunk: Chunk<T>): void {
    this.#chunk = chunk;
    if (chunk.left > 0) this.#isEmpty = false;
  }

  /** A chunk that is read ahead may reject before anything awaits it. */
  #chunkOf(chunk: Promise<Chunk<T>>): Promise<Chunk<T>> {
    chunk.catch(ignore);
    return chunk;
  }

  static #abort<T, K>(iterator: CursorIterator<T, K>): void {
    iterator.#fail(iterator.signal?.reason);
  }

  #fail(error: unknown): void {
    this.#failure ??= { error };
    this.#release();
  }

  #end(): void {
    this.#isEnded = true;
    this.#release();
  }

  #release(): void {
    this.#chunk = undefined;
    this.#ahead = undefined;
    const close = (): void => this.#held.close();
    // What is asked for later would stay open after a close that goes ahead of it.
    if (this.#opening === undefined) close();
    else this.#opening.then(close, close);
  }
}
