// Output in the form of the other verbs.
import * as fs from 'node:fs';
import process from 'node:process';
import type { ArchivedSnapshot } from '@mangrove-kv/replication/archive';

const PAUSE_MS = 100;

export const timeOf = (milliseconds: number): string => new Date(milliseconds).toISOString();

/** A snapshot as verbs print it. */
export function toShown(snapshot: ArchivedSnapshot | undefined): { readonly position: number; readonly time: string } | null {
  return snapshot === undefined ? null : { position: snapshot.position, time: timeOf(snapshot.serverTime) };
}

/** Prints a line of JSON on standard output. A reader that has gone is no reason to fail. */
export function print(value: string): void {
  try {
    fs.writeSync(1, `${value}\n`);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EPIPE') throw error;
  }
}

/** Prints a line on standard error; a closed one is no reason to fail. */
export function note(line: string): void {
  try {
    fs.writeSync(2, `${line}\n`);
  } catch {
    // Nobody reads it.
  }
}

/** Progress on standard error: a terminal gets a line that changes, anything else one per report if requested. */
export class Progress {
  readonly #isTerminal = process.stderr.isTTY === true;
  readonly #isWanted: boolean;
  #last = -Infinity;
  #isLineOpen = false;

  constructor(isAskedFor: boolean) {
    this.#isWanted = isAskedFor || this.#isTerminal;
  }

  show(line: () => string): void {
    const now = performance.now();
    if (!this.#isWanted || now - this.#last < PAUSE_MS) return;
    this.#last = now;
    if (this.#isTerminal) {
      fs.writeSync(2, `\r${line()}\x1B[K`);
      this.#isLineOpen = true;
    } else {
      note(line());
    }
  }

  end(): void {
    if (this.#isLineOpen) note('');
    this.#isLineOpen = false;
  }
}
