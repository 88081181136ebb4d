// Lookups of single keys without messages, where the engine runs in this thread.
import { decodePart, encodeKey } from './codecs.ts';
import { ASK, isFast } from './target.ts';
import type { Target, View } from './target.ts';

/** What the engine answers instead of a length. */
export const Lookup = { absent: -1, ask: -2 } as const;

/** The engine as lookups see it. */
export interface LookupEngine {
  /** All of its memory, until the next call. */
  readonly memory: Uint8Array;
  /** Where the key belongs, and how long it may be. */
  readonly keyAt: number;
  readonly keyBytes: number;
  /** Where the value is that `get` found, until the next call. */
  readonly valueAt: number;
  /**
   * Looks up the key of `length` bytes; gives the length of its value or one of `Lookup`. With `goesOn` in the state that was
   * read last, whatever expired since.
   */
  get(view: number, collection: number, length: number, goesOn: boolean): number;
  /** Executes a message that only reads. Gives the reply, which stays until the next call; undefined if the engine is gone. */
  read(message: Uint8Array): Uint8Array | undefined;
  /** As `get`, but a positive number where there is a value. */
  has(view: number, collection: number, length: number, goesOn: boolean): number;
}

type Ask = typeof ASK;
type Found<V> = V | undefined | Ask;

/** Each answer may be `ASK`: then a message is needed, because there is an error to tell or the engine is gone. */
export class Lookups {
  readonly #engine: LookupEngine;

  constructor(engine: LookupEngine) {
    this.#engine = engine;
  }

  get<K, V>(target: Target<K, V>, view: View, key: K): Found<V> {
    return this.#get(target, view, key, false);
  }

  getMany<K, V>(target: Target<K, V>, view: View, keys: readonly K[]): (V | undefined)[] | Ask {
    return many<K, V | undefined>(target, keys, (key, goesOn) => this.#get(target, view, key, goesOn));
  }

  hasMany<K, V>(target: Target<K, V>, view: View, keys: readonly K[]): boolean[] | Ask {
    return many(target, keys, (key, goesOn) => this.#has(target, view, key, goesOn));
  }

  /** See `LookupEngine.read`. */
  read(message: Uint8Array): Uint8Array | undefined {
    return this.#engine.read(message);
  }

  #get<K, V>(target: Target<K, V>, view: View, key: K, goesOn: boolean): Found<V> {
    const engine = this.#engine;
    const keyLength = this.#putKey(target, view, key);
    if (keyLength < 0) return ASK;
    const length = engine.get(view.id, target.index, keyLength, goesOn);
    if (length < 0) return length === Lookup.absent ? undefined : ASK;
    const at = engine.valueAt;
    return decodePart('value', target.value, target.fastValue, engine.memory, at, at + length);
  }

  #has<K, V>(target: Target<K, V>, view: View, key: K, goesOn: boolean): boolean | Ask {
    const keyLength = this.#putKey(target, view, key);
    const found = keyLength < 0 ? Lookup.ask : this.#engine.has(view.id, target.index, keyLength, goesOn);
    return found === Lookup.ask ? ASK : found > 0;
  }

  /** Length of the key in the engine's memory; negative if there is no room. */
  #putKey<K, V>(target: Target<K, V>, view: View, key: K): number {
    if (view.isClosed) return Lookup.ask;
    const { memory, keyAt, keyBytes } = this.#engine;
    const end = target.fastKey?.put(key, memory, keyAt, keyAt + keyBytes) ?? -1;
    if (end >= 0) return end - keyAt;
    const bytes = encodeKey(target, key);
    if (bytes.length > keyBytes) return Lookup.ask;
    // The codec may have made the engine's memory grow.
    this.#engine.memory.set(bytes, keyAt);
    return bytes.length;
  }
}

/** All in one state, so no code of the caller's may run between them. */
function many<K, T>(target: Parameters<typeof isFast>[0], keys: readonly K[], look: (key: K, goesOn: boolean) => T | Ask): T[] | Ask {
  if (!isFast(target)) return ASK;
  const all: T[] = [];
  for (const key of keys) {
    const found = look(key, all.length > 0);
    if (found === ASK) return ASK;
    all.push(found as T);
  }
  return all;
}
