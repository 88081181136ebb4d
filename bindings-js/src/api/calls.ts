// Requests paired with the readers of their replies, for the asynchronous and the synchronous API.
import { keyText } from '../codec/key-text.ts';
import type { Key } from '../codec/keys.ts';
import type { Bounds, Entry, Range } from '../types/index.ts';
import { KvError } from '../base/errors.ts';
import type { Names } from '../base/names.ts';
import type { ChangeList } from './changes.ts';
import { decodeKey, decodePart, decodeValue, encodeKey, encodeValue } from '../wire/codecs.ts';
import type { Lookups } from '../wire/lookup.ts';
import { BOUNDS, checkIterable } from './names.ts';
import { Op } from '../wire/opcodes.ts';
import type { ReplyReader, RequestWriter } from '../wire/protocol.ts';
import { toWindow } from './range.ts';
import type { Window } from './range.ts';
import { ASK, isFast } from '../wire/target.ts';
import type { Target, View } from '../wire/target.ts';

/**
 * `read` takes all of the reply's fields before it decodes any: a failing codec must not shift the
 * next reply.
 */
export interface Call<T> {
  readonly write: (writer: RequestWriter) => unknown;
  readonly read: (reader: ReplyReader) => T;
}

export type Pair<K, V> = [K, V] | undefined;

export function checkOpen(view: View): void {
  if (view.isClosed) throw new KvError('KV_CLOSED', 'the snapshot is closed');
}

/** Lookups, counts and positions in one view of a collection. */
export class ReadCalls<K, V> {
  readonly #target: Target<K, V>;
  readonly #view: View;
  readonly #canWait: boolean;

  /**
   * With `canWait`, a lookup is sent as a message now and then, so that the event loop gets a turn.
   */
  constructor(target: Target<K, V>, view: View, canWait: boolean) {
    this.#target = target;
    this.#view = view;
    this.#canWait = canWait;
  }

