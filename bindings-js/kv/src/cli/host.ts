// What the command line tool needs of its machine: files, locks and streams, in Node, Deno and Bun.
// The tool itself is `engine/cli`, compiled to WebAssembly; `bindings-js/cli` declares the methods
// that it calls here.
import * as fs from 'node:fs';
import { dirname, resolve } from 'node:path';
import { isatty } from 'node:tty';
import { crypto, performance } from '../base/platform.ts';
import { prepareDirectory } from '../storage/node-directory.ts';
import { NodeStorage, syncDirectory } from '../storage/node-fs.ts';
import { lockDirectorySync, lockReplacement } from '../storage/node-lock.ts';
import type { CustomStorage } from '../types/index.ts';
import { Input, whenReady } from './input.ts';

const STDERR = 2;

/** Error codes of directories that nobody can write to, so there is no writer to lock out. */
const READ_ONLY_PLACES = ['EACCES', 'EPERM', 'EROFS'];

/** Files of a directory that may not exist yet. */
class DirectoryFiles extends NodeStorage {
  readonly #directory: string;

  constructor(directory: string, isReading: boolean) {
    super(directory, isReading);
    this.#directory = directory;
  }

  override list(): string[] {
    const isThere = fs.statSync(this.#directory, { throwIfNoEntry: false }) !== undefined;
    return isThere ? super.list() : [];
  }
}

export interface Lock {
  release(): void;
}

/**
 * Paths are as the user wrote them; open files are descriptors. Methods throw the errors of
 * `node:fs`, or a KvError.
 */
export class Host {
  readonly replacesOpenFiles = process.platform !== 'win32';
  readonly isErrorOutputTerminal = isatty(STDERR);
  readonly #input: Input;
  readonly #held = new Set<Lock>();

  /** `unblockInput` makes standard input non-blocking if it is a pipe. */
  constructor(unblockInput: (() => void) | undefined) {
    this.#input = new Input(unblockInput);
  }

  storage(directory: string, writes: boolean): CustomStorage {
    return new DirectoryFiles(resolve(directory), !writes);
  }

  lock(directory: string): Lock | undefined {
    try {
      return this.#hold(lockDirectorySync(resolve(directory), 0));
    } catch (error) {
      const { code = '' } = (error as { cause?: { code?: string } }).cause ?? {};
      if (READ_ONLY_PLACES.includes(code)) return undefined;
      throw error;
    }
  }

  createDirectory(path: string): void {
    prepareDirectory(resolve(path), true);
  }

  /** 0 for nothing, 1 for a file, 2 for a directory, 3 for anything else. */
  kind(path: string): number {
    try {
      const stat = fs.statSync(path, { throwIfNoEntry: false });
      if (stat === undefined) return 0;
      return stat.isFile() ? 1 : stat.isDirectory() ? 2 : 3;
    } catch {
      return 0;
    }
  }

  hasName(path: string): boolean {
    return fs.lstatSync(path, { throwIfNoEntry: false }) !== undefined;
  }

  open(path: string, creates: boolean): number {
    return fs.openSync(path, creates ? 'wx' : 'r');
  }

  read(file: number, into: Uint8Array): number {
    return fs.readSync(file, into, 0, into.length, null);
  }

  write(file: number, from: Uint8Array): number {
    return whenReady(() => fs.writeSync(file, from));
  }

  flushAll(file: number, path: string): void {
    fs.fsyncSync(file);
    syncDirectory(dirname(resolve(path)));
  }

  close(file: number): void {
    fs.closeSync(file);
  }

  replace(from: string, to: string): void {
    // Keeps others from opening the new file until `end`.
    this.#hold(lockReplacement(resolve(from)));
    fs.renameSync(from, to);
    syncDirectory(dirname(resolve(to)));
  }

  removeFile(path: string): void {
    fs.unlinkSync(path);
  }

  removeDirectory(path: string): void {
    fs.rmdirSync(path);
  }

  removeTree(path: string): void {
    fs.rmSync(path, { recursive: true });
  }

  readInput(into: Uint8Array): number {
    return this.#input.read(into);
  }

  isInputReady(momentMs: number): boolean {
    return this.#input.isReady(momentMs);
  }

  random(): Uint8Array {
    return crypto.getRandomValues(new Uint8Array(16));
  }

  now(): number {
    return performance.now();
  }

  /** Releases all remaining locks. */
  end(): void {
    for (const lock of this.#held) lock.release();
  }

  #hold(release: () => void): Lock {
    const lock: Lock = {
      release: () => {
        if (this.#held.delete(lock)) release();
      },
    };
    this.#held.add(lock);
    return lock;
  }
}
