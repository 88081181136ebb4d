// What devices with databases were promised, and whether it was kept.
import { DAMAGED } from './replica.ts';
import type { Content, Told } from './replica.ts';

/** Failures of the log that pass. A token that has expired is replaced at the next connection. */
const PASSING: readonly string[] = ['KV_LOG_UNAVAILABLE', 'KV_LOG_REFUSED', 'KV_CLOSED', 'KV_LOG_CONFLICT'];

export interface PromisesOptions {
  /** Codes of errors that the servers cause on purpose. */
  readonly expected: readonly string[];
  /** The servers lose what they had acknowledged: devices put back what they have, and strict transactions are not serial any more. */
  readonly areLosses: boolean;
}

export class Promises {
  readonly #passing: ReadonlySet<string>;
  readonly #areLosses: boolean;
  /** Entries that have to be there, or not; those that may or may not be are left out. */
  readonly #notes = new Map<string, boolean>();
  readonly #counted = new Map<string, number>();
  /** How often something was told. */
  readonly #times = new Map<string, number>();
  readonly errors = new Map<string, number>();
  readonly wrong: string[] = [];
  /** The greatest number that some strict transaction has counted to. */
  highest = 0;
  /** When the last entry will have expired, by a right clock. */
  lastExpiry = 0;

  constructor({ expected, areLosses }: PromisesOptions) {
    this.#passing = new Set([...PASSING, ...expected]);
    this.#areLosses = areLosses;
  }

  times(what: Told['type']): number {
    return this.#times.get(what) ?? 0;
  }

  get commits(): number {
    return this.#notes.size;
  }

  tell(device: string, told: Told): void {
    this.#times.set(told.type, this.times(told.type) + 1);
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
      case 'expiring':
        this.#notes.set(told.key, false);
        this.lastExpiry = Math.max(this.lastExpiry, told.at);
        break;
      case 'counted':
        this.#counted.set(told.id, told.value);
        this.highest = Math.max(this.highest, told.value);
        // It saw all that was counted before it began, and added to that.
        if (told.value <= told.before) this.#outdated(device, `counted to ${told.value}`, told.before);
        break;
      case 'read':
        if (told.value < told.before) this.#outdated(device, `read ${told.value}`, told.before);
        break;
      case 'diverged':
        this.wrong.push(`${device} diverged: ${told.entries} entries of ${told.collection} were not what the log says`);
        break;
      case 'repair':
        if (!this.#areLosses) this.wrong.push(`${device} had to repair the log with ${told.records} records`);
        break;
      case 'error':
        this.errors.set(told.code, (this.errors.get(told.code) ?? 0) + 1);
        if (!this.#passing.has(told.code)) this.wrong.push(`${device}: ${told.code}, ${told.message}`);
    }
  }

  #outdated(device: string, what: string, before: number): void {
    if (!this.#areLosses)
      this.wrong.push(
        `${device} ${what} in a strict transaction that began after another one had counted to ${before}: it is not fresh`,
      );
  }

  /** What is lost of the promises in a database's content. */
  check({ notes, counted }: Content): string[] {
    const lost: string[] = [];
    const found = new Set(notes.map(([key]) => key));
    for (const [key, isThere] of this.#notes) {
      if (found.has(key) !== isThere)
        lost.push(isThere ? `${key} is lost: it was committed` : `${key} is there: it was removed, or has expired`);
    }
    for (const [key, value] of notes) if (value === DAMAGED) lost.push(`${key} has a value that nobody has written`);
    for (const [key] of notes) {
      // Commits take effect as a whole, also those that nobody was promised.
      const other = key.endsWith('/a')
        ? `${key.slice(0, -1)}b`
        : key.endsWith('/b')
          ? `${key.slice(0, -1)}a`
          : undefined;
      if (other !== undefined && !key.startsWith('range/') && !found.has(other))
        lost.push(`${key} is there without ${other}, which the same commit wrote`);
    }
    if (this.#areLosses) return lost;
    const values = new Map(counted as readonly (readonly [string, number])[]);
    const sum = values.get('sum') ?? 0;
    values.delete('sum');
    for (const [id, value] of this.#counted)
      if (values.get(id) !== value) lost.push(`${id} is lost: it was committed as ${value} and is ${values.get(id)}`);
    // Strict transactions took effect one after another: each has a number of its own, without gaps.
    const numbers = [...values.values()].sort((a, b) => a - b);
    if (numbers.length !== sum || numbers.some((number, at) => number !== at + 1))
      lost.push(`strict transactions are not serial: the sum is ${sum}, the numbers are ${numbers.join(', ')}`);
    return lost;
  }
}
