// The client's side of a follower: pulls the commits there are, then waits until there are more.
import type { Commit, ReplicationCommits } from '../../types/feed.ts';
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
  /** Requests what decoding needs. The iterator fails with whatever this throws. */
  readonly prepare: () => Decoders;
  readonly since: number | undefined;
  /** Writes whether one collection is followed, and if so which one and in which range. */
  readonly writeFilter: (writer: RequestWriter) => unknown;
  readonly signal: AbortSignal | undefined;
  /** Reads the changes to return first, in the state from which commits are followed. */
  readonly first?: (() => Promise<Commit<K, V>['changes']>) | undefined;
}

export class FeedIterator<K, V> implements ReplicationCommits<K, V> {
  readonly #held: Handle;
  readonly #signal: AbortSignal | undefined;
  #opened: Promise<number> = Promise.resolve(0);
  /** The version from which commits are followed, once it is known. */
  #version: number | undefined;
  #first: Promise<Commit<K, V>['changes']> | undefined;
  #decoders: Decoders | undefined;
  #commits: CommitReader | undefined;
  #isEnded = false;
  #failure: { readonly error: unknown } | undefined;
  #wake: (() => void) | undefined;
  /** `connection.wakes` when the pull that returned all remaining commits was requested. */
  #wakesAtEnd: number | undefined;
  /** How often `look` was called. */
  #looks = 0;
  /** `looks` when the last pull that returned all remaining commits was requested. */
  #looked = 0;
  /** A version to report: everything up to it has been returned. */
  #reached: number | undefined;
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

  look(): void {
    this.#looks++;
    this.#wake?.();
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

  /** Opens at once rather than at the first `next`: later commits are seen from here on. */
  #open({ connection, prepare, since, writeFilter, signal, first }: FeedRequest<K, V>): void {
    this.#decoders = prepare();
    this.#opened = connection.request(
      (writer) => {
        writer
          .u8(Op.changesOpen)
          .uv(this.#held.id)
          .uv(since === undefined ? 0 : since + 1);
        writeFilter(writer);
      },
      (reader) => reader.uv(),
    );
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
      // Anything may have changed during a wait, so each pass takes one step and starts over.
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
      } else if (this.#reached !== undefined) {
        const version = this.#reached;
        this.#reached = undefined;
        return { version, changes: [] };
      } else if (connection.status === 'open') {
        if (this.#wakesAtEnd === connection.wakes && this.#looked === this.#looks) await this.#wait();
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
    const { wakes } = connection;
    const looks = this.#looks;
    const pulled = connection.request(
      (writer) => writer.u8(Op.changesNext).uv(id).uv(CHUNK_BYTES),
      (reader) => {
        const isAll = reader.u8() !== 0;
        return { isAll, version: reader.uv(), bytes: reader.bytes() };
      },
    );
    const { isAll, version, bytes } = await abortable(pulled, this.#signal);
    this.#commits = new CommitReader(bytes, this.#decoders as Decoders);
    this.#wakesAtEnd = isAll ? wakes : undefined;
    if (!isAll || this.#looked === looks) return;
    this.#looked = looks;
    this.#reached = version;
  }

  /** Waits until there may be commits, or this iterator or the connection ends. */
  #wait(): Promise<void> {
    const { connection, id } = this.#held;
    if (this.#isEnded || this.#failure !== undefined || connection.status !== 'open') return Promise.resolve();
    return new Promise((resolve) => {
      this.#wake = () => {
        connection.waiting.delete(id);
        this.#wake = undefined;
        // A wake-up means that there are more, even if `connection.wakes` has not grown since the last pull.
        this.#wakesAtEnd = undefined;
        resolve();
      };
      // Registered only while a call waits: an iterator without a pending `next` can be collected.
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
