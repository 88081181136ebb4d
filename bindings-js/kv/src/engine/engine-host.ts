// One engine in this thread: a WebAssembly instance with one open database.
import { soon } from '../base/platform.ts';
import { instantiate } from '../../build/wasm/glue.js';
import type { Instance } from '../../build/wasm/glue.js';
import type { EngineOptions } from '../wire/contracts.ts';
import { Lookup } from '../wire/lookup.ts';
import type { LookupEngine } from '../wire/lookup.ts';
import type { Cut, TransportEvents } from '../wire/transport.ts';
import { ExecuteFlag, FramePart, Op } from '../wire/opcodes.ts';
import { ReplyReader } from '../wire/protocol.ts';
import { KvError } from '../base/errors.ts';
import { IdleMerge } from './idle-merge.ts';
import type { Merged } from './idle-merge.ts';
import type { Trace } from '../base/trace.ts';
import { fromPlain } from '../base/plain-error.ts';
import type { PlainError } from '../base/plain-error.ts';
import { Sweep } from './sweep.ts';
import type { Swept } from './sweep.ts';
import { BROWSER_MS, within } from '../storage/support.ts';
import type { CustomStorage, StorageFile } from '../types/index.ts';

function isPlain(thrown: unknown): thrown is PlainError {
  return typeof thrown === 'object' && thrown !== null && 'code' in thrown && 'retryable' in thrown;
}

/** What the package's own storages add to `CustomStorage`. */
interface LockedStorage extends CustomStorage {
  /**
   * When the engine checks for other writers, since the lock may not exclude them. 1: before the
   * first write, strict commits and writes to the data file, and after each flush. 2: also before
   * each log record. Default: never. It then also checks whether the files have their names: they
   * need the method `checkName` of `NodeFile`.
   */
  readonly watch?: number;
  /**
   * For storages that write behind: resolves when all writes so far are stored; `undefined` if they
   * already are.
   */
  settled?(): Promise<void> | undefined;
}

/** Tracks open files: an engine that crashed does not close them. */
class TrackedStorage implements CustomStorage {
  readonly #storage: LockedStorage;
  readonly files = new Map<string, StorageFile>();
  /** Read by the engine, like `watch`. */
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
        // Nothing more can be done with this file.
      }
    }
    this.files.clear();
  }
}

/**
 * The lazy part of a module that was split: code for calls that a page seldom makes. The engine asks for
 * it at the first of them.
 */
export type LazyPart = WebAssembly.Module | (() => Promise<WebAssembly.Module>);

export interface HostOptions {
  /** Called once, by `dispose`, after the files are closed. */
  readonly onDisposed?: (() => void) | undefined;
  /** Required if the module is the core of a split one. */
  readonly lazy?: LazyPart | undefined;
  readonly trace?: Trace | undefined;
}

const noLazy = (): never => {
  throw new Error('the option wasm has the core of the module only; give it the whole one');
};

/** Relaxed commits are flushed within this time. */
const FLUSH_WITHIN_MS = 100;

/** Callbacks for unsolicited events. */
export interface Background extends Pick<TransportEvents, 'backgroundError' | 'fail'> {
  /** Followers of these clients have commits to read. */
  wake(clients: number[]): void;
}

export class EngineHost implements LookupEngine, Swept, Merged {
  readonly keyBytes: number;
  readonly keyAt: number;
  /**
   * Dropped at the end: a browser has room for about a hundred instances, and the handle of a
   * closed database may live on.
   */
  #instance: Instance | undefined;
  readonly #storage: TrackedStorage;
  #onDisposed: (() => void) | undefined;
  /** The instance, unless the engine is gone. */
  #engine: Instance | undefined;
  #failure: KvError | undefined;
  #view = new Uint8Array(0);
  #words = new Uint32Array(0);
  readonly #frameAt: number;
  #flushTimer: ReturnType<typeof setTimeout> | undefined;
  /** Length of the last message. */
  #length = 0;
  /** Set if the reply to the last message is full: the caller executes what is left of it. */
  cut: Cut | undefined;
  /** Whether the reply of the last `executeOwing` or `startOwing` has to wait for a flush. */
  owesFlush = false;
  /** Flushes relaxed commits. A transport can replace it to flush in another thread. */
  flush = (): void => this.#call((engine) => engine.flush());
  readonly #sweep: Sweep | undefined;
  readonly #merge: IdleMerge | undefined;
  background: Background | undefined;
  #isWaiting = false;
  #isFlushing = false;
  /** Only called while the lazy part is lacking. */
  readonly #loadModule: () => Promise<WebAssembly.Module>;
  #isLoadingLazy = false;
  /**
   * Wait for it before the first message: writes to a database with indexes need the lazy part. If it
   * cannot be loaded, they report that.
   */
  readonly ready: Promise<void> | undefined;

