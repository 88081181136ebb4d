// Standard input and output, synchronously, so that what was printed is out before anything else happens.
import { Buffer } from 'node:buffer';
import * as fs from 'node:fs';
import { KvError } from '../errors.ts';
import { NobodyReads, invalid } from './failure.ts';

const STDIN = 0;
const STDOUT = 1;
const STDERR = 2;
const BUFFER_BYTES = 1 << 16;
/** The longest line, a value in base64 and some. What a string may hold ends before. */
const MAX_LINE_BYTES = 500 << 20;

/** A program that writes without a break takes no longer from line to line. */
const PAUSE_MS = 1;
/** As that, within a line. */
const PAUSE_WITHIN_LINE_MS = 100;

const cell = new Int32Array(new SharedArrayBuffer(4));

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? '';
}

/** Repeats a call for which a pipe of another program is not ready. */
function whenReady<T>(call: () => T): T {
  for (;;) {
    try {
      return call();
    } catch (error) {
      if (codeOf(error) !== 'EAGAIN') throw error;
      Atomics.wait(cell, 0, 0, 1);
    }
  }
}

function writeAll(to: number, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length;) at += whenReady(() => fs.writeSync(to, bytes, at));
}

/** Prints a line on standard error, which may be closed: no reason to fail. */
export function note(line: string): void {
  try {
    writeAll(STDERR, Buffer.from(`${line}\n`));
  } catch {
    // Nobody has to read it.
  }
}

/** Lines on standard output, buffered. */
export class Output {
  #text = '';
  /** Whether somebody may have read something. */
  hasBegun = false;

  line(line: string): void {
    this.#text += `${line}\n`;
    if (this.#text.length >= BUFFER_BYTES) this.flush();
  }

  flush(): void {
    const bytes = Buffer.from(this.#text);
    this.#text = '';
    if (bytes.length > 0) this.write(bytes);
  }

  write(bytes: Uint8Array): void {
    this.hasBegun = true;
    try {
      writeAll(STDOUT, bytes);
    } catch (error) {
      if (codeOf(error) === 'EPIPE') throw new NobodyReads();
      throw new KvError('KV_IO', `writing to standard output: ${(error as Error).message}`, { cause: error });
    }
  }
}

export function print(line: string): void {
  const output = new Output();
  output.line(line);
  output.flush();
}

/** Some bytes of standard input; undefined at its end. */
export function readInput(wait: <T>(call: () => T) => T = whenReady): Uint8Array | undefined {
  const bytes = new Uint8Array(BUFFER_BYTES);
  try {
    const count = wait(() => fs.readSync(STDIN, bytes, 0, bytes.length, null));
    return count === 0 ? undefined : bytes.subarray(0, count);
  } catch (error) {
    // What a closed pipe is on Windows.
    if (codeOf(error) === 'EOF') return undefined;
    if (error instanceof NotReady) throw error;
    throw new KvError('KV_IO', `reading standard input: ${(error as Error).message}`, { cause: error });
  }
}

/** Nothing came in a moment. */
class NotReady extends Error {}

/** As `whenReady`, for no longer than a moment. */
function within<T>(ms: number, call: () => T): T {
  for (let waited = 0; ; waited++) {
    try {
      return call();
    } catch (error) {
      if (codeOf(error) !== 'EAGAIN') throw error;
      if (waited === ms) throw new NotReady();
      Atomics.wait(cell, 0, 0, 1);
    }
  }
}

/** What a read does where nothing has been written yet. */
function readsOf(): 'end' | 'fail' | 'wait' {
  try {
    const stat = fs.fstatSync(STDIN);
    if (stat.isFile()) return 'end';
    // Node reads pipes without waiting once it has made a stream of them, which other runtimes do not. A terminal stays as it is.
    if ((stat.isFIFO() || stat.isSocket()) && !('Deno' in globalThis) && !('Bun' in globalThis)) return process.stdin === undefined ? 'wait' : 'fail';
  } catch {
    // There is no standard input, or none that is known here.
  }
  return 'wait';
}

function decode(parts: readonly Uint8Array[]): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Buffer.concat(parts));
  } catch (error) {
    throw invalid(`not UTF-8 (${(error as Error).message})`);
  }
}

export function readAllInput(): string {
  const parts: Uint8Array[] = [];
  for (let part = readInput(); part !== undefined; part = readInput()) parts.push(part);
  return decode(parts);
}

/** Lines of standard input with their numbers; empty ones are passed over. */
export class Lines {
  #rest = new Uint8Array();
  #isAtEnd = false;
  #reads: ReturnType<typeof readsOf> | undefined;
  number = 0;

  /** Whether the input has paused: no line is buffered, and, where the runtime can tell, none can be read without waiting. */
  isPausing(): boolean {
    this.#reads ??= readsOf();
    if (this.#isAtEnd || this.#reads === 'end' || this.#rest.includes(0x0a)) return false;
    if (this.#reads === 'wait') return true;
    try {
      const moment = this.#rest.length === 0 ? PAUSE_MS : PAUSE_WITHIN_LINE_MS;
      const more = readInput((call) => within(moment, call));
      this.#isAtEnd = more === undefined;
      if (more !== undefined) this.#rest = new Uint8Array(Buffer.concat([this.#rest, more]));
      return false;
    } catch (error) {
      if (error instanceof NotReady) return true;
      throw error;
    }
  }

  /** The next line, undecoded; undefined at the end. */
  next(): Uint8Array | undefined {
    for (;;) {
      const line = this.#take();
      this.number++;
      if (line === undefined || line.some((byte) => ![0x20, 0x09, 0x0a, 0x0c, 0x0d].includes(byte))) return line;
    }
  }

  static text(line: Uint8Array): string {
    return decode([line]);
  }

  #take(): Uint8Array | undefined {
    const parts: Uint8Array[] = [];
    for (let length = 0; ;) {
      const end = this.#rest.indexOf(0x0a);
      if (end >= 0) {
        parts.push(this.#rest.subarray(0, end + 1));
        this.#rest = this.#rest.subarray(end + 1);
        break;
      }
      if (this.#rest.length > 0) parts.push(this.#rest);
      length += this.#rest.length;
      if (length > MAX_LINE_BYTES) throw invalid('the line is too long');
      const more = this.#isAtEnd ? undefined : readInput();
      this.#rest = new Uint8Array(more ?? []);
      if (more !== undefined) continue;
      this.#isAtEnd = true;
      break;
    }
    if (parts.length === 0) return undefined;
    return parts.length === 1 ? parts[0] as Uint8Array : new Uint8Array(Buffer.concat(parts));
  }
}
