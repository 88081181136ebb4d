// A file in memory, divided into blocks, that tracks which blocks changed.
import { KvError } from '../base/errors.ts';
import type { StorageFile } from '../types/index.ts';

/**
 * Unit of storing and loading. Small enough for the log's commits, which rewrite its last block.
 */
export const BLOCK_BYTES = 16 << 10;

/** Changes of a file since the last call of `takeChanges`. */
export interface FileChanges {
  /** Blocks from this index on were dropped, before `blocks` were written. */
  readonly droppedFrom: number | undefined;
  readonly blocks: readonly (readonly [index: number, bytes: Uint8Array])[];
  readonly size: number;
}

export class BlockFile implements StorageFile {
  /** Blocks that were never written are missing; they read as zeros. */
  readonly #blocks = new Map<number, Uint8Array>();
  readonly #changed = new Set<number>();
  readonly #onChange: () => void;
  readonly #check: () => void;
  #droppedFrom: number | undefined;
  #size = 0;

  /** `onChange` is called before each change, `check` on each flush; both may throw. */
  constructor(onChange: () => void, check: () => void) {
    this.#onChange = onChange;
    this.#check = check;
  }

  /** Loads a stored block. */
  load(index: number, bytes: Uint8Array): void {
    this.#blocks.set(index, bytes);
  }

  /** Loads the stored size. */
  loadSize(size: number): void {
    this.#size = size;
  }

  read(at: number, into: Uint8Array): void {
    if (at + into.length > this.#size) throw new KvError('KV_IO', `read at ${at}: past the end of the file`);
    pass(at, into.length, (index, start, done, length) => {
      const block = this.#blocks.get(index);
      if (block === undefined) into.fill(0, done, done + length);
      else into.set(block.subarray(start, start + length), done);
    });
  }

  write(at: number, from: Uint8Array): void {
    this.#onChange();
    pass(at, from.length, (index, start, done, length) => {
      let block = this.#blocks.get(index);
      if (block === undefined) this.#blocks.set(index, (block = new Uint8Array(BLOCK_BYTES)));
      block.set(from.subarray(done, done + length), start);
      this.#changed.add(index);
    });
    this.#size = Math.max(this.#size, at + from.length);
  }

  flush(): void {
    this.#check();
  }

  size(): number {
    return this.#size;
  }

  truncate(size: number): void {
    if (size === this.#size) return;
    this.#onChange();
    const kept = Math.ceil(size / BLOCK_BYTES);
    const before = Math.ceil(this.#size / BLOCK_BYTES);
    for (let index = kept; index < before; index++) {
      this.#blocks.delete(index);
      this.#changed.delete(index);
    }
    if (kept < before) this.#droppedFrom = Math.min(this.#droppedFrom ?? kept, kept);
    const last = this.#blocks.get(kept - 1);
    if (size < this.#size && last !== undefined && size % BLOCK_BYTES !== 0) {
      last.fill(0, size % BLOCK_BYTES);
      this.#changed.add(kept - 1);
    }
    this.#size = size;
  }

  close(): void {}

  /**
   * Returns the changes since the last call. The blocks are the file's own memory: they are valid
   * until the file is written to.
   */
  takeChanges(): FileChanges {
    const blocks = [...this.#changed].map((index) => [index, this.#blocks.get(index) as Uint8Array] as const);
    const changes = { droppedFrom: this.#droppedFrom, blocks, size: this.#size };
    this.#changed.clear();
    this.#droppedFrom = undefined;
    return changes;
  }
}

function pass(
  at: number,
  total: number,
  each: (index: number, start: number, done: number, length: number) => void,
): void {
  for (let done = 0; done < total; ) {
    const start = (at + done) % BLOCK_BYTES;
    const length = Math.min(BLOCK_BYTES - start, total - done);
    each(Math.floor((at + done) / BLOCK_BYTES), start, done, length);
    done += length;
  }
}
