// A custom storage that fails as the test tells it to.
import type { CustomStorage, StorageFile } from 'mangrove-kv';

export function failure(code: string, message = `injected ${code}`): Error {
  return Object.assign(new Error(message), { code });
}

export class FaultyStorage implements CustomStorage {
  readonly files = new Map<string, Uint8Array>();
  /** Bytes that can still be written before the disk is full. */
  roomBytes = Infinity;
  /** Errors that calls of a method throw, until removed. */
  readonly broken = new Map<keyof StorageFile, unknown>();
  opened = 0;
  closed = 0;
  flushes = 0;

  open(name: string): StorageFile {
    this.opened++;
    if (!this.files.has(name)) this.files.set(name, new Uint8Array(0));
    return new FaultyFile(this, name);
  }

  list(): string[] {
    return [...this.files.keys()];
  }

  remove(name: string): void {
    this.files.delete(name);
  }

  check(method: keyof StorageFile): void {
    if (this.broken.has(method)) throw this.broken.get(method);
  }
}

class FaultyFile implements StorageFile {
  readonly #storage: FaultyStorage;
  readonly #name: string;

  constructor(storage: FaultyStorage, name: string) {
    this.#storage = storage;
    this.#name = name;
  }

  get #bytes(): Uint8Array {
    return this.#storage.files.get(this.#name) as Uint8Array;
  }

  read(at: number, into: Uint8Array): void {
    this.#storage.check('read');
    if (at + into.length > this.#bytes.length) throw failure('KV_IO', 'the file ends before');
    into.set(this.#bytes.subarray(at, at + into.length));
  }

  write(at: number, from: Uint8Array): void {
    this.#storage.check('write');
    const grows = Math.max(at + from.length - this.#bytes.length, 0);
    if (grows > this.#storage.roomBytes) {
      // Writes the part that fits, as a real disk may do.
      this.#put(at, from.subarray(0, Math.max(from.length - grows + this.#storage.roomBytes, 0)));
      this.#storage.roomBytes = 0;
      throw failure('KV_QUOTA_EXCEEDED');
    }
    this.#storage.roomBytes -= grows;
    this.#put(at, from);
  }

  flush(): void {
    this.#storage.check('flush');
    this.#storage.flushes++;
  }

  size(): number {
    this.#storage.check('size');
    return this.#bytes.length;
  }

  truncate(size: number): void {
    this.#storage.check('truncate');
    const bytes = new Uint8Array(size);
    bytes.set(this.#bytes.subarray(0, size));
    this.#storage.files.set(this.#name, bytes);
  }

  close(): void {
    this.#storage.closed++;
  }

  #put(at: number, from: Uint8Array): void {
    if (at + from.length > this.#bytes.length) this.truncate(at + from.length);
    this.#bytes.set(from, at);
  }
}

/**
 * Reports sizes of a type that WebAssembly does not accept: an exception inside the engine, which
 * ends it as a trap does.
 */
export class CrashingStorage extends FaultyStorage {
  isCrashing = false;

  override open(name: string): StorageFile {
    return new Proxy(super.open(name), {
      get: (target, method) => {
        if (method === 'size' && this.isCrashing) return () => 10n;
        if (method === 'write' && this.isCrashing)
          return () => {
            throw new Error('makes the engine ask for the size');
          };
        const member: unknown = target[method as keyof StorageFile];
        return typeof member === 'function' ? (member.bind(target) as unknown) : member;
      },
    });
  }
}
