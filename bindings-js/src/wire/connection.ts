// Requests of one tick travel as one message; its replies settle them in order.
import { KvError } from '../base/errors.ts';
import { queueMicrotask } from '../base/platform.ts';
import { fromPlain } from '../base/plain-error.ts';
import type { PlainError } from '../base/plain-error.ts';
import { describeKey } from './known-codecs.ts';
import { due } from './turns.ts';
import { ASK } from './target.ts';
import { IdleHandles } from './idle.ts';
import { Line } from './line.ts';
import type { Lookups } from './lookup.ts';
import { Op } from './opcodes.ts';
import { ReplyReader, RequestWriter } from './protocol.ts';
import type { Transport } from './transport.ts';

interface Pending {
  /** Takes the reply's fields before it decodes anything, so that a failing codec does not shift the next reply. */
  readonly read: (reader: ReplyReader) => unknown;
  readonly resolve: (value: never) => void;
  readonly reject: (error: unknown) => void;
}

export type ConnectionStatus = 'open' | 'closing' | 'closed';

/** From here on a message is sent at once instead of at the end of the tick. */
const FULL_MESSAGE_BYTES = 1 << 20;

const FEW_FOLLOWERS = 4;

/** So long what nobody waits for waits itself for a request that it can travel with. */
const LATER_MS = 20;

const ignore = (): void => {};

/** Rejects with an error that is made in a promise which the caller's waits for: so its stack has those who await that. */
function refuse({ resolve }: Pending, failure: PlainError): void {
  // One turn later the two are tied together.
  const made = Promise.resolve().then(ignore).then(() => {
    throw fromPlain(failure);
  });
  resolve(made as never);
}

/** A client's side of one engine. */
export class Connection {
  readonly #transport: Transport;
  #writer = new RequestWriter();
  readonly #syncWriter = new RequestWriter();
  #batch: Pending[] = [];
  readonly #sent: Pending[][] = [];
  #isScheduled = false;
  /** A request is being made ready that goes before those in `#batch`. */
  #isHeld = false;
  /** The engine may not have heard of the collections. */
  #mustName = false;
  #isInCallback = false;
  #later: ((writer: RequestWriter) => unknown)[] = [];
  #laterTimer: ReturnType<typeof setTimeout> | undefined;
  #status: ConnectionStatus = 'open';
  #failure: KvError | undefined;
  #closing: Promise<void> | undefined;
  #nextId = 1;
  #news = 0;
  /** Of the database, for errors. */
  name = '';
  /** Called once when it is closed, with what ended it unless that was asked for. */
  onClosed: (failure: KvError | undefined) => void = ignore;
  /** Called when another tab is waited for, or waits for this one. */
  onBlocked: () => void = ignore;
  /** Called when work in the background failed and the engine goes on. */
  onTrouble: (error: KvError) => void = ignore;
  /** By the number of a follower: called when there may be commits for it, and when none will come any more. */
  readonly waiting = new Map<number, () => void>();
  readonly #collections = new Map<string, number>();
  /** Where changes of one entry by functions take turns. */
  readonly line = new Line();

  /** Closes handles that have been idle for too long. */
  readonly idle: IdleHandles;

  constructor(transport: Transport, idleTimeoutMs = Infinity) {
    this.#transport = transport;
    this.idle = new IdleHandles(idleTimeoutMs);
    transport.events = {
      reply: (bytes, count) => this.#onReply(bytes, count),
      refuse: (error, count) => this.#onRefusal(error, count),
      blocked: () => this.onBlocked(),
      news: () => this.#onNews(),
      idle: () => this.#schedule(),
      trouble: (error) => this.onTrouble(error),
      fail: (error) => this.#onFailure(error),
    };
  }

  get status(): ConnectionStatus {
    return this.#status;
  }

  /** Why it is closed, unless it was asked to. */
  get failure(): KvError | undefined {
    return this.#failure;
  }

  /** Grows with each sign of new commits. */
  get news(): number {
    return this.#news;
  }

  /** As `due`, where the engine runs in this thread: nothing else would ever be waited for. */
  due(mustLook?: boolean): Promise<void> | undefined {
    return this.#transport.takesTurns ? due(mustLook) : undefined;
  }

  /** Lookups without messages, where there are such and nothing that was requested before is under way. */
  get lookups(): Lookups | undefined {
    const isIdle = this.#batch.length === 0 && this.#sent.length === 0 && this.#status === 'open';
    return isIdle ? this.#transport.lookups : undefined;
  }

  /** A number for a snapshot or cursor that no other of this connection has. */
  newId(): number {
    return this.#nextId++;
  }

  /** The number of a collection; names it to the engine where that has not been done. */
  use(name: string, keyCodec: string, valueCodec: string): number {
    const key = JSON.stringify([name, keyCodec, valueCodec]);
    const known = this.#collections.get(key);
    if (known !== undefined) return known;
    const index = this.#collections.size;
    this.#collections.set(key, index);
    this.#name(index, name, keyCodec, valueCodec);
    return index;
  }

