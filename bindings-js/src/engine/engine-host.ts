// One engine in this thread: a WebAssembly instance with one open database.
import { instantiate } from '../../build/wasm/glue.js';
import type { Engine, Instance } from '../../build/wasm/glue.js';
import type { EngineOptions } from '../api/options.ts';
import { Lookup } from '../wire/lookup.ts';
import type { LookupEngine } from '../wire/lookup.ts';
import type { TransportEvents } from '../wire/transport.ts';
import { ExecuteFlag, FramePart, Op } from '../wire/opcodes.ts';
import { ReplyReader } from '../wire/protocol.ts';
import { KvError } from '../base/errors.ts';
import { IdleMerge } from './idle-merge.ts';
import type { Merged } from './idle-merge.ts';
import { fromPlain } from '../base/plain-error.ts';
import type { PlainError } from '../base/plain-error.ts';
import { Sweep } from './sweep.ts';
import type { Swept } from './sweep.ts';
import type { CustomStorage, StorageFile } from '../types/index.ts';

function isPlain(thrown: unknown): thrown is PlainError {
  return typeof thrown === 'object' && thrown !== null && 'code' in thrown && 'retryable' in thrown;
}

/** A storage of ours whose lock may fail to keep others out. */
interface LockedStorage extends CustomStorage {
  /** 1: the engine looks for others when it begins to write and after each flush; 2: before each write too. */
  readonly watch?: number;
  /** There where writes are stored later: resolves when those made so far are. */
  settled?(): Promise<void> | undefined;
}

/** Remembers open files, as an engine that crashed closes none. */
class TrackedStorage implements CustomStorage {
  readonly #storage: LockedStorage;
  readonly files = new Map<string, StorageFile>();
  /** The engine asks for it. */
  readonly reserveBytes: number;
  readonly watch: number;

  constructor(storage: LockedStorage) {
    this.#storage = storage;
    this.reserveBytes = storage.reserveBytes ?? 0;
    this.watch = storage.watch ?? 0;
  }

  open(file: string): StorageFile {
    const opened = this.#storage.open(file);
    this.files.set(file, opened);
    return opened;
  }

  list(): string[] {
    return this.#storage.list();
  }

  remove(file: string): void {
    this.#storage.remove(file);
  }

  settled(): Promise<void> | undefined {
    return this.#storage.settled?.();
  }

  closeAll(): void {
    for (const file of this.files.values()) {
      try {
        file.close();
      } catch {
        // There is nothing left to do with it.
      }
    }
    this.files.clear();
  }
}

/** Bound within which relaxed commits are flushed. */
const FLUSH_WITHIN_MS = 100;

/** Callbacks for what happens without a message. */
export interface Background extends Pick<TransportEvents, 'trouble' | 'fail'> {
  /** These clients have commits to read. */
  news(clients: number[]): void;
}

export class EngineHost implements LookupEngine, Swept, Merged {
  readonly keyBytes: number;
  readonly keyAt: number;
  /** Let go of at the end: a browser has room for about a hundred, and a closed database may be kept for long. */
  #instance: Instance | undefined;
  readonly #storage: TrackedStorage;
  #onDisposed: (() => void) | undefined;
  #engine: Engine | undefined;
  #failure: KvError | undefined;
  #view = new Uint8Array(0);
  #words = new Uint32Array(0);
  readonly #frameAt: number;
  #flushTimer: ReturnType<typeof setTimeout> | undefined;
  /** Length of the message that waits for a flush. */
  #waiting = 0;
  /** Flushes what relaxed commits left. */
  flush = (): void => this.#engine?.flush();
  readonly #sweep: Sweep | undefined;
  readonly #merge: IdleMerge | undefined;
  background: Background | undefined;
  #isWaiting = false;
  #isFlushing = false;

  private constructor(instance: Instance, storage: TrackedStorage, engine: Engine, options: EngineOptions, onDisposed?: () => void) {
    this.#onDisposed = onDisposed;
    this.#instance = instance;
    this.#storage = storage;
    this.#engine = engine;
    if (!options.readOnly && options.worksInBackground !== false) {
      this.#sweep = new Sweep(this);
      this.#merge = new IdleMerge(this);
    }
    this.keyBytes = engine.key_bytes();
    this.keyAt = engine.key_ptr();
    this.#frameAt = engine.frame_ptr();
  }

  /** `onDisposed` is called once, after the files were closed. */
  static open(module: WebAssembly.Module, storage: CustomStorage, options: EngineOptions, onDisposed?: () => void): EngineHost {
    const tracked = new TrackedStorage(storage);
    const instance = toInstance(module);
    try {
      return new EngineHost(instance, tracked, instance.Engine.open(tracked, options), options, onDisposed);
    } catch (error) {
      tracked.closeAll();
      throw isPlain(error) ? fromPlain(inJavaScript(error)) : crashed(instance, error);
    }
  }

  /** Size of the instance's memory. */
  get memoryBytes(): number {
    return this.#instance?.memory.buffer.byteLength ?? 0;
  }