  get #lookups(): Lookups | undefined {
    const { connection } = this.#target;
    const { lookups } = connection;
    return lookups !== undefined && this.#canWait && connection.due() !== undefined ? undefined : lookups;
  }

  /** Looks up a key without a message; returns `ASK` if that takes one. */
  find(key: K): V | undefined | typeof ASK {
    const lookups = this.#lookups;
    return lookups ? lookups.get(this.#target, this.#view, key) : ASK;
  }

  get(key: K): Call<V | undefined> {
    const bytes = encodeKey(this.#target, key);
    return this.#call(Op.get, (writer) => writer.bytes(bytes), (reader) => this.#optional(reader.optional()));
  }

  /** Returns the values or, if that takes a message, the call that fetches them. */
  getMany(keys: Iterable<K>): (V | undefined)[] | Call<(V | undefined)[]> {
    return this.#many(Op.getMany, keys, (lookups, list) => lookups.getMany(this.#target, this.#view, list), (reader) => reader.optional(), (bytes) => this.#optional(bytes));
  }

  /** Like `getMany`. */
  hasMany(keys: Iterable<K>): boolean[] | Call<boolean[]> {
    return this.#many(Op.hasMany, keys, (lookups, list) => lookups.hasMany(this.#target, this.#view, list), (reader) => reader.u8() !== 0, (has) => has);
  }

  getEntry(key: K): Call<Entry<K, V> | undefined> {
    const bytes = encodeKey(this.#target, key);
    return this.#call(Op.entry, (writer) => writer.bytes(bytes), (reader) => {
      const value = reader.optional();
      if (value === undefined) return undefined;
      const known = readMeta(reader);
      return { key: decodeKey(this.#target.key, bytes), value: this.#value(value), ...known };
    });
  }

  count({ range, offset, limit }: Window): Call<number> {
    return this.#call(Op.count, (writer) => writer.range(range), (reader) =>
      Math.min(Math.max(reader.uv() - offset, 0), limit));
  }

  rank<T>(key: K, options: Bounds<K> | undefined, names: Names<T>): Call<number> {
    const { range } = toWindow(this.#target, 'rank', options, names);
    const bytes = encodeKey(this.#target, key);
    return this.#call(Op.rank, (writer) => writer.range(range).bytes(bytes), (reader) => reader.uv());
  }

  at(range: Window['range'], fromEnd: boolean, index: number): Call<Pair<K, V>> {
    const end = fromEnd ? 1 : 0;
    // `Op.edge` finds the first or last entry without counting.
    const write = (writer: RequestWriter): RequestWriter => writer.range(range).u8(end);
    return this.#call(index === 0 ? Op.edge : Op.at, index === 0 ? write : (writer) => write(writer).uv(index), (reader) => {
      if (reader.u8() === 0) return undefined;
      const key = reader.bytes();
      const value = reader.bytes();
      return [decodeKey(this.#target.key, key), this.#value(value)];
    });
  }

  /**
   * Explains an empty result: fails if the prefix is a string and array keys begin with it.
   * Undefined if that cannot be the explanation.
   */
  misread({ prefix, offset }: Range<K> = {}): Call<void> | undefined {
    if (typeof prefix !== 'string' || offset || this.#target.key.id !== 'any') return undefined;
    const { range } = toWindow(this.#target as unknown as Target<Key, V>, 'prefix', { gte: [prefix], lt: [`${prefix}\uffff`] }, BOUNDS);
    return this.#call(Op.edge, (writer) => writer.range(range).u8(0), (reader) => {
      if (reader.u8() === 0) return;
      reader.bytes();
      reader.bytes();
      throw new KvError('KV_INVALID_ARGUMENT', `the keys that begin with ${keyText(prefix)} are arrays, so their prefix has to be an array: ${keyText([prefix])}`);
    });
  }

  #value(bytes: Uint8Array): V {
    return decodeValue(this.#target.value, bytes);
  }

  #optional(bytes: Uint8Array | undefined): V | undefined {
    return bytes && this.#value(bytes);
  }

  /** A call whose request begins with opcode, view and collection. */
  #call<T>(op: number, write: Call<T>['write'], read: Call<T>['read']): Call<T> {
    checkOpen(this.#view);
    return { write: (writer) => write(writer.u8(op).uv(this.#view.id).uv(this.#target.index)), read };
  }

  #many<Raw, T>(
    op: number,
    keys: Iterable<K>,
    look: (lookups: Lookups, keys: readonly K[]) => T[] | typeof ASK,
    read: (reader: ReplyReader) => Raw,
    decode: (raw: Raw) => T,
  ): T[] | Call<T[]> {
    const list = Array.from(checkIterable('the keys', keys));
    const lookups = this.#lookups;
    const found = lookups ? look(lookups, list) : ASK;
    if (found !== ASK) return found;
    const encoded = list.map((key) => encodeKey(this.#target, key));
    return this.#call(op, (writer) => {
      writer.uv(encoded.length);
      for (const bytes of encoded) writer.bytes(bytes);
    }, (reader) => encoded.map(() => read(reader)).map(decode));
  }
}

export function readMeta(reader: ReplyReader): Pick<Entry<unknown, unknown>, 'version' | 'expiresAt'> {
  const version = reader.uv();
  const expiresAt = reader.uv();
  return expiresAt === 0 ? { version } : { version, expiresAt };
}

/** The kinds of item that a scan returns. */
export interface Items<K, V> {
  readonly entry: [K, V];
  readonly key: K;
  readonly value: V;
  readonly meta: Entry<K, V>;
}

/** A decoder for each kind of item. */
export function itemDecoders<K, V>(target: Target<K, V>): { readonly [N in keyof Items<K, V>]: (reader: ReplyReader) => Items<K, V>[N] } & {
  /** Decoding runs none of the caller's code. */
  readonly isFast: boolean;
} {
  const key = (reader: ReplyReader): K => reader.decoded('key', target.key, target.fastKey);
  const value = (reader: ReplyReader): V => reader.decoded('value', target.value, target.fastValue);
  const meta = (reader: ReplyReader): Entry<K, V> => {
    const [bytes, valueBytes] = [reader.bytes(), reader.bytes()];
    const known = readMeta(reader);
    return { key: decodePart('key', target.key, target.fastKey, bytes, 0, bytes.length), value: decodePart('value', target.value, target.fastValue, valueBytes, 0, valueBytes.length), ...known };
  };
  return { entry: (reader) => [key(reader), value(reader)], key, value, meta, isFast: isFast(target) };
}

export function clearCall<K, V>({ index }: Target<K, V>, { range }: Window): Call<void> {
  return { write: (writer) => writer.uv(index).range(range), read: (reader) => void reader.uv() };
}

export function getOrInsertCall<K, V>(target: Target<K, V>, keyBytes: Uint8Array, value: V, expiresAt: number): Call<V> {
  const valueBytes = encodeValue(target, value);
  return {
    write: (writer) => writer.uv(target.index).bytes(keyBytes).bytes(valueBytes).uv(expiresAt),
    // An inserted value is returned as a copy, like one that was found.
    read: (reader) => decodeValue(target.value, reader.optional() ?? valueBytes),
  };
}

/** Returns how many of the deleted keys existed. */
export function batchCall(changes: ChangeList): Call<number> {
  return { write: (writer) => writer.uv(changes.length).raw(changes.bytes), read: (reader) => reader.uv() };
}