  #nameAll(): void {
    for (const [key, index] of this.#collections) this.#name(index, ...JSON.parse(key) as [string, string, string]);
  }

  /** A mismatch of codecs is answered to each request that uses the number. */
  #name(index: number, name: string, keyCodec: string, valueCodec: string): void {
    this.post((writer) => writer.u8(Op.use).uv(index).str(name).str(keyCodec).str(valueCodec), ignore);
  }

  /**
   * Sends a request and gives its reply. `write` runs at once; `read` has to take all of the reply's fields before it
   * decodes them.
   */
  request<T>(write: (writer: RequestWriter) => unknown, read: (reader: ReplyReader) => T): Promise<T> {
    if (this.#status !== 'open') return Promise.reject(this.closedError());
    return this.#enqueue(write, read);
  }

  /** Sends a request whose outcome nobody waits for. */
  post(write: (writer: RequestWriter) => unknown, read: (reader: ReplyReader) => unknown): void {
    this.request(write, read).catch(ignore);
  }

  /** As `post`, with the next request or a little later: a message of its own would be in the way of that. */
  postLater(write: (writer: RequestWriter) => unknown): void {
    if (this.#status !== 'open') return;
    // Without messages there is nothing to save.
    if (!this.#transport.takesBuffers) return this.post(write, ignore);
    this.#later.push(write);
    this.#laterTimer ??= setTimeout(() => this.#postLater(), LATER_MS);
  }

  #postLater(): void {
    clearTimeout(this.#laterTimer);
    this.#laterTimer = undefined;
    for (const write of this.#later.splice(0)) this.post(write, ignore);
  }

  /** Whether `hold` is possible and of use: where a thread of its own executes what is sent meanwhile. */
  get canHold(): boolean {
    return this.#transport.takesBuffers && !this.#isHeld && this.#status === 'open';
  }

  /** Keeps back what is requested from now on, until `prepared`; then `run` makes requests, which go before it. */
  async hold<T>(prepared: Promise<void>, run: () => Promise<T>): Promise<T> {
    this.#send();
    this.#isHeld = true;
    this.#mustName = false;
    try {
      await prepared;
    } catch (error) {
      this.#isHeld = false;
      this.#schedule();
      throw error;
    }
    const [writer, batch] = [this.#writer, this.#batch];
    const status = this.#status;
    this.#writer = new RequestWriter();
    this.#batch = [];
    this.#isHeld = false;
    // It was called before the end.
    if (status === 'closing') this.#status = 'open';
    try {
      if (this.#mustName) this.#nameAll();
      return run();
    } finally {
      this.#status = status;
      this.#send();
      this.#writer = writer;
      this.#batch = batch;
      this.#schedule();
    }
  }

  /** Fails where the engine is in another thread. */
  checkSync(): { readonly [N in 'sendSync' | 'syncFaces']: NonNullable<Transport[N]> } {
    const { sendSync, syncFaces } = this.#transport;
    if (sendSync !== undefined && syncFaces !== undefined) return { sendSync, syncFaces };
    throw new KvError('KV_SYNC_UNAVAILABLE', 'the engine runs in another thread; use the asynchronous API');
  }

  /** As `request`, at once and after what was requested before. */
  requestSync<T>(write: (writer: RequestWriter) => unknown, read: (reader: ReplyReader) => T): T {
    const { sendSync } = this.checkSync();
    if (this.#status !== 'open') throw this.closedError();
    this.#transport.settle?.();
    this.#send();
    const writer = this.#syncWriter;
    try {
      write(writer);
      return this.#read(sendSync.call(this.#transport, writer.view()), read);
    } finally {
      writer.reset(false);
    }
  }

  /**
   * A request that only reads, where lookups are possible; else `ASK`. `read` gets the reply where the engine left it, so it
   * has to take all it needs and may not run code of the caller's.
   */
  requestNow<T>(write: (writer: RequestWriter) => unknown, read: (reader: ReplyReader) => T): T | typeof ASK {
    const { lookups } = this;
    if (lookups === undefined) return ASK;
    const writer = this.#syncWriter;
    try {
      write(writer);
      const reply = lookups.read(writer.view());
      return reply === undefined ? ASK : this.#read(reply, read);
    } finally {
      writer.reset(false);
    }
  }

  /** As `close`, at once. */
  closeSync(): void {
    if (this.#status === 'closed') return;
    try {
      this.requestSync((writer) => writer.u8(Op.close), ignore);
    } finally {
      if (this.#failure === undefined) {
        this.#end();
        this.#closing ??= Promise.resolve();
        void this.#transport.dispose();
        this.onClosed(undefined);
      }
    }
  }

  /** Finishes what was requested before and lets go of the database. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  /** Runs the callback of a transaction: until it returns or waits, writes outside of the transaction are refused. */
  runCallback<T>(fn: () => T): T {
    const before = this.#isInCallback;
    this.#isInCallback = true;
    try {
      return fn();
    } finally {
      this.#isInCallback = before;
    }
  }

  /** Throws where a write would not belong to the transaction whose callback runs. */
  checkOutside(): void {
    if (this.#isInCallback) {
      throw new KvError('KV_INVALID_ARGUMENT', 'this would write outside of the transaction whose callback runs; use tx or tx.collection(…)');
    }
  }

  /** What a request is answered with when it comes too late. */
  closedError(): KvError {
    return this.#failure ?? new KvError('KV_CLOSED', `the database ${this.name} is closed`);
  }

  #end(): void {
    this.#status = 'closed';
    this.idle.stop();
  }

  async #close(): Promise<void> {
    // After a failure there is nothing left to finish.
    if (this.#status === 'closed') return;
    const closed = this.#enqueue((writer) => writer.u8(Op.close), ignore);
    this.#status = 'closing';
    this.#wakeAll();
    try {
      await closed;
    } finally {
      if (this.#failure === undefined) {
        this.#end();
        try {
          await this.#transport.dispose();
        } catch (error) {
          this.#failure = error as KvError;
          throw error;
        } finally {
          this.onClosed(this.#failure);
        }
      }
    }
  }

  #failureOf(reader: ReplyReader): PlainError {
    return reader.failure((collection, key) => describeKey(this, collection, key));
  }

  #read<T>(reply: Uint8Array, read: (reader: ReplyReader) => T): T {
    const reader = new ReplyReader(reply);
    if (reader.u8() !== 0) throw fromPlain(this.#failureOf(reader));
    return read(reader);
  }

  #enqueue<T>(write: (writer: RequestWriter) => unknown, read: (reader: ReplyReader) => T): Promise<T> {
    if (this.#later.length > 0) this.#postLater();
    const start = this.#writer.length;
    try {
      write(this.#writer);
    } catch (error) {
      this.#writer.truncate(start);
      return Promise.reject(error);
    }
    const reply = new Promise<T>((resolve, reject) => {
      this.#batch.push({ read, resolve, reject });
    });
    if (this.#writer.length >= FULL_MESSAGE_BYTES) this.#send();
    else this.#schedule();
    return reply;
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    const send = (): void => {
      this.#isScheduled = false;
      this.#send();
    };
    const turn = this.due(true);
    if (turn === undefined) queueMicrotask(send);
    else void turn.then(send);
  }

  #send(): void {
    if (this.#batch.length === 0 || this.#isHeld || this.#failure !== undefined || this.#transport.isBusy === true) return;
    const message = this.#writer.view();
    this.#writer.reset(this.#transport.takesBuffers);
    this.#sent.push(this.#batch);
    this.#batch = [];
    try {
      this.#transport.send(message);
    } catch (error) {
      this.#onFailure(new KvError('KV_IO', 'the engine could not be reached', { cause: error }));
    }
  }

  #onReply(bytes: Uint8Array, count: number): void {
    const batch = count === 1 ? this.#sent.shift() ?? [] : this.#sent.splice(0, count).flat();
    const reader = new ReplyReader(bytes);
    for (const [index, pending] of batch.entries()) {
      try {
        if (reader.u8() === 0) pending.resolve(pending.read(reader) as never);
        else refuse(pending, this.#failureOf(reader));
      } catch (error) {
        pending.reject(error);
        if (!reader.isBroken) continue;
        for (const lost of batch.slice(index + 1)) lost.reject(error);
        this.#onFailure(error as KvError);
        return;
      }
    }
  }

  #onRefusal(error: KvError, count: number): void {
    for (const pending of this.#sent.splice(0, count).flat()) pending.reject(error);
    // What is being made ready goes first, and needs them as well.
    this.#mustName = this.#isHeld;
    if (this.#status !== 'open') return;
    this.#nameAll();
    // Those who follow the commits have to ask to learn that they are cut off.
    this.#onNews();
  }

  #onNews(): void {
    this.#news++;
    // For a few it is quicker to ask whether there is something for them than for whom there is something.
    if (this.waiting.size <= FEW_FOLLOWERS) return this.#wakeAll();
    this.post((writer) => writer.u8(Op.changesReady), (reader) => {
      for (let left = reader.uv(); left > 0; left--) this.waiting.get(reader.uv())?.();
    });
  }

  #wakeAll(): void {
    for (const wake of [...this.waiting.values()]) wake();
  }

  #onFailure(error: KvError): void {
    if (this.#failure !== undefined || this.#status === 'closed') return;
    this.#failure = error;
    this.#end();
    clearTimeout(this.#laterTimer);
    const lost = [...this.#sent.splice(0), this.#batch];
    this.#batch = [];
    for (const pending of lost.flat()) pending.reject(error);
    this.#wakeAll();
    Promise.resolve(this.#transport.dispose()).catch(ignore);
    this.onClosed(error);
  }
}
