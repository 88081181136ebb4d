// Follows the commits of an engine: asks for those there are, then waits until it says that there are more.
import type { Commit, CommitIterator } from '../../types/feed.ts';
import { abortable, asyncDispose, checkSignal, ignore } from '../../base/async.ts';
import type { Connection } from '../../wire/connection.ts';
import { Handle } from '../../wire/handle.ts';
import { DONE } from '../iterator.ts';
import type { Step } from '../iterator.ts';
import { Op } from '../../wire/opcodes.ts';
import type { RequestWriter } from '../../wire/protocol.ts';
import { CommitReader } from './decode.ts';
import type { Decoders } from './decode.ts';

const CHUNK_BYTES = 256 << 10;

/** What to follow. */
export interface FeedRequest<K, V> {
  readonly connection: Connection;
  /** Asks for what decoding needs; what it throws is what the iterator fails with. */
  readonly prepare: () => Decoders;
  readonly since: number | undefined;
  /** Writes which collection and range, if not all. */
  readonly writeFilter: (writer: RequestWriter) => unknown;
  readonly signal: AbortSignal | undefined;
  /** Asks for what comes before the first commit, in the state from which commits are followed. */
  readonly first?: (() => Promise<Commit<K, V>['changes']>) | undefined;
}

export class FeedIterator<K, V> implements CommitIterator<K, V> {
  readonly #held: Handle;
  readonly #signal: AbortSignal | undefined;
  #opened: Promise<number> = Promise.resolve(0);
  /** The one from which commits are followed, once it is known. */
  #version: number | undefined;
  #first: Promise<Commit<K, V>['changes']> | undefined;
  #decoders: Decoders | undefined;
  #commits: CommitReader | undefined;
  #isEnded = false;
  #failure: { readonly error: unknown } | undefined;
  #wake: (() => void) | undefined;
  /** What the connection knew of news when everything there was had been asked for. */
  #newsAtEnd: number | undefined;
  #tail: Promise<unknown> = Promise.resolve();

  constructor(request: FeedRequest<K, V>) {
    const { connection, signal } = request;
    this.#held = new Handle(connection, Op.changesClose, 'iterator of commits');
    this.#signal = signal;
    try {
      checkSignal(signal);
      this.#open(request);
    } catch (error) {
      this.#fail(error);
    }
  }

  next(): Promise<Step<Commit<K, V>>> {
    const step = this.#tail.then(() => this.#step());
    this.#tail = step.catch(ignore);
    return step;
  }

  return(): Promise<Step<Commit<K, V>>> {
    this.#end();
    return Promise.resolve(DONE);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [asyncDispose](): Promise<void> {
    await this.return();
  }

  /** Now, not at the first `next`: what is written after the call is seen. */
  #open({ connection, prepare, since, writeFilter, signal, first }: FeedRequest<K, V>): void {
    this.#decoders = prepare();
    this.#opened = connection.request((writer) => {
      writer.u8(Op.changesOpen).uv(this.#held.id).uv(since === undefined ? 0 : since + 1);
      writeFilter(writer);
    }, (reader) => reader.uv());
    this.#opened.catch(ignore);
    this.#first = first?.();
    this.#first?.catch(ignore);
    this.#held.own(this, signal, FeedIterator.#abort);
  }

  async #step(): Promise<Step<Commit<K, V>>> {
    try {
      const commit = await this.#next();
      return commit === undefined ? DONE : { done: false, value: commit };
    } catch (error) {
      this.#end();
      throw error;
    }
  }

  async #next(): Promise<Commit<K, V> | undefined> {
    const { connection } = this.#held;
    for (;;) {
      const failure = this.#failure;
      this.#failure = undefined;
      if (failure !== undefined) throw failure.error;
      if (this.#isEnded) return undefined;
      // After each wait everything may be different.
      const first = this.#first;
      if (this.#version === undefined) {
        this.#version = await abortable(this.#opened, this.#signal);
      } else if (first !== undefined) {
        const changes = await abortable(first, this.#signal);
        this.#first = undefined;
        return { version: this.#version, changes };
      } else if (this.#commits?.isAtEnd === false) {
        const commit = this.#commits.next();
        if (commit.changes.length > 0) return commit as Commit<K, V>;
      } else if (connection.status === 'open') {
        if (this.#newsAtEnd === connection.news) await this.#wait();
        else await this.#pull();
      } else if (connection.failure === undefined) {
        this.#end();
      } else {
        throw connection.failure;
      }
    }
  }

  async #pull(): Promise<void> {
    const { connection, id } = this.#held;
    const { news } = connection;
    const pulled = connection.request((writer) => writer.u8(Op.changesNext).uv(id).uv(CHUNK_BYTES), (reader) => {
      const isAll = reader.u8() !== 0;
      reader.uv();
      return { isAll, bytes: reader.bytes() };
    });
    const { isAll, bytes } = await abortable(pulled, this.#signal);
    this.#commits = new CommitReader(bytes, this.#decoders as Decoders);
    this.#newsAtEnd = isAll ? news : undefined;
  }

  /** Until there is something new, of whatever kind. */
  #wait(): Promise<void> {
    const { connection, id } = this.#held;
    if (this.#isEnded || this.#failure !== undefined || connection.status !== 'open') return Promise.resolve();
    return new Promise((resolve) => {
      this.#wake = () => {
        connection.waiting.delete(id);
        this.#wake = undefined;
        // Being woken is a sign of news even where it is for others.
        this.#newsAtEnd = undefined;
        resolve();
      };
      // Whoever waits is reachable; an iterator that nobody asks for its next commit need not be.
      connection.waiting.set(id, this.#wake);
    });
  }

  static #abort<K, V>(iterator: FeedIterator<K, V>): void {
    iterator.#fail(iterator.#signal?.reason);
  }

  #fail(error: unknown): void {
    this.#failure ??= { error };
    this.#release();
  }

  #end(): void {
    this.#isEnded = true;
    this.#failure = undefined;
    this.#release();
  }

  #release(): void {
    this.#commits = undefined;
    this.#first = undefined;
    this.#held.close();
    this.#wake?.();
  }
}
