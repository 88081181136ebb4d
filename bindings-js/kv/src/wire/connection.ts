// Batches the requests of one tick into one message, whose replies settle them in order.
import { ignore } from '../base/async.ts';
import { KvError } from '../base/errors.ts';
import { soon } from '../base/platform.ts';
import { fromPlain, toPlain } from '../base/plain-error.ts';
import type { PlainError } from '../base/plain-error.ts';
import type { Tracer } from '../base/tracer.ts';
import type { IndexDefinition } from './contracts.ts';
import { describeKey } from './known-codecs.ts';
import { due } from './yield.ts';
import { ASK } from './lookup.ts';
import { IdleHandles } from './idle.ts';
import { PerKeyQueue } from './per-key-queue.ts';
import type { Lookups } from './lookup.ts';
import { Op, ReplyStatus } from './opcodes.ts';
import { ReplyReader, RequestWriter } from './protocol.ts';
import type { BlockedReason, Transport } from './transport.ts';
import type { ClientInfo, LeaderInfo } from '../types/sharing.ts';

interface Pending {
  /**
   * Must consume all of the reply's fields before decoding any of them: a codec that throws must
   * not leave the reader in the middle of a reply.
   */
  readonly read: (reader: ReplyReader) => unknown;
  readonly resolve: (value: never) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * A collection as the engine knows it: name, codecs of keys and values, and indexes if it has any.
 */
type Named = [
  name: string,
  keyCodec: string,
  valueCodec: string,
  indexes?: readonly IndexDefinition[] | null | undefined,
];

export type ConnectionStatus = 'open' | 'closing' | 'closed';

/** A message of this size is sent without waiting for the end of the tick. */
const FULL_MESSAGE_BYTES = 1 << 20;
/**
 * A message that cannot be sent yet takes no more requests from this size on, and a request of this
 * size shares no message. A little less than what the writer's buffer grows to.
 */
const LONG_MESSAGE_BYTES = 15 << 20;

const FEW_FOLLOWERS = 4;

/** How long fire-and-forget requests wait to piggyback. */
const LATER_MS = 20;

/** Pause before a request is sent again. */
const AGAIN_MS = 20;

/**
 * Rejects through a promise that the caller's promise waits for, so that the error's stack names
 * the awaiting functions.
 */
function refuse({ resolve }: Pending, failure: PlainError, tracer: Tracer | undefined): void {
  // `resolve` links the two promises in a microtask; the error must be created after that.
  const made = Promise.resolve()
    .then(ignore)
    .then(() => {
      const error = fromPlain(failure);
      throw tracer?.attach(error) ?? error;
    });
  resolve(made as never);
}

/** A client's connection to one engine. */
export class Connection {
  readonly #transport: Transport;
  readonly #writer = new RequestWriter();
  readonly #syncWriter = new RequestWriter();
  readonly #batch: Pending[] = [];
  /** Complete messages that cannot be sent yet. */
  readonly #complete: (readonly [message: Uint8Array<ArrayBuffer>, requests: Pending[]])[] = [];
  readonly #sent: Pending[][] = [];
  #isScheduled = false;
  /** A `hold` is under way: its requests go before those in `#batch`. */
  #isHeld = false;
  /**
   * The session may have been lost during a `hold`, whose message then has to name the collections.
   */
  #mustName = false;
  #isInCallback = false;
  /** Settles when all requests that may be sent again have; `undefined` if there were none. */
  #repeated: Promise<void> | undefined;
  #later: ((writer: RequestWriter) => unknown)[] = [];
  #laterTimer: ReturnType<typeof setTimeout> | undefined;
  #status: ConnectionStatus = 'open';
  #failure: KvError | undefined;
  #closing: Promise<void> | undefined;
  #nextId = 1;
  #wakes = 0;
  /** The database's path, quoted, for error messages. */
  name = '';
  /**
   * Called when the connection has closed, with the failure that ended it or that releasing the
   * engine reported, if any.
   */
  onClosed: (failure: KvError | undefined) => void = ignore;
  /** Called when this tab waits for another one, or another one for this tab. */
  onBlocked: (reason: BlockedReason) => void = ignore;
  /** Called when another process leads the database. */
  onLeader: (leader: LeaderInfo) => void = ignore;
  /** Called when background work failed but the connection remains usable. */
  onBackgroundError: (error: KvError) => void = ignore;
  /** Called when other clients may have committed. */
  onWake: () => void = ignore;
  /** Called when the engine's session may have been lost; requests that it makes go first. */
  onForgotten: () => void = ignore;
  /**
   * Wakes waiting followers, by handle id: called when there may be commits to fetch, and when the
   * connection closes.
   */
  readonly waiting = new Map<number, () => void>();
  readonly #collections = new Map<string, number>();
  /** Serializes `update` calls on the same entry, and transactions that lost to others. */
  readonly queue = new PerKeyQueue();

