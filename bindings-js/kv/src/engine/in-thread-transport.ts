// Runs the engine in the caller's thread. A reply is delivered at once, when another thread has
// flushed the commits it acknowledges, or when a storage that writes behind has stored them.
//
// Other clients may share the engine (`processes/served-engine.ts`): they take their turns while the
// transport is not busy, and their commits share its flushes.
import { EngineHost } from './engine-host.ts';
import type { LazyPart } from './engine-host.ts';
import type { KvError } from '../base/errors.ts';
import type { Trace } from '../base/trace.ts';
import { soon } from '../base/platform.ts';
import type { GroupCommit } from './group-commit.ts';
import { ReplyQueue } from './reply-queue.ts';
import type { FlushableFile } from '../storage/node-fs.ts';
import type { CustomStorage } from '../types/index.ts';
import { Lookups } from '../wire/lookup.ts';
import type { EngineOptions, SyncFaces } from '../wire/contracts.ts';
import type { Transport, TransportEvents } from '../wire/transport.ts';

/** What this transport uses of a storage. */
export interface InThreadStorage extends CustomStorage {
  /**
   * Its files are `FlushableFile`s, so the caller's thread continues while commits wait for
   * flushes.
   */
  readonly flushesLater?: boolean;
  /**
   * For storages that write behind: resolves when all writes so far are stored; `undefined` if they
   * already are.
   */
  settled?(): Promise<void> | undefined;
  /** Set by the transport: called when the files are gone. */
  onLost?: ((error: KvError) => void) | undefined;
}

export interface InThreadOptions {
  /** Called once, by `dispose` or if opening fails. */
  readonly release: () => unknown;
  /** The synchronous API, if the entry has it. */
  readonly syncFaces?: SyncFaces;
  /** The lazy part of a split module. The synchronous API needs it loaded. */
  readonly lazy?: LazyPart | undefined;
  /** Whether calls that never wait yield to the event loop now and then. Default: true. */
  readonly takesTurns?: boolean;
  readonly trace?: Trace | undefined;
  /** Flushes that several clients share. */
  readonly group?: GroupCommit;
}

/** What else is served by the engine of a transport. */
export interface OtherClients {
  /** Followers of these clients have commits to read. */
  wake(clients: readonly number[]): void;
  /** Messages can be executed again. */
  idle(): void;
}

/** A reply that waits for a flush. */
interface Held {
  readonly reply: Uint8Array<ArrayBuffer>;
  readonly requests: number | undefined;
  readonly left: Uint8Array | undefined;
}

const NOTHING = new Uint8Array(0);

export class InThreadTransport implements Transport {
  readonly takesBuffers = false;
  readonly syncFaces: SyncFaces | undefined;
  readonly lookups: Lookups | undefined;
  readonly takesTurns: boolean;
  events: TransportEvents | undefined;
  readonly host: EngineHost;
  others: OtherClients | undefined;
  /** Replies that wait for flushes while messages are executed. */
  readonly #group: GroupCommit | undefined;
  /** The handle's own reply among them. It sends nothing until it has it. */
  #held: Held | undefined;
  readonly #release: () => unknown;
  /** Commits may wait for flushes while the thread goes on. */
  readonly flushesLater: boolean;
  /** Commits of several clients may share them. */
  get sharesFlushes(): boolean {
    return this.#group !== undefined;
  }

  /** Flushes in this thread. */
  readonly flushHere: () => void;
  /** Holds back replies until the storage has caught up. */
  readonly #queue: ReplyQueue | undefined;
  #isMessageWaiting = false;
  /** What is left of a message whose reply was full. */
  #left: Uint8Array | undefined;
  /**
   * A flush is running. If the host is not busy, nothing waits for it: a synchronous call made its
   * own.
   */
  #isFlushing = false;
  /** The flush that runs was begun for the group: messages are executed meanwhile. */
  #isForGroup = false;
  #isDisposed = false;

