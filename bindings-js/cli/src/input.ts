// Lines of standard input.
import { Buffer } from 'node:buffer';
import * as fs from 'node:fs';
import process from 'node:process';
import { attempt, invalid, messageOf, within } from './failure.ts';
import { KvError } from 'mangrove-kv';

const STDIN = 0;
const LINE_END = 0x0a;
/** No string is longer in Node. */
const MAX_LINE_BYTES = 0x1fff_ffe8;
/** A program that writes without pausing takes no longer from line to line. */
const PAUSE_MS = 1;
/** As `PAUSE_MS`, within a line. */
const PAUSE_WITHIN_LINE_MS = 100;
/** Editors and shells of Windows write it in front of UTF-8. */
const BYTE_ORDER_MARK = /^\uFEFF/;

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function decode(bytes: Uint8Array): string {
  try {
    return decoder.decode(bytes);
  } catch {
    throw invalid('not UTF-8');
  }
}

export async function readAllInput(): Promise<string> {
  const pieces: Buffer[] = [];
  try {
    for await (const piece of process.stdin) pieces.push(piece as Buffer);
  } catch (error) {
    throw new KvError('KV_IO', `reading standard input: ${messageOf(error)}`, { cause: error });
  }
  return decode(Buffer.concat(pieces)).replace(BYTE_ORDER_MARK, '');
}

function isRegularFile(): boolean {
  try {
    return fs.fstatSync(STDIN).isFile();
  } catch {
    return false;
  }
}

export class Lines {
  /** Number of the line read last. */
  number = 0;
  readonly #pieces = process.stdin[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  #reading: Promise<IteratorResult<Buffer>> | undefined;
  #isAtEnd = false;
  /** Begins of a line, then what may hold more lines. */
  #begun: Buffer[] = [];
  #rest: Buffer = Buffer.alloc(0);
  #begunBytes = 0;

  /** The next line that is not empty; `undefined` at the end of the input. */
  async next(): Promise<string | undefined> {
    for (;;) {
      const bytes = await this.#line();
      if (bytes === undefined) return undefined;
      const text = within(`line ${this.number}`, () => decode(bytes)).replace(
        this.number === 1 ? BYTE_ORDER_MARK : /^$/,
        '',
      );
      if (/[^\t\n\f\r ]/.test(text)) return text;
    }
  }

  /** Whether the next line has not arrived yet, and its writer may wait for us. */
  async isPausing(): Promise<boolean> {
    if (isRegularFile()) return false;
    for (;;) {
      if (this.#isAtEnd || this.#rest.includes(LINE_END)) return false;
      this.#keepBegun();
      this.#reading ??= this.#pieces.next();
      const wait = this.#begunBytes === 0 ? PAUSE_MS : PAUSE_WITHIN_LINE_MS;
      let timer: NodeJS.Timeout | undefined;
      const isTooLong = await Promise.race([
        this.#reading.then(
          () => false,
          () => false,
        ),
        new Promise<boolean>((resolve) => {
          timer = setTimeout(resolve, wait, true);
        }),
      ]);
      clearTimeout(timer);
      if (isTooLong) return true;
      await this.#read();
    }
  }

  /** Stops reading, so that the process can end. */
  end(): void {
    process.stdin.destroy();
  }

  async #line(): Promise<Buffer | undefined> {
    this.number++;
    for (;;) {
      const end = this.#rest.indexOf(LINE_END);
      if (end >= 0) {
        const line = this.#take(this.#rest.subarray(0, end));
        this.#rest = this.#rest.subarray(end + 1);
        return line;
      }
      this.#keepBegun();
      if (this.#begunBytes > MAX_LINE_BYTES)
        within(`line ${this.number}`, () => {
          throw invalid('the line is too long');
        });
      if (!this.#isAtEnd) await this.#read();
      else return this.#begunBytes === 0 ? undefined : this.#take(Buffer.alloc(0));
    }
  }

  #take(last: Buffer): Buffer {
    const line = this.#begun.length === 0 ? last : Buffer.concat([...this.#begun, last]);
    this.#begun = [];
    this.#begunBytes = 0;
    return line;
  }

  #keepBegun(): void {
    if (this.#rest.length > 0) this.#begun.push(this.#rest);
    this.#begunBytes += this.#rest.length;
    this.#rest = Buffer.alloc(0);
  }

  async #read(): Promise<void> {
    const reading = this.#reading ?? this.#pieces.next();
    this.#reading = undefined;
    let result: IteratorResult<Buffer>;
    try {
      result = await reading;
    } catch (error) {
      return attempt('reading standard input', () => {
        throw error;
      });
    }
    if (result.done === true) this.#isAtEnd = true;
    else this.#rest = result.value;
  }
}
