// Reads without messages, for an engine that runs in this thread.
import { decodePart, encodeKey } from './codecs.ts';
import type { CodedCollection, View } from './contracts.ts';

/**
 * In place of a result: the request has to be sent as a message. `Symbol.for` makes it the same in
 * all copies of this module.
 */
export const ASK: unique symbol = Symbol.for('mangrove-kv.ask');

/** Whether encoding and decoding keys and values runs none of the caller's code. */
export function isFast({ fastKey, fastValue }: { readonly fastKey: unknown; readonly fastValue: unknown }): boolean {
  return fastKey !== undefined && fastValue !== undefined;
}

/** Results of the engine's `get` and `has` other than a length. */
export const Lookup = { absent: -1, ask: -2 } as const;

/** The engine as lookups see it. */
export interface LookupEngine {
  /** All of its memory; a view that holds until the next call. */
  readonly memory: Uint8Array;
  /** Address and size, in bytes, of the buffer for a key. */
  readonly keyAt: number;
  readonly keyBytes: number;
  /** Address of the value that `get` found; holds until the next call. */
  readonly valueAt: number;
  /**
   * Looks up the key of `length` bytes at `keyAt`; returns the length of its value or one of
   * `Lookup`. With `sameState`, reads the state of the previous lookup, in which nothing has
   * expired since.
   */
  get(view: number, collection: number, length: number, sameState: boolean): number;
  /**
   * Executes a read-only message. Returns a view of the reply that holds until the next call;
   * undefined if the engine is gone.
   */
  read(message: Uint8Array): Uint8Array | undefined;
  /** As `get`, but returns a positive number if there is a value. */
  has(view: number, collection: number, length: number, sameState: boolean): number;
}

type Ask = typeof ASK;
type Found<V> = V | undefined | Ask;

/**
 * Any result may be `ASK`: the request then has to be sent as a message, because the key is too
 * long for the buffer, the codecs may run the caller's code, or there is an error to report.
 */
export class Lookups {
  readonly #engine: LookupEngine;

  constructor(engine: LookupEngine) {
    this.#engine = engine;
  }

  get<K, V>(target: CodedCollection<K, V>, view: View, key: K): Found<V> {
    return this.#get(target, view, key, false);
  }

  getMany<K, V>(target: CodedCollection<K, V>, view: View, keys: readonly K[]): (V | undefined)[] | Ask {
    return many<K, V | undefined>(target, keys, (key, sameState) => this.#get(target, view, key, sameState));
  }

  hasMany<K, V>(target: CodedCollection<K, V>, view: View, keys: readonly K[]): boolean[] | Ask {
    return many(target, keys, (key, sameState) => this.#has(target, view, key, sameState));
  }

  /** See `LookupEngine.read`. */
  read(message: Uint8Array): Uint8Array | undefined {
    return this.#engine.read(message);
  }

  #get<K, V>(target: CodedCollection<K, V>, view: View, key: K, sameState: boolean): Found<V> {
    const engine = this.#engine;
    const keyLength = this.#putKey(target, view, key);
    if (keyLength < 0) return ASK;
    const length = engine.get(view.id, target.index, keyLength, sameState);
    if (length < 0) return length === Lookup.absent ? undefined : ASK;
    const at = engine.valueAt;
    return decodePart('value', target.value, target.fastValue, engine.memory, at, at + length);
  }

  #has<K, V>(target: CodedCollection<K, V>, view: View, key: K, sameState: boolean): boolean | Ask {
    const keyLength = this.#putKey(target, view, key);
    const found = keyLength < 0 ? Lookup.ask : this.#engine.has(view.id, target.index, keyLength, sameState);
    return found === Lookup.ask ? ASK : found > 0;
  }

  /**
   * Writes the key to the engine's memory and returns its length; negative if it does not fit or
   * the view is closed.
   */
  #putKey<K, V>(target: CodedCollection<K, V>, view: View, key: K): number {
    if (view.isClosed) return Lookup.ask;
    const { memory, keyAt, keyBytes } = this.#engine;
    const end = target.fastKey?.put(key, memory, keyAt, keyAt + keyBytes) ?? -1;
    if (end >= 0) return end - keyAt;
    const bytes = encodeKey(target, key);
    if (bytes.length > keyBytes) return Lookup.ask;
    // Read `memory` again: the caller's codec may have made it grow.
    this.#engine.memory.set(bytes, keyAt);
    return bytes.length;
  }
}

/** Reads all keys in one state, so the caller's code must not run in between. */
function many<K, T>(
  target: Parameters<typeof isFast>[0],
  keys: readonly K[],
  look: (key: K, sameState: boolean) => T | Ask,
): T[] | Ask {
  if (!isFast(target)) return ASK;
  const all: T[] = [];
  for (const key of keys) {
    const found = look(key, all.length > 0);
    if (found === ASK) return ASK;
    all.push(found as T);
  }
  return all;
}
