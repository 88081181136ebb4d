// Standard output and standard error, written synchronously: the reader's pace is the tool's.
import * as fs from 'node:fs';
import process from 'node:process';
import { KvError } from 'mangrove-kv';
import { BrokenPipe, StaleOutput, codeOf, messageOf } from './failure.ts';

const STDOUT = 1;
const STDERR = 2;
const BUFFER_CHARACTERS = 1 << 16;
/** Time between two reports of progress. */
const PAUSE_MS = 100;

const cell = new Int32Array(new SharedArrayBuffer(4));

/** Writes all bytes, waiting for a pipe that is full. */
export function writeAll(file: number, bytes: Uint8Array): void {
  for (let done = 0; done < bytes.length; ) {
    try {
      done += fs.writeSync(file, bytes, done);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
      Atomics.wait(cell, 0, 0, 1);
    }
  }
}

/** Writes to standard output. */
export function writeOutput(bytes: Uint8Array): void {
  try {
    writeAll(STDOUT, bytes);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EPIPE') throw new BrokenPipe();
    throw new KvError('KV_IO', `writing to standard output: ${messageOf(error)}`, { cause: error });
  }
}

/** Lines of standard output. */
export class Output {
  #buffer: string[] = [];
  #length = 0;
  #hasBegun = false;

  line(line: string): void {
    this.#buffer.push(line, '\n');
    this.#length += line.length + 1;
    if (this.#length >= BUFFER_CHARACTERS) this.flush();
  }

  flush(): void {
    if (this.#length === 0) return;
    const text = this.#buffer.join('');
    this.#buffer = [];
    this.#length = 0;
    this.#hasBegun = true;
    writeOutput(new TextEncoder().encode(text));
  }

  /** Runs work that prints. Shows what came before a failure too, unless all of it can be read again. */
  async during(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      const isStale = codeOf(error) === 'KV_STALE';
      if (isStale && !this.#hasBegun) throw error;
      if (!(error instanceof BrokenPipe)) this.flush();
      throw isStale ? new StaleOutput() : error;
    }
    this.flush();
  }
}

/** Prints a single line. */
export function print(line: string): void {
  writeOutput(new TextEncoder().encode(`${line}\n`));
}

function writeError(text: string): void {
  try {
    writeAll(STDERR, new TextEncoder().encode(text));
  } catch {
    // Nobody reads it.
  }
}

/** Prints a line on standard error; a closed one is no reason to fail. */
export function note(line: string): void {
  writeError(`${line}\n`);
}

/** Progress on standard error: a terminal gets a line that changes, anything else one per report if requested. */
export class Progress {
  readonly #isTerminal = process.stderr.isTTY === true;
  readonly #isWanted: boolean;
  #last = -Infinity;
  #isLineOpen = false;

  constructor(isAskedFor: boolean | undefined) {
    this.#isWanted = isAskedFor === true || this.#isTerminal;
  }

  /** Shows a line, unless the previous one is recent and this is not the last. */
  show(line: () => string, isLast = false): void {
    const now = performance.now();
    if (!this.#isWanted || (!isLast && now - this.#last < PAUSE_MS)) return;
    this.#last = now;
    if (this.#isTerminal) {
      // The previous line may have been longer.
      writeError(`\r${line()}\x1B[K`);
      this.#isLineOpen = true;
    } else {
      note(line());
    }
  }

  /** Shows how far a backup or restore is, which counts `things`. */
  showCopied(done: number, total: number, things: string, bytes: number): void {
    const percent = total === 0 ? 100 : Math.floor((done * 100) / total);
    this.show(() => `${percent} %, ${done} of ${total} ${things}, ${bytes} bytes`, done === total);
  }

  /** Ends the line that changes. */
  end(): void {
    if (this.#isLineOpen) note('');
    this.#isLineOpen = false;
  }
}