  /** Closes handles after the idle timeout. */
  readonly idle: IdleHandles;
  readonly tracer: Tracer | undefined;

  constructor(transport: Transport, idleTimeoutMs = Infinity, tracer?: Tracer) {
    this.tracer = tracer;
    this.#transport = transport;
    this.idle = new IdleHandles(idleTimeoutMs);
    transport.events = {
      reply: (bytes, count, requests) => this.#onReply(bytes, count, requests),
      refuse: (error, count) => this.#onRefusal(error, count),
      blocked: (reason) => this.onBlocked(reason),
      leader: (leader) => this.onLeader(leader),
      wake: () => this.#onWake(),
      idle: () => this.#schedule(),
      backgroundError: (error) => this.#onBackgroundError(error),
      fail: (error) => this.#onFailure(error),
    };
    tracer?.record({ source: 'connection', event: 'connected' });
  }

  get status(): ConnectionStatus {
    return this.#status;
  }

  /** The failure that ended the connection or that closing it reported, if any. */
  get failure(): KvError | undefined {
    return this.#failure;
  }

  /** Incremented whenever there may be new commits. */
  get wakes(): number {
    return this.#wakes;
  }

  get leader(): LeaderInfo | undefined {
    return this.#transport.leader;
  }

  /** The handles that share the database with this one; `undefined` where none can. */
  async clients(): Promise<readonly ClientInfo[] | undefined> {
    return this.#transport.clients?.();
  }

  /** Changes what the database is opened with the next time, where that happens. */
  rekey(change: (opening: Uint8Array) => Uint8Array): void {
    this.#transport.rekey?.(change);
  }

  /** `due` of `turns.ts`, if the transport takes turns. */
  due(mustLook?: boolean): Promise<void> | undefined {
    return this.#transport.takesTurns ? due(mustLook) : undefined;
  }

  /** Lookups without messages, if the transport has them and no earlier request is outstanding. */
  get lookups(): Lookups | undefined {
    const isIdle = !this.#hasUnsent && this.#sent.length === 0 && this.#status === 'open';
    return isIdle ? this.#transport.lookups : undefined;
  }

  /** A new id for something to be opened in the engine, unique within this connection. */
  newId(): number {
    return this.#nextId++;
  }

  /**
   * The collection's index in this connection; names it to the engine on first use, with the
   * indexes that writes have keys for.
   */
  use(name: string, keyCodec: string, valueCodec: string, indexes?: readonly IndexDefinition[]): number {
    const named: Named = [name, keyCodec, valueCodec, indexes];
    const key = JSON.stringify(named);
    const known = this.#collections.get(key);
    if (known !== undefined) return known;
    const index = this.#collections.size;
    this.#collections.set(key, index);
    this.#name(index, named);
    return index;
  }

  #nameAll(): void {
    this.onForgotten();
    for (const [key, index] of this.#collections) this.#name(index, JSON.parse(key) as Named);
  }

  /** Ignores the reply: each request that uses the index reports a codec mismatch itself. */
  #name(index: number, [name, keyCodec, valueCodec, indexes]: Named): void {
    this.post((writer) => writer.u8(Op.use).uv(index).str(name).str(keyCodec).str(valueCodec), ignore);
    if (!indexes) return;
    this.post((writer) => {
      writer.u8(Op.useIndexes).uv(index).uv(indexes.length);
      for (const each of indexes)
        writer
          .str(each.name)
          .uv(each.version)
          .u8(each.unique ? 1 : 0);
    }, ignore);
  }