  private constructor(
    instance: Instance,
    storage: TrackedStorage,
    options: EngineOptions,
    { onDisposed, lazy = noLazy, trace }: HostOptions,
  ) {
    this.#onDisposed = onDisposed;
    this.#loadModule = typeof lazy === 'object' ? noLazy : lazy;
    this.#instance = instance;
    this.#storage = storage;
    this.#engine = instance;
    if (!options.readOnly && options.worksInBackground !== false) {
      this.#sweep = new Sweep(this);
      this.#merge = new IdleMerge(this, trace);
    }
    this.keyBytes = instance.key_bytes();
    this.keyAt = instance.key_ptr() >>> 0;
    this.#frameAt = instance.frame_ptr() >>> 0;
    if (linkOf(instance) !== undefined) {
      const isNeeded = instance.lacks_lazy() !== 0;
      if (typeof lazy === 'object') this.#addLazy(lazy);
      else if (isNeeded) this.ready = this.#loadLazy();
    }
  }

  static open(
    module: WebAssembly.Module,
    storage: CustomStorage,
    options: EngineOptions,
    hostOptions: HostOptions = {},
  ): EngineHost {
    const tracked = new TrackedStorage(storage);
    const instance = toInstance(module);
    try {
      openIn(instance, tracked, options);
      return new EngineHost(instance, tracked, options, hostOptions);
    } catch (error) {
      tracked.closeAll();
      throw isPlain(error) ? fromPlain(inJavaScript(error)) : crashed(instance, error);
    }
  }

  /**
   * What is wrong with an opening's secret for a database that is open elsewhere, which has this
   * sealed key if it is encrypted.
   */
  static refusal(
    module: WebAssembly.Module,
    { opening }: EngineOptions,
    sealedKey: Uint8Array | undefined,
  ): KvError | undefined {
    const secret = opening.subarray(16);
    if (secret.length === 0)
      return sealedKey && new KvError('KV_WRONG_KEY', 'the database is encrypted; open it with its key');
    if (sealedKey === undefined)
      return new KvError('KV_NOT_ENCRYPTED', 'the database is not encrypted; open it without a key');
    try {
      toInstance(module).open(
        undefined as never,
        OpenFlag.check,
        0,
        0,
        0,
        0,
        Uint8Array.of(sealedKey.length, ...sealedKey, ...secret),
      );
      return undefined;
    } catch (error) {
      return isPlain(error) ? fromPlain(error) : crashed(undefined, error);
    }
  }

  /** The sealed key of an encrypted database. */
  get sealedKey(): Uint8Array<ArrayBuffer> | undefined {
    // A module without encryption does not export it.
    const length = this.#engine?.sealed_key?.() ?? 0;
    return length === 0 ? undefined : this.#bytes().slice(this.valueAt, this.valueAt + length);
  }

  get memoryBytes(): number {
    return this.#instance?.memory.buffer.byteLength ?? 0;
  }

  /**
   * Same as `execute`, but the reply is a view into WASM memory, valid until the next call. Returns
   * `undefined` if the engine is gone.
   */
  read(message: Uint8Array): Uint8Array | undefined {
    const engine = this.#engine;
    if (engine === undefined) return undefined;
    try {
      if (this.#give(engine, message)) engine.execute(0, 0, message.length, 0);
      // Commits may have become visible since the last message, when their flush ended.
      if (this.hasWakes) {
        const { wakes } = this;
        soon(() => this.background?.wake(wakes));
      }
      return this.#part(FramePart.reply);
    } catch (error) {
      this.#fail(error);
      return undefined;
    }
  }

  /**
   * Executes a message; returns a copy of the reply. If the engine serves several clients, `client`
   * is the sender and `sequence` numbers its messages: a message that is sent again keeps its
   * number, so its commits are not repeated. A message of several requests may be `cut`.
   *
   * @throws KvError if the engine is gone.
   */
  execute(message: Uint8Array, client = 0, sequence = 0): Uint8Array<ArrayBuffer> {
    return this.#call((engine) =>
      this.#reply(this.#give(engine, message) ? engine.execute(client, sequence, message.length, 0) : 0),
    );
  }

