// In-memory files that fail on demand, flush late, and can show what a power cut or the death of
// the process would leave of them.
import type { FlushableFile } from '../../src/storage/node-fs.ts';
import type { CustomStorage } from '../../src/types/index.ts';
import type { Random } from '../tabs/random.ts';

const SECTOR_BYTES = 512;

export type Operation = 'write' | 'flush' | 'read' | 'truncate';

/** Failures of one kind of operation. */
export interface Fault {
  readonly operation: Operation;
  readonly file: 'data' | 'log' | undefined;
  readonly code: 'ENOSPC' | 'EIO';
  /** How many of them succeed first. */
  after: number;
  /** How many fail. */
  times: number;
  /** Fraction of a failing write that reaches the file, from 0 to 1. */
  readonly keeps: number;
}

type Change = { readonly file: string } & (
  | { readonly at: number; readonly bytes: Uint8Array }
  | { readonly size: number }
);

/** What a cut leaves of the files. */
export type Image = ReadonlyMap<string, Uint8Array>;

/**
 * `all`: the process dies. The others are power cuts, which leave nothing, the first few changes,
 * or any sectors of what was not flushed.
 */
export type Cut = 'all' | 'none' | 'first' | 'any';

function apply(files: Map<string, Uint8Array>, change: Change): void {
  const bytes = files.get(change.file) ?? new Uint8Array(0);
  const size = 'size' in change ? change.size : Math.max(bytes.length, change.at + change.bytes.length);
  const next = size === bytes.length ? bytes : new Uint8Array(size);
  if (next !== bytes) next.set(bytes.subarray(0, size));
  if ('bytes' in change) next.set(change.bytes, change.at);
  files.set(change.file, next);
}

function* sectorsOf(change: Change): Generator<Change> {
  if ('size' in change) return yield change;
  for (let done = 0; done < change.bytes.length; ) {
    const at = change.at + done;
    const length = Math.min(SECTOR_BYTES - (at % SECTOR_BYTES), change.bytes.length - done);
    yield { file: change.file, at, bytes: change.bytes.subarray(done, done + length) };
    done += length;
  }
}

export class Disk implements CustomStorage {
  readonly #durable = new Map<string, Uint8Array>();
  readonly #current = new Map<string, Uint8Array>();
  #unflushed: Change[] = [];
  readonly #random: Random;
  readonly faults: Fault[] = [];
  /** Number of operations that failed. */
  failed = 0;
  /** Called before each write, flush and truncation. */
  onOperation: (() => void) | undefined;
  /** Flushes in progress elsewhere. */
  #running: (() => void)[] = [];
  readonly reserveBytes: number;
  flushesLater = false;

  constructor(random: Random, image: Image = new Map(), reserveBytes = 0) {
    this.#random = random;
    this.reserveBytes = reserveBytes;
    for (const [name, bytes] of image) {
      this.#durable.set(name, bytes);
      this.#current.set(name, bytes.slice());
    }
  }

  list(): string[] {
    return [...this.#current.keys()];
  }

  remove(name: string): void {
    this.#current.delete(name);
    this.#durable.delete(name);
  }

  open(name: string): FlushableFile {
    if (!this.#current.has(name)) {
      this.#current.set(name, new Uint8Array(0));
      this.#durable.set(name, new Uint8Array(0));
    }
    const bytes = (): Uint8Array => this.#current.get(name) as Uint8Array;
    return {
      read: (at, into) => {
        this.#check('read', name);
        if (at + into.length > bytes().length) throw new Error('the file ends before');
        into.set(bytes().subarray(at, at + into.length));
      },
      write: (at, from) => {
        this.onOperation?.();
        this.#check('write', name, (keeps) => {
          const kept = Math.floor(from.length * keeps);
          if (kept > 0) this.#change({ file: name, at, bytes: from.slice(0, kept) });
        });
        this.#change({ file: name, at, bytes: from.slice() });
      },
      truncate: (size) => {
        this.onOperation?.();
        this.#check('truncate', name);
        this.#change({ file: name, size });
      },
      flush: () => {
        this.onOperation?.();
        this.#check('flush', name);
        this.#flush(name, this.#unflushed.length);
      },
      flushLater: (done) => {
        this.onOperation?.();
        // The flush covers what was written before it began.
        const count = this.#unflushed.length;
        const covered = this.#unflushed.slice(0, count);
        this.#running.push(() => {
          try {
            this.#check('flush', name);
            this.#flush(name, this.#unflushed.filter((change) => covered.includes(change)).length);
          } catch (error) {
            return done(error);
          }
          done(undefined);
        });
        setImmediate(() => this.#endSome());
      },
      size: () => bytes().length,
      close: () => undefined,
    };
  }

  /**
   * The files as a cut would leave them. The image passed to the constructor belongs to the disk.
   */
  cut(how: Cut): Image {
    if (how === 'all') return new Map([...this.#current].map(([name, bytes]) => [name, bytes.slice()]));
    const files = new Map([...this.#durable].map(([name, bytes]) => [name, bytes.slice()]));
    let left = how === 'none' ? [] : this.#unflushed;
    if (how === 'first') left = left.slice(0, this.#random.below(left.length + 1));
    if (how === 'any') {
      left = left.flatMap((change) => [...sectorsOf(change)]).filter(() => this.#random.chance(0.5));
      for (let index = left.length - 1; index > 0; index--) {
        const other = this.#random.below(index + 1);
        [left[index], left[other]] = [left[other] as Change, left[index] as Change];
      }
    }
    for (const change of left) apply(files, change);
    return files;
  }

  #check(operation: Operation, file: string, onFailure?: (keeps: number) => void): void {
    const fault = this.faults.find(
      (candidate) => candidate.operation === operation && (candidate.file ?? file) === file && candidate.times > 0,
    );
    if (fault === undefined || fault.after-- > 0) return;
    fault.times--;
    this.failed++;
    onFailure?.(fault.keeps);
    throw Object.assign(new Error(`injected ${fault.code}`), { code: fault.code });
  }

  #change(change: Change): void {
    apply(this.#current, change);
    this.#unflushed.push(change);
  }

  #flush(file: string, before: number): void {
    this.#unflushed = this.#unflushed.filter((change, index) => {
      if (change.file !== file || index >= before) return true;
      apply(this.#durable, change);
      return false;
    });
  }

  /** Ends flushes in any order, some of them late. */
  #endSome(): void {
    while (this.#running.length > 0) {
      if (this.#random.chance(0.3)) {
        setImmediate(() => this.#endSome());
        return;
      }
      const [end] = this.#running.splice(this.#random.below(this.#running.length), 1);
      end?.();
    }
  }
}