  /**
   * Sends a request and returns its reply. `write` runs at once. `read` must consume all of the
   * reply's fields before decoding any of them. Rejects with `closedError` unless the connection is
   * open.
   */
  request<T>(write: (writer: RequestWriter) => unknown, read: (reader: ReplyReader) => T): Promise<T> {
    if (this.#status !== 'open') return Promise.reject(this.closedError());
    return this.#enqueue(write, read);
  }

  /**
   * As `request`, for requests that the engine may not be able to execute before it has loaded more
   * code. They are sent again until it is; later requests go ahead of them.
   */
  requestLoading<T>(write: (writer: RequestWriter) => unknown, read: (reader: ReplyReader) => T): Promise<T> {
    if (this.#status !== 'open') return Promise.reject(this.closedError());
    const asked = this.#repeat(write, read);
    this.#repeated = Promise.allSettled([this.#repeated, asked]).then(ignore);
    return asked;
  }

  async #repeat<T>(write: (writer: RequestWriter) => unknown, read: (reader: ReplyReader) => T): Promise<T> {
    for (;;) {
      const reply = await this.#enqueue<T | typeof ASK>(write, read);
      if (reply !== ASK) return reply;
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      if (this.#status === 'closed') throw this.closedError();
    }
  }

  /** Sends a request and ignores its outcome. */
  post(write: (writer: RequestWriter) => unknown, read: (reader: ReplyReader) => unknown): void {
    this.request(write, read).catch(ignore);
  }

  /**
   * As `post`, but piggybacks on the next request, or is sent after `LATER_MS`. A message of its
   * own would delay that request.
   */
  postLater(write: (writer: RequestWriter) => unknown): void {
    if (this.#status !== 'open') return;
    // An engine in this thread gains nothing from piggybacking.
    if (!this.#transport.takesBuffers) return this.post(write, ignore);
    this.#later.push(write);
    this.#laterTimer ??= setTimeout(() => this.#postLater(), LATER_MS);
  }

  #postLater(): void {
    clearTimeout(this.#laterTimer);
    this.#laterTimer = undefined;
    for (const write of this.#later.splice(0)) this.post(write, ignore);
  }

  /**
   * Whether `hold` is possible and useful: no other `hold` is under way, and the engine's own
   * thread executes earlier messages meanwhile.
   */
  get canHold(): boolean {
    return this.#transport.takesBuffers && !this.#isHeld && this.#status === 'open';
  }

  /**
   * Holds back requests made from now on until `prepared` settles. Then calls `run`; the requests
   * that it makes synchronously go ahead of those held back. If `prepared` rejects, `run` is not
   * called.
   */
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
    if (this.#batch.length > 0) this.#complete.push(this.#take(true));
    const held = this.#complete.splice(0);
    const status = this.#status;
    this.#isHeld = false;
    // `hold` was called before `close`, so `run` may still make requests.
    if (status === 'closing') this.#status = 'open';
    try {
      if (this.#mustName) this.#nameAll();
      return run();
    } finally {
      this.#status = status;
      this.#send();
      this.#complete.push(...held);
      this.#schedule();
    }
  }

  /**
   * What the synchronous API needs of the transport. Throws `KV_SYNC_UNAVAILABLE` if the transport
   * lacks it.
   */
  checkSync(): { readonly [N in 'sendSync' | 'syncFaces']: NonNullable<Transport[N]> } {
    const { sendSync, syncFaces } = this.#transport;
    if (sendSync !== undefined && syncFaces !== undefined) return { sendSync, syncFaces };
    throw new KvError('KV_SYNC_UNAVAILABLE', 'the engine runs in another thread; use the asynchronous API');
  }

  /** As `request`, but executes earlier requests and this one before it returns. */
  requestSync<T>(write: (writer: RequestWriter) => unknown, read: (reader: ReplyReader) => T): T {
    const { sendSync } = this.checkSync();
    if (this.#status !== 'open') throw this.closedError();
    this.#settle();
    const writer = this.#syncWriter;
    try {
      write(writer);
      return this.#read(sendSync.call(this.#transport, writer.view()), read);
    } finally {
      writer.reset(false);
    }
  }

  /**
   * Executes a read-only request at once if `lookups` are available; returns `ASK` otherwise.
   * `read` sees the reply in the engine's memory, so it must copy what it keeps and must not run
   * the caller's code.
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

  /** As `close`, synchronously. */
  closeSync(): void {
    if (this.#status === 'closed') return;
    try {
      if (this.#status === 'closing') this.#settle();
      else this.requestSync((writer) => writer.u8(Op.close), ignore);
    } finally {
      if (this.#failure === undefined) {
        this.#end();
        this.#closing ??= Promise.resolve();
        void this.#transport.dispose();
        this.#onClosed(undefined);
      }
    }
  }

  /** Finishes earlier requests and closes the database; repeated calls return the same promise. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  /** Runs a transaction's callback; `checkOutside` throws until it returns or first awaits. */
  runCallback<T>(fn: () => T): T {
    const before = this.#isInCallback;
    this.#isInCallback = true;
    try {
      return fn();
    } finally {
      this.#isInCallback = before;
    }
  }

  /** Throws `KV_INVALID_ARGUMENT` while a callback runs: a write would bypass its transaction. */
  checkOutside(): void {
    if (this.#isInCallback) {
      throw new KvError(
        'KV_INVALID_ARGUMENT',
        'this would write outside of the transaction whose callback runs; use tx or tx.collection(…)',
      );
    }
  }

  /** The error for requests made once the connection is closing or closed. */
  closedError(): KvError {
    return this.#failure ?? this.traced(new KvError('KV_CLOSED', `the database ${this.name} is closed`));
  }

  /** An error that is reported to the caller: it tells what happened before. */
  traced(error: KvError): KvError {
    return this.tracer?.attach(error) ?? error;
  }

  #end(): void {
    this.#status = 'closed';
    this.idle.stop();
  }

  async #close(): Promise<void> {
    // After a failure there is nothing left to finish.
    if (this.#status === 'closed') return;
    if (this.#repeated) {
      // No later request is accepted, and these are executed first.
      this.#status = 'closing';
      await this.#repeated;
      if (this.#failure !== undefined) return;
    }
    const closed = this.#enqueue((writer) => writer.u8(Op.close), ignore);
    this.#status = 'closing';
    this.#wakeAll();
    try {
      await closed;
    } finally {
      // `closeSync` may have done it meanwhile.
      if (this.#failure === undefined && this.#status === 'closing') {
        this.#end();
        try {
          await this.#transport.dispose();
        } catch (error) {
          this.#failure = this.traced(error as KvError);
          throw error;
        } finally {
          this.#onClosed(this.#failure);
        }
      }
    }
  }

  /** Executes what was requested before without waiting. */
  #settle(): void {
    this.checkSync();
    this.#transport.settle?.();
    while (this.#hasUnsent) {
      this.#send();
      this.#transport.settle?.();
    }
  }

  #failureOf(reader: ReplyReader): PlainError {
    return reader.failure((collection, key) => describeKey(this, collection, key));
  }

  #read<T>(reply: Uint8Array, read: (reader: ReplyReader) => T): T {
    const reader = new ReplyReader(reply);
    if (reader.u8() !== 0) throw this.traced(fromPlain(this.#failureOf(reader)));
    return read(reader);
  }

  #enqueue<T>(write: (writer: RequestWriter) => unknown, read: (reader: ReplyReader) => T): Promise<T> {
    if (this.#later.length > 0) this.#postLater();
    const writer = this.#writer;
    const start = writer.begin();
    try {
      write(writer);
    } catch (error) {
      writer.truncate(start);
      return Promise.reject(error);
    }
    const { length } = writer;
    const isLong = length - start >= LONG_MESSAGE_BYTES;
    // A copy of what is short: the writer's buffer goes with the long request.
    if (isLong && start > 0) this.#complete.push([writer.view().slice(0, start), this.#batch.splice(0)]);
    const reply = new Promise<T>((resolve, reject) => {
      this.#batch.push({ read, resolve, reject });
    });
    if (isLong || (length >= LONG_MESSAGE_BYTES && !this.#canSend))
      this.#complete.push(this.#take(true, isLong ? start : 0));
    if (length >= FULL_MESSAGE_BYTES) this.#send();
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
    if (turn === undefined) soon(send);
    else void turn.then(send);
  }

  get #canSend(): boolean {
    return !this.#isHeld && this.#failure === undefined && this.#transport.isBusy !== true;
  }

  get #hasUnsent(): boolean {
    return this.#batch.length + this.#complete.length > 0;
  }

  #send(): void {
    while (this.#hasUnsent && this.#canSend) {
      const [message, requests] = this.#complete.shift() ?? this.#take(this.#transport.takesBuffers);
      this.#sent.push(requests);
      try {
        this.#transport.send(message);
      } catch (error) {
        this.#onFailure(new KvError('KV_IO', 'the engine could not be reached', { cause: error }));
      }
    }
  }

  /**
   * Ends the current message, which begins at `start`. With `surrender`, its bytes hold beyond the
   * next request.
   */
  #take(surrender: boolean, start = 0): readonly [Uint8Array<ArrayBuffer>, Pending[]] {
    const message = this.#writer.view().subarray(start);
    this.#writer.reset(surrender);
    return [message, this.#batch.splice(0)];
  }

  #onReply(bytes: Uint8Array, count: number, left = Infinity): void {
    // Of messages that a piece answers in part the other requests remain.
    const batch = (count > 0 ? this.#sent.splice(0, count) : this.#sent).flatMap((sent) => {
      const some = sent.splice(0, left);
      left -= some.length;
      return some;
    });
    const reader = new ReplyReader(bytes);
    let failure: PlainError | undefined;
    for (const [index, pending] of batch.entries()) {
      try {
        // A message that cannot be executed to its end ends with an error for all that is left.
        if (failure && reader.isAtEnd) {
          refuse(pending, failure, this.tracer);
          continue;
        }
        const status = reader.u8();
        failure = undefined;
        if (status === ReplyStatus.ok) pending.resolve(pending.read(reader) as never);
        else if (status === ReplyStatus.again) pending.resolve(ASK as never);
        else refuse(pending, (failure = this.#failureOf(reader)), this.tracer);
      } catch (error) {
        pending.reject(error);
        if (!reader.isBroken) continue;
        for (const lost of batch.slice(index + 1)) lost.reject(error);
        this.#onFailure(error as KvError);
        return;
      }
    }
  }

  /** After `close`. */
  #onClosed(failure: KvError | undefined): void {
    this.tracer?.record({ source: 'connection', event: 'closed' });
    this.onClosed(failure);
  }

  #onBackgroundError(error: KvError): void {
    this.tracer?.record({ source: 'connection', event: 'background-error', error: toPlain(error) });
    this.onBackgroundError(this.traced(error));
  }

  #onRefusal(error: KvError, count: number): void {
    this.tracer?.record({ source: 'connection', event: 'refused', count, error: toPlain(error) });
    this.traced(error);
    for (const { reject } of this.#sent.splice(0, count).flat()) reject(error);
    // The requests of a `hold` go first, before the names posted below.
    this.#mustName = this.#isHeld;
    if (this.#status !== 'open') return;
    this.#nameAll();
    // Followers learn only by asking that they were cut off.
    this.#onWake();
  }

  #onWake(): void {
    this.#wakes++;
    this.onWake();
    // A few followers fetch for themselves sooner than the engine can say which of them have commits to read.
    if (this.waiting.size <= FEW_FOLLOWERS) return this.#wakeAll();
    this.post(
      (writer) => writer.u8(Op.changesReady),
      (reader) => {
        for (let left = reader.uv(); left > 0; left--) this.waiting.get(reader.uv())?.();
      },
    );
  }

  #wakeAll(): void {
    for (const wake of [...this.waiting.values()]) wake();
  }

  #onFailure(error: KvError): void {
    if (this.#failure !== undefined || this.#status === 'closed') return;
    this.tracer?.record({ source: 'connection', event: 'lost', error: toPlain(error) });
    this.#failure = this.traced(error);
    this.#end();
    clearTimeout(this.#laterTimer);
    const lost = [
      ...this.#sent.splice(0),
      ...this.#complete.splice(0).map(([, requests]) => requests),
      this.#batch.splice(0),
    ];
    for (const { reject } of lost.flat()) reject(error);
    this.#wakeAll();
    Promise.resolve(this.#transport.dispose()).catch(ignore);
    this.onClosed(error);
  }
}