  constructor(
    module: WebAssembly.Module,
    storage: InThreadStorage,
    engine: EngineOptions,
    { release, lazy, syncFaces, takesTurns = true, trace, group }: InThreadOptions,
  ) {
    this.#release = release;
    try {
      this.host = EngineHost.open(module, storage, engine, { lazy, trace });
    } catch (error) {
      void release();
      throw error;
    }
    this.flushesLater = storage.flushesLater === true;
    if (this.flushesLater && group !== undefined) {
      this.#group = group;
      group.flush = () => this.#attempt(() => this.#beginFlushForGroup());
    }
    if (storage.settled === undefined) {
      this.lookups = new Lookups(this.host);
      this.takesTurns = takesTurns;
      this.syncFaces = syncFaces;
    } else {
      this.takesTurns = false;
      const target = {
        reply: (bytes: Uint8Array, requests?: number) => this.#reply(bytes, requests),
        fail: (error: unknown) => this.events?.fail(error as KvError),
      };
      this.#queue = new ReplyQueue(target, () => storage.settled?.());
    }
    this.flushHere = this.host.flush;
    this.host.background = {
      wake: (clients) => this.wake(clients),
      backgroundError: (error) => this.events?.backgroundError(error),
      fail: (error) => this.#fail(error),
    };
    storage.onLost = (error) => this.#fail(error);
    if (this.flushesLater) this.#flushInBackground();
  }

  /** The handle's messages have to wait. */
  get isBusy(): boolean {
    return this.isOccupied || this.#held !== undefined;
  }

  /** All messages have to wait: for the running flush, or for the rest of an earlier one. */
  get isOccupied(): boolean {
    return this.host.isBusy || this.#left !== undefined;
  }