  /** As `execute`, but the reply is a view that holds until the next call; undefined if the engine is gone. */
  read(message: Uint8Array): Uint8Array | undefined {
    const engine = this.#engine;
    if (engine === undefined) return undefined;
    try {
      this.#give(engine, message);
      engine.execute(0, 0, message.length, false);
      // Commits whose flush nobody waited for may have become visible before.
      if (this.hasNews) {
        const { news } = this;
        queueMicrotask(() => this.background?.news(news));
      }
      return this.#part(FramePart.reply);
    } catch (error) {
      this.#fail(error);
      return undefined;
    }
  }

  /**
   * Executes a message: of a client, if several are served, under a number that the same message has when it comes again. Throws if the
   * engine is gone.
   */
  execute(message: Uint8Array, client = 0, sequence = 0): Uint8Array<ArrayBuffer> {
    return this.#call((engine) => {
      this.#give(engine, message);
      return this.#reply(engine.execute(client, sequence, message.length, false));
    });
  }

  /**
   * As `execute`, but returns undefined where that would wait for a flush. Then the caller makes the flush and calls `resume`, before
   * anything else is executed.
   */
  start(message: Uint8Array): Uint8Array<ArrayBuffer> | undefined {
    return this.#call((engine) => {
      this.#give(engine, message);
      this.#waiting = message.length;
      return this.#replyIfAny(engine.execute(0, 0, message.length, true));
    });
  }

  /** Continues the message that waits, as `start`. Flushes, unless the caller has. */
  resume(): Uint8Array<ArrayBuffer> | undefined {
    return this.#call((engine) => this.#replyIfAny(engine.resume(this.#waiting)));
  }

  /** What the client of the last message has open, if that message changed it. */
  get state(): Uint8Array<ArrayBuffer> | undefined {
    const state = this.#part(FramePart.state);
    return state.length === 0 ? undefined : state.slice();
  }

  /** Whether `news` names anybody. */
  get hasNews(): boolean {
    return this.#word(FramePart.news + 1) > 0;
  }

  /** Clients that have commits to read since the last message. Each is named once. */
  get news(): number[] {
    const { byteOffset, byteLength } = this.#part(FramePart.news);
    return byteLength === 0 ? [] : [...new Uint32Array(this.#bytes().buffer, byteOffset, byteLength / 4)];
  }

  /** Begins a flush that the caller makes: of the files named, one after the other. */
  beginFlush(): StorageFile[] {
    const names = [[], ['log'], ['data', 'log']][this.#call((engine) => engine.begin_flush())] as string[];
    this.#isFlushing = names.length > 0;
    return names.map((name) => this.#storage.files.get(name) as StorageFile);
  }

  /** The flush is over; `error` is what it failed with. */
  endFlush(error: unknown): void {
    this.#isFlushing = false;
    if (this.#engine !== undefined) this.#call((engine) => engine.end_flush(error));
  }

  /** The flush that was begun is not waited for: `resume` makes another. No other may begin before it is over. */
  releaseFlush(): void {
    this.#isFlushing = false;
    this.#call((engine) => engine.release_flush());
  }

  /** A flush is under way that others have to wait for, or a message waits for one: nothing else may be executed. */
  get isBusy(): boolean {
    return this.#isWaiting || this.#isFlushing;
  }

  #call<T>(call: (engine: Engine) => T): T {
    const engine = this.#engine;
    if (engine === undefined) throw this.#failure ?? new KvError('KV_CLOSED', 'the database is closed');
    try {
      return call(engine);
    } catch (error) {
      if (isPlain(error)) throw fromPlain(error);
      throw this.#crash(error);
    }
  }

  #give(engine: Engine, message: Uint8Array): void {
    if (this.#word(FramePart.request + 1) < message.length) engine.reserve(message.length);
    this.#bytes().set(message, this.#word(FramePart.request));
  }

  #replyIfAny(flags: number): Uint8Array<ArrayBuffer> | undefined {
    this.#isWaiting = (flags & ExecuteFlag.awaitsFlush) !== 0;
    return this.#isWaiting ? undefined : this.#reply(flags);
  }

  #reply(flags: number): Uint8Array<ArrayBuffer> {
    if (this.#flushTimer === undefined && (flags & ExecuteFlag.needsFlush) !== 0) this.#flushLater();
    this.#merge?.touched();
    return this.#part(FramePart.reply).slice();
  }

  /** A word of the frame. */
  #word(index: number): number {
    const bytes = this.#bytes();
    if (this.#words.buffer !== bytes.buffer) this.#words = new Uint32Array(bytes.buffer, this.#frameAt, 2 * Object.keys(FramePart).length);
    return this.#words[index]!;
  }

  /** A view of what the frame has a place of. */
  #part(part: number): Uint8Array<ArrayBuffer> {
    const at = this.#word(part);
    return this.#bytes().subarray(at, at + this.#word(part + 1));
  }

  get memory(): Uint8Array<ArrayBuffer> {
    return this.#instance === undefined ? this.#view : this.#bytes();
  }

  get(view: number, collection: number, length: number, goesOn: boolean): number {
    try {
      return this.#engine?.get(view, collection, length, goesOn) ?? Lookup.ask;
    } catch (error) {
      return this.#fail(error);
    }
  }

  has(view: number, collection: number, length: number, goesOn: boolean): number {
    try {
      return this.#engine?.has(view, collection, length, goesOn) ?? Lookup.ask;
    } catch (error) {
      return this.#fail(error);
    }
  }

  get valueAt(): number {
    return this.#engine?.value_ptr() ?? 0;
  }

  /** The message that is sent then says why. */
  #fail(error: unknown): number {
    this.#failure = this.#crash(error);
    return Lookup.ask;
  }

  #crash(error: unknown): KvError {
    this.#engine = undefined;
    clearTimeout(this.#flushTimer);
    this.#sweep?.stop();
    this.#merge?.stop();
    this.#storage.closeAll();
    const failure = crashed(this.#instance, error);
    this.#forget();
    return failure;
  }

  /** All of the memory. Its buffer is another one whenever it has grown, and the view of the one before is empty then. */
  #bytes(): Uint8Array<ArrayBuffer> {
    if (this.#view.length === 0) this.#view = new Uint8Array((this.#instance as Instance).memory.buffer);
    return this.#view;
  }

  sweep(message: Uint8Array): Uint8Array | undefined {
    if (this.#engine === undefined) return undefined;
    try {
      // The message is no client's.
      const reply = this.execute(message);
      if (this.hasNews) this.background?.news(this.news);
      return reply;
    } catch (error) {
      this.background?.fail(error as KvError);
      return undefined;
    }
  }

  mergeSlice(): boolean {
    try {
      return this.#engine?.merge_slice() ?? false;
    } catch (error) {
      this.#fail(error);
      this.background?.fail(this.#failure as KvError);
      return false;
    }
  }

  /** From now on several clients are served, each by what it selects. */
  beginInheritance(): void {
    this.#call((engine) => engine.begin_inheritance());
  }

  endInheritance(): void {
    this.#engine?.end_inheritance();
  }

  /** Serves a client of this name; gives its number. `state` is what the client had open elsewhere. */
  attach(name: string, state: Uint8Array | undefined, readOnly: boolean): number {
    return this.#call((engine) => engine.attach(name, readOnly, state));
  }

  detach(client: number): void {
    this.#call((engine) => engine.detach(client));
  }

  /** What a client has open; nothing is executed afterwards. */
  lastState(client: number): Uint8Array<ArrayBuffer> | undefined {
    return this.#call((engine) => engine.last_state(client) as Uint8Array<ArrayBuffer> | undefined);
  }

  /** Resolves when everything executed so far is stored; undefined if it is. */
  settled(): Promise<void> | undefined {
    return this.#storage.settled();
  }

  /** Names of the clients whose last outcome is kept. */
  remembered(): string[] {
    return this.#call((engine) => engine.remembered()).split('\n').filter((name) => name !== '');
  }

  forget(name: string): void {
    this.#call((engine) => engine.forget(name));
  }

  get version(): number {
    return this.#engine?.version() ?? 0;
  }

  /** Closes the database, for all its clients; the files are closed also if that fails. */
  close(): void {
    try {
      const reader = new ReplyReader(this.execute(Uint8Array.of(Op.close)));
      if (reader.u8() !== 0) throw reader.error();
    } finally {
      this.dispose();
    }
  }

  trouble(error: KvError): void {
    this.background?.trouble(error);
  }

  #flushLater(): void {
    this.#flushTimer = setTimeout(() => {
      this.#flushTimer = undefined;
      try {
        this.flush();
      } catch {
        // The engine stopped; the next message says so.
      }
    }, FLUSH_WITHIN_MS);
    // What it would flush survives the end of the process anyway.
    (this.#flushTimer as { unref?: () => void }).unref?.();
  }

  dispose(): void {
    const engine = this.#engine;
    this.#engine = undefined;
    clearTimeout(this.#flushTimer);
    this.#sweep?.stop();
    this.#merge?.stop();
    const onDisposed = this.#onDisposed;
    this.#onDisposed = undefined;
    try {
      engine?.free();
    } finally {
      this.#storage.closeAll();
      this.#forget();
      onDisposed?.();
    }
  }

  #forget(): void {
    this.#instance = undefined;
    this.#view = new Uint8Array(0);
    this.#words = new Uint32Array(0);
  }
}

/** The engine's names of options are spelled as in Rust. */
function inJavaScript({ code, message, retryable }: PlainError): PlainError {
  const isAboutOption = code === 'KV_INVALID_ARGUMENT';
  return { code, message: isAboutOption ? message.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase()) : message, retryable };
}

function toInstance(module: WebAssembly.Module): Instance {
  try {
    return instantiate(module);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new KvError('KV_IO', `there is no room for the engine; close databases that are not needed (${reason})`, { cause, retryable: true });
  }
}

function crashed(instance: Instance | undefined, cause: unknown): KvError {
  let reason = cause instanceof Error ? cause.message : String(cause);
  try {
    reason = instance?.panic_message() ?? reason;
  } catch {
    // A crashed engine owes no answer.
  }
  return new KvError('KV_IO', `the engine stopped (${reason}); open the database again`, { cause });
}
