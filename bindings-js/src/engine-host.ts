// One engine in this thread: a WebAssembly instance with one open database.
import { instantiate } from '../build/wasm/glue.js';
import type { Engine, Instance } from '../build/wasm/glue.js';
import type { EngineOptions } from './client/options.ts';
import { KvError } from './errors.ts';
import type { KvErrorCode } from './errors.ts';
import type { CustomStorage, StorageFile } from './types.ts';

/** An error as it travels between threads and languages. */
export interface PlainError {
  readonly code: KvErrorCode;
  readonly message: string;
  readonly retryable: boolean;
}

export function toPlain(error: unknown): PlainError {
  if (error instanceof KvError) return { code: error.code, message: error.message, retryable: error.retryable };
  return { code: 'KV_IO', message: error instanceof Error ? error.message : String(error), retryable: false };
}

export function fromPlain({ code, message, retryable }: PlainError): KvError {
  return new KvError(code, message, { retryable });
}

function isPlain(thrown: unknown): thrown is PlainError {
  return typeof thrown === 'object' && thrown !== null && 'code' in thrown && 'retryable' in thrown;
}

/** Remembers open files, as an engine that crashed closes none. */
class TrackedStorage implements CustomStorage {
  readonly #storage: CustomStorage;
  readonly #files: StorageFile[] = [];

  constructor(storage: CustomStorage) {
    this.#storage = storage;
  }

  open(file: string): StorageFile {
    const opened = this.#storage.open(file);
    this.#files.push(opened);
    return opened;
  }

  list(): string[] {
    return this.#storage.list();
  }

  remove(file: string): void {
    this.#storage.remove(file);
  }

  closeAll(): void {
    for (const file of this.#files.splice(0)) {
      try {
        file.close();
      } catch {
        // There is nothing left to do with it.
      }
    }
  }
}

/** Bound within which relaxed commits are flushed. */
const FLUSH_WITHIN_MS = 100;

export class EngineHost {
  readonly #instance: Instance;
  readonly #storage: TrackedStorage;
  #engine: Engine | undefined;
  #view = new Uint8Array(0);
  #flushTimer: ReturnType<typeof setTimeout> | undefined;

  private constructor(instance: Instance, storage: TrackedStorage, engine: Engine) {
    this.#instance = instance;
    this.#storage = storage;
    this.#engine = engine;
  }

  static open(module: WebAssembly.Module, storage: CustomStorage, options: EngineOptions): EngineHost {
    const tracked = new TrackedStorage(storage);
    const instance = instantiate(module);
    try {
      return new EngineHost(instance, tracked, instance.Engine.open(tracked, options));
    } catch (error) {
      tracked.closeAll();
      throw isPlain(error) ? fromPlain(error) : crashed(instance, error);
    }
  }

  /** Size of the instance's memory. */
  get memoryBytes(): number {
    return this.#instance.memory.buffer.byteLength;
  }

  /** Executes a message. What it throws means that the engine is gone. */
  execute(message: Uint8Array): Uint8Array<ArrayBuffer> {
    const engine = this.#engine;
    if (engine === undefined) throw new KvError('KV_CLOSED', 'the database is closed');
    try {
      const at = engine.request_buffer(message.length);
      this.#bytes().set(message, at);
      const length = engine.execute(message.length);
      if (this.#flushTimer === undefined && engine.needs_flush()) this.#flushLater();
      const reply = engine.reply_ptr();
      return this.#bytes().slice(reply, reply + length);
    } catch (error) {
      this.#engine = undefined;
      clearTimeout(this.#flushTimer);
      this.#storage.closeAll();
      throw crashed(this.#instance, error);
    }
  }

  /** All of the memory. Its buffer is another one whenever it has grown, and the view of the one before is empty then. */
  #bytes(): Uint8Array<ArrayBuffer> {
    if (this.#view.length === 0) this.#view = new Uint8Array(this.#instance.memory.buffer);
    return this.#view;
  }

  /** Whether there are commits that those who follow them were not told of; true once for each. */
  hasNews(): boolean {
    return this.#engine?.has_news() ?? false;
  }

  #flushLater(): void {
    this.#flushTimer = setTimeout(() => {
      this.#flushTimer = undefined;
      try {
        this.#engine?.flush();
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
    try {
      engine?.free();
    } finally {
      this.#storage.closeAll();
    }
  }
}

function crashed(instance: Instance, cause: unknown): KvError {
  let reason = cause instanceof Error ? cause.message : String(cause);
  try {
    reason = instance.panic_message() ?? reason;
  } catch {
    // A crashed engine owes no answer.
  }
  return new KvError('KV_IO', `the engine stopped (${reason}); open the database again`, { cause });
}