  send(message: Uint8Array): void {
    this.#attempt(() => {
      this.#answer(message);
      if (this.#left === undefined) return;
      this.#continue();
      if (!this.isOccupied) this.#idle();
    });
  }

  #answer(message: Uint8Array): void {
    if (this.#group?.hasOthers === true) return this.#answerInGroup(message, this.#group);
    // While a flush runs that nothing waits for, no other can begin: the message flushes in this
    // thread. It waits for the end of other clients' flush, and then for its own.
    const mayWait = this.flushesLater && (!this.#isFlushing || this.#isForGroup);
    const reply = mayWait ? this.host.start(message) : this.host.execute(message);
    if (reply !== undefined) return this.#deliver(reply);
    this.#isMessageWaiting = true;
    if (!this.#isFlushing) this.#wait();
  }

  /** The handle's commits share flushes with those of others. */
  #answerInGroup(message: Uint8Array, group: GroupCommit): void {
    const reply = this.host.startOwing(message);
    if (reply === undefined) {
      this.#isMessageWaiting = true;
      if (!this.#isFlushing) this.#wait();
    } else if (this.host.owesFlush) {
      const { cut, left } = this.host;
      const held = { reply, requests: cut?.requests, left };
      this.#held = held;
      group.join(true).then(
        () => this.#attempt(() => this.#deliverHeld(held)),
        (error: unknown) => this.#refuseHeld(held, error),
      );
      if (this.host.hasWakes) this.wake(this.host.wakes);
    } else {
      this.#deliver(reply);
    }
  }

  /** Delivers it, unless that was done meanwhile. */
  #deliverHeld(held: Held): void {
    if (this.#held !== held) return;
    this.#held = undefined;
    this.#left = held.left;
    this.#reply(held.reply, held.requests);
    this.#continue();
    if (!this.isOccupied) this.#idle();
  }

  #refuseHeld(held: Held, error: unknown): void {
    if (this.#held !== held) return;
    this.#held = undefined;
    this.events?.refuse(error as KvError, 1);
    this.#idle();
  }

  /** Executes what is left of a message, unless it has to wait. */
  #continue(): void {
    while (this.#left !== undefined && !this.host.isBusy && this.#held === undefined) {
      const left = this.#left;
      this.#left = undefined;
      this.#answer(left);
    }
  }

  sendSync(message: Uint8Array): Uint8Array {
    this.settle();
    let reply;
    try {
      reply = this.host.execute(message);
    } catch (error) {
      this.#fail(error);
      throw error;
    }
    // The caller gets its reply first.
    if (this.host.hasWakes) {
      const { wakes } = this.host;
      soon(() => this.wake(wakes));
    }
    return reply;
  }

  settle(): void {
    if (!this.isBusy) return;
    this.#attempt(() => {
      for (;;) {
        if (this.#held !== undefined) this.#settleHeld(this.#held);
        if (this.host.isBusy) this.host.releaseFlush();
        while (this.#isMessageWaiting) this.#resume();
        if (this.#left === undefined && this.#held === undefined) break;
        this.#continue();
      }
    });
    this.#idle();
  }

  /** Flushes in this thread what the reply waits for. */
  #settleHeld(held: Held): void {
    try {
      this.flushHere();
    } catch (error) {
      return this.#refuseHeld(held, error);
    }
    this.#held = undefined;
    this.#left = held.left;
    this.#reply(held.reply, held.requests);
  }

  dispose(): Promise<void> | void {
    this.#isDisposed = true;
    this.#drop();
    let released: unknown;
    try {
      this.host.dispose();
    } finally {
      released = this.#release();
    }
    return released as Promise<void> | undefined;
  }

  #deliver(reply: Uint8Array<ArrayBuffer>): void {
    // Read first: the receiver of the reply may send the next message at once.
    const { cut, left } = this.host;
    const wakes = this.host.hasWakes ? this.host.wakes : undefined;
    this.#left = left;
    if (this.#queue === undefined) this.#reply(reply, cut?.requests);
    else this.#queue.push(reply, cut?.requests);
    if (wakes !== undefined) this.wake(wakes);
  }

  /** Followers of these clients have commits to read. Client 0 is this transport's. */
  wake(clients: readonly number[]): void {
    if (clients.includes(0)) this.events?.wake();
    this.others?.wake(clients);
  }

  #idle(): void {
    this.others?.idle();
    if (!this.isBusy) this.events?.idle();
  }

  /** Resolves when everything that was executed by now is flushed, by a flush that others share. */
  flushed(): Promise<void> {
    if (this.#group === undefined) throw new Error('nobody shares its flushes');
    return this.#group.join(false);
  }

  /** Begins a flush during which messages are executed. */
  #beginFlushForGroup(): void {
    if (this.#isFlushing || this.#isDisposed || !this.#beginFlush()) return;
    this.#isForGroup = true;
    this.host.releaseFlush();
  }

  #reply(bytes: Uint8Array, requests: number | undefined): void {
    this.events?.reply(bytes, requests === undefined ? 1 : 0, requests);
  }

  #drop(): void {
    this.#isMessageWaiting = false;
    this.#left = undefined;
    this.#held = undefined;
  }

  /** Delivers waiting replies before it reports the failure. */
  #fail(error: unknown): void {
    if (this.#queue === undefined) this.events?.fail(error as KvError);
    else this.#queue.end(error);
  }

  #flushInBackground(): void {
    this.host.flush = () => {
      if (!this.#isFlushing) {
        // Other clients' messages do not wait.
        if (this.others === undefined) this.#beginFlush();
        else this.#beginFlushForGroup();
      }
      // Nothing is executed during a flush that is waited for, so that one covers all commits.
      else if (!this.isOccupied) this.flushHere();
    };
  }

  /**
   * Begins the flush that the message waits for. If there is nothing to flush, resumes the message.
   */
  #wait(): void {
    while (this.#isMessageWaiting && !this.#beginFlush()) this.#resume();
  }

  #resume(): void {
    // A flush that ended at once has resumed the message already.
    if (!this.#isMessageWaiting) return;
    const reply = this.host.resume();
    if (reply === undefined) return;
    this.#isMessageWaiting = false;
    this.#deliver(reply);
  }

  /** Begins a flush; returns whether it is still running. */
  #beginFlush(): boolean {
    this.#group?.begin();
    this.#isForGroup = false;
    const files = this.host.beginFlush() as FlushableFile[];
    const next = (error: unknown): void => {
      const file = error === undefined ? files.shift() : undefined;
      if (file === undefined) this.#attempt(() => this.#onFlushed(error));
      else file.flushLater(next);
    };
    this.#isFlushing = files.length > 0;
    if (this.#isFlushing) next(undefined);
    // There is nothing left to flush.
    else this.#group?.end(undefined);
    return this.#isFlushing;
  }

  #onFlushed(error: unknown): void {
    const isReleased = !this.isOccupied;
    const wasForGroup = this.#isForGroup;
    this.#isFlushing = this.#isForGroup = false;
    const failure = this.host.endFlush(error);
    this.#group?.end(failure);
    if (this.#isDisposed) return;
    // A waiting message reports it in its reply.
    if (failure !== undefined && !this.#isMessageWaiting) this.events?.backgroundError(failure as KvError);
    if (this.#isMessageWaiting) {
      // What others waited for came before its own commits.
      if (!wasForGroup) this.#resume();
      this.#wait();
    } else if (this.others !== undefined && failure === undefined) {
      // Commits have become visible without a message that would tell of it.
      this.host.execute(NOTHING);
      if (this.host.hasWakes) this.wake(this.host.wakes);
    }
    if (!isReleased) {
      this.#continue();
      if (!this.isOccupied) this.#idle();
    }
    if (!this.isOccupied) this.#group?.look();
  }

  /** Any exception means that the engine is gone. */
  #attempt(action: () => void): void {
    try {
      action();
    } catch (error) {
      this.#drop();
      this.#fail(error);
    }
  }
}