  /**
   * Same as `execute`, but leaves the last commits' flush to the caller: if `owesFlush`, it delivers the
   * reply after a flush that it begins later.
   */
  executeOwing(message: Uint8Array, client: number, sequence: number): Uint8Array<ArrayBuffer> {
    return this.#call((engine) => {
      const flags = this.#give(engine, message) ? engine.execute(client, sequence, message.length, 2) : 0;
      this.owesFlush = (flags & ExecuteFlag.owesFlush) !== 0;
      return this.#reply(flags);
    });
  }

  /**
   * Same as `execute`, but returns `undefined` if the message has to wait for a flush. The caller
   * then flushes and calls `resume` before anything else is executed.
   */
  start(message: Uint8Array): Uint8Array<ArrayBuffer> | undefined {
    return this.#call((engine) =>
      this.#replyIfAny(this.#give(engine, message) ? engine.execute(0, 0, message.length, 1) : 0),
    );
  }

  /** Same as `executeOwing`, but where that would flush, returns `undefined` as `start` does. */
  startOwing(message: Uint8Array): Uint8Array<ArrayBuffer> | undefined {
    return this.#call((engine) => {
      const flags = this.#give(engine, message) ? engine.execute(0, 0, message.length, 3) : 0;
      this.owesFlush = (flags & ExecuteFlag.owesFlush) !== 0;
      return this.#replyIfAny(flags);
    });
  }

  /** Continues the waiting message, like `start`. Flushes first, unless the caller has. */
  resume(): Uint8Array<ArrayBuffer> | undefined {
    return this.#call((engine) => this.#replyIfAny(engine.resume(this.#length)));
  }

  /** What is left of the last message, if it was cut. */
  get left(): Uint8Array<ArrayBuffer> | undefined {
    return this.cut && this.#part(FramePart.request).slice(this.cut.at, this.#length);
  }

  /** Exported state of the last message's client, if the message changed it. */
  get state(): Uint8Array<ArrayBuffer> | undefined {
    const state = this.#part(FramePart.state);
    return state.length === 0 ? undefined : state.slice();
  }

  get hasWakes(): boolean {
    return this.#word(FramePart.wakes + 1) > 0;
  }

  /** Clients that have to be woken since the last message: their followers have commits to read. */
  get wakes(): number[] {
    const { byteOffset, byteLength } = this.#part(FramePart.wakes);
    return byteLength === 0 ? [] : [...new Uint32Array(this.#bytes().buffer, byteOffset, byteLength / 4)];
  }

  /**
   * Begins a flush that the caller performs: of the returned files, in this order. Empty if there
   * is nothing to flush.
   */
  beginFlush(): StorageFile[] {
    const names = [[], ['log'], ['data', 'log']][this.#call((engine) => engine.begin_flush())] as string[];
    this.#isFlushing = names.length > 0;
    return names.map((name) => this.#storage.files.get(name) as StorageFile);
  }

  /**
   * Ends the flush that was begun; `error` is `undefined` or what it failed with. Returns why
   * nothing was acknowledged, if so.
   */
  endFlush(error: unknown): unknown {
    this.#isFlushing = false;
    if (this.#engine === undefined) return error;
    const refusal = this.#call((engine) => engine.end_flush(error)) as PlainError | undefined;
    return error ?? (refusal && fromPlain(refusal));
  }

  /**
   * Stops waiting for the flush that was begun; `resume` then flushes by itself. No other flush may
   * begin before `endFlush`.
   */
  releaseFlush(): void {
    this.#isFlushing = false;
    this.#call((engine) => engine.release_flush());
  }

  /**
   * A message waits for a flush, or a flush runs that was not released. Nothing else may be
   * executed meanwhile.
   */
  get isBusy(): boolean {
    return this.#isWaiting || this.#isFlushing;
  }

  #call<T>(call: (engine: Instance) => T): T {
    const engine = this.#engine;
    if (engine === undefined) throw this.#failure ?? new KvError('KV_CLOSED', 'the database is closed');
    try {
      return call(engine);
    } catch (error) {
      if (isPlain(error)) throw fromPlain(error);
      throw this.#crash(error);
    }
  }

  /**
   * Copies a message into the engine's memory; returns whether there is room for it. If not, the
   * reply refuses it.
   */
  #give(engine: Instance, message: Uint8Array): boolean {
    this.cut = undefined;
    if (this.#word(FramePart.request + 1) < message.length && !engine.reserve(message.length)) return false;
    this.#length = message.length;
    this.#bytes().set(message, this.#word(FramePart.request));
    return true;
  }

  #replyIfAny(flags: number): Uint8Array<ArrayBuffer> | undefined {
    this.#isWaiting = (flags & ExecuteFlag.awaitsFlush) !== 0;
    return this.#isWaiting ? undefined : this.#reply(flags);
  }

  #reply(flags: number): Uint8Array<ArrayBuffer> {
    if (this.#flushTimer === undefined && (flags & ExecuteFlag.needsFlush) !== 0) this.#flushLater();
    if ((flags & ExecuteFlag.lacksLazy) !== 0) void this.#loadLazy();
    if ((flags & ExecuteFlag.isCut) !== 0)
      this.cut = { at: this.#word(FramePart.cut), requests: this.#word(FramePart.cut + 1) };
    this.#merge?.touched();
    return this.#part(FramePart.reply).slice();
  }

  /** Requests that need the lazy part are answered with `again` meanwhile. */
  async #loadLazy(): Promise<void> {
    if (this.#isLoadingLazy) return;
    this.#isLoadingLazy = true;
    try {
      const module = await within(this.#loadModule(), BROWSER_MS, 'the lazy part of the engine');
      if (this.#engine !== undefined) this.#addLazy(module);
    } catch (error) {
      this.#engine?.end_loading(error instanceof Error ? error.message : String(error));
    } finally {
      this.#isLoadingLazy = false;
    }
  }

  #addLazy(module: WebAssembly.Module): void {
    const { exports } = this.#instance as Instance;
    const link = linkOf(this.#instance as Instance) as string;
    const imports = WebAssembly.Module.imports(module);
    if (imports[0]?.module !== link) {
      throw new Error('the lazy part of the engine is of another version than its core; reload the page');
    }
    const table = exports[link] as WebAssembly.Table;
    // Functions are imported by their place in the core's table; the lazy part fills other places of it.
    const given = imports.map(
      ({ name, kind }) => [name, kind === 'function' ? (table.get(Number(name)) as unknown) : exports[name]] as const,
    );
    new WebAssembly.Instance(module, { [link]: Object.fromEntries(given) as WebAssembly.ModuleImports });
    this.#engine?.end_loading(undefined);
  }

  /** Reads a 32-bit word of the engine's frame; see `FramePart`. */
  #word(index: number): number {
    const bytes = this.#bytes();
    if (this.#words.buffer !== bytes.buffer)
      this.#words = new Uint32Array(bytes.buffer, this.#frameAt, 2 * Object.keys(FramePart).length);
    return this.#words[index]!;
  }

  /** A view of a part of the frame, valid until the next call. */
  #part(part: number): Uint8Array<ArrayBuffer> {
    const at = this.#word(part);
    return this.#bytes().subarray(at, at + this.#word(part + 1));
  }

  get memory(): Uint8Array<ArrayBuffer> {
    return this.#instance === undefined ? this.#view : this.#bytes();
  }

  get(view: number, collection: number, length: number, sameState: boolean): number {
    try {
      return this.#engine?.get(view, collection, length, Number(sameState)) ?? Lookup.ask;
    } catch (error) {
      return this.#fail(error);
    }
  }

  has(view: number, collection: number, length: number, sameState: boolean): number {
    try {
      return this.#engine?.has(view, collection, length, Number(sameState)) ?? Lookup.ask;
    } catch (error) {
      return this.#fail(error);
    }
  }

  get valueAt(): number {
    return (this.#engine?.value_ptr() ?? 0) >>> 0;
  }

  /** Records the failure. A lookup then falls back to a message, which reports it. */
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

  /** All of the memory. Growth replaces the buffer and empties views of the old one. */
  #bytes(): Uint8Array<ArrayBuffer> {
    if (this.#view.length === 0) this.#view = new Uint8Array((this.#instance as Instance).memory.buffer);
    return this.#view;
  }

  sweep(message: Uint8Array): Uint8Array | undefined {
    if (this.#engine === undefined) return undefined;
    try {
      // No client awaits this reply, so the clients are woken here.
      const reply = this.execute(message);
      if (this.hasWakes) this.background?.wake(this.wakes);
      return reply;
    } catch (error) {
      this.background?.fail(error as KvError);
      return undefined;
    }
  }

  mergeSlice(): boolean {
    try {
      return this.#engine?.merge_slice() === 1;
    } catch (error) {
      this.#fail(error);
      this.background?.fail(this.#failure as KvError);
      return false;
    }
  }

  /**
   * From now on the engine serves several clients. Until `endInheritance`, clients of an earlier
   * leader may continue from the current version.
   */
  beginInheritance(): void {
    this.#call((engine) => engine.begin_inheritance());
  }

  endInheritance(): void {
    this.#engine?.end_inheritance();
  }

  /** Whether the first client, 0, leaves the database open for others when it closes it. */
  keepOpen(keepsOpen: boolean): void {
    this.#call((engine) => engine.keep_open(Number(keepsOpen)));
  }

  /**
   * Attaches a client; returns its number. `state` is the client's state as an earlier leader
   * exported it.
   */
  attach(name: string, state: Uint8Array | undefined, readOnly: boolean): number {
    return this.#call((engine) => engine.attach(name, readOnly, state));
  }

  detach(client: number): void {
    this.#call((engine) => engine.detach(client));
  }

  /** Exports what a client has open. Nothing may be committed here afterwards. */
  lastState(client: number): Uint8Array<ArrayBuffer> | undefined {
    return this.#call((engine) => engine.last_state(client) as Uint8Array<ArrayBuffer> | undefined);
  }

  /** Resolves when everything executed so far is stored; `undefined` if it already is. */
  settled(): Promise<void> | undefined {
    return this.#storage.settled();
  }

  /** Names of the clients whose last answers are stored. */
  remembered(): string[] {
    return this.#call((engine) => engine.remembered())
      .split('\n')
      .filter((name) => name !== '');
  }

  forget(name: string): void {
    this.#call((engine) => engine.forget(name));
  }

  get version(): number {
    return this.#engine?.version() ?? 0;
  }

  /** Closes the database for all its clients. Closes the files even if that fails. */
  close(): void {
    try {
      const reader = new ReplyReader(this.execute(Uint8Array.of(Op.close)));
      if (reader.u8() !== 0) throw reader.error();
    } finally {
      this.dispose();
    }
  }

  backgroundError(error: KvError): void {
    this.background?.backgroundError(error);
  }

  #flushLater(): void {
    this.#flushTimer = setTimeout(() => {
      this.#flushTimer = undefined;
      try {
        this.flush();
      } catch {
        // The engine stopped; the next message reports it.
      }
    }, FLUSH_WITHIN_MS);
    // Without a flush, written data still survives the end of the process.
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

/** Flags of the engine's `open`. */
const OpenFlag = { create: 1, exclusive: 2, readOnly: 4, besideWriter: 8, check: 64 } as const;
const COMPRESSION: Readonly<Record<string, number>> = { lz4: 16, none: 32 };

function openIn(instance: Instance, storage: TrackedStorage, options: EngineOptions): void {
  const { cacheBytes, unitBytes, nodeBytes, feedCommits, compression, opening } = options;
  let flags = compression === undefined ? 0 : (COMPRESSION[compression] ?? 0);
  for (const [name, flag] of Object.entries(OpenFlag)) if (options[name as keyof EngineOptions] === true) flags |= flag;
  instance.open(storage as never, flags, cacheBytes, unitBytes, nodeBytes, feedCommits, opening);
}

/** The engine spells option names in snake_case. */
function inJavaScript({ code, message, retryable }: PlainError): PlainError {
  const isAboutOption = code === 'KV_INVALID_ARGUMENT';
  return {
    code,
    message: isAboutOption ? message.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase()) : message,
    retryable,
  };
}

/**
 * Name under which the core of a split module exports its table and the lazy part imports from it,
 * unique to the build; `undefined` if the module is whole.
 */
function linkOf({ exports }: Instance): string | undefined {
  return Object.keys(exports).find((name) => name.startsWith('lazy '));
}

function toInstance(module: WebAssembly.Module): Instance {
  try {
    return instantiate(module);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new KvError('KV_IO', `there is no room for the engine; close databases that are not needed (${reason})`, {
      cause,
      retryable: true,
    });
  }
}

function crashed(instance: Instance | undefined, cause: unknown): KvError {
  let reason = cause instanceof Error ? cause.message : String(cause);
  try {
    reason = instance?.panic_message() ?? reason;
  } catch {
    // A crashed instance may fail to tell.
  }
  return new KvError('KV_IO', `the engine stopped (${reason}); open the database again`, { cause });
}
