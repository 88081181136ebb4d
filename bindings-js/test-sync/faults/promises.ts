// What devices with databases were promised, and whether it was kept.
import type { Replica, Told } from './replica.ts';

type Content = Awaited<ReturnType<Replica['content']>>;

/** Failures of the log that pass. A token that has expired is replaced at the next connection. */
const PASSING: ReadonlySet<string> = new Set(['KV_LOG_UNAVAILABLE', 'KV_LOG_REFUSED', 'KV_CLOSED', 'KV_LOG_CONFLICT']);

export class Promises {
  /** Entries that have to be there, or not; those that may or may not be are left out. */
  readonly #notes = new Map<string, boolean>();
  readonly #counted = new Map<string, number>();
  readonly wrong: string[] = [];

  get commits(): number {
    return this.#notes.size;
  }

  get strict(): number {
    return this.#counted.size;
  }

  tell(device: string, told: Told): void {
    switch (told.type) {
      case 'wrote':
        this.#notes.set(told.key, true);
        break;
      case 'removing':
        this.#notes.delete(told.key);
        break;
      case 'removed':
        this.#notes.set(told.key, false);
        break;
      case 'counted':
        this.#counted.set(told.id, told.value);
        break;
      case 'repair':
        this.wrong.push(`${device} had to repair the log with ${told.records} records`);
        break;
      case 'error':
        if (!PASSING.has(told.code)) this.wrong.push(`${device}: ${told.code}, ${told.message}`);
    }
  }

  /** What is lost of the promises in a database's content. */
  check({ notes, counted }: Content): string[] {
    const lost: string[] = [];
    const found = new Set(notes.map(([key]) => key as string));
    for (const [key, isThere] of this.#notes) {
      if (found.has(key) !== isThere) lost.push(isThere ? `${key} is lost: it was committed` : `${key} is there: it was removed`);
    }
    const values = new Map(counted as readonly (readonly [string, number])[]);
    const sum = values.get('sum') ?? 0;
    values.delete('sum');
    for (const [id, value] of this.#counted) if (values.get(id) !== value) lost.push(`${id} is lost: it was committed as ${value} and is ${values.get(id)}`);
    // Strict transactions took effect one after another: each has a number of its own, without gaps.
    const numbers = [...values.values()].sort((a, b) => a - b);
    if (numbers.length !== sum || numbers.some((number, at) => number !== at + 1)) lost.push(`strict transactions are not serial: the sum is ${sum}, the numbers are ${numbers.join(', ')}`);
    return lost;
  }
}
